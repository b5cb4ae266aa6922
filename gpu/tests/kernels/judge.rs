//! Judge alone: any number of parts and chunks, any sums.

use crate::checks;
use crate::machine::Machine;
use crate::memory::{Random, Reservations, Wrong, read_u64, same};
use crate::scene::{Scene, shape, warp_count};
use kvtide_kernels::abi::{
    ChunkDescriptor, DeviceTable, JudgeArguments, PART_COUNT_MAX, VERDICT_BAD, VERDICT_GOOD,
};
use proptest::prelude::*;
use std::ops::Range;

proptest! {
    #[test]
    fn judge_writes_the_verdicts_and_touches_nothing_else(shape in shape()) {
        for scene in &mut Scene::on_both(&shape) {
            checks::judge(scene)?;
        }
    }

    #[test]
    fn every_part_of_chunks_of_many_is_judged_once(
        chunk_count in 1..=4_usize,
        part_count in 1..=PART_COUNT_MAX,
        ends: [prop::sample::Index; 2],
        warp_count in warp_count(),
        seed: u64,
    ) {
        let start = ends[0].index(part_count);
        let parts = start..start + 1 + ends[1].index(part_count - start);
        for machine in Machine::both() {
            judge_many(machine, chunk_count, part_count, parts.clone(), warp_count, seed)?;
        }
    }
}

/// Where the control words of one chunk lie.
struct Control {
    sums: usize,
    stored_sums: usize,
    verdicts: usize,
    good_parts: usize,
    key_low: u64,
}

impl Control {
    fn reserve(reservations: &mut Reservations, part_count: usize, key_low: u64) -> Self {
        Self {
            sums: reservations.reserve(part_count * 8, 8),
            stored_sums: reservations.reserve(part_count * 8, 8),
            verdicts: reservations.reserve(part_count * 4, 4),
            good_parts: reservations.reserve(8, 8),
            key_low,
        }
    }
}

/// Judges `parts` of chunks of `part_count`, about half of them good.
pub(crate) fn judge_many(
    machine: Machine,
    chunk_count: usize,
    part_count: usize,
    parts: Range<usize>,
    warp_count: u32,
    seed: u64,
) -> Result<(), Wrong> {
    let mut random = Random::new(seed);
    let mut reservations = Reservations::default();
    let reserve = |_| Control::reserve(&mut reservations, part_count, random.next());
    let controls: Vec<Control> = (0..chunk_count).map(reserve).collect();
    let table = reservations.reserve(chunk_count * 72, 8);
    let mut memory = reservations.build(machine, &mut random);
    let mut chunks = Vec::new();
    for (index, control) in controls.iter().enumerate() {
        let chunk = ChunkDescriptor {
            payload: 0,
            block_ids: 0,
            parts: 0,
            sums: memory.address(control.sums),
            verdicts: memory.address(control.verdicts),
            stored_sums: memory.address(control.stored_sums),
            good_parts: memory.address(control.good_parts),
            key_low: control.key_low,
            block_count: 1,
            part_count: u32::try_from(part_count).expect("at most 256"),
        };
        let at = table + index * 72;
        memory.write_u64s(at + 24, &[chunk.sums, chunk.verdicts, chunk.stored_sums]);
        memory.write_u64s(at + 48, &[chunk.good_parts, chunk.key_low]);
        chunks.push(chunk);
    }
    let mut expected = memory.bytes();
    for control in &controls {
        for part in 0..part_count {
            let is_good = random.below(2) == 0;
            if is_good {
                let sum = read_u64(&expected, control.sums + part * 8);
                let sealed = sum.wrapping_add(control.key_low).to_le_bytes();
                memory.write(control.stored_sums + part * 8, &sealed);
                expected[control.stored_sums + part * 8..][..8].copy_from_slice(&sealed);
            }
            if parts.contains(&part) {
                let verdict = if is_good { VERDICT_GOOD } else { VERDICT_BAD };
                expected[control.verdicts + part * 4..][..4]
                    .copy_from_slice(&verdict.to_le_bytes());
                let good = read_u64(&expected, control.good_parts).wrapping_add(is_good.into());
                expected[control.good_parts..][..8].copy_from_slice(&good.to_le_bytes());
            }
        }
    }
    let chunks = DeviceTable { address: memory.address(table), items: &chunks };
    let [start, end] = [parts.start, parts.end].map(|at| u32::try_from(at).expect("at most 256"));
    let arguments = JudgeArguments::new(chunks, start..end).expect("a good launch");
    let verdicts: Vec<usize> = controls.iter().map(|control| control.verdicts).collect();
    memory.launch(&arguments, &verdicts, warp_count, &mut random)?;
    same(&memory.bytes(), &expected)
}
