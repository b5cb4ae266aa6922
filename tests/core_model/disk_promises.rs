//! Single promises of the disk tier, each with the shortest run that would break it.

use crate::disk_bench::{DiskBench, GROUP, NOW, STRIPE, TENANT, key, keys};
use kvtide::core::{
    ConfigError, Core, CoreConfig, DiskFailure, DiskHop, Failure, GroupConfig, Hop, HopFailure,
    Lineage, MissReason, Stage, StorePoint, WritePolicy,
};
use kvtide::key::Key;
use kvtide::layout::Attention;

#[test]
fn a_chunk_is_written_once_it_is_stored_and_then_leaves_host_memory_alone() {
    let mut bench = DiskBench::new(4, 8);
    bench.store_in_host(None, &keys([1]));
    assert_eq!(bench.core.point(key(1)), Some(StorePoint::Host));
    assert_eq!(bench.core.unwritten(), 1);
    let write = bench.end_disk(Ok(()))[0];
    assert_eq!((write.hop, write.key, write.disk_slot), (DiskHop::Write, key(1), 0.into()));
    assert_eq!(bench.core.point(key(1)), Some(StorePoint::Written));
    bench.empty_host();
    assert_eq!(bench.used(), (0, 1));
    assert_eq!(bench.core.peek(key(1)), None, "it is a hit on disk");
    assert_eq!(bench.counters().evicted, 0);
    assert_eq!(bench.core.unwritten(), 0);
}

#[test]
fn what_is_written_before_a_sync_began_is_durable_once_it_succeeds() {
    let mut bench = DiskBench::new(4, 8);
    bench.store(None, &keys([1]));
    let mark = bench.core.begin_sync();
    bench.store(None, &keys([2]));
    bench.core.synced(mark);
    assert_eq!(bench.core.point(key(1)), Some(StorePoint::Durable));
    assert_eq!(bench.core.point(key(2)), Some(StorePoint::Written));
    // An older sync that is reported late takes nothing back.
    let later = bench.core.begin_sync();
    bench.core.synced(later);
    bench.core.synced(mark);
    assert_eq!(bench.core.point(key(2)), Some(StorePoint::Durable));
}

#[test]
fn writes_go_parent_first_in_whatever_order_the_fills_end() {
    let mut bench = DiskBench::with(8, 8, |config| config.disk_writes_max = 1);
    // The last hop handed out is ended first.
    bench.store_in_host(None, &keys([1, 2, 3, 4]));
    let mut order = Vec::new();
    while let Some(write) = bench.end_disk(Ok(())).first() {
        order.push(write.key);
    }
    assert_eq!(order, keys([1, 2, 3, 4]));
}

#[test]
fn a_chain_longer_than_one_step_is_written_parent_first() {
    const LENGTH: u128 = 300;
    let policy = WritePolicy::Back { high_percent: 100, low_percent: 50 };
    let mut bench = DiskBench::with(512, 512, |config| config.write_policy = policy);
    for start in (0..LENGTH).step_by(50) {
        let path: Vec<Key> = (start..start + 50).map(key).collect();
        bench.store(start.checked_sub(1).map(key), &path);
    }
    assert_eq!(bench.counters().written, 0, "nothing is written below the threshold");
    bench.core.flush();
    let mut order = Vec::new();
    while bench.core.unwritten() > 0 {
        order.extend(bench.end_disk(Ok(())).iter().map(|write| write.key));
        if bench.core.has_backlog() {
            bench.core.tick(NOW).expect("the core is sound");
        }
    }
    assert_eq!(order, (0..LENGTH).map(key).collect::<Vec<_>>());
}

