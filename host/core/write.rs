//! Write-behind: which chunks wait for their write, in which order, and the writes under way.
//!
//! ```text
//! wish -> Filling (its own fill is under way)
//!      -> Wished -> Waiting (its parent is to be written first)
//!                -> Queued -> write under way -> on disk, or failed
//! ```
//!
//! A chunk that is to be written takes a *place*. Parents go first: a chunk is queued once its
//! parent has a disk copy, is being written or was queued, or is not here; otherwise the parent
//! takes a place too and the chunk waits for it. So the chain above a chunk is walked one chunk a
//! step, whatever its length.
//!
//! Invariants: places are bounded, and what finds none is not written and counted; a chunk is in
//! the queue behind its parent; a store never waits for a write: eviction takes a chunk that still
//! waits, but no chunk whose write is under way.
//!
//! Called by `core` alone.

use super::action::{Action, ChunkId, DiskFailure, DiskHop, DiskRequest};
use super::chunk::{ChunkIndex, Presence};
use super::evict::Eviction;
use super::slot::SlotState;
use super::tier::Tier;
use super::{Core, KEY_COUNT_MAX, STRIPE_COUNT_MAX};
use crate::layout::GROUP_COUNT_MAX;
use crate::links::{Links, List, NONE};

/// What a place waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlaceState {
    Free,
    /// The end of its own chunk's fill; in no list.
    Filling,
    /// A look at its parent; in `wished`.
    Wished,
    /// The place of its parent, as long as that one's waiters are of this round; `Wished` after.
    Waiting {
        on: u32,
        round: u32,
    },
    /// A write; in the queue of its group.
    Queued,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) chunk: ChunkIndex,
    pub(super) state: PlaceState,
    /// Places of children that wait for this one.
    waiters: List,
    /// How often the waiters were let go.
    round: u32,
    /// It has waited for its parent's write, which may have failed since.
    has_waited: bool,
}

/// What a search for a disk slot came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DiskRoom {
    /// The stripe has a free slot.
    In(usize),
    /// The stripes with free slots have as many writes under way as they may.
    Busy,
    /// Nothing can be evicted now.
    Nothing,
    /// The search was cut short.
    OutOfSteps,
}

/// The chunks that are to be written.
#[derive(Debug)]
pub(super) struct WriteQueue {
    places: Box<[Place]>,
    /// Members: free, wished, waiting or queued places; never two of them.
    links: Links,
    free: List,
    wished: List,
    queued: [List; GROUP_COUNT_MAX],
    taken: u32,
    /// Writes under way: in all, by group, and by stripe.
    pub(super) running: u32,
    pub(super) running_in: [u32; GROUP_COUNT_MAX],
    pub(super) running_on: [u32; STRIPE_COUNT_MAX],
    /// The group whose queue is looked at first the next time.
    next_group: usize,
    /// The last step ended before its work did.
    is_cut_short: bool,
}

impl WriteQueue {
    pub(super) fn new(place_count: u32) -> Self {
        let vacant = Place {
            chunk: ChunkIndex::NONE,
            state: PlaceState::Free,
            waiters: List::EMPTY,
            round: 0,
            has_waited: false,
        };
        let mut links = Links::new(place_count);
        let mut free = List::EMPTY;
        for place in 0..place_count {
            links.push_back(&mut free, place);
        }
        Self {
            places: vec![vacant; place_count as usize].into_boxed_slice(),
            links,
            free,
            wished: List::EMPTY,
            queued: [List::EMPTY; GROUP_COUNT_MAX],
            taken: 0,
            running: 0,
            running_in: [0; GROUP_COUNT_MAX],
            running_on: [0; STRIPE_COUNT_MAX],
            next_group: 0,
            is_cut_short: false,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.places.len() * (size_of::<Place>() + Links::NODE_BYTES)
    }

    /// Chunks that wait for their write.
    pub(super) fn taken(&self) -> u32 {
        self.taken
    }

    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    pub(super) fn places(&self) -> &[Place] {
        &self.places
    }

    /// Returns the places that are queued for a group, the one written next first.
    pub(super) fn queued(&self, at: usize) -> impl Iterator<Item = &Place> + '_ {
        self.links.members(self.queued[at]).map(|place| &self.places[place as usize])
    }

    fn at_mut(&mut self, place: u32) -> &mut Place {
        &mut self.places[place as usize]
    }

    fn state(&self, place: u32) -> PlaceState {
        match self.places[place as usize].state {
            PlaceState::Waiting { on, round } if self.places[on as usize].round != round => {
                PlaceState::Wished
            }
            state => state,
        }
    }

