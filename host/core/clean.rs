//! When chunks are written that are not written at once: by watermark, and by a flush.
//!
//! A group with thresholds cleans when more host slots are in use than the upper one: it goes
//! through the coldest chunks in the policy's order, writes those that are not on disk, and lets
//! those go that are, until no more are in use than the lower one. A flush goes through all host
//! slots once.
//!
//! Invariants: one step looks at no more than 64 chunks; a chunk whose write failed is not written
//! again by cleaning, only when it is stored or flushed again, so nothing is retried without bound.
//!
//! Called by `core` alone.

use super::slot::SlotState;
use super::tier::{GroupState, Tier};
use super::{Core, KEY_COUNT_MAX};
use crate::links::NONE;
use crate::units::SlotIndex;

/// Times that a flush looks at all slots again, when its queue was too short for a chain of
/// unwritten parents. Each time halves what is left of the worst chain.
const FLUSH_AGAIN_COUNT_MAX: u8 = 32;

/// A flush of one group.
#[derive(Debug)]
pub(super) struct Flush {
    /// Host slots from here on have still to be looked at.
    looked_until: u32,
    /// It ends when all slots were looked at and no write waits.
    pub(super) is_running: bool,
    /// A chunk was passed over because its parent took its place: all slots are looked at again.
    pub(super) must_repeat: bool,
    /// Times that this may still happen.
    repeats_left: u8,
}

impl Flush {
    /// A flush that has nothing to do in a group of `slot_count` host slots.
    pub(super) const fn finished(slot_count: u32) -> Self {
        Self { looked_until: slot_count, is_running: false, must_repeat: false, repeats_left: 0 }
    }
}

impl GroupState {
    /// Whether a chunk is written as soon as it is stored.
    pub(super) fn writes_through(&self) -> bool {
        self.thresholds.is_none() || self.flush.is_running
    }

    /// Host slots that a flush has still to look at.
    fn unflushed(&self) -> u32 {
        self.tier(Tier::Host).slots.capacity() - self.flush.looked_until
    }
}

impl Core {
    /// Writes everything: from now on every chunk that is resident in host memory and has no disk
    /// copy is queued, in this and the following steps, until none is left.
    ///
    /// Done when [`unwritten`](Core::unwritten) is 0. A chunk whose write fails or is dropped is
    /// not tried again by the same flush.
    pub fn flush(&mut self) {
        self.run_guarded(|core| {
            for at in 0..core.groups.len() {
                if core.writes(at) {
                    core.groups[at].flush = Flush {
                        looked_until: 0,
                        is_running: true,
                        must_repeat: false,
                        repeats_left: FLUSH_AGAIN_COUNT_MAX,
                    };
                }
            }
            core.launch();
        });
    }

    /// Returns how many chunks wait for their write or are being written, with the host slots that
    /// a flush has still to look at: 0 when all is flushed.
    pub fn unwritten(&self) -> u32 {
        let left = |group: &GroupState| group.unflushed() + u32::from(group.flush.must_repeat);
        let unflushed: u32 = self.groups.iter().map(left).sum();
        self.write_queue.taken() + self.write_queue.running + unflushed
    }

    /// Does one bounded step of cleaning and flushing.
    pub(super) fn launch_cleaning(&mut self) {
        let mut budget = KEY_COUNT_MAX;
        self.is_cleaning_cut_short = false;
        for at in 0..self.groups.len() {
            if self.groups[at].thresholds.is_some() && self.writes(at) {
                self.clean(at, &mut budget);
            }
            self.flush_some(at, &mut budget);
        }
    }

    /// Whether a step would find something to clean or to flush.
    pub(super) fn can_clean(&self) -> bool {
        let can_flush = |group: &GroupState| {
            let is_due = group.unflushed() > 0 && !self.write_queue.is_full();
            is_due || (group.flush.is_running && self.write_queue.taken() == 0)
        };
        self.is_cleaning_cut_short || self.groups.iter().any(can_flush)
    }

    fn clean(&mut self, at: usize, budget: &mut usize) {
        let used = self.groups[at].tier(Tier::Host).slots.counts().used;
        let (high, low) = self.groups[at].thresholds.unwrap_or((used, used));
        let is_cleaning = used > high || (self.groups[at].is_cleaning && used > low);
        self.groups[at].is_cleaning = is_cleaning;
        if !is_cleaning {
            return;
        }
        let mut due_count = used - low;
        let mut has_evicted = false;
        let mut next = self.groups[at].tier(Tier::Host).policy.victim_after(None);
        while let Some(slot) = next {
            let host = self.groups[at].tier(Tier::Host);
            if due_count == 0 {
                return;
            }
            if *budget == 0 {
                // Without an eviction all that is cold waits for its write: so does this.
                self.is_cleaning_cut_short |= has_evicted;
                return;
            }
            *budget -= 1;
            next = host.policy.victim_after(Some(slot));
            let index = host.slots.chunk(slot);
            if self.is_resident(index, Tier::Disk) {
                has_evicted = true;
                due_count -= 1;
                self.evict_copy(index, Tier::Host);
            } else if !self.chunks.at(index).write.has_failed && !self.write_queue.is_full() {
                due_count -= 1;
                self.wish(index);
            }
        }
    }

    fn flush_some(&mut self, at: usize, budget: &mut usize) {
        if !self.groups[at].flush.is_running {
            return;
        }
        if !self.writes(at) {
            return self.end_flush(at);
        }
        while self.groups[at].unflushed() > 0 && *budget > 0 {
            let slot = SlotIndex::new(self.groups[at].flush.looked_until);
            let slots = &self.groups[at].tier(Tier::Host).slots;
            let index = slots.chunk(slot);
            let is_resident = matches!(slots.state(slot), SlotState::Resident { .. });
            if is_resident && !self.is_stale(index) {
                let chunk = self.chunks.at(index);
                let is_due = chunk.slot(Tier::Disk).is_none() && chunk.write.place == NONE;
                if is_due && self.write_queue.is_full() {
                    return;
                }
                self.wish(index);
            }
            *budget -= 1;
            self.groups[at].flush.looked_until += 1;
        }
        if self.groups[at].unflushed() > 0 || self.write_queue.taken() > 0 {
            return;
        }
        let group = &mut self.groups[at];
        if std::mem::take(&mut group.flush.must_repeat) && group.flush.repeats_left > 0 {
            group.flush.repeats_left -= 1;
            group.flush.looked_until = 0;
        } else {
            self.end_flush(at);
        }
    }

    fn end_flush(&mut self, at: usize) {
        let slot_count = self.groups[at].tier(Tier::Host).slots.capacity();
        self.groups[at].flush = Flush::finished(slot_count);
    }
}