#[test]
fn a_failed_write_fails_its_chunk_alone_and_is_not_repeated() {
    for failure in [DiskFailure::Drive, DiskFailure::NoSpace] {
        let mut bench = DiskBench::with(4, 8, |config| config.disk_writes_max = 1);
        bench.store_in_host(None, &keys([1, 2]));
        bench.end_disk(Err(failure));
        bench.finish();
        assert_eq!(bench.core.point(key(1)), Some(StorePoint::Host));
        assert_eq!(bench.core.point(key(2)), Some(StorePoint::Written));
        let counters = bench.counters();
        assert_eq!((counters.written, counters.write_failures), (1, 1));
        assert_eq!(bench.used(), (2, 1), "its disk slot is free again");
        // A flush asks for it again.
        bench.core.flush();
        bench.finish();
        assert_eq!(bench.core.point(key(1)), Some(StorePoint::Written));
    }
}

#[test]
fn what_a_given_up_hop_may_still_touch_is_not_used_until_it_ends_after_all() {
    let mut bench = DiskBench::with(2, 2, |_| {});
    bench.store_in_host(None, &keys([1]));
    let written = bench.end_disk(Err(DiskFailure::Stuck));
    assert_eq!(bench.core.point(key(1)), Some(StorePoint::Host), "it failed");
    bench.core.flush();
    bench.finish();
    assert_eq!(bench.core.point(key(1)), Some(StorePoint::Host), "and is not written meanwhile");
    assert_eq!(bench.used(), (1, 1), "its disk slot may still be written");
    // Its host slot may still be read: whatever else is stored, it stays.
    bench.store_in_host(None, &keys([2]));
    let refused = bench.store_in_host(None, &keys([3, 4]));
    assert_eq!(refused[1], Stage::Failed(Failure::Full));
    assert_eq!(bench.core.peek(key(1)), None);
    for request in written {
        bench.core.unstick(request);
    }
    bench.core.flush();
    bench.finish();
    assert_eq!(bench.core.point(key(1)), Some(StorePoint::Written));
    bench.core.audit().expect("all invariants hold");
}

#[test]
fn a_read_that_was_given_up_costs_its_chunk_and_holds_its_host_slot_until_it_ends() {
    let mut bench = DiskBench::with(2, 4, |_| {});
    bench.store_in_host(None, &keys([1]));
    bench.finish();
    for other in [2, 3] {
        bench.store_in_host(None, &keys([other]));
        bench.finish();
    }
    assert_eq!(bench.core.point(key(1)), Some(StorePoint::Written), "only on disk by now");
    let load = bench.start_load(&keys([1]));
    let read = bench.end_disk(Err(DiskFailure::Stuck));
    assert_eq!(bench.stages(load), [Stage::Failed(Failure::Disk)]);
    assert_eq!(bench.core.peek(key(1)), Some(MissReason::Lost));
    bench.core.audit().expect("all invariants hold");
    let used = bench.used().0;
    for request in read {
        bench.core.unstick(request);
    }
    assert_eq!(bench.used().0, used - 1, "its host slot is free again");
}

#[test]
fn a_store_never_waits_for_the_disk() {
    let mut bench = DiskBench::with(2, 8, |config| {
        config.disk_writes_max = 1;
        config.write_queue_max = 1;
    });
    bench.store_in_host(None, &keys([1]));
    bench.store_in_host(None, &keys([2]));
    // Chunk 1 is being written, chunk 2 waits for it and has to leave.
    assert_eq!(bench.store_in_host(None, &keys([3])), [Stage::Done]);
    assert_eq!(bench.core.peek(key(2)), Some(MissReason::Evicted));
    assert_eq!(bench.counters().writes_dropped, 1);
    let refused = bench.store_in_host(None, &keys([4, 5]));
    assert_eq!(refused[1], Stage::Failed(Failure::Full), "a chunk that is written stays");
    assert_eq!(bench.core.peek(key(1)), None);
}

#[test]
fn what_finds_no_place_in_the_queue_is_not_written_and_counted() {
    let mut bench = DiskBench::with(8, 8, |config| {
        config.disk_writes_max = 1;
        config.write_queue_max = 2;
    });
    for number in 1..=5 {
        bench.store_in_host(None, &keys([number]));
    }
    bench.finish();
    let counters = bench.counters();
    assert_eq!((counters.written, counters.writes_dropped), (3, 2));
    assert_eq!(bench.core.point(key(5)), Some(StorePoint::Host));
}

