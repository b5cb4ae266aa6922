//! Runs one operation on the core and on the model, and compares all that can be seen.
//!
//! The rig also plays the device: it keeps the hops that are out, ends them in any order, and
//! knows which chunk's bytes each slot holds.

use crate::commands::Start;
use crate::counted::counted;
use crate::model::{Model, Presence};
use crate::operation::{Operation, Outcome, Twist};
use crate::plans::{Growth, needed_chunks};
use kvtide::core::{
    Action, Completion, Core, CoreConfig, Counters, GroupKeys, Hop, HopFailure, HopRequest,
    LoadRequest, Lookup, PlanId, Refused, Room, StoreRequest, TransferId,
};
use kvtide::key::Key;
use kvtide::layout::Attention;
use kvtide::units::{GroupIndex, SlotIndex, TenantId, Timestamp, TokenCount};
use std::collections::{HashMap, HashSet};

/// Keys of a group.
pub(crate) const NODE_COUNT: usize = 40;

/// Plans and transfers that are over, but whose names the rig goes on using.
const NAME_COUNT_OVER: usize = 2;

/// Tokens of one chunk, by group.
const CHUNK_TOKENS: [u32; 3] = [2, 3, 4];

/// Their least common multiple.
const UNIT: u32 = 12;

pub(crate) struct Rig {
    core: Core,
    model: Model,
    attentions: Vec<Attention>,
    now: Timestamp,
    /// Hops under way, with the chunk that each moves.
    hops: Vec<(HopRequest, Key)>,
    /// Names of transfers and plans, the latest last.
    transfers: Vec<TransferId>,
    plans: Vec<PlanId>,
    /// Every name that was ever given.
    transfers_named: HashSet<TransferId>,
    plans_named: HashSet<PlanId>,
    /// Whose bytes each slot holds.
    bytes: HashMap<(GroupIndex, SlotIndex), Key>,
}

/// Returns the key of a node. Group 2 is a comb of long prefixes, the others are bushes.
pub(crate) fn key_of(group: usize, node: usize) -> Key {
    Key::from_u128(((group as u128 + 1) << 70) | ((node as u128 + 1) << 3))
}

pub(crate) fn parent_of(group: usize, node: usize) -> Option<usize> {
    match group {
        0 => node.checked_sub(1).map(|below| below / 2),
        1 if node.is_multiple_of(20) => None,
        1 => Some(node - 1 - usize::from(node % 4 == 3)),
        _ => node.checked_sub(1).map(|below| below - usize::from(below % 5 == 4) * 3),
    }
}

/// Returns the prefix that ends at a node, root first.
pub(crate) fn path_to(group: usize, node: usize) -> Vec<Key> {
    let mut path: Vec<Key> = std::iter::successors(Some(node), |node| parent_of(group, *node))
        .map(|node| key_of(group, node))
        .collect();
    path.reverse();
    path
}

pub(crate) fn group_index(group: usize) -> GroupIndex {
    GroupIndex::new(u8::try_from(group).expect("three groups"))
}

pub(crate) fn pick<Item: Copy>(items: &[Item], number: usize) -> Option<Item> {
    (!items.is_empty()).then(|| items[number % items.len()])
}

/// Forgets all but the latest names of what is over.
fn forget_some<Name>(names: &mut Vec<Name>, is_over: impl Fn(&Name) -> bool) {
    let over = names.iter().filter(|name| is_over(name)).count();
    let mut surplus = over.saturating_sub(NAME_COUNT_OVER);
    names.retain(|name| {
        let is_forgotten = surplus > 0 && is_over(name);
        surplus -= usize::from(is_forgotten);
        !is_forgotten
    });
}

impl Rig {
    pub(crate) fn new(config: &CoreConfig) -> Self {
        Self {
            core: Core::new(config).expect("the sizes work"),
            model: Model::new(config),
            attentions: config.groups.iter().map(|group| group.attention).collect(),
            now: Timestamp::new(0),
            hops: Vec::new(),
            transfers: Vec::new(),
            plans: Vec::new(),
            transfers_named: HashSet::new(),
            plans_named: HashSet::new(),
            bytes: HashMap::new(),
        }
    }

