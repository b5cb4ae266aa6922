//! The oracle: what may be handed over, and what must be there.
//!
//! It stands outside: it knows what the engine stored and was told, and nothing of slots.

use super::engine::{CONVERSATION_COUNT, GROUP_COUNT, keys, tenant_of};
use kvtide::core::StorePoint;
use kvtide::key::Key;
use kvtide::pager::Pager;
use kvtide::units::TenantId;
use std::collections::{HashMap, HashSet};

/// The longest conversation, in chunks.
pub(crate) const CHUNK_COUNT_MAX: usize = 8;

/// The oldest version of each chunk that may be handed over.
#[derive(Clone, Debug, Default)]
struct Floors {
    of_all: u32,
    of_keys: HashMap<Key, u32>,
}

impl Floors {
    fn of(&self, key: Key) -> u32 {
        self.of_keys.get(&key).copied().unwrap_or_default().max(self.of_all)
    }

    fn raise(&mut self, keys: &[Key], version: u32) {
        for key in keys {
            let floor = self.of_keys.entry(*key).or_default();
            *floor = version.max(*floor);
        }
    }
}

/// What is known from outside.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Oracle {
    /// Clears and erasures that were begun: the version of what is computed now.
    pub(crate) version: u32,
    /// The oldest versions that this life may hand over.
    floors: Floors,
    /// The oldest versions that any later life may hand over.
    durable_floors: Floors,
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
            floors: Floors::default(),
            durable_floors: Floors::default(),
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
        self.floors.of_all = self.version;
        self.version
    }

    /// A clear was reported as durable.
    pub(crate) fn cleared(&mut self, version: u32) {
        self.durable_floors.of_all = self.durable_floors.of_all.max(version);
    }

    /// Something is being erased: it takes hold once that is reported.
    pub(crate) fn begin_erasure(&mut self) -> u32 {
        self.version += 1;
        self.version
    }

    /// An erasure was reported as durable.
    pub(crate) fn erased(&mut self, keys: &[Key], version: u32) {
        for floors in [&mut self.floors, &mut self.durable_floors] {
            floors.raise(keys, version);
        }
    }

    /// Returns the oldest version of a chunk that may be handed over to whoever asks now.
    pub(crate) fn floor(&self, key: Key) -> u32 {
        self.floors.of(key)
    }

    /// Returns all keys of a tenant.
    pub(crate) fn keys_of(tenant: TenantId) -> Vec<Key> {
        let conversations = (0..CONVERSATION_COUNT).filter(|path| tenant_of(*path) == tenant);
        let keys = conversations.flat_map(|path| {
            (0..GROUP_COUNT).flat_map(move |group| keys(group, path, CHUNK_COUNT_MAX))
        });
        keys.collect()
    }

    /// Another life begins.
    pub(crate) fn begin_life(&mut self) {
        self.floors =
            if self.has_drive_lied { Floors::default() } else { self.durable_floors.clone() };
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
