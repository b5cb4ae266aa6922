//! Single promises of a disk tier in several stripes: one that fails or hangs takes none of the
//! others with it.

use crate::disk_bench::{DiskBench, GROUP, NOW, TENANT, key, keys};
use kvtide::core::{
    ConfigError, Core, CoreConfig, DiskHop, DiskRequest, FoundChunk, GroupConfig, MissReason,
    STRIPE_COUNT_MAX, SlotCounts, Stage, StorePoint,
};
use kvtide::key::Key;
use kvtide::layout::Attention;
use kvtide::units::{SlotIndex, StripeIndex};

const FIRST: StripeIndex = StripeIndex::new(0);
const SECOND: StripeIndex = StripeIndex::new(1);

fn striped(slot_count: u32, disk_slot_counts: &[u32]) -> DiskBench {
    DiskBench::striped(slot_count, disk_slot_counts, |_| {})
}

fn slots(bench: &DiskBench, stripe: StripeIndex) -> SlotCounts {
    bench.core.stripe_slots(GROUP, stripe).expect("the stripe is there")
}

/// Stores roots one by one, each on the stripe of its number modulo two, and evicts them from host
/// memory.
fn store_roots(bench: &mut DiskBench, count: u128) {
    for number in 0..count {
        bench.store(None, &keys([number]));
    }
    bench.empty_host();
}

fn is_second(request: &DiskRequest, first_slot_count: u32) -> bool {
    request.disk_slot.get() >= first_slot_count
}

#[test]
fn stripes_fill_up_together_by_their_share_of_free_slots() {
    let mut bench = striped(16, &[4, 8]);
    store_roots(&mut bench, 6);
    assert_eq!((slots(&bench, FIRST).used, slots(&bench, SECOND).used), (2, 4));
    for number in 6..12 {
        bench.store(None, &keys([number]));
    }
    assert_eq!((slots(&bench, FIRST).free, slots(&bench, SECOND).free), (0, 0));
    assert_eq!(bench.counters().disk_copies_evicted, 0, "all room is used before any is made");
}

#[test]
fn a_group_is_written_as_long_as_one_of_its_stripes_takes_writes() {
    let mut bench = striped(16, &[4, 4]);
    store_roots(&mut bench, 2);
    bench.core.stop_writes(GROUP, FIRST);
    for number in 2..5 {
        bench.store(None, &keys([number]));
        assert_eq!(bench.core.point(key(number)), Some(StorePoint::Written));
    }
    assert_eq!((slots(&bench, FIRST).used, slots(&bench, SECOND).used), (1, 4));
    assert_eq!(bench.load(&keys([0])), [Stage::Done], "what is on the stopped one is read on");
    bench.core.stop_writes(GROUP, SECOND);
    bench.store(None, &keys([9]));
    assert_eq!(bench.core.point(key(9)), Some(StorePoint::Host));
    assert_eq!(bench.core.unwritten(), 0, "nothing waits for a write that cannot be");
}

#[test]
fn what_leaves_a_stopped_stripe_makes_no_room_and_eviction_goes_on() {
    let mut bench = striped(16, &[3, 3]);
    store_roots(&mut bench, 6);
    bench.core.stop_writes(GROUP, FIRST);
    bench.store(None, &keys([9]));
    assert_eq!(bench.core.point(key(9)), Some(StorePoint::Written));
    // The coldest is on the stopped stripe, and leaves as any other; the next one made the room.
    assert_eq!(bench.core.peek(key(0)), Some(MissReason::Evicted));
    assert_eq!(bench.core.peek(key(1)), Some(MissReason::Evicted));
    assert_eq!(bench.core.peek(key(2)), None);
    assert_eq!(slots(&bench, FIRST), SlotCounts { used: 2, free: 1, unscanned: 0 });
}

