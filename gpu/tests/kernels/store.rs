//! Stores: gather packs and sums.

use crate::checks;
use crate::memory::assert_same;
use crate::scene::{Scene, shape};
use proptest::prelude::*;

proptest! {
    #[test]
    fn gather_packs_and_adds_the_sums_and_touches_nothing_else(shape in shape()) {
        Scene::on_both(&shape).iter_mut().for_each(checks::gather);
    }

    #[test]
    fn gather_and_checksum_agree(shape in shape()) {
        for mut scene in Scene::on_both(&shape) {
            scene.zero_control();
            scene.gather();
            let gathered = scene.memory.bytes();
            scene.zero_control();
            scene.checksum();
            assert_same(&scene.memory.bytes(), &gathered);
        }
    }
}
