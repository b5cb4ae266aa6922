//! Copy on write: blocks to blocks inside the planes.

use crate::checks;
use crate::scene::{Scene, Shape, shape};
use proptest::prelude::*;

proptest! {
    #[test]
    fn copy_moves_whole_fragments_and_touches_nothing_else(shape in shape()) {
        // Two blocks at least: one to copy from and one to copy to.
        let shape = Shape { spare_blocks: shape.spare_blocks + 1, ..shape };
        for scene in &mut Scene::on_both(&shape) {
            checks::copy(scene)?;
        }
    }
}
