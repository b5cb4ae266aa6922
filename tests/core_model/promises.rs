//! Single promises of the core, each with the shortest run that would break it.

use kvtide::core::{
    Action, Core, CoreConfig, Failure, GroupConfig, Hop, HopFailure, HopRequest, LoadRequest,
    MissReason, PlanId, Refused, Room, Stage, StoreRequest, TransferId,
};
use kvtide::key::Key;
use kvtide::layout::Attention;
use kvtide::units::{GroupIndex, TenantId, Timestamp, TokenCount};
use std::panic::{AssertUnwindSafe, catch_unwind};

const FULL: GroupIndex = GroupIndex::new(0);
const WINDOW: GroupIndex = GroupIndex::new(1);
const NOW: Timestamp = Timestamp::new(0);

/// A core with a full and a window group, and short ways to drive it.
struct Bench {
    core: Core,
}

fn key(number: u128) -> Key {
    Key::from_u128(number << 40 | number)
}

fn keys<const COUNT: usize>(numbers: [u128; COUNT]) -> [Key; COUNT] {
    numbers.map(key)
}

impl Bench {
    fn new(slot_count: u32) -> Self {
        Self::with(slot_count, |_| {})
    }

    fn with(slot_count: u32, change: impl FnOnce(&mut CoreConfig)) -> Self {
        let group = |attention| GroupConfig {
            slot_count,
            attention,
            pieces_per_chunk: 1,
            disk_slot_counts: Vec::new(),
        };
        let window = Attention::Window { tokens: TokenCount::new(64) };
        let mut config = CoreConfig::new(vec![group(Attention::Full), group(window)]);
        change(&mut config);
        Self { core: Core::new(&config).expect("the sizes work") }
    }

    fn start_store(&mut self, group: GroupIndex, parent: Option<Key>, keys: &[Key]) -> TransferId {
        let deadline = Timestamp::NEVER;
        let request = StoreRequest { group, parent, keys, tenant: TenantId::new(0), deadline };
        self.core.store(request).expect("a transfer is free")
    }

    fn start_load(&mut self, group: GroupIndex, keys: &[Key]) -> TransferId {
        let request = LoadRequest { group, keys, deadline: Timestamp::NEVER };
        self.core.load(request).expect("a transfer is free")
    }

    fn hops(&mut self) -> Vec<HopRequest> {
        let mut actions = Vec::new();
        self.core.take_actions(&mut actions);
        let hop = |action| match action {
            Action::Start(hop) => Some(hop),
            _ => None,
        };
        actions.into_iter().filter_map(hop).collect()
    }

    /// Ends every hop well, until none is left.
    fn finish(&mut self) {
        loop {
            let hops = self.hops();
            if hops.is_empty() {
                return self.check();
            }
            for hop in hops {
                self.core.complete(hop.ended(Ok(())));
            }
        }
    }

    /// Stores chunks to the end and lets go of the transfer.
    fn store(&mut self, group: GroupIndex, parent: Option<Key>, keys: &[Key]) -> Vec<Stage> {
        let transfer = self.start_store(group, parent, keys);
        self.finish();
        let stages = self.core.stages(transfer).expect("it is held").to_vec();
        self.core.detach(transfer);
        stages
    }

    /// Loads one chunk and finds its bytes rotten.
    fn lose(&mut self, group: GroupIndex, key: Key) {
        let transfer = self.start_load(group, &[key]);
        for _ in 0..2 {
            for hop in self.hops() {
                let rotten = hop.hop == Hop::Unpack;
                let outcome = if rotten { Err(HopFailure::Checksum) } else { Ok(()) };
                self.core.complete(hop.ended(outcome));
            }
        }
        let stages = self.core.stages(transfer).expect("it is held");
        assert_eq!(stages, [Stage::Failed(Failure::Checksum)]);
        self.core.detach(transfer);
        self.check();
    }

    fn plan(&mut self, group: GroupIndex, keys: &[Key]) -> PlanId {
        let plan = self.core.open_plan(NOW).expect("a plan is free");
        let probe = self.core.extend_plan(plan, group, keys).expect("the plan is open");
        assert_eq!(probe.hit_count as usize, keys.len());
        self.check();
        plan
    }

    /// Evicts all that can be evicted; everything must go.
    fn empty(&mut self, group: GroupIndex) {
        let capacity = self.core.slots(group).map_or(0, |slots| slots.used + slots.free);
        assert_eq!(self.core.make_room(group, capacity), Ok(Room::Ready));
        self.check();
    }

