//! The oracle: what may be handed over, and what must be there.
//!
//! It stands outside: it knows what the engine stored and was told, and nothing of slots.

use super::engine::{CONVERSATION_COUNT, GROUP_COUNT, keys};
use kvtide::core::StorePoint;
use kvtide::key::Key;
use kvtide::pager::Pager;
use std::collections::HashSet;

/// The longest conversation, in chunks.
pub(crate) const CHUNK_COUNT_MAX: usize = 8;

/// What is known from outside.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Oracle {
    /// Clears that were begun: the version of what is computed now.
    pub(crate) version: u32,
    /// The oldest version that this life may hand over.
    pub(crate) floor: u32,
    /// The oldest version that any later life may hand over.
    durable_floor: u32,
    /// What was reported as durable may not be, or not where the next life looks.
    pub(crate) has_drive_lied: bool,
    /// Faults other than power cuts and kills have happened: a miss is no surprise.
    pub(crate) has_faults: bool,
    /// What the last life left on disk for the next; `None` when that is not known.
    left_behind: Option<HashSet<Key>>,
    /// How far all of that had come.
    least: StorePoint,
    /// The power has gone since the tier was last known.
    was_cut: bool,
    /// Chunks that a power cut may have torn: found until somebody reads them.
    doubtful: HashSet<Key>,
    /// Somebody reads what nobody asks for, and so finds what was torn.
    is_scrubbed: bool,
    all_keys: Vec<Key>,
}

impl Oracle {
    pub(crate) fn new(is_scrubbed: bool) -> Self {
        let groups = 0..GROUP_COUNT;
        let paths = groups.flat_map(|group| (0..CONVERSATION_COUNT).map(move |path| (group, path)));
        let all: HashSet<Key> =
            paths.flat_map(|(group, path)| keys(group, path, CHUNK_COUNT_MAX)).collect();
        let mut all_keys: Vec<Key> = all.into_iter().collect();
        all_keys.sort_unstable();
        Self {
            version: 0,
            floor: 0,
            durable_floor: 0,
            has_drive_lied: false,
            has_faults: false,
            left_behind: Some(HashSet::new()),
            least: StorePoint::Durable,
            was_cut: false,
            doubtful: HashSet::new(),
            is_scrubbed,
            all_keys,
        }
    }

    /// Everything is being cleared: this life hands over nothing older any more.
    pub(crate) fn begin_clear(&mut self) -> u32 {
        self.version += 1;
        self.floor = self.version;
        self.version
    }

    /// A clear was reported as durable.
    pub(crate) fn cleared(&mut self, version: u32) {
        self.durable_floor = self.durable_floor.max(version);
    }

    /// Another life begins.
    pub(crate) fn begin_life(&mut self) {
        self.floor = if self.has_drive_lied { 0 } else { self.durable_floor };
    }

    /// Returns what the tiers hold that has come at least this far.
    pub(crate) fn keys_at(&self, pager: &Pager, least: StorePoint) -> HashSet<Key> {
        let keys = self.all_keys.iter().copied();
        keys.filter(|key| pager.point(*key).is_some_and(|point| point >= least)).collect()
    }

    /// Remembers what a life leaves that ends now, having come at least to `least`.
    pub(crate) fn end_life(&mut self, pager: &Pager, least: StorePoint) {
        let is_known = !self.has_faults && !self.was_cut;
        self.left_behind = is_known.then(|| &self.keys_at(pager, least) - &self.doubtful);
        self.least = least;
    }

    /// The power goes.
    pub(crate) fn cut_power(&mut self) {
        self.was_cut = true;
        if self.least != StorePoint::Durable {
            self.left_behind = None;
        }
    }

    /// What the last life left is not looked for: the next changes it first.
    pub(crate) fn forget_left(&mut self) {
        self.left_behind = None;
    }

    /// Checks that a recovered tier has what the last life left, which is all that is known to be
    /// whole.
    pub(crate) fn check_recovered(&mut self, pager: &Pager) {
        let found = self.keys_at(pager, StorePoint::Host);
        let left = self.left_behind.clone();
        for key in left.iter().flatten() {
            assert!(found.contains(key), "{key} was on disk and is not found");
        }
        // What a scrub has given up is not overwritten, so that another life finds it again.
        let there = if self.is_scrubbed { self.all_keys.iter().copied().collect() } else { found };
        self.doubtful.retain(|key| there.contains(key));
        if std::mem::take(&mut self.was_cut) {
            self.doubtful.extend(&there - &left.unwrap_or_default());
        }
    }
}
