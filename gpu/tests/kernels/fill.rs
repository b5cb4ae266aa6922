//! Fill: ranges of any length, and the page padding of real payloads.

use crate::checks;
use crate::machine::Machine;
use crate::scene::{Scene, shape, warp_count};
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
            checks::fill_ranges(machine, &word_counts, Word { low, high }, warp_count, seed)?;
        }
    }

    #[test]
    fn a_filled_payload_holds_nothing_of_what_staging_held(shape in shape()) {
        for scene in &mut Scene::on_both(&shape) {
            checks::fill(scene)?;
        }
    }
}
