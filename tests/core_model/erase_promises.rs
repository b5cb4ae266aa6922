//! Single promises of erasing, each with the shortest run that would break it.

use crate::disk_bench::{DiskBench, GROUP, NOW, TENANT, key, keys};
use kvtide::core::{
    DiskFailure, Failure, FoundChunk, KEY_COUNT_MAX, MissReason, Refused, Stage, StorePoint,
};
use kvtide::key::Key;
use kvtide::units::{SlotIndex, TenantId};

const ALICE: TenantId = TenantId::new(1);
const CLEARED: Stage = Stage::Failed(Failure::Cleared);

/// Stores whole prefixes of one chunk each for a tenant, and lets the core come to rest.
fn store_roots(bench: &mut DiskBench, tenant: TenantId, keys: &[Key]) {
    for key in keys {
        let transfer = bench.start_store_for(tenant, None, &[*key]);
        bench.finish();
        assert_eq!(bench.stages(transfer), [Stage::Done]);
    }
}

fn erase_tenant(bench: &mut DiskBench, tenant: TenantId) {
    while !bench.core.erase_tenant(tenant).expect("the core is sound") {}
    bench.take_actions();
}

#[test]
fn a_tenants_chunks_are_gone_before_the_sweep_and_others_stay() {
    const COUNT: u128 = 512;
    let mut bench = DiskBench::new(2048, 2048);
    let hers: Vec<Key> = (0..COUNT).map(key).collect();
    let his: Vec<Key> = (COUNT..2 * COUNT).map(key).collect();
    store_roots(&mut bench, ALICE, &hers);
    store_roots(&mut bench, TENANT, &his);
    erase_tenant(&mut bench, ALICE);
    assert!(bench.core.has_backlog(), "one call sweeps a part");
    assert!(bench.counters().cleared <= KEY_COUNT_MAX as u64, "at most 64 leave in one hold");
    for key in &hers {
        assert_eq!(bench.core.peek(*key), Some(MissReason::Cleared));
    }
    assert_eq!(bench.load(&hers[500..510]), [Stage::Failed(Failure::Missing); 10]);
    // Stored again, they are new, whatever the sweep has still to go through.
    store_roots(&mut bench, ALICE, &hers[..8]);
    bench.finish();
    assert!(hers[..8].iter().all(|key| bench.core.point(*key).is_some()));
    assert!(his.iter().all(|key| bench.core.point(*key) == Some(StorePoint::Written)));
    assert_eq!(bench.used(), (512 + 8, 512 + 8));
    assert_eq!(bench.counters().cleared, 512);
}

#[test]
fn keys_that_are_erased_leave_all_tiers_at_once_and_others_stay() {
    let mut bench = DiskBench::new(8, 8);
    bench.store(None, &keys([1, 2, 3]));
    bench.store(None, &keys([7]));
    // One that is not stored, and one twice.
    bench.core.erase_keys(&keys([2, 9, 2])).expect("few keys");
    bench.take_actions();
    assert_eq!(bench.core.peek(key(2)), Some(MissReason::Cleared));
    assert_eq!(bench.core.peek(key(9)), Some(MissReason::NeverStored));
    assert_eq!(bench.used(), (3, 3));
    assert_eq!(bench.counters().cleared, 1);
    // The chunk below is reached again once what was erased is stored again.
    let plan = bench.core.open_plan(NOW).expect("a plan is free");
    let probe = bench.core.extend_plan(plan, GROUP, &keys([1, 2, 3])).expect("it is open");
    assert_eq!((probe.hit_count, probe.miss), (1, Some(MissReason::Cleared)));
    bench.core.drop_plan(plan);
    bench.store(Some(key(1)), &keys([2]));
    let plan = bench.plan(&keys([1, 2, 3]));
    bench.core.drop_plan(plan);
}

#[test]
fn too_many_keys_or_none_are_refused() {
    let mut bench = DiskBench::new(4, 4);
    let many: Vec<Key> = (0..=KEY_COUNT_MAX as u128).map(key).collect();
    for keys in [&many[..0], &many] {
        let refused = Refused::KeyCount { key_count: keys.len() };
        assert_eq!(bench.core.erase_keys(keys), Err(refused));
    }
}

#[test]
fn what_was_below_an_erased_chunk_leaves_first() {
    let mut bench = DiskBench::new(4, 0);
    bench.store(None, &keys([1]));
    bench.store(None, &keys([2, 3]));
    bench.core.erase_keys(&keys([2])).expect("few keys");
    bench.store(None, &keys([4]));
    bench.store(None, &keys([5]));
    bench.store(None, &keys([6]));
    assert_eq!(bench.core.peek(key(3)), Some(MissReason::Evicted), "an orphan, though used last");
    assert!([1, 4, 5, 6].iter().all(|number| bench.core.peek(key(*number)).is_none()));
}