    fn take(&mut self, chunk: ChunkIndex) -> Option<u32> {
        let place = self.free.first()?;
        self.links.remove(&mut self.free, place);
        self.taken += 1;
        self.at_mut(place).chunk = chunk;
        self.at_mut(place).state = PlaceState::Filling;
        self.at_mut(place).has_waited = false;
        Some(place)
    }

    /// Takes a place out of the list it is in.
    fn unlink(&mut self, at: usize, place: u32) {
        match self.state(place) {
            PlaceState::Free => unreachable!("a free place has no chunk"),
            PlaceState::Filling => {}
            PlaceState::Wished => self.links.remove(&mut self.wished, place),
            PlaceState::Queued => self.links.remove(&mut self.queued[at], place),
            PlaceState::Waiting { on, .. } => {
                let mut waiters = self.places[on as usize].waiters;
                self.links.remove(&mut waiters, place);
                self.at_mut(on).waiters = waiters;
            }
        }
        self.at_mut(place).state = PlaceState::Filling;
    }

    fn wish(&mut self, place: u32) {
        self.at_mut(place).state = PlaceState::Wished;
        self.links.push_back(&mut self.wished, place);
    }

    fn wait(&mut self, place: u32, on: u32) {
        let round = self.places[on as usize].round;
        self.at_mut(place).state = PlaceState::Waiting { on, round };
        self.at_mut(place).has_waited = true;
        let mut waiters = self.places[on as usize].waiters;
        self.links.push_back(&mut waiters, place);
        self.at_mut(on).waiters = waiters;
    }

    fn queue(&mut self, at: usize, place: u32) {
        self.at_mut(place).state = PlaceState::Queued;
        self.links.push_back(&mut self.queued[at], place);
        self.let_waiters_go(place);
    }

    fn let_waiters_go(&mut self, place: u32) {
        let mut waiters = self.places[place as usize].waiters;
        self.links.append(&mut self.wished, &mut waiters);
        let place = self.at_mut(place);
        place.waiters = List::EMPTY;
        place.round = place.round.wrapping_add(1);
    }

    fn release(&mut self, at: usize, place: u32) {
        self.unlink(at, place);
        self.let_waiters_go(place);
        self.at_mut(place).state = PlaceState::Free;
        self.links.push_back(&mut self.free, place);
        self.taken -= 1;
    }
}

impl Core {
    /// Whether chunks of the group can be written at all.
    pub(super) fn writes(&self, at: usize) -> bool {
        let slots = &self.groups[at].tier(Tier::Disk).slots;
        (0..slots.stripe_count()).any(|stripe| !slots.is_stopped(stripe))
    }

    /// Lets a chunk that is filling or resident in host memory wait for its write, unless it is on
    /// disk or waits already.
    pub(super) fn wish(&mut self, index: ChunkIndex) {
        let chunk = self.chunks.at(index);
        let has_copy = chunk.slot(Tier::Disk).is_some();
        let is_stuck = chunk.write.is_stuck;
        if has_copy || is_stuck || chunk.write.place != NONE || !self.writes(chunk.at()) {
            return;
        }
        let Some(place) = self.write_queue.take(index) else {
            return self.count_dropped(index);
        };
        self.chunks.at_mut(index).write.place = place;
        if self.is_resident(index, Tier::Host) {
            self.write_queue.wish(place);
        }
    }

    /// Takes note that a chunk became resident in host memory: it is written now, or later.
    pub(super) fn wish_after_fill(&mut self, index: ChunkIndex) {
        let chunk = self.chunks.at_mut(index);
        chunk.write.has_failed = false;
        chunk.write.is_dropped = false;
        if chunk.write.place != NONE {
            self.write_queue.wish(chunk.write.place);
        } else if self.groups[chunk.at()].writes_through() {
            self.wish(index);
        }
    }

    /// Takes back that the chunk is to be written; returns whether it was.
    pub(super) fn unwish(&mut self, index: ChunkIndex) -> bool {
        let chunk = self.chunks.at_mut(index);
        let place = std::mem::replace(&mut chunk.write.place, NONE);
        if place == NONE {
            return false;
        }
        self.write_queue.release(chunk.at(), place);
        true
    }

    /// Takes back that the chunk is to be written, and counts it as dropped.
    pub(super) fn drop_write(&mut self, index: ChunkIndex) {
        if self.unwish(index) {
            self.chunks.at_mut(index).write.has_lost_turn = true;
            self.count_dropped(index);
        }
    }

