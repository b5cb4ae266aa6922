//! Copy on write: blocks to blocks inside the planes.

use crate::memory::{assert_same, run_shuffled};
use crate::scene::{Scene, Shape, shape};
use kvtide_kernels::abi::{CopyArguments, CopyPair, DeviceTable, EngineAlign};
use kvtide_kernels::arch::host::HostLane;
use kvtide_kernels::arch::{Aligned4, Aligned16};
use kvtide_kernels::kernels::copy;
use proptest::prelude::*;

proptest! {
    #[test]
    fn copy_moves_whole_fragments_and_touches_nothing_else(shape in shape()) {
        // Two blocks at least: one to copy from and one to copy to.
        let shape = Shape { spare_blocks: shape.spare_blocks + 1, ..shape };
        let mut scene = Scene::new(&shape);
        let block_count = shape.spare_blocks + shape.block_counts.iter().sum::<usize>();
        let pairs = pairs(&mut scene, block_count);
        // Pairs are read by the kernel from where they are.
        let words: Vec<u64> = pairs
            .iter()
            .map(|pair| u64::from(pair.target) << 32 | u64::from(pair.source))
            .collect();
        let address = words.as_ptr().expose_provenance() as u64;
        let mut expected = scene.memory.bytes();
        for launch in scene.launches() {
            let planes = scene.plane_descriptors(&launch);
            let table = scene.table(launch.table, &planes);
            let size = u32::try_from(launch.planes[0].fragment).expect("small");
            let pair_table = DeviceTable { address, items: &pairs };
            let arguments = CopyArguments::new(table, pair_table, size).expect("a good launch");
            let run = match arguments.engine_align() {
                EngineAlign::Sixteen => copy::run::<HostLane, Aligned16>,
                EngineAlign::Four => copy::run::<HostLane, Aligned4>,
            };
            // SAFETY: all ids are blocks of the pool, and no target is in another pair.
            let run = |lane| unsafe { run(lane, &arguments) };
            run_shuffled(scene.warp_count, &mut scene.random, run);
            for plane in &launch.planes {
                for pair in &pairs {
                    expected.copy_within(plane.block(pair.source), plane.block(pair.target).start);
                }
            }
        }
        assert_same(&scene.memory.bytes(), &expected);
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