#[test]
fn of_a_transfer_only_what_was_erased_ends_cleared() {
    let mut bench = DiskBench::with(8, 8, |config| {
        config.staging_out_pieces = 1;
        config.staging_in_pieces = 1;
    });
    bench.store(None, &keys([1, 2, 3, 4]));
    let [first, second] = [keys([1, 2]), keys([3, 4])];
    let loading = bench.start_load(&[first, second].concat());
    let storing = bench.start_store(Some(key(4)), &keys([5, 6, 7]));
    bench.core.erase_keys(&keys([1, 3, 6])).expect("few keys");
    bench.take_actions();
    let now = bench.core.stages(loading).expect("it is held").to_vec();
    assert!(matches!(now[0], Stage::Running(_)), "a hop in flight ends by its completion");
    assert_eq!(now[2], CLEARED);
    bench.finish();
    assert_eq!(bench.stages(loading), [CLEARED, Stage::Done, CLEARED, Stage::Done]);
    assert_eq!(bench.stages(storing), [Stage::Done, CLEARED, Stage::Done]);
}

#[test]
fn reads_and_those_who_join_them_end_cleared_and_other_reads_go_on() {
    let ends =
        [None, Some(DiskFailure::Cleared), Some(DiskFailure::Mismatch), Some(DiskFailure::Stuck)];
    for failure in ends {
        let mut bench = DiskBench::new(8, 8);
        bench.store(None, &keys([1]));
        store_roots(&mut bench, ALICE, &keys([2]));
        bench.empty_host();
        let hers = bench.start_load(&keys([2]));
        let joined = bench.start_store_for(ALICE, None, &keys([2]));
        let his = bench.start_load(&keys([1]));
        erase_tenant(&mut bench, ALICE);
        let read = bench.disk_hops.remove(0);
        bench.core.complete_disk(read.ended(failure.map_or(Ok(()), Err)));
        bench.finish();
        assert_eq!(bench.stages(hers), [CLEARED], "{failure:?}");
        assert_eq!(bench.stages(joined), [CLEARED], "{failure:?}");
        assert_eq!(bench.stages(his), [Stage::Done], "{failure:?}");
        assert_eq!(bench.core.peek(key(2)), Some(MissReason::Cleared));
        // Only what the drive did not let go of is its fault.
        let failures = u64::from(failure == Some(DiskFailure::Stuck));
        assert_eq!(bench.core.counters().read_failures, failures, "{failure:?}");
    }
}

#[test]
fn a_write_under_way_or_given_up_brings_nothing_back() {
    for outcome in [Ok(()), Err(DiskFailure::Cleared), Err(DiskFailure::Stuck)] {
        let mut bench = DiskBench::new(4, 8);
        bench.store_in_host(None, &keys([1]));
        bench.core.erase_keys(&keys([1])).expect("few keys");
        assert!(!bench.core.is_current(bench.disk_hops[0].chunk), "not to be stamped any more");
        // The same key, stored meanwhile, is another chunk.
        bench.store_in_host(None, &keys([1]));
        let request = bench.disk_hops.remove(0);
        bench.core.complete_disk(request.ended(outcome));
        bench.take_actions();
        bench.finish();
        let is_stuck = outcome == Err(DiskFailure::Stuck);
        assert_eq!(bench.core.counters().write_failures, u64::from(is_stuck), "{outcome:?}");
        if is_stuck {
            assert_eq!(bench.used(), (2, 2), "both slots stay until the drive lets go");
            bench.core.unstick(request);
            bench.take_actions();
        }
        assert_eq!(bench.used(), (1, 1));
        assert_eq!(bench.core.point(key(1)), Some(StorePoint::Written));
    }
}

#[test]
fn a_chunk_goes_over_to_its_parents_new_record_unless_a_plan_holds_it() {
    let mut bench = DiskBench::new(8, 8);
    bench.store(None, &keys([1, 2, 3]));
    // One plan holds the parent that is erased, one its child too.
    let (short, long) = (bench.plan(&keys([1])), bench.plan(&keys([1, 2])));
    bench.core.erase_keys(&keys([1])).expect("few keys");
    assert_eq!(bench.store(None, &keys([1])), [Stage::Done], "at once, though plans hold it");
    let draining = Stage::Failed(Failure::Draining);
    assert_eq!(bench.store(Some(key(1)), &keys([2])), [draining], "a plan walks from it");
    let plan = bench.core.open_plan(NOW).expect("a plan is free");
    let probe = bench.core.extend_plan(plan, GROUP, &keys([1, 2])).expect("it is open");
    assert_eq!((probe.hit_count, probe.miss), (1, Some(MissReason::Cleared)));
    bench.core.drop_plan(plan);
    bench.core.drop_plan(long);
    bench.finish();
    assert_eq!(bench.store(Some(key(1)), &keys([2])), [Stage::Done]);
    let plan = bench.plan(&keys([1, 2, 3]));
    for plan in [plan, short] {
        bench.core.drop_plan(plan);
    }
    bench.finish();
    assert_eq!(bench.used(), (3, 3));
}

