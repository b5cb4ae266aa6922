//! Loads: checksum and judge let scatter write good parts, and nothing else.

use crate::checks;
use crate::memory::{Wrong, read_u32, read_u64, same};
use crate::reference::{add_sums, pack};
use crate::scene::{Scene, shape};
use kvtide_kernels::abi::{VERDICT_BAD, VERDICT_GOOD};
use kvtide_kernels::checksum::seal;
use proptest::prelude::*;

proptest! {
    #[test]
    fn checksum_sums_each_part_and_touches_nothing_else(shape in shape()) {
        for scene in &mut Scene::on_both(&shape) {
            checks::checksum(scene)?;
        }
    }

    #[test]
    fn scatter_writes_the_blocks_of_good_parts_and_touches_nothing_else(shape in shape()) {
        for scene in &mut Scene::on_both(&shape) {
            checks::scatter(scene)?;
        }
    }

    #[test]
    fn what_was_stored_comes_back_into_other_blocks(shape in shape()) {
        for scene in Scene::on_both(&shape) {
            store_and_load(scene)?;
        }
    }

    #[test]
    fn one_flipped_bit_fails_its_part_alone_and_keeps_it_out_of_the_blocks(
        shape in shape(),
        at: prop::sample::Index,
        bit in 0..8_u32,
    ) {
        for mut scene in Scene::on_both(&shape).map(stored) {
            let victim = scene.random.below(scene.chunks.len());
            let part = scene.parts.start + scene.random.below(scene.parts.len());
            let summed = scene.chunks[victim].summed(part);
            flip(&mut scene, summed.start + at.index(summed.len()), bit);
            overwrite_blocks(&mut scene);
            let before = scene.memory.bytes();
            load(&mut scene)?;
            let after = scene.memory.bytes();
            for (index, chunk) in scene.chunks.iter().enumerate() {
                for judged in scene.parts.clone() {
                    let is_good = (index, judged) != (victim, part);
                    let verdict = if is_good { VERDICT_GOOD } else { VERDICT_BAD };
                    prop_assert_eq!(read_u32(&after, chunk.verdicts + judged * 4), verdict);
                }
                let good = scene.parts.len() - usize::from(index == victim);
                prop_assert_eq!(read_u64(&after, chunk.good_parts), good as u64);
            }
            for plane in scene.planes.iter().filter(|plane| plane.part == part) {
                for &id in &scene.chunks[victim].ids {
                    prop_assert_eq!(&after[plane.block(id)], &before[plane.block(id)]);
                }
            }
        }
    }

    #[test]
    fn page_padding_is_not_summed(shape in shape(), at: prop::sample::Index, bit in 0..8_u32) {
        for mut scene in Scene::on_both(&shape).map(stored) {
            let part = scene.parts.start;
            let padding = scene.chunks[0].padding(part);
            prop_assume!(!padding.is_empty());
            flip(&mut scene, padding.start + at.index(padding.len()), bit);
            load(&mut scene)?;
            let after = scene.memory.bytes();
            prop_assert_eq!(read_u64(&after, scene.chunks[0].good_parts), scene.parts.len() as u64);
        }
    }

    #[test]
    fn the_wrong_key_fails_every_part(shape in shape(), difference in 1_u64..) {
        for mut scene in Scene::on_both(&shape).map(stored) {
            scene.chunks[0].key_low ^= difference;
            scene.write_tables();
            overwrite_blocks(&mut scene);
            let before = scene.memory.bytes();
            load(&mut scene)?;
            let after = scene.memory.bytes();
            prop_assert_eq!(read_u64(&after, scene.chunks[0].good_parts), 0);
            for part in scene.parts.clone() {
                prop_assert_eq!(read_u32(&after, scene.chunks[0].verdicts + part * 4), VERDICT_BAD);
            }
            for plane in &scene.planes {
                for &id in &scene.chunks[0].ids {
                    prop_assert_eq!(&after[plane.block(id)], &before[plane.block(id)]);
                }
            }
        }
    }
}

/// Stores a scene, loads it into other blocks, and compares the blocks.
pub(crate) fn store_and_load(scene: Scene) -> Result<(), Wrong> {
    let mut scene = stored(scene);
    let stored = scene.memory.bytes();
    let old = scene.chunks.clone();
    scene.move_blocks();
    load(&mut scene)?;
    let loaded = scene.memory.bytes();
    for (old, new) in old.iter().zip(&scene.chunks) {
        assert_eq!(read_u64(&loaded, new.good_parts), scene.parts.len() as u64);
        for plane in scene.planes.iter().filter(|plane| scene.parts.contains(&plane.part)) {
            for (&old_id, &new_id) in old.ids.iter().zip(&new.ids) {
                same(&loaded[plane.block(new_id)], &stored[plane.block(old_id)])?;
            }
        }
    }
    Ok(())
}

/// A scene after a store: payloads packed, sealed sums in the headers.
fn stored(mut scene: Scene) -> Scene {
    scene.zero_control();
    let mut bytes = scene.memory.bytes();
    pack(&scene, &mut bytes);
    add_sums(&scene, &mut bytes);
    scene.memory.restore(&bytes);
    for chunk in scene.chunks.clone() {
        for part in 0..chunk.parts.len() {
            let sealed = seal(read_u64(&bytes, chunk.sums + part * 8), chunk.key_low);
            scene.memory.write_u64s(chunk.stored_sums + part * 8, &[sealed]);
        }
    }
    scene
}

/// Runs a load's kernels.
fn load(scene: &mut Scene) -> Result<(), Wrong> {
    scene.zero_control();
    scene.checksum()?;
    scene.judge()?;
    scene.scatter()
}

/// Overwrites every fragment, so that what a load writes is seen.
fn overwrite_blocks(scene: &mut Scene) {
    let ids: Vec<u32> = scene.chunks.iter().flat_map(|chunk| chunk.ids.clone()).collect();
    for plane in scene.planes.clone() {
        for &id in &ids {
            scene.memory.write(plane.block(id).start, &vec![0xa5; plane.fragment]);
        }
    }
}

/// Flips one bit of the memory.
fn flip(scene: &mut Scene, at: usize, bit: u32) {
    let byte = scene.memory.bytes()[at];
    scene.memory.write(at, &[byte ^ (1 << bit)]);
}