    fn check(&self) {
        assert_eq!(self.core.audit(), Ok(()));
    }
}

#[test]
fn a_lost_chunk_keeps_its_slot_until_its_last_reader_leaves() {
    for group in [FULL, WINDOW] {
        let mut bench = Bench::new(2);
        bench.store(group, None, &keys([1]));
        let plan = bench.plan(group, &keys([1]));
        bench.lose(group, key(1));
        assert_eq!(bench.core.peek(key(1)), Some(MissReason::Lost));
        assert_eq!(bench.core.slots(group).map(|slots| slots.used), Some(1));
        assert_eq!(bench.store(group, None, &keys([1])), [Stage::Failed(Failure::Draining)]);
        bench.core.drop_plan(plan);
        assert_eq!(bench.core.slots(group).map(|slots| slots.used), Some(0));
        assert_eq!(bench.store(group, None, &keys([1])), [Stage::Done]);
        bench.empty(group);
    }
}

#[test]
fn what_a_loss_orphaned_leaves_first() {
    let mut bench = Bench::new(3);
    bench.store(FULL, None, &keys([3]));
    bench.store(FULL, None, &keys([1, 2]));
    bench.lose(FULL, key(1));
    bench.store(FULL, None, &keys([4]));
    assert_eq!(bench.store(FULL, None, &keys([5])), [Stage::Done]);
    assert_eq!(bench.core.peek(key(2)), Some(MissReason::Evicted));
    assert_eq!(bench.core.peek(key(3)), None);
}

#[test]
fn a_key_given_twice_in_one_store_is_stored_once() {
    for group in [FULL, WINDOW] {
        let mut bench = Bench::new(4);
        let stages = bench.store(group, None, &keys([1, 1, 2, 1]));
        assert_eq!(stages[0], Stage::Done);
        assert_eq!(stages[1], Stage::Failed(Failure::ForeignParent));
        bench.empty(group);
    }
}

#[test]
fn a_transfer_does_not_wait_for_itself() {
    let mut bench = Bench::new(1);
    // The second key finds no room, so that the third one follows nothing, as the first did.
    let transfer = bench.start_store(WINDOW, None, &keys([1, 2, 1]));
    bench.core.detach(transfer);
    bench.finish();
    assert_eq!(bench.core.stages(transfer), None);
    bench.empty(WINDOW);
}

#[test]
fn every_position_that_joined_a_fill_ends_with_it() {
    let mut bench = Bench::new(1);
    let first = bench.start_store(WINDOW, None, &keys([1]));
    let second = bench.start_store(WINDOW, None, &keys([1, 2, 1]));
    bench.finish();
    for transfer in [first, second] {
        let stages = bench.core.stages(transfer).expect("it is held");
        assert!(stages.iter().all(|stage| stage.is_final()), "{stages:?}");
    }
}

#[test]
fn a_plan_that_names_a_chunk_twice_gets_it_once() {
    let mut bench = Bench::new(4);
    bench.store(WINDOW, None, &keys([1]));
    for back in [false, true] {
        let plan = bench.core.open_plan(NOW).expect("a plan is free");
        let probe = if back {
            bench.core.extend_plan_back(plan, WINDOW, &keys([1, 1]))
        } else {
            bench.core.extend_plan(plan, WINDOW, &keys([1, 1]))
        };
        let probe = probe.expect("the plan is open");
        assert_eq!((probe.hit_count, probe.miss), (1, Some(MissReason::ForeignParent)));
        bench.core.drop_plan(plan);
        bench.check();
    }
    bench.empty(WINDOW);
}

#[test]
fn a_plan_outlives_the_loss_of_a_chunk_in_its_middle() {
    for group in [FULL, WINDOW] {
        let mut bench = Bench::new(4);
        bench.store(group, None, &keys([1, 2, 3]));
        let plan = bench.plan(group, &keys([1, 2, 3]));
        bench.lose(group, key(2));
        bench.core.drop_plan(plan);
        bench.check();
        bench.empty(group);
    }
}

#[test]
fn a_run_does_not_grow_from_a_lost_chunk() {
    for group in [FULL, WINDOW] {
        let mut bench = Bench::new(4);
        bench.store(group, None, &keys([2]));
        let plan = bench.plan(group, &keys([2]));
        bench.lose(group, key(2));
        bench.store(group, None, &keys([1]));
        bench.store(group, None, &keys([3]));
        let above = bench.core.extend_plan_back(plan, group, &keys([1]));
        let below = bench.core.extend_plan(plan, group, &keys([3]));
        for probe in [above, below] {
            let probe = probe.expect("the plan is open");
            assert_eq!((probe.hit_count, probe.miss), (0, Some(MissReason::Lost)));
        }
        bench.core.drop_plan(plan);
        bench.check();
        bench.empty(group);
    }
}

