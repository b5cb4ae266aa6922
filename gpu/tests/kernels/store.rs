//! Stores: gather packs and sums.

use crate::checks;
use crate::memory::same;
use crate::scene::{Scene, shape};
use proptest::prelude::*;

proptest! {
    #[test]
    fn gather_packs_and_adds_the_sums_and_touches_nothing_else(shape in shape()) {
        for scene in &mut Scene::on_both(&shape) {
            checks::gather(scene)?;
        }
    }

    #[test]
    fn gather_and_checksum_agree(shape in shape()) {
        for mut scene in Scene::on_both(&shape) {
            scene.zero_control();
            scene.gather()?;
            let gathered = scene.memory.bytes();
            scene.zero_control();
            scene.checksum()?;
            same(&scene.memory.bytes(), &gathered)?;
        }
    }
}