    /// Counts that a chunk is not written, once for each time that it was stored: eviction may ask
    /// for the write of one that it has to spare again and again.
    fn count_dropped(&mut self, index: ChunkIndex) {
        let write = &mut self.chunks.at_mut(index).write;
        self.counters.writes_dropped += u64::from(!std::mem::replace(&mut write.is_dropped, true));
    }

    /// Queues what can be queued and starts the writes that can start, in one bounded step.
    pub(super) fn launch_writes(&mut self) {
        let mut budget = KEY_COUNT_MAX;
        self.write_queue.is_cut_short = false;
        while let Some(place) = self.write_queue.wished.first() {
            if budget == 0 {
                self.write_queue.is_cut_short = true;
                return;
            }
            budget -= 1;
            self.queue_wished(place);
        }
        let group_count = self.groups.len();
        let first = self.write_queue.next_group;
        self.write_queue.next_group = (first + 1) % group_count;
        let mut steps = Self::steps();
        for at in (first..group_count).chain(0..first) {
            while let Some(place) = self.write_queue.queued[at].first() {
                if budget == 0 {
                    self.write_queue.is_cut_short = true;
                    return;
                }
                budget -= 1;
                if !self.try_write(at, place, &mut steps) {
                    break;
                }
            }
        }
        // Letting go of waiters may have made new wishes.
        self.write_queue.is_cut_short |= !self.write_queue.wished.is_empty();
    }

    /// Whether a step would find something to queue or to write.
    pub(super) fn can_write(&self) -> bool {
        self.write_queue.is_cut_short || !self.write_queue.wished.is_empty()
    }

    /// Notes that the chunk is not written for now: it may leave host memory in favour of a read.
    fn fail_write(&mut self, index: ChunkIndex) {
        self.chunks.at_mut(index).write.has_failed = true;
        self.reads.may_begin = true;
    }

    /// Queues a wished place, or lets it wait for its parent's.
    fn queue_wished(&mut self, place: u32) {
        let index = self.write_queue.places[place as usize].chunk;
        let at = self.chunks.at(index).at();
        if !self.writes(at) {
            return self.drop_write(index);
        }
        self.write_queue.unlink(at, place);
        let Some(parent) = self.unwritten_parent(index) else {
            return self.write_queue.queue(at, place);
        };
        let has_failed = self.chunks.at(parent).write.has_failed;
        if self.chunks.at(parent).write.place == NONE {
            if has_failed && self.write_queue.places[place as usize].has_waited {
                // The parent had its chance: neither is tried again without a store or a flush.
                self.fail_write(index);
                return self.drop_write(index);
            }
            if !self.write_queue.is_full() {
                self.wish(parent);
            }
        }
        match self.chunks.at(parent).write.place {
            // No place is left for the parent, which must go first: it takes this one.
            NONE => {
                self.chunks.at_mut(index).write.has_failed = has_failed;
                self.reads.may_begin |= has_failed;
                self.drop_write(index);
                self.wish(parent);
                let group = &mut self.groups[at];
                group.flush.must_repeat |= !has_failed && group.flush.is_running;
            }
            on if self.write_queue.state(on) == PlaceState::Queued => {
                self.write_queue.queue(at, place);
            }
            on => self.write_queue.wait(place, on),
        }
    }

    /// The chunk's parent if that is here and has no disk copy, nor one under way. In a window
    /// group a chunk may have been given a parent that is no shallower: that one does not count, so
    /// that no chunk ever waits for itself.
    pub(super) fn unwritten_parent(&self, index: ChunkIndex) -> Option<ChunkIndex> {
        let chunk = self.chunks.at(index);
        chunk.parent.some().filter(|parent| {
            let parent = self.chunks.at(*parent);
            parent.presence == Presence::Here
                && parent.slot(Tier::Disk).is_none()
                && parent.depth < chunk.depth
        })
    }

    /// Starts the write that is next in a group, or drops it. Returns whether to go on.
    fn try_write(&mut self, at: usize, place: u32, steps: &mut u32) -> bool {
        let index = self.write_queue.places[place as usize].chunk;
        if !self.writes(at) || self.is_stale(index) {
            self.drop_write(index);
            return true;
        }
        // A parent that came back after this one was queued goes first.
        if let Some(parent) = self.unwritten_parent(index) {
            let on = self.chunks.at(parent).write.place;
            if on != NONE {
                self.chunks.at_mut(index).write.has_lost_turn = true;
                self.write_queue.unlink(at, place);
                self.write_queue.wait(place, on);
                return true;
            }
        }
        match self.find_disk_room(at, steps) {
            DiskRoom::In(stripe) => {
                self.start_write(index, stripe);
                true
            }
            DiskRoom::Busy => false,
            DiskRoom::OutOfSteps => {
                self.write_queue.is_cut_short = true;
                false
            }
            DiskRoom::Nothing => {
                let is_slot_due = self.is_recovering(at) || self.write_queue.running_in[at] > 0;
                if !is_slot_due {
                    self.fail_write(index);
                    self.drop_write(index);
                    self.reads.may_begin = true;
                }
                !is_slot_due
            }
        }
    }