#[test]
fn losing_one_stripe_loses_no_copy_of_another() {
    let mut bench = striped(64, &[32, 32]);
    store_roots(&mut bench, 60);
    bench.core.stop_disk(GROUP, SECOND);
    bench.finish();
    for number in 0..60 {
        let expected = (number % 2 == 1).then_some(MissReason::Lost);
        assert_eq!(bench.core.peek(key(number)), expected, "{number}");
    }
    assert_eq!((slots(&bench, FIRST).used, slots(&bench, SECOND).used), (30, 0));
    assert_eq!(bench.load(&keys([0, 58])), [Stage::Done; 2]);
    bench.store(None, &keys([100]));
    assert_eq!(bench.core.point(key(100)), Some(StorePoint::Written));
    assert_eq!(slots(&bench, FIRST).used, 31, "it is written where it can be");
}

#[test]
fn each_stripe_stops_becoming_durable_by_itself() {
    let mut bench = striped(16, &[4, 4]);
    bench.store(None, &keys([0]));
    bench.store(None, &keys([1]));
    let mark = bench.core.begin_sync();
    // The sync of one stripe failed, that of the other did not.
    bench.core.stop_writes(GROUP, SECOND);
    bench.core.synced(mark);
    assert_eq!(bench.core.point(key(0)), Some(StorePoint::Durable));
    assert_eq!(bench.core.point(key(1)), Some(StorePoint::Written));
}

#[test]
fn a_load_from_one_stripe_goes_on_while_the_reads_of_another_hang() {
    let mut bench = DiskBench::striped(64, &[16, 16], |config| config.disk_reads_max = 2);
    store_roots(&mut bench, 24);
    let hanging: Vec<_> = (1..24).step_by(2).map(|odd| bench.start_load(&keys([odd]))).collect();
    for even in (0..24).step_by(2) {
        let load = bench.start_load(&keys([even]));
        let hangs = |request: &DiskRequest| is_second(request, 16);
        let (held, ended): (Vec<_>, Vec<_>) =
            std::mem::take(&mut bench.disk_hops).into_iter().partition(hangs);
        assert_eq!(held.len(), 2, "the drive that hangs has its share of the reads");
        bench.disk_hops = held;
        for request in ended {
            bench.core.complete_disk(request.ended(Ok(())));
        }
        bench.finish_hops();
        assert_eq!(bench.stages(load), [Stage::Done]);
    }
    // Once it answers, those that waited for it go on, one after the other.
    bench.finish();
    for load in hanging {
        assert_eq!(bench.stages(load), [Stage::Done]);
    }
}

#[test]
fn a_load_that_waits_for_a_stripe_that_hangs_still_ends_by_its_deadline() {
    let mut bench = DiskBench::striped(64, &[8, 8], |config| config.disk_reads_max = 1);
    store_roots(&mut bench, 8);
    let hanging = bench.start_load(&keys([1]));
    let waiting = bench.start_load(&keys([3, 5]));
    bench.core.cancel(waiting);
    assert!(bench.stages(waiting).iter().all(|stage| stage.is_final()));
    assert_eq!(bench.core.stages(hanging), Some(&[Stage::Reading][..]));
    bench.finish();
    assert_eq!(bench.stages(hanging), [Stage::Done]);
    assert_eq!(bench.load(&keys([7])), [Stage::Done], "the stripe has its place back");
}

#[test]
fn a_stripe_whose_writes_hang_leaves_the_others_theirs() {
    let mut bench = DiskBench::striped(64, &[16, 16], |config| config.disk_writes_max = 2);
    for number in 0..20 {
        bench.store_in_host(None, &keys([number]));
        let hangs = |request: &DiskRequest| is_second(request, 16);
        let (held, ended): (Vec<_>, Vec<_>) =
            std::mem::take(&mut bench.disk_hops).into_iter().partition(hangs);
        bench.disk_hops = held;
        for request in ended {
            assert_eq!(request.hop, DiskHop::Write);
            bench.core.complete_disk(request.ended(Ok(())));
        }
        bench.take_actions();
        assert!(bench.disk_hops.iter().filter(|request| hangs(request)).count() <= 2);
    }
    assert_eq!(slots(&bench, SECOND).used, 2);
    assert_eq!(slots(&bench, FIRST).used, 16, "the other took all it could");
}