    /// Runs one operation on both, then compares.
    pub(crate) fn run(&mut self, operation: &Operation) {
        match *operation {
            Operation::Store { group, node, length, twist, patience } => {
                self.store(group, node, length, twist, patience);
            }
            Operation::Load { group, node, count, patience } => {
                self.load(group, node, count, patience);
            }
            Operation::Lookup { nodes } => self.lookup(nodes),
            Operation::OpenPlan => {
                self.open_plan();
            }
            Operation::ExtendPlan { plan, group, node, length, is_back, twist } => {
                self.extend_plan(plan, group, node, length, is_back, twist);
            }
            Operation::RenewPlan { plan } => {
                if let Some(plan) = pick(&self.plans, plan) {
                    let renewed = self.core.renew_plan(plan, self.now);
                    assert_eq!(renewed, self.model.renew_plan(plan, self.now));
                }
            }
            Operation::TrimPlan { plan, group, kept } => {
                if let Some(plan) = pick(&self.plans, plan) {
                    let group = group_index(group % 4);
                    let trimmed =
                        self.core.trim_plan(plan, group, u32::try_from(kept).expect("few"));
                    assert_eq!(trimmed, self.model.trim_plan(plan, group, kept));
                }
            }
            Operation::DropPlan { plan } => {
                if let Some(plan) = pick(&self.plans, plan) {
                    self.core.drop_plan(plan);
                    self.model.drop_plan(plan);
                }
            }
            Operation::Complete { hop, outcome } => self.complete(hop, outcome),
            Operation::Cancel { transfer } => {
                if let Some(transfer) = pick(&self.transfers, transfer) {
                    self.core.cancel(transfer);
                    self.model.cancel(transfer);
                }
            }
            Operation::Detach { transfer } => {
                if let Some(transfer) = pick(&self.transfers, transfer) {
                    self.core.detach(transfer);
                    self.model.detach(transfer);
                }
            }
            Operation::Tick { passed } => self.tick(passed),
            Operation::MakeRoom { group, count } => {
                let group = group_index(group % 4);
                let room = self.core.make_room(group, u32::try_from(count).expect("few"));
                assert_eq!(room, self.model.make_room(group, count));
            }
        }
        self.compare();
    }

    fn store(&mut self, group: usize, node: usize, length: usize, twist: Twist, patience: u64) {
        let group = group % self.model.groups.len();
        let node = node % NODE_COUNT;
        let path = path_to(group, node);
        let first = path.len() - length.clamp(1, path.len());
        let mut parent = first.checked_sub(1).map(|above| path[above]);
        let mut keys = path[first..].to_vec();
        let stranger = node * 7 + length;
        match twist {
            Twist::None => {}
            Twist::NoParent => parent = None,
            Twist::ForeignParent => parent = Some(key_of(group, stranger % NODE_COUNT)),
            Twist::OtherGroup => {
                let other = (group + 1) % self.model.groups.len();
                let place = stranger % keys.len();
                keys[place] = key_of(other, stranger % NODE_COUNT);
            }
            Twist::Repeated => keys.push(keys[stranger % keys.len()]),
            Twist::Gap => {
                keys.remove(stranger % keys.len());
            }
        }
        let deadline = self.deadline(patience);
        let index = group_index(group);
        let request =
            StoreRequest { group: index, parent, keys: &keys, tenant: TenantId::new(0), deadline };
        match self.core.store(request) {
            Ok(transfer) => {
                assert_eq!(self.model.may_begin(index, &keys), Ok(group));
                self.name_transfer(transfer);
                self.model.store(request, transfer);
            }
            Err(refused) => assert_eq!(self.model.may_begin(index, &keys), Err(refused)),
        }
    }

