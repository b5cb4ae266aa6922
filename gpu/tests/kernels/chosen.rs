//! Scenes that are chosen, not drawn: every width, the farthest blocks, every instruction.

use crate::checks;
use crate::load::store_and_load;
use crate::machine::{COMMITTED, Machine};
use crate::memory::Wrong;
use crate::scene::{PlaneShape, Scene, Shape, shape};
use kvtide_kernels::abi::KERNELS;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use std::collections::BTreeMap;

/// Rows of known models, and fragments of several spans.
const LARGE_FRAGMENTS: [usize; 7] = [576, 656, 1152, 2048, 16_384, 16_388, 36_868];

/// Returns every width up to 200 bytes, and larger ones.
fn fragments() -> impl Iterator<Item = usize> {
    (4..=200).step_by(4).chain(LARGE_FRAGMENTS)
}

/// Returns a shape of three planes of one width, the second between the fragments of the first,
/// the third in a part of its own.
pub(crate) fn of_width(fragment: usize, block_counts: Vec<usize>, warp_count: u32) -> Shape {
    let align = if fragment.is_multiple_of(16) { 16 } else { 4 };
    let plane =
        |interleaved, opens_part, gap| PlaneShape { fragment, opens_part, interleaved, gap };
    Shape {
        planes: vec![plane(false, false, 1), plane(true, false, 0), plane(false, true, 0)],
        align,
        block_counts,
        spare_blocks: 1,
        first_part: 0,
        warp_count,
        seed: fragment as u64,
    }
}

/// Returns random shapes, always the same, that copy can run on.
pub(crate) fn shapes(count: usize) -> Vec<Shape> {
    let mut runner = TestRunner::deterministic();
    let mut draw = || {
        let shape = shape().new_tree(&mut runner).expect("the strategy refuses nothing").current();
        Shape { spare_blocks: shape.spare_blocks + 1, ..shape }
    };
    (0..count).map(|_| draw()).collect()
}

#[test]
fn every_width_is_stored_and_loaded() -> Result<(), Wrong> {
    for fragment in fragments() {
        // One block alone; then odd counts of two spans a plane, by fewer warps and by more.
        let odd = (1600 / fragment.div_ceil(16)).max(7) | 1;
        for (block_counts, warp_count) in [(vec![1], 1), (vec![odd, 1, 3], 1), (vec![odd, 3], 16)] {
            let shape = of_width(fragment, block_counts, warp_count);
            for scene in Scene::on_both(&shape) {
                store_and_load(scene)?;
            }
        }
    }
    Ok(())
}

#[test]
fn every_width_is_copied() -> Result<(), Wrong> {
    for fragment in fragments() {
        for warp_count in [1, 8] {
            let shape = of_width(fragment, vec![(1600 / fragment).max(6)], warp_count);
            for scene in &mut Scene::on_both(&shape) {
                checks::copy(scene)?;
            }
        }
    }
    Ok(())
}

/// The twin's addresses are this process's, so that only the PTX can have blocks this far apart.
#[test]
fn blocks_with_the_largest_ids_are_found() -> Result<(), Wrong> {
    for fragment in [4, 16, 132, 576, 656, 16_388] {
        // Odd multiples of the alignment; 2^32 - 2 of them are still below 2^64.
        for stride in [(1 << 31) + 16, (1 << 31) + 4, 1 << 20] {
            for check in [checks::gather, checks::scatter, checks::copy] {
                let shape = of_width(fragment, vec![5, 7], 3);
                let mut scene = Scene::new(&shape, Machine::committed());
                scene.spread_blocks(stride);
                check(&mut scene)?;
            }
        }
    }
    Ok(())
}

#[test]
fn every_instruction_of_every_kernel_is_reached() -> Result<(), Wrong> {
    let mut executed: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for shape in shapes(20) {
        let mut scene = Scene::new(&shape, Machine::committed());
        checks::all(&mut scene)?;
        for (kernel, statistics) in &scene.memory.executed {
            let total = executed.entry(kernel).or_default();
            total.resize(statistics.executed.len(), 0);
            for (total, lanes) in total.iter_mut().zip(&statistics.executed) {
                *total += lanes;
            }
        }
    }
    let mut unreached = Vec::new();
    for kernel in KERNELS {
        let instructions = COMMITTED.kernel(kernel.name).expect("the PTX has it").instructions();
        let executed = executed.get(kernel.name).expect("some scene runs it");
        // The last stands for the body's end, which no lane may pass.
        let body_end = instructions.len() - 1;
        let counts = instructions.zip(executed).take(body_end);
        unreached
            .extend(counts.filter(|(_, lanes)| **lanes == 0).map(|(instruction, _)| instruction));
    }
    assert_eq!(unreached, []);
    Ok(())
}