#[test]
fn a_full_disk_gives_up_its_coldest_leaf() {
    let mut bench = DiskBench::new(8, 2);
    bench.store(None, &keys([1, 2]));
    bench.empty_host();
    bench.store(None, &keys([3]));
    // Chunk 1 is the older one, but chunk 2 could not be reached without it.
    assert_eq!(bench.core.peek(key(2)), Some(MissReason::Evicted));
    assert_eq!(bench.core.peek(key(1)), None);
    assert_eq!(bench.core.point(key(3)), Some(StorePoint::Written));
}

#[test]
fn a_chunk_on_disk_that_is_pinned_is_not_evicted() {
    let mut bench = DiskBench::new(8, 1);
    bench.store(None, &keys([1]));
    bench.empty_host();
    let plan = bench.plan(&keys([1]));
    bench.store(None, &keys([2]));
    assert_eq!(bench.core.peek(key(1)), None);
    assert_eq!(bench.core.point(key(2)), Some(StorePoint::Host));
    assert_eq!(bench.counters().writes_dropped, 1);
    bench.core.drop_plan(plan);
}

#[test]
fn a_pinned_chunk_in_both_tiers_may_lose_either_copy_but_not_both() {
    let mut bench = DiskBench::new(2, 1);
    bench.store(None, &keys([1]));
    let plan = bench.plan(&keys([1]));
    bench.empty_host();
    assert_eq!(bench.used(), (0, 1), "its copy in host memory may go");
    bench.load(&keys([1]));
    // Another write takes its disk slot: now it must stay in host memory.
    bench.store(None, &keys([2]));
    assert_eq!(bench.core.point(key(1)), Some(StorePoint::Host));
    bench.empty_host();
    assert_eq!(bench.core.peek(key(1)), None);
    bench.core.drop_plan(plan);
}

#[test]
fn a_chunk_on_disk_is_read_before_it_is_loaded_and_is_never_rewritten() {
    let mut bench = DiskBench::new(4, 8);
    bench.store(None, &keys([1, 2]));
    bench.empty_host();
    let plan = bench.core.open_plan(NOW).expect("a plan is free");
    let probe = bench.core.extend_plan(plan, GROUP, &keys([1, 2])).expect("the plan is open");
    assert_eq!((probe.hit_count, probe.disk_hit_count), (2, 2));
    let transfer = bench.start_load(&keys([1, 2]));
    assert_eq!(bench.core.stages(transfer), Some(&[Stage::Reading; 2][..]));
    let reads = bench.end_disk(Ok(()));
    assert!(reads.iter().all(|read| read.hop == DiskHop::Read));
    assert_eq!(bench.core.stages(transfer), Some(&[Stage::Running(Hop::InLink); 2][..]));
    bench.finish();
    assert_eq!(bench.stages(transfer), [Stage::Done; 2]);
    let counters = bench.counters();
    assert_eq!((counters.written, counters.promoted, counters.disk_hits), (2, 2, 2));
}

#[test]
fn who_wants_a_chunk_that_is_being_read_joins() {
    let mut bench = DiskBench::new(4, 8);
    bench.store(None, &keys([1]));
    bench.empty_host();
    let first = bench.start_load(&keys([1]));
    let second = bench.start_load(&keys([1]));
    let store = bench.start_store(None, &keys([1]));
    assert_eq!(bench.core.stages(second), Some(&[Stage::Joined][..]));
    assert_eq!(bench.core.stages(store), Some(&[Stage::Joined][..]));
    assert_eq!(bench.end_disk(Ok(())).len(), 1, "it is read once");
    assert_eq!(bench.stages(store), [Stage::Done]);
    bench.finish();
    assert_eq!(bench.stages(first), [Stage::Done]);
    assert_eq!(bench.stages(second), [Stage::Done]);
}