#[test]
fn a_lost_parent_comes_back_though_its_last_orphan_makes_the_room() {
    let mut bench = Bench::new(2);
    bench.store(FULL, None, &keys([1, 2]));
    bench.lose(FULL, key(1));
    bench.store(FULL, None, &keys([3]));
    assert_eq!(bench.store(FULL, None, &keys([1])), [Stage::Done]);
    assert_eq!(bench.core.peek(key(2)), Some(MissReason::Evicted));
    bench.check();
    bench.empty(FULL);
}

#[test]
fn a_lost_chunk_does_not_come_back_below_its_own_descendant() {
    let mut bench = Bench::new(4);
    bench.store(FULL, None, &keys([1, 2, 3]));
    bench.lose(FULL, key(1));
    let stages = bench.store(FULL, Some(key(3)), &keys([1]));
    assert_eq!(stages, [Stage::Failed(Failure::ForeignParent)]);
    assert_eq!(bench.store(FULL, None, &keys([1])), [Stage::Done]);
    bench.empty(FULL);
}

#[test]
fn clearing_orphans_is_bounded_work() {
    const LENGTH: u128 = 1000;
    let mut bench = Bench::new(1024);
    for start in (0..LENGTH).step_by(50) {
        let path: Vec<Key> = (start..start + 50).map(key).collect();
        let parent = start.checked_sub(1).map(key);
        bench.store(FULL, parent, &path);
    }
    bench.lose(FULL, key(0));
    let mut calls = 0;
    loop {
        let before = bench.core.counters().evicted;
        let room = bench.core.make_room(FULL, 1024).expect("the group is there");
        assert!(bench.core.counters().evicted - before <= 256, "one call is one short step");
        bench.check();
        calls += 1;
        match room {
            Room::MoreWork => assert!(calls < 20, "each call brings the end nearer"),
            Room::Ready => break,
            Room::Exhausted { .. } => panic!("nothing is pinned"),
        }
    }
}

#[test]
fn no_hop_of_an_expired_chunk_begins_in_the_tick_that_ends_it() {
    let mut bench = Bench::with(4, |config| {
        config.groups[1].pieces_per_chunk = 2;
        config.staging_out_pieces = 2;
    });
    let deadline = Timestamp::new(10);
    let mut store = |group, keys: &[Key]| {
        let request =
            StoreRequest { group, parent: None, keys, tenant: TenantId::new(0), deadline };
        bench.core.store(request).expect("a transfer is free")
    };
    store(FULL, &keys([1]));
    // One piece is left: the first in the queue needs two, the one behind it would fit.
    let wide = store(WINDOW, &keys([2]));
    let narrow = store(FULL, &keys([3]));
    bench.core.tick(Timestamp::new(10)).expect("the core is sound");
    for transfer in [wide, narrow] {
        assert_eq!(bench.core.stages(transfer), Some(&[Stage::Failed(Failure::Deadline)][..]));
    }
    bench.finish();
}

#[test]
fn a_lost_parent_that_finds_no_room_is_still_above_its_orphans() {
    let mut bench = Bench::new(2);
    bench.store(FULL, None, &keys([1, 2]));
    bench.lose(FULL, key(1));
    bench.store(FULL, None, &keys([3]));
    let plans = [bench.plan(FULL, &keys([2])), bench.plan(FULL, &keys([3]))];
    assert_eq!(bench.store(FULL, None, &keys([1])), [Stage::Failed(Failure::Full)]);
    assert_eq!(bench.core.peek(key(1)), Some(MissReason::Refused));
    // Chunk 3 is used last but one, chunk 2 last: only as an orphan does it leave first.
    for plan in plans.into_iter().rev() {
        bench.core.drop_plan(plan);
    }
    assert_eq!(bench.store(FULL, None, &keys([4])), [Stage::Done]);
    assert_eq!(bench.core.peek(key(2)), Some(MissReason::Evicted));
    bench.empty(FULL);
}