    fn load(&mut self, group: usize, node: usize, count: usize, patience: u64) {
        let group = group % self.model.groups.len();
        let path = path_to(group, node % NODE_COUNT);
        let keys = &path[path.len().saturating_sub(count)..];
        let deadline = self.deadline(patience);
        let index = group_index(group);
        let request = LoadRequest { group: index, keys, deadline };
        match self.core.load(request) {
            Ok(transfer) => {
                assert_eq!(self.model.may_begin(index, keys), Ok(group));
                self.name_transfer(transfer);
                self.model.load(request, transfer);
            }
            Err(refused) => assert_eq!(self.model.may_begin(index, keys), Err(refused)),
        }
    }

    fn deadline(&self, patience: u64) -> Timestamp {
        if patience == 0 { Timestamp::NEVER } else { self.now.after(patience) }
    }

    fn name_transfer(&mut self, transfer: TransferId) {
        assert!(self.transfers_named.insert(transfer), "a transfer's name is never used again");
        self.transfers.push(transfer);
        let model = &self.model;
        forget_some(&mut self.transfers, |name| model.stages(*name).is_none());
    }

    fn open_plan(&mut self) -> Option<PlanId> {
        match self.core.open_plan(self.now) {
            Ok(plan) => {
                self.name_plan(plan);
                Some(plan)
            }
            Err(refused) => {
                assert_eq!(self.model.may_open_plan(), Err(refused));
                None
            }
        }
    }

    fn name_plan(&mut self, plan: PlanId) {
        assert_eq!(self.model.may_open_plan(), Ok(()));
        assert!(self.plans_named.insert(plan), "a plan's name is never used again");
        self.model.open_plan(plan, self.now);
        self.plans.push(plan);
        let model = &self.model;
        forget_some(&mut self.plans, |name| !model.is_open(*name));
    }

    fn lookup(&mut self, nodes: [usize; 3]) {
        let paths: Vec<Vec<Key>> = (0..self.model.groups.len())
            .map(|group| path_to(group, nodes[group] % NODE_COUNT))
            .collect();
        let group_keys = |group: usize| GroupKeys {
            keys: &paths[group],
            chunk_tokens: TokenCount::new(CHUNK_TOKENS[group]),
            attention: self.attentions[group],
        };
        let groups: Vec<GroupKeys<'_>> = (0..paths.len()).map(group_keys).collect();
        let mut lookup = match Lookup::begin(&mut self.core, &groups, self.now) {
            Ok(lookup) => lookup,
            Err(refused) => {
                let expected = self.model.may_open_plan().expect_err("the core refused it");
                assert_eq!(refused.to_string(), expected.to_string());
                return;
            }
        };
        let plan = lookup.plan();
        self.name_plan(plan);
        let hit = loop {
            if let Some(hit) = lookup.step(&mut self.core).expect("the plan is open") {
                break hit;
            }
        };
        let expected = self.model.longest_prefix(&groups, UNIT);
        let (boundary, held) = self.model.lookup(plan, &groups, UNIT);
        assert_eq!(boundary, expected, "the steps lead to the longest prefix");
        assert_eq!(hit.plan, plan);
        assert_eq!(hit.tokens.get(), boundary);
        for ((hits, group), held) in hit.groups().iter().zip(&groups).zip(held) {
            let needed = needed_chunks(group, boundary);
            assert_eq!(hits.chunk_count as usize, needed.len());
            assert_eq!(held.len(), needed.len());
            if !needed.is_empty() {
                assert_eq!(hits.first_chunk as usize, needed.start);
                assert_eq!(held, needed);
            }
        }
    }