    /// Finds a stripe for a group's next write, and evicts until one has a free slot. What leaves a
    /// stripe that is stopped makes no room, so that this may take several.
    fn find_disk_room(&mut self, at: usize, steps: &mut u32) -> DiskRoom {
        loop {
            let slots = &self.groups[at].tier(Tier::Disk).slots;
            let running = &self.write_queue.running_on;
            let has_place = |stripe: usize| running[stripe] < self.disk_writes_max;
            if let Some(stripe) = slots.emptiest(has_place) {
                return DiskRoom::In(stripe);
            }
            let is_idle = |stripe: usize| !slots.is_stopped(stripe) && has_place(stripe);
            if slots.emptiest(|_| true).is_some() || !(0..slots.stripe_count()).any(is_idle) {
                return DiskRoom::Busy;
            }
            // While recovery looks on, some slots may turn out to be free, and what it found first
            // may look like orphans.
            if self.is_recovering(at) {
                return DiskRoom::Nothing;
            }
            match self.evict_one(at, Tier::Disk, steps) {
                Eviction::Freed => {}
                Eviction::Nothing => return DiskRoom::Nothing,
                Eviction::OutOfSteps => return DiskRoom::OutOfSteps,
            }
        }
    }

    fn start_write(&mut self, index: ChunkIndex, stripe: usize) {
        self.unwish(index);
        let at = self.chunks.at(index).at();
        let taken = self.groups[at].tier_mut(Tier::Disk).slots.take_in(stripe, index);
        let disk_slot = taken.expect("the stripe has a free slot");
        self.chunks.at_mut(index).give_slot(Tier::Disk, disk_slot);
        self.renew(index);
        self.add_reader(index, Tier::Host);
        self.write_queue.running += 1;
        self.write_queue.running_in[at] += 1;
        self.write_queue.running_on[stripe] += 1;
        self.start_disk(index, DiskHop::Write);
    }

    pub(super) fn start_disk(&mut self, index: ChunkIndex, hop: DiskHop) {
        let (slot, disk_slot) = (self.slot_of(index, Tier::Host), self.slot_of(index, Tier::Disk));
        let (group, key) = (self.chunks.at(index).group, self.chunks.at(index).key);
        let chunk = ChunkId(index);
        let request = DiskRequest { hop, chunk, group, key, slot, disk_slot };
        self.actions.push(Action::Disk(request));
    }

    /// Takes in the end of a write.
    pub(super) fn write_ended(&mut self, index: ChunkIndex, outcome: Result<(), DiskFailure>) {
        assert_eq!(
            self.copy(index, Tier::Disk),
            Some(SlotState::Filling),
            "a write ended that was not under way"
        );
        let at = self.chunks.at(index).at();
        let slot = self.slot_of(index, Tier::Disk);
        self.write_queue.running -= 1;
        self.write_queue.running_in[at] -= 1;
        self.write_queue.running_on[self.groups[at].tier(Tier::Disk).slots.stripe_of(slot)] -= 1;
        let is_wanted = self.chunks.at(index).presence == Presence::Here
            && !self.is_stale(index)
            && !self.groups[at].is_lost(slot);
        let has_failed = !matches!(outcome, Ok(()) | Err(DiskFailure::Cleared));
        self.counters.write_failures += u64::from(has_failed);
        if outcome.is_ok() && is_wanted {
            self.counters.written += 1;
            let group = &mut self.groups[at];
            group.tier_mut(Tier::Disk).slots.filled(slot);
            group.written_in[slot.get() as usize] = self.sync_epoch;
        } else {
            self.fail_write(index);
            if outcome == Err(DiskFailure::Stuck) {
                self.stick_fill(index, Tier::Disk);
                // It keeps its reader of the host slot.
                self.chunks.at_mut(index).write.is_stuck = true;
                return self.settle(index);
            }
            self.abandon_fill(index, Tier::Disk);
        }
        self.remove_reader(index, Tier::Host);
    }
}
