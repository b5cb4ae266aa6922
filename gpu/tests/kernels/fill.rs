//! Fill: ranges of any length, and the page padding of real payloads.

use crate::checks::{self, fill_arguments};
use crate::machine::Machine;
use crate::memory::{Random, Reservations, assert_same};
use crate::scene::{Scene, shape, warp_count};
use kvtide_kernels::abi::FillRange;
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
            let arguments = fill_arguments(&mut memory, table, &ranges, pattern);
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
        Scene::on_both(&shape).iter_mut().for_each(checks::fill);
    }
}