    fn extend_plan(
        &mut self,
        plan: usize,
        group: usize,
        node: usize,
        length: usize,
        is_back: bool,
        twist: Twist,
    ) {
        let Some(plan) = pick(&self.plans, plan) else {
            return;
        };
        let index = group_index(group % 4);
        let group = group % self.model.groups.len();
        let held = self.model.run_of(plan, group);
        let mut keys = path_to(group, node % NODE_COUNT);
        if is_back {
            keys.reverse();
        }
        // Go on from the plan's run when the path leads through it; else start anywhere.
        let end = if is_back { held.first() } else { held.last() };
        let passed = end.and_then(|end| keys.iter().position(|key| key == end));
        let start = passed.map_or(node % 3, |place| place + 1).min(keys.len());
        keys.drain(..start);
        keys.truncate(length);
        match twist {
            Twist::Repeated if !keys.is_empty() => keys.insert(1, keys[0]),
            Twist::Gap if !keys.is_empty() => {
                keys.remove(0);
            }
            Twist::OtherGroup => keys.push(key_of((group + 1) % 3, node % NODE_COUNT)),
            Twist::ForeignParent => keys.push(key_of(group, node * 5 % NODE_COUNT)),
            _ => {}
        }
        let (probe, growth) = if is_back {
            (self.core.extend_plan_back(plan, index, &keys), Growth::Shallower)
        } else {
            (self.core.extend_plan(plan, index, &keys), Growth::Deeper)
        };
        assert_eq!(probe, self.model.extend_plan(plan, index, &keys, growth));
    }

    fn complete(&mut self, hop: usize, outcome: Outcome) {
        if self.hops.is_empty() {
            return;
        }
        let (hop, key) = self.hops.swap_remove(hop % self.hops.len());
        let outcome = match outcome {
            Outcome::Good => Ok(()),
            Outcome::Device => Err(HopFailure::Device),
            Outcome::Checksum => Err(HopFailure::Checksum),
        };
        let place = (hop.group, hop.slot);
        match (hop.hop, outcome) {
            (Hop::OutLink, Ok(())) => {
                self.bytes.insert(place, key);
            }
            (Hop::InLink, Ok(())) => {
                assert_eq!(self.bytes.get(&place), Some(&key), "a load reads its own bytes");
            }
            _ => {}
        }
        let completion: Completion = hop.ended(outcome);
        self.core.complete(completion);
        self.model.complete(completion);
    }

    fn tick(&mut self, passed: u64) {
        self.now = self.now.after(passed);
        let due = self.core.tick(self.now).expect("the core is sound");
        let latest = self.model.tick(self.now);
        assert!(due <= latest, "the next tick is due at {latest:?}, not {due:?}");
        assert!(due == self.now || !self.core.has_backlog(), "a tick says that it left work");
        assert!(due > self.now || self.core.has_backlog(), "a tick without work is not due now");
    }

    /// Takes the actions in: each expected one once, and no other.
    fn take_actions(&mut self) {
        let mut actions = Vec::new();
        self.core.take_actions(&mut actions);
        let events = std::mem::take(&mut self.model.events);
        let mut starts = events.starts.into_iter();
        let mut wakes = events.wakes;
        for action in actions {
            match action {
                Action::Start(hop) => {
                    let start = starts.next().expect("a hop starts only when it must");
                    self.start(hop, start);
                }
                Action::Wake { transfer } => {
                    let place = wakes.iter().position(|wake| *wake == transfer);
                    wakes.remove(place.expect("a wake goes out only when it must"));
                }
                other => panic!("an action that nobody knows: {other:?}"),
            }
        }
        assert_eq!(starts.next(), None, "a hop that must start is handed out");
        assert!(wakes.is_empty(), "no wake is lost: {wakes:?}");
    }