#[test]
fn a_failed_read_loses_the_chunk_once_and_ends_who_waited() {
    let failures =
        [(DiskFailure::Mismatch, Failure::Checksum), (DiskFailure::Drive, Failure::Disk)];
    for (outcome, failure) in failures {
        let mut bench = DiskBench::new(4, 8);
        bench.store(None, &keys([1]));
        bench.empty_host();
        let plan = bench.plan(&keys([1]));
        let transfers = [bench.start_load(&keys([1])), bench.start_load(&keys([1]))];
        bench.end_disk(Err(outcome));
        for transfer in transfers {
            assert_eq!(bench.stages(transfer), [Stage::Failed(failure)]);
        }
        assert_eq!(bench.core.peek(key(1)), Some(MissReason::Lost));
        assert_eq!((bench.counters().lost, bench.counters().read_failures), (1, 1));
        bench.core.drop_plan(plan);
        bench.finish();
        assert_eq!(bench.used(), (0, 0), "both slots are free");
    }
}

#[test]
fn rot_found_while_unpacking_loses_both_copies() {
    let mut bench = DiskBench::new(4, 8);
    bench.store(None, &keys([1]));
    bench.empty_host();
    let transfer = bench.start_load(&keys([1]));
    bench.end_disk(Ok(()));
    let in_link = bench.hops.pop().expect("it is under way");
    bench.core.complete(in_link.ended(Ok(())));
    bench.take_actions();
    let unpack = bench.hops.pop().expect("it is under way");
    bench.core.complete(unpack.ended(Err(HopFailure::Checksum)));
    assert_eq!(bench.stages(transfer), [Stage::Failed(Failure::Checksum)]);
    bench.finish();
    assert_eq!(bench.core.peek(key(1)), Some(MissReason::Lost));
    assert_eq!(bench.used(), (0, 0));
}

#[test]
fn a_store_of_a_chunk_on_disk_fills_host_memory_and_is_not_written_again() {
    let mut bench = DiskBench::new(4, 8);
    bench.store(None, &keys([1]));
    bench.empty_host();
    let transfer = bench.start_store(None, &keys([1]));
    assert_eq!(bench.core.stages(transfer), Some(&[Stage::Running(Hop::Pack)][..]));
    assert_eq!(bench.core.peek(key(1)), None, "its copy on disk can be read meanwhile");
    bench.finish();
    assert_eq!(bench.stages(transfer), [Stage::Done]);
    assert_eq!(bench.counters().written, 1);
    assert_eq!(bench.used(), (1, 1));
}

#[test]
fn a_load_that_joined_a_failed_store_reads_from_disk() {
    let mut bench = DiskBench::new(4, 8);
    bench.store(None, &keys([1]));
    bench.empty_host();
    let store = bench.start_store(None, &keys([1]));
    let load = bench.start_load(&keys([1]));
    assert_eq!(bench.core.stages(load), Some(&[Stage::Joined][..]));
    let pack = bench.hops.pop().expect("it is under way");
    bench.core.complete(pack.ended(Err(HopFailure::Device)));
    assert_eq!(bench.stages(store), [Stage::Failed(Failure::Device)]);
    assert_eq!(bench.counters().lost, 0, "the chunk is still there");
    bench.finish();
    assert_eq!(bench.stages(load), [Stage::Done]);
}

#[test]
fn a_load_larger_than_host_memory_works_through_it() {
    let mut bench = DiskBench::with(3, 64, |config| {
        config.staging_in_pieces = 1;
        config.disk_reads_max = 2;
    });
    let path: Vec<Key> = (0..40).map(key).collect();
    for (place, one) in path.iter().enumerate() {
        bench.store(place.checked_sub(1).map(|above| path[above]), &[*one]);
    }
    bench.empty_host();
    let plan = bench.plan(&path);
    assert_eq!(bench.load(&path), [Stage::Done; 40]);
    bench.core.drop_plan(plan);
    assert_eq!(bench.counters().promoted, 40);
}

