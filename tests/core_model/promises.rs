//! Single promises of the core, each with the shortest run that would break it.

use kvtide::core::{
    Action, Core, CoreConfig, Failure, GroupConfig, Hop, HopFailure, HopRequest, LoadRequest,
    MissReason, PlanId, Room, Stage, StoreRequest, TransferId,
};
use kvtide::key::Key;
use kvtide::layout::Attention;
use kvtide::units::{GroupIndex, Timestamp, TokenCount};

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
        let group = |attention| GroupConfig { slot_count, attention, pieces_per_chunk: 1 };
        let window = Attention::Window { tokens: TokenCount::new(64) };
        let mut config = CoreConfig::new(vec![group(Attention::Full), group(window)]);
        change(&mut config);
        Self { core: Core::new(&config).expect("the sizes work") }
    }

    fn start_store(&mut self, group: GroupIndex, parent: Option<Key>, keys: &[Key]) -> TransferId {
        let deadline = Timestamp::NEVER;
        let request = StoreRequest { group, parent, keys, deadline };
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
        let request = StoreRequest { group, parent: None, keys, deadline };
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