#[test]
fn a_store_that_cannot_find_a_victim_in_one_step_goes_on_next_time() {
    let mut bench = Bench::new(320);
    for start in (0..320).step_by(64) {
        let path: Vec<Key> = (start..start + 64).map(key).collect();
        bench.store(FULL, (start > 0).then(|| key(start - 1)), &path);
    }
    // The root was used first and its 319 descendants after it: all but the leaf are passed over.
    assert_eq!(bench.store(FULL, None, &keys([400])), [Stage::Failed(Failure::Busy)]);
    assert_eq!(bench.core.peek(key(400)), Some(MissReason::Refused));
    assert_eq!(bench.core.counters().evicted, 0);
    assert_eq!(bench.store(FULL, None, &keys([400])), [Stage::Done]);
    assert_eq!(bench.core.peek(key(319)), Some(MissReason::Evicted));
    assert_eq!(bench.core.counters().evicted, 1);
    bench.check();
}

#[test]
fn making_room_for_a_store_spares_the_chunk_it_builds_on() {
    for group in [FULL, WINDOW] {
        let mut bench = Bench::new(2);
        assert_eq!(bench.store(group, None, &keys([1])), [Stage::Done]);
        assert_eq!(bench.store(group, None, &keys([9])), [Stage::Done]);
        let (parent, path, deadline) = (Some(key(1)), keys([2]), Timestamp::NEVER);
        let request =
            StoreRequest { group, parent, keys: &path, tenant: TenantId::new(0), deadline };
        // The parent was used longest ago; the other one has to leave in its place.
        assert_eq!(bench.core.make_room_for(request), Ok(Room::Ready));
        assert_eq!(bench.core.peek(key(9)), Some(MissReason::Evicted));
        assert_eq!(bench.store(group, Some(key(1)), &path), [Stage::Done]);
        // For a second child nothing but the path itself could leave, and the path stays.
        let path = keys([2, 3]);
        let request =
            StoreRequest { group, parent, keys: &path, tenant: TenantId::new(0), deadline };
        let room = bench.core.make_room_for(request);
        assert_eq!(bench.core.peek(key(2)), None);
        if group == FULL {
            assert_eq!(room, Ok(Room::Exhausted { free: 0 }));
            assert_eq!(bench.store(group, parent, &path)[1], Stage::Failed(Failure::Full));
        }
        bench.empty(group);
    }
}

#[test]
fn the_clearing_of_orphans_goes_on_after_one_of_them_is_lost() {
    let mut bench = Bench::new(5);
    bench.store(FULL, None, &keys([9]));
    bench.store(FULL, None, &keys([1, 2, 3, 4]));
    bench.lose(FULL, key(1));
    bench.store(FULL, None, &keys([10]));
    bench.store(FULL, None, &keys([11]));
    assert_eq!(bench.core.peek(key(4)), Some(MissReason::Evicted));
    // The next orphan in turn is lost; the one above it still goes before all others.
    bench.lose(FULL, key(3));
    bench.store(FULL, None, &keys([12, 13]));
    assert_eq!(bench.core.peek(key(2)), Some(MissReason::Evicted));
    assert_eq!(bench.core.peek(key(9)), None);
    bench.empty(FULL);
}

#[test]
fn names_from_another_core_are_refused_or_left_alone() {
    let mut large = Bench::new(4);
    let names: Vec<(PlanId, TransferId)> = (0..3)
        .map(|number| {
            let transfer = large.start_store(FULL, None, &keys([number]));
            (large.core.open_plan(NOW).expect("a plan is free"), transfer)
        })
        .collect();
    let mut small = Bench::with(4, |config| {
        config.plan_count_max = 2;
        config.transfer_count_max = 2;
    });
    small.store(FULL, None, &keys([7]));
    for (plan, transfer) in names {
        assert_eq!(small.core.renew_plan(plan, NOW), Err(Refused::PlanLapsed));
        assert_eq!(small.core.trim_plan(plan, FULL, 0), Err(Refused::PlanLapsed));
        assert_eq!(small.core.extend_plan(plan, FULL, &keys([7])), Err(Refused::PlanLapsed));
        small.core.drop_plan(plan);
        assert_eq!(small.core.stages(transfer), None);
        small.core.cancel(transfer);
        small.core.detach(transfer);
        small.check();
    }
    assert!(!small.core.is_poisoned());
}