fn found(number: u128, disk_slot: u32) -> FoundChunk {
    let disk_slot = SlotIndex::new(disk_slot);
    FoundChunk {
        key: key(number),
        parent: None,
        depth: 0,
        tenant: TENANT.tag(),
        disk_slot,
        is_durable: true,
    }
}

#[test]
fn of_a_chunk_found_on_two_stripes_one_copy_is_kept_and_the_other_freed() {
    let mut bench = DiskBench::unscanned_stripes(8, &[2, 2], |_| {});
    bench.core.adopt_disk(GROUP, &[found(1, 0), found(1, 3)]).expect("the slots are there");
    bench.take_actions();
    let counters = bench.counters();
    assert_eq!((counters.adopted, counters.adoptions_skipped), (1, 1));
    assert_eq!(bench.core.free_disk_slots(GROUP, 0.into(), 4), Ok(3));
    assert_eq!(bench.load(&keys([1])), [Stage::Done]);
}

#[test]
fn no_write_waits_for_the_recovery_of_a_stripe_that_is_lost() {
    let mut bench = DiskBench::unscanned_stripes(8, &[1, 1], |_| {});
    assert_eq!(bench.core.free_disk_slots(GROUP, 0.into(), 1), Ok(1));
    bench.store(None, &keys([1]));
    bench.store_in_host(None, &keys([2]));
    assert_eq!(bench.core.unwritten(), 1, "the second stripe may yet have a free slot");
    bench.core.stop_disk(GROUP, SECOND);
    bench.finish();
    assert_eq!(bench.core.point(key(2)), Some(StorePoint::Written), "another made room");
    let late = bench.core.adopt_disk(GROUP, &[found(3, 1)]);
    assert_eq!((late, bench.counters().adopted), (Ok(()), 0), "nothing of it is taken in");
    bench.core.tick(NOW).expect("the core is sound");
    bench.take_actions();
}

#[test]
fn stripes_without_slots_and_too_many_are_refused() {
    let refused = |disk_slot_counts: Vec<u32>| {
        let attention = Attention::Full;
        let group = GroupConfig { slot_count: 4, attention, pieces_per_chunk: 1, disk_slot_counts };
        Core::new(&CoreConfig::new(vec![group])).map(|_| ()).err()
    };
    assert_eq!(refused(vec![1, 0]), Some(ConfigError::StripeZero { group: 0, stripe: 1 }));
    let stripe_count = STRIPE_COUNT_MAX + 1;
    let too_many = Some(ConfigError::StripeCount { group: 0, stripe_count });
    assert_eq!(refused(vec![1; stripe_count]), too_many);
    assert_eq!(refused(vec![1; STRIPE_COUNT_MAX]), None);
}

#[test]
fn a_chain_over_two_stripes_loses_what_follows_a_lost_chunk_and_nothing_before_it() {
    let mut bench = striped(16, &[4, 4]);
    let path: [Key; 4] = keys([0, 1, 2, 3]);
    bench.store(None, &path);
    bench.empty_host();
    bench.core.stop_disk(GROUP, SECOND);
    bench.finish();
    let plan = bench.core.open_plan(NOW).expect("a plan is free");
    let probe = bench.core.extend_plan(plan, GROUP, &path).expect("the plan is open");
    assert_eq!((probe.hit_count, probe.miss), (1, Some(MissReason::Lost)));
    // The lost ones come back from the engine, and the orphan below them is reached again.
    bench.core.drop_plan(plan);
    assert!(bench.store(None, &path).iter().all(|stage| *stage == Stage::Done));
    let plan = bench.plan(&path);
    bench.core.drop_plan(plan);
}