    fn start(&mut self, hop: HopRequest, start: Start) {
        let HopRequest { hop: kind, transfer, position, group, slot, .. } = hop;
        let key = start.key;
        assert_eq!(start, Start { hop: kind, transfer, position, group, key });
        let is_same = |(other, _): &&(HopRequest, Key)| {
            (other.transfer, other.position) == (transfer, position)
        };
        assert_eq!(self.hops.iter().find(is_same), None, "a position has one hop at a time");
        let chunk = self.model.chunk(key);
        let is_fill = matches!(kind, Hop::Pack | Hop::OutLink);
        let may_run = match chunk.presence {
            Presence::Filling => is_fill,
            Presence::Resident | Presence::Draining => !is_fill,
            Presence::Gone => false,
        };
        assert!(may_run, "{kind:?} on a chunk that is {:?}", chunk.presence);
        let known = chunk.slot;
        assert!(known.is_none_or(|known| known == slot), "a chunk stays in its slot");
        let group_number = usize::from(group.get());
        let is_taken = self.model.chunks.iter().any(|(other, chunk)| {
            *other != key && chunk.group == group_number && chunk.slot == Some(slot)
        });
        assert!(!is_taken, "a slot has one owner");
        assert!((slot.get() as usize) < self.model.groups[group_number].capacity);
        self.model.chunk_mut(key).slot = Some(slot);
        if kind == Hop::OutLink {
            self.bytes.remove(&(group, slot));
        }
        self.hops.push((hop, key));
    }

    /// Compares everything that can be seen from outside.
    fn compare(&mut self) {
        self.take_actions();
        assert_eq!(self.core.audit(), Ok(()));
        assert!(!self.core.is_poisoned());
        let counters = self.core.counters();
        // What a step is, is the core's own affair.
        assert_eq!(counters, Counters { steps: counters.steps, ..self.model.counters });
        for group in 0..self.model.groups.len() {
            let slots = self.core.slots(group_index(group)).expect("the group is there");
            let capacity = self.model.groups[group].capacity;
            assert_eq!(slots.used as usize, self.model.used(group), "slots in use");
            assert_eq!((slots.used + slots.free) as usize, capacity, "used + free = capacity");
            for node in 0..NODE_COUNT {
                let key = key_of(group, node);
                let expected = self.model.peek(key);
                assert_eq!(self.core.peek(key), expected, "group {group}, node {node}");
            }
        }
        for transfer in &self.transfers {
            assert_eq!(self.core.stages(*transfer), self.model.stages(*transfer));
        }
        assert_eq!(self.core.has_backlog(), !self.model.dropping.is_empty());
    }

    /// Ends everything that is under way, and empties the tier.
    pub(crate) fn drain(&mut self) {
        while !self.hops.is_empty() {
            self.run(&Operation::Complete { hop: 0, outcome: Outcome::Good });
        }
        assert!(self.model.transfers.iter().all(crate::commands::Transfer::has_ended));
        assert_eq!(self.model.staging, self.model.staging_pieces, "no staging is in use");
        for transfer in self.transfers.clone() {
            self.core.detach(transfer);
            self.model.detach(transfer);
            assert_eq!(self.core.stages(transfer), None, "an ended transfer goes when let go of");
        }
        assert!(self.model.transfers.is_empty(), "every transfer had a name");
        while let Some(plan) = self.model.plans.first().map(|plan| plan.id) {
            self.core.drop_plan(plan);
            self.model.drop_plan(plan);
            self.compare();
        }
        while self.core.has_backlog() {
            self.run(&Operation::Tick { passed: 0 });
        }
        assert!(self.model.chunks.values().all(|chunk| chunk.readers.is_empty()));
        for group in 0..self.model.groups.len() {
            self.empty(group);
        }
        assert_eq!(self.core.tick(self.now), Ok(Timestamp::NEVER));
        counted("core steps against the model", self.core.counters().steps);
    }

    /// Evicts a group's chunks one by one: each must be able to leave.
    fn empty(&mut self, group: usize) {
        let capacity = self.model.groups[group].capacity;
        while self.model.free(group) < capacity {
            let count = self.model.free(group) + 1;
            self.run(&Operation::MakeRoom { group, count });
            assert_eq!(self.model.free(group), count, "every chunk can leave");
        }
        let room: Result<Room, Refused> =
            self.core.make_room(group_index(group), u32::try_from(capacity).expect("few"));
        assert_eq!(room, Ok(Room::Ready));
    }
}