#[test]
fn a_lookup_leaves_host_slots_for_promotions() {
    let policy = WritePolicy::Back { high_percent: 100, low_percent: 99 };
    let mut bench = DiskBench::with(8, 8, |config| config.write_policy = policy);
    let path: Vec<Key> = (1..=8).map(key).collect();
    bench.store(None, &path);
    let plan = bench.core.open_plan(NOW).expect("a plan is free");
    let probe = bench.core.extend_plan(plan, GROUP, &path).expect("the plan is open");
    assert_eq!((probe.hit_count, probe.miss), (6, Some(MissReason::Pinned)));
    // Once they are on disk too, their pins keep no host slot.
    bench.core.flush();
    bench.finish();
    let probe = bench.core.extend_plan(plan, GROUP, &path[6..]).expect("the plan is open");
    assert_eq!((probe.hit_count, probe.miss), (2, None));
    bench.core.drop_plan(plan);
}

#[test]
fn a_promotion_without_a_host_slot_waits_and_goes_on_when_a_pin_ends() {
    let mut bench = DiskBench::new(1, 8);
    bench.store(None, &keys([1]));
    bench.core.stop_writes(GROUP, STRIPE);
    bench.store(None, &keys([2]));
    // A load keeps the only slot; the other chunk is on disk.
    let holder = bench.start_load(&keys([2]));
    let waiting = bench.start_load(&keys([1]));
    assert_eq!(bench.core.stages(waiting), Some(&[Stage::Queued][..]));
    assert!(!bench.core.has_backlog(), "there is nothing to do but wait");
    bench.finish();
    assert_eq!(bench.stages(holder), [Stage::Done]);
    assert_eq!(bench.stages(waiting), [Stage::Done]);
}

#[test]
fn a_cancelled_read_ends_by_its_completion() {
    let mut bench = DiskBench::new(4, 8);
    bench.store(None, &keys([1]));
    bench.empty_host();
    let transfer = bench.start_load(&keys([1]));
    let joined = bench.start_load(&keys([1]));
    bench.core.cancel(transfer);
    bench.core.cancel(joined);
    assert_eq!(bench.core.stages(transfer), Some(&[Stage::Reading][..]));
    assert_eq!(bench.stages(joined), [Stage::Failed(Failure::Cancelled)]);
    bench.end_disk(Ok(()));
    assert_eq!(bench.stages(transfer), [Stage::Failed(Failure::Cancelled)]);
    assert_eq!(bench.used(), (1, 1), "the bytes are there for others");
}

#[test]
fn after_a_stop_nothing_is_written_and_reads_go_on() {
    let mut bench = DiskBench::with(4, 8, |config| config.disk_writes_max = 1);
    bench.store(None, &keys([1]));
    bench.empty_host();
    bench.store_in_host(None, &keys([2]));
    bench.store_in_host(None, &keys([3]));
    bench.core.stop_writes(GROUP, STRIPE);
    bench.finish();
    assert_eq!(bench.core.unwritten(), 0);
    assert_eq!(bench.core.point(key(2)), Some(StorePoint::Written), "it was under way");
    assert_eq!(bench.core.point(key(3)), Some(StorePoint::Host));
    assert_eq!(bench.counters().writes_dropped, 1);
    assert_eq!(bench.load(&keys([1])), [Stage::Done]);
}

#[test]
fn what_was_not_durable_when_writes_stopped_never_becomes_so() {
    let mut bench = DiskBench::new(4, 8);
    bench.store(None, &keys([1]));
    let mark = bench.core.begin_sync();
    bench.core.synced(mark);
    bench.store(None, &keys([2]));
    // The group's own sync failed; a later one, of other groups, succeeds.
    bench.core.stop_writes(GROUP, STRIPE);
    let later = bench.core.begin_sync();
    bench.core.synced(later);
    assert_eq!(bench.core.point(key(1)), Some(StorePoint::Durable));
    assert_eq!(bench.core.point(key(2)), Some(StorePoint::Written));
    bench.core.stop_disk(GROUP, STRIPE);
    assert_ne!(bench.core.point(key(2)), Some(StorePoint::Durable));
}

