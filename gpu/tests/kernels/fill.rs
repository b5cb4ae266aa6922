//! Fill: ranges of any length, and the page padding of real payloads.

use crate::memory::{Random, Reservations, assert_same, run_shuffled};
use crate::reference::{add_sums, pack};
use crate::scene::{Scene, part_descriptors, shape};
use kvtide_kernels::abi::{DeviceTable, FillArguments, FillRange};
use kvtide_kernels::arch::Word;
use kvtide_kernels::kernels::fill;
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
        warp_count in 1..=5_u32,
        seed: u64,
    ) {
        let mut random = Random::new(seed);
        let mut reservations = Reservations::default();
        let starts: Vec<usize> =
            word_counts.iter().map(|count| reservations.reserve(count * 16, 16)).collect();
        let mut memory = reservations.build(&mut random);
        let mut expected = memory.bytes();
        let mut ranges = Vec::new();
        for (&start, &count) in starts.iter().zip(&word_counts) {
            let address = memory.address(start);
            let word_count = u32::try_from(count).expect("small");
            ranges.push(FillRange { address, word_count, reserved: 0 });
            let pattern = [low.to_le_bytes(), high.to_le_bytes()].concat();
            expected[start..start + count * 16].copy_from_slice(&pattern.repeat(count));
        }
        run_fill(&ranges, Word { low, high }, warp_count, &mut random);
        assert_same(&memory.bytes(), &expected);
    }

    #[test]
    fn a_filled_payload_holds_nothing_of_what_staging_held(shape in shape()) {
        let mut scene = Scene::new(&shape);
        let mut expected = scene.memory.bytes();
        let ranges = padding_ranges(&mut scene);
        scene.gather();
        if !ranges.is_empty() {
            run_fill(&ranges, Word::default(), scene.warp_count, &mut scene.random);
        }
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

/// Runs one fill; its ranges are read from where they are.
fn run_fill(ranges: &[FillRange], pattern: Word, warp_count: u32, random: &mut Random) {
    let words: Vec<[u64; 2]> =
        ranges.iter().map(|range| [range.address, u64::from(range.word_count)]).collect();
    let address = words.as_ptr().expose_provenance() as u64;
    let arguments =
        FillArguments::new(DeviceTable { address, items: ranges }, pattern).expect("a good launch");
    // SAFETY: the ranges lie in a test's memory and are disjoint.
    run_shuffled(warp_count, random, |lane| unsafe { fill::run(lane, &arguments) });
}
