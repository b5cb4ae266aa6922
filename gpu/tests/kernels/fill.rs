//! Fill: ranges of any length, and the page padding of real payloads.

use crate::machine::Machine;
use crate::memory::{Memory, Random, Reservations, assert_same};
use crate::reference::{add_sums, pack};
use crate::scene::{Scene, part_descriptors, shape, warp_count};
use kvtide_kernels::abi::{DeviceTable, FillArguments, FillRange};
use kvtide_kernels::arch::Word;
use proptest::prelude::*;

proptest! {
    #[test]
    fn fill_writes_its_ranges_and_touches_nothing_else(
        word_counts in prop::collection::vec(
            prop_oneof![1..300_usize, Just(1024), 1020..2500_usize],
            1..6,
        ),
        low: u64,
        high: u64,
        warp_count in warp_count(),
        seed: u64,
    ) {
        for machine in Machine::both() {
            let mut random = Random::new(seed);
            let mut reservations = Reservations::default();
            let starts: Vec<usize> =
                word_counts.iter().map(|count| reservations.reserve(count * 16, 16)).collect();
            let table = reservations.reserve(starts.len() * 16, 8);
            let mut memory = reservations.build(machine, &mut random);
            let mut ranges = Vec::new();
            for (&start, &count) in starts.iter().zip(&word_counts) {
                let address = memory.address(start);
                let word_count = u32::try_from(count).expect("small");
                ranges.push(FillRange { address, word_count, reserved: 0 });
            }
            let pattern = Word { low, high };
            let arguments = arguments(&mut memory, table, &ranges, pattern);
            let mut expected = memory.bytes();
            memory.launch(&arguments, &starts, warp_count, &mut random);
            for (&start, &count) in starts.iter().zip(&word_counts) {
                let pattern = [low.to_le_bytes(), high.to_le_bytes()].concat();
                expected[start..start + count * 16].copy_from_slice(&pattern.repeat(count));
            }
            assert_same(&memory.bytes(), &expected);
        }
    }

    #[test]
    fn a_filled_payload_holds_nothing_of_what_staging_held(shape in shape()) {
        for mut scene in Scene::on_both(&shape) {
            let ranges = padding_ranges(&mut scene);
            let mut expected = scene.memory.bytes();
            if !ranges.is_empty() {
                let table = scene.table_at;
                let arguments = arguments(&mut scene.memory, table, &ranges, Word::default());
                expected = scene.memory.bytes();
                scene.launch(&arguments, &[]);
            }
            scene.gather();
            pack(&scene, &mut expected);
            add_sums(&scene, &mut expected);
            for chunk in &scene.chunks {
                for part in scene.parts.clone() {
                    expected[chunk.padding(part)].fill(0);
                }
            }
            assert_same(&scene.memory.bytes(), &expected);
        }
    }
}

/// The page padding of the scene's parts.
fn padding_ranges(scene: &mut Scene) -> Vec<FillRange> {
    let payloads = scene.chunk_descriptors().into_iter().map(|chunk| chunk.payload);
    let mut ranges = Vec::new();
    for (payload, chunk) in payloads.zip(&scene.chunks) {
        let parts = &part_descriptors(chunk)[scene.parts.clone()];
        ranges.extend(parts.iter().filter_map(|part| FillRange::padding_after(payload, part)));
    }
    ranges
}

/// Writes the ranges to memory at `table`, and returns the arguments of a fill.
fn arguments(
    memory: &mut Memory,
    table: usize,
    ranges: &[FillRange],
    pattern: Word,
) -> FillArguments {
    let words: Vec<u64> =
        ranges.iter().flat_map(|range| [range.address, u64::from(range.word_count)]).collect();
    memory.write_u64s(table, &words);
    let ranges = DeviceTable { address: memory.address(table), items: ranges };
    FillArguments::new(ranges, pattern).expect("a good launch")
}