#[test]
fn a_hop_that_ends_twice_poisons_the_core() {
    let mut bench = Bench::new(4);
    bench.start_store(FULL, None, &keys([1]));
    let hop = bench.hops()[0];
    bench.core.complete(hop.ended(Ok(())));
    let again = catch_unwind(AssertUnwindSafe(|| bench.core.complete(hop.ended(Ok(())))));
    assert_eq!(again.is_err(), cfg!(debug_assertions), "tests see it, a release build does not");
    assert!(bench.core.is_poisoned());
    let request = LoadRequest { group: FULL, keys: &keys([1]), deadline: Timestamp::NEVER };
    assert_eq!(bench.core.load(request), Err(Refused::Poisoned));
    assert_eq!(bench.core.open_plan(NOW), Err(Refused::Poisoned));
    assert_eq!(bench.core.make_room(FULL, 1), Err(Refused::Poisoned));
    assert_eq!(bench.core.tick(NOW), Err(Refused::Poisoned));
    bench.core.complete(hop.ended(Ok(())));
}

#[test]
fn a_refused_command_changes_nothing() {
    let mut bench = Bench::with(4, |config| config.transfer_count_max = 1);
    let held = bench.start_store(FULL, None, &keys([1]));
    bench.finish();
    let plan = bench.core.open_plan(NOW).expect("a plan is free");
    let before = bench.core.counters();
    let many = [key(1); 65];
    let store = |core: &mut Core, group, keys: &[Key]| {
        core.store(StoreRequest {
            group,
            parent: None,
            keys,
            tenant: TenantId::new(0),
            deadline: Timestamp::NEVER,
        })
    };
    let no_group = GroupIndex::new(2);
    let no_such_group = Refused::NoSuchGroup { group: no_group, group_count: 2 };
    let core = &mut bench.core;
    assert_eq!(store(core, no_group, &keys([2])), Err(no_such_group));
    assert_eq!(store(core, FULL, &[]), Err(Refused::KeyCount { key_count: 0 }));
    assert_eq!(store(core, FULL, &many), Err(Refused::KeyCount { key_count: 65 }));
    let exhausted = Refused::TransfersExhausted { transfer_count_max: 1 };
    assert_eq!(store(core, FULL, &keys([2])), Err(exhausted));
    assert_eq!(core.extend_plan(plan, no_group, &keys([1])), Err(no_such_group));
    assert_eq!(core.extend_plan(plan, FULL, &many), Err(Refused::KeyCount { key_count: 65 }));
    assert_eq!(core.make_room(no_group, 1), Err(no_such_group));
    assert_eq!(core.make_room(FULL, u32::MAX), Ok(Room::Exhausted { free: 4 }));
    assert_eq!(core.counters().evicted, before.evicted + 1);
    assert_eq!(core.stages(held), Some(&[Stage::Done][..]));
    bench.check();
}

#[test]
fn expired_work_ends_in_bounded_steps_and_never_begins() {
    let mut bench = Bench::with(64, |config| config.staging_out_pieces = 1);
    let deadline = Timestamp::new(10);
    let running = bench.start_store(FULL, None, &keys([1]));
    let hop = bench.hops()[0];
    let transfers: Vec<TransferId> = (2..42)
        .map(|number| {
            let path = keys([number]);
            let request = StoreRequest {
                group: FULL,
                parent: None,
                keys: &path,
                tenant: TenantId::new(0),
                deadline,
            };
            bench.core.store(request).expect("a transfer is free")
        })
        .collect();
    let expired = |core: &Core| {
        let is_expired = |transfer: &&TransferId| {
            core.stages(**transfer) == Some(&[Stage::Failed(Failure::Deadline)][..])
        };
        transfers.iter().filter(is_expired).count()
    };
    // More work is due at once until all 40 have ended.
    assert_eq!(bench.core.tick(deadline), Ok(deadline));
    assert_eq!(expired(&bench.core), 16);
    bench.core.complete(hop.ended(Ok(())));
    let out_link = bench.hops()[0];
    bench.core.complete(out_link.ended(Ok(())));
    assert_eq!(bench.hops(), [], "the staging piece is free, and nobody in time wants it");
    assert_eq!(bench.core.tick(deadline), Ok(deadline));
    assert_eq!(expired(&bench.core), 32);
    assert_ne!(bench.core.tick(deadline), Ok(deadline));
    assert_eq!(expired(&bench.core), 40);
    assert_eq!(bench.core.stages(running), Some(&[Stage::Done][..]));
    bench.check();
}

#[test]
fn a_record_that_is_used_again_is_found_by_its_new_key_alone() {
    let mut bench = Bench::with(2, |config| config.history_count = 1);
    for number in 0..40 {
        assert_eq!(bench.store(FULL, None, &keys([number])), [Stage::Done]);
    }
    assert_eq!(bench.core.peek(key(39)), None);
    assert_eq!(bench.core.peek(key(0)), Some(MissReason::NeverStored), "it is forgotten");
}
