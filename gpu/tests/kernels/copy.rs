//! Copy on write: blocks to blocks inside the planes.

use crate::memory::assert_same;
use crate::scene::{Scene, Shape, shape};
use kvtide_kernels::abi::{CopyArguments, CopyPair};
use proptest::prelude::*;

proptest! {
    #[test]
    fn copy_moves_whole_fragments_and_touches_nothing_else(shape in shape()) {
        // Two blocks at least: one to copy from and one to copy to.
        let shape = Shape { spare_blocks: shape.spare_blocks + 1, ..shape };
        let block_count = shape.spare_blocks + shape.block_counts.iter().sum::<usize>();
        for mut scene in Scene::on_both(&shape) {
            let pairs = pairs(&mut scene, block_count);
            let words: Vec<u32> =
                pairs.iter().flat_map(|pair| [pair.source, pair.target]).collect();
            scene.memory.write_u32s(scene.table_at, &words);
            let mut expected = scene.memory.bytes();
            for launch in scene.launches() {
                let planes = scene.plane_descriptors(&launch);
                let table = scene.table(launch.table, &planes);
                let pair_table = scene.table(scene.table_at, &pairs);
                let size = u32::try_from(launch.planes[0].fragment).expect("small");
                let arguments = CopyArguments::new(table, pair_table, size);
                scene.launch(&arguments.expect("a good launch"), &[]);
                for plane in &launch.planes {
                    for pair in &pairs {
                        let target = plane.block(pair.target).start;
                        expected.copy_within(plane.block(pair.source), target);
                    }
                }
            }
            assert_same(&scene.memory.bytes(), &expected);
        }
    }
}

/// Pairs of random blocks: a source may be in several pairs, a target in one.
fn pairs(scene: &mut Scene, block_count: usize) -> Vec<CopyPair> {
    let mut ids: Vec<u32> = (0..u32::try_from(block_count).expect("small")).collect();
    scene.random.shuffle(&mut ids);
    let targets = ids.split_off(ids.len().div_ceil(2));
    let source = |target| CopyPair { source: ids[scene.random.below(ids.len())], target };
    targets.into_iter().map(source).collect()
}
