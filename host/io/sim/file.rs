//! One file: what a program sees of it, what is sure to survive, and the changes between.
//!
//! Invariants: `volatile` is `durable` with every pending change applied, but for bits that were
//! flipped, changes that a failed sync dropped, and unless a change was applied in part; pending
//! changes stand in the order in which they took effect; a change leaves the list only by becoming
//! durable, or by losing its promise when a sync fails.

use super::image::{Change, Image};
use super::random::Random;

/// A change that is not durable yet.
#[derive(Clone, Debug)]
struct Pending {
    sequence: u64,
    modified_s: u64,
    change: Change,
}

/// A simulated file.
#[derive(Clone, Debug, Default)]
pub(super) struct SimFile {
    pub(super) volatile: Image,
    pub(super) durable: Image,
    /// Each page as it was before it was last written.
    older: Image,
    pending: Vec<Pending>,
    /// Changes that took effect so far.
    sequence: u64,
    /// The last change that somebody was told of.
    reported: u64,
}

impl SimFile {
    /// Makes a file that has survived already.
    pub(super) fn planted(bytes: &[u8], modified_s: u64) -> Self {
        let mut image = Image::default();
        let mut pages = bytes.to_vec();
        pages.resize(bytes.len().next_multiple_of(4096), 0);
        image.apply(&Change::Write { offset: 0, bytes: pages });
        image.apply(&Change::Truncate { length: bytes.len() as u64 });
        image.modified_s = modified_s;
        Self { volatile: image.clone(), durable: image, ..Self::default() }
    }

    /// Lets a change take effect, not durably, and returns its number.
    pub(super) fn change(&mut self, change: Change, modified_s: u64) -> u64 {
        if let Change::Write { offset, bytes } = &change {
            self.older.write(*offset, &self.volatile.read(*offset, bytes.len()));
        }
        self.volatile.apply(&change);
        self.volatile.modified_s = modified_s;
        self.sequence += 1;
        self.pending.push(Pending { sequence: self.sequence, modified_s, change });
        self.sequence
    }

    /// Notes that whoever made a change knows that it is done.
    pub(super) fn report(&mut self, sequence: u64) {
        self.reported = self.reported.max(sequence);
    }

    /// Returns the last change that a sync submitted now has to cover.
    pub(super) fn covered(&self) -> u64 {
        self.reported
    }

    /// Returns how many changes are not durable.
    pub(super) fn pending_count(&self) -> usize {
        self.pending.len()
    }

    fn take_covered(&mut self, covered: u64) -> Vec<Pending> {
        let end = self.pending.partition_point(|pending| pending.sequence <= covered);
        self.pending.drain(..end).collect()
    }

    /// Makes the changes up to `covered` durable. What happens to later ones is drawn when the
    /// power goes, so a sync that covers more would add no outcome.
    pub(super) fn sync(&mut self, covered: u64) {
        for pending in self.take_covered(covered) {
            self.durable.apply(&pending.change);
            self.durable.modified_s = pending.modified_s;
        }
    }

    /// Takes the promise from the changes up to `covered`: no later sync makes them durable, and
    /// how much of each is, is drawn now. The program goes on seeing them, as under Linux.
    pub(super) fn fail_sync(&mut self, covered: u64, random: &mut Random) {
        for pending in self.take_covered(covered) {
            self.durable.apply_in_part(&pending.change, false, random);
            self.durable.modified_s = pending.modified_s;
        }
    }

    /// Draws what survives a power cut: of the pending changes, and of the writes `under_way`.
    pub(super) fn cut(&mut self, under_way: &[Change], random: &mut Random) {
        for pending in self.pending.drain(..) {
            self.durable.apply_in_part(&pending.change, false, random);
            self.durable.modified_s = pending.modified_s;
        }
        for change in under_way {
            self.durable.apply_in_part(change, true, random);
        }
        self.volatile = self.durable.clone();
    }

    /// Returns bytes as they were before their pages were last written.
    pub(super) fn read_older(&self, offset: u64, length: usize) -> Vec<u8> {
        self.older.read(offset, length)
    }

    /// Flips bits of one byte wherever it is kept.
    pub(super) fn flip(&mut self, offset: u64, mask: u8) {
        self.volatile.flip(offset, mask);
        self.durable.flip(offset, mask);
        for pending in &mut self.pending {
            if let Change::Write { offset: start, bytes } = &mut pending.change
                && let Some(index) = offset.checked_sub(*start)
                && let Some(byte) = usize::try_from(index).ok().and_then(|i| bytes.get_mut(i))
            {
                *byte ^= mask;
            }
        }
    }
}