#[test]
fn more_tenants_than_a_sweep_remembers_are_erased_one_after_another() {
    let mut bench = DiskBench::new(1024, 1024);
    let all: Vec<Key> = (0..300).map(key).collect();
    for (number, key) in (0..).zip(&all) {
        store_roots(&mut bench, TenantId::new(number), &[*key]);
    }
    let mut has_waited = false;
    for number in (0..300).step_by(2) {
        while !bench.core.erase_tenant(TenantId::new(number)).expect("the core is sound") {
            has_waited = true;
            bench.take_actions();
        }
    }
    assert!(has_waited);
    for (number, key) in all.iter().enumerate() {
        assert_eq!(bench.core.peek(*key).is_some(), number % 2 == 0, "{number}");
    }
    bench.finish();
    assert_eq!(bench.used(), (150, 150));
}

#[test]
fn erasures_without_end_keep_old_chunks_out_and_others_in() {
    let mut bench = DiskBench::new(256, 256);
    store_roots(&mut bench, TENANT, &keys([1]));
    bench.empty_host();
    // As many as the epochs have numbers, with and without sweeps between them.
    for round in 0..600 {
        store_roots(&mut bench, ALICE, &keys([2]));
        erase_tenant(&mut bench, ALICE);
        assert_eq!(bench.core.peek(key(2)), Some(MissReason::Cleared));
        assert_eq!(bench.core.peek(key(1)), None, "round {round}");
        match round % 3 {
            // It moves from tier to tier under the sweep.
            0 => assert_eq!(bench.load(&keys([1])), [Stage::Done]),
            1 => bench.finish(),
            _ => bench.empty_host(),
        }
    }
    bench.core.clear();
    assert_eq!(bench.core.peek(key(1)), Some(MissReason::Cleared));
    bench.finish();
    assert_eq!(bench.used(), (0, 0));
}

#[test]
fn a_chunk_is_of_the_tenant_that_stored_it_first() {
    let mut bench = DiskBench::new(8, 8);
    store_roots(&mut bench, ALICE, &keys([1]));
    store_roots(&mut bench, TENANT, &keys([1]));
    erase_tenant(&mut bench, TENANT);
    assert_eq!(bench.core.peek(key(1)), None);
    erase_tenant(&mut bench, ALICE);
    assert_eq!(bench.core.peek(key(1)), Some(MissReason::Cleared));
    // Gone, it is of who stores it next.
    bench.finish();
    store_roots(&mut bench, TENANT, &keys([1]));
    erase_tenant(&mut bench, ALICE);
    assert_eq!(bench.core.peek(key(1)), None);
    let found: Vec<_> = bench.core.disk_entries(GROUP).map(|found| found.tenant).collect();
    assert_eq!(found, [TENANT.tag()]);
}

#[test]
fn a_chunk_that_moves_behind_the_sweep_is_of_the_epoch_all_the_same() {
    const COUNT: u32 = 1500;
    for is_load in [true, false] {
        let mut bench = DiskBench::unscanned(4, COUNT, |_| {});
        // The coldest lies in the last slot.
        let slots = std::iter::once(COUNT - 1).chain(0..COUNT - 1);
        for (number, slot) in (0..).zip(slots) {
            let found = FoundChunk {
                key: key(number),
                parent: None,
                depth: 0,
                tenant: TENANT.tag(),
                disk_slot: SlotIndex::new(slot),
                is_durable: true,
            };
            bench.core.adopt_disk(GROUP, &[found]).expect("the slot is there");
        }
        erase_tenant(&mut bench, ALICE);
        // A step for the transfers, and one for the host tier and a part of the disk.
        bench.core.tick(NOW).expect("the core is sound");
        assert!(bench.core.has_backlog(), "the sweep is in the middle of the disk");
        let moved = if is_load {
            bench.start_load(&keys([0]))
        } else {
            bench.start_store(None, &keys([0]))
        };
        bench.finish_hops();
        bench.end_disk(Ok(()));
        bench.finish_hops();
        assert_eq!(bench.stages(moved), [Stage::Done]);
        for number in 1..u128::from(COUNT) {
            let plan = bench.plan(&keys([number]));
            bench.core.drop_plan(plan);
        }
        // The write of another takes its slot on disk, before the sweep comes there.
        bench.store_in_host(None, &keys([u128::from(COUNT)]));
        bench.end_disk(Ok(()));
        assert_eq!(bench.core.point(key(0)), Some(StorePoint::Host));
        bench.finish();
        assert_eq!(bench.core.peek(key(0)), None);
    }
}

#[test]
fn a_newer_write_that_recovery_finds_says_whose_the_chunk_is() {
    let mut bench = DiskBench::unscanned(4, 8, |_| {});
    let found = |slot, tenant: TenantId| FoundChunk {
        key: key(1),
        parent: None,
        depth: 0,
        tenant: tenant.tag(),
        disk_slot: SlotIndex::new(slot),
        is_durable: false,
    };
    bench.core.adopt_disk(GROUP, &[found(2, TENANT)]).expect("the slot is there");
    let (newer, older) = (found(5, ALICE), SlotIndex::new(2));
    assert_eq!(bench.core.move_disk(GROUP, &newer, older), Ok(true));
    erase_tenant(&mut bench, TENANT);
    assert_eq!(bench.core.peek(key(1)), None);
    erase_tenant(&mut bench, ALICE);
    assert_eq!(bench.core.peek(key(1)), Some(MissReason::Cleared));
}