#[test]
fn a_lost_disk_is_read_no_more_and_given_up_in_steps() {
    const COUNT: u128 = 300;
    let mut bench = DiskBench::new(512, 512);
    for number in 0..COUNT {
        bench.store(None, &keys([number]));
    }
    let pinned = bench.plan(&keys([7]));
    bench.core.make_room(GROUP, 412).expect("the group is there");
    bench.core.stop_disk(GROUP, STRIPE);
    bench.take_actions();
    assert!(bench.used().1 >= 200, "one call gives a few up");
    let left = (0..COUNT).filter(|number| bench.core.peek(key(*number)).is_none()).count();
    assert_eq!(left, 100, "what is in host memory stays");
    bench.finish();
    assert_eq!(bench.used(), (100, 1), "what is pinned keeps its slot");
    assert_eq!(bench.core.peek(key(7)), Some(MissReason::Lost));
    bench.core.drop_plan(pinned);
    bench.finish();
    assert_eq!(bench.used(), (100, 0));
    bench.core.make_room(GROUP, 512).expect("the group is there");
    bench.take_actions();
    assert_eq!(bench.used(), (0, 0));
}

#[test]
fn a_hop_says_where_its_chunk_stands_in_the_prefix() {
    let mut bench = DiskBench::new(4, 8);
    bench.store(None, &keys([1]));
    bench.start_store(Some(key(1)), &keys([2, 3]));
    let lineages: Vec<Lineage> = bench.hops.iter().map(|hop| hop.lineage).collect();
    let expected = [(1, 1), (2, 2)];
    assert_eq!(
        lineages,
        expected.map(|(parent, depth)| Lineage {
            parent: Some(key(parent)),
            depth,
            tenant: TENANT.tag()
        })
    );
}

#[test]
fn thresholds_that_leave_nothing_to_write_are_refused() {
    for (high_percent, low_percent) in [(50, 0), (50, 50), (101, 50)] {
        let attention = Attention::Full;
        let sizes = GroupConfig {
            slot_count: 4,
            attention,
            pieces_per_chunk: 1,
            disk_slot_counts: vec![4],
        };
        let mut config = CoreConfig::new(vec![sizes]);
        config.write_policy = WritePolicy::Back { high_percent, low_percent };
        let refused = ConfigError::WriteThresholds { high_percent, low_percent };
        assert_eq!(Core::new(&config).map(|_| ()), Err(refused));
    }
}

#[test]
fn above_the_watermark_the_coldest_are_written_and_leave() {
    let policy = WritePolicy::Back { high_percent: 75, low_percent: 50 };
    let mut bench = DiskBench::with(16, 64, |config| config.write_policy = policy);
    for number in 1..=12 {
        bench.store(None, &keys([number]));
    }
    assert_eq!((bench.used(), bench.counters().written), ((12, 0), 0));
    bench.store(None, &keys([13]));
    assert_eq!(bench.used(), (8, 5));
    let on_disk =
        (1..=13).filter(|number| bench.core.point(key(*number)) != Some(StorePoint::Host));
    assert_eq!(on_disk.collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
}

#[test]
fn writing_on_eviction_keeps_a_few_host_slots_free() {
    let policy = WritePolicy::OnEvict;
    let mut bench = DiskBench::with(32, 64, |config| config.write_policy = policy);
    let path: Vec<Key> = (0..60).map(key).collect();
    for (place, one) in path.iter().enumerate() {
        assert_eq!(
            bench.store(place.checked_sub(1).map(|above| path[above]), &[*one]),
            [Stage::Done]
        );
        assert!(bench.used().0 <= 30, "two of 32 slots stay free");
    }
    assert!(path.iter().all(|key| bench.core.peek(*key).is_none()), "nothing is lost");
    assert_eq!(bench.counters().written, 30);
}
