//! Judge alone: any number of parts, any sums.

use crate::checks;
use crate::machine::Machine;
use crate::memory::{Random, Reservations, read_u32, read_u64};
use crate::scene::{Scene, shape, warp_count};
use kvtide_kernels::abi::{
    ChunkDescriptor, DeviceTable, JudgeArguments, PART_COUNT_MAX, VERDICT_BAD, VERDICT_GOOD,
};
use proptest::prelude::*;

proptest! {
    #[test]
    fn judge_writes_the_verdicts_and_touches_nothing_else(shape in shape()) {
        for scene in &mut Scene::on_both(&shape) {
            checks::judge(scene)?;
        }
    }

    #[test]
    fn every_part_of_a_chunk_of_many_is_judged_once(
        part_count in 1..=PART_COUNT_MAX,
        ends: [prop::sample::Index; 2],
        warp_count in warp_count(),
        seed: u64,
    ) {
        for machine in Machine::both() {
            let mut random = Random::new(seed);
            let start = ends[0].index(part_count);
            let end = start + 1 + ends[1].index(part_count - start);
            let mut reservations = Reservations::default();
            let [sums, stored_sums] = [(); 2].map(|()| reservations.reserve(part_count * 8, 8));
            let verdicts = reservations.reserve(part_count * 4, 4);
            let good_parts = reservations.reserve(8, 8);
            let table = reservations.reserve(72, 8);
            let mut memory = reservations.build(machine, &mut random);
            let bytes = memory.bytes();
            let key_low = random.next();
            let is_good: Vec<bool> = (0..part_count).map(|_| random.below(2) == 0).collect();
            for part in (0..part_count).filter(|&part| is_good[part]) {
                let sealed = read_u64(&bytes, sums + part * 8).wrapping_add(key_low);
                memory.write_u64s(stored_sums + part * 8, &[sealed]);
            }
            memory.write_u64s(good_parts, &[0]);
            let chunk = ChunkDescriptor {
                payload: 0,
                block_ids: 0,
                parts: 0,
                sums: memory.address(sums),
                verdicts: memory.address(verdicts),
                stored_sums: memory.address(stored_sums),
                good_parts: memory.address(good_parts),
                key_low,
                block_count: 1,
                part_count: u32::try_from(part_count).expect("at most 256"),
            };
            memory.write_u64s(table + 24, &[chunk.sums, chunk.verdicts, chunk.stored_sums]);
            memory.write_u64s(table + 48, &[chunk.good_parts, chunk.key_low]);
            let chunks = DeviceTable { address: memory.address(table), items: &[chunk] };
            let at = |part| u32::try_from(part).expect("at most 256");
            let arguments = JudgeArguments::new(chunks, at(start)..at(end)).expect("a good launch");
            let before = memory.bytes();
            memory.launch(&arguments, &[verdicts], warp_count, &mut random)?;
            let after = memory.bytes();
            for (part, &is_good) in is_good.iter().enumerate() {
                let at = verdicts + part * 4;
                let verdict = match (start..end).contains(&part) {
                    true if is_good => VERDICT_GOOD,
                    true => VERDICT_BAD,
                    false => read_u32(&before, at),
                };
                prop_assert_eq!(read_u32(&after, at), verdict);
            }
            let good = is_good[start..end].iter().filter(|&&is_good| is_good).count();
            prop_assert_eq!(read_u64(&after, good_parts), good as u64);
        }
    }
}
