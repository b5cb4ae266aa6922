//! What a directory was told, and what it may and must hold: kept outside of the processes that
//! are killed.

use super::report::Report;
use crate::engine::{CHUNKS_MAX, Prompt, chunk_bytes};
use kvtide::key::Key;
use std::collections::{BTreeMap, BTreeSet};

/// What one look found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Look {
    found: BTreeSet<Key>,
    hits: BTreeSet<Key>,
}

/// How much was checked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    /// Chunks handed over after a kill, and compared.
    pub(super) hits: u64,
    /// Of these, chunks that had to be there.
    pub(super) kept: u64,
    /// Looks that found the same as the one before, with nothing written in between.
    pub(super) repeats: u64,
    /// Clears that were answered.
    pub(super) clears: u64,
    /// Chunks whose header was found and whose bytes a kill had torn.
    pub(super) torn: u64,
}

/// What one directory was told.
#[derive(Debug)]
pub(super) struct Oracle {
    /// Whether nothing is ever evicted.
    is_roomy: bool,
    /// The group of each key.
    groups: BTreeMap<Key, usize>,
    /// How often everything was cleared.
    pub(super) weights: u64,
    /// Chunks that may be there: they were used since the last clear.
    used: BTreeSet<Key>,
    /// Chunks that must be there.
    promised: BTreeSet<Key>,
    /// The look under way.
    look: Look,
    /// The last look, if nothing was done since.
    former: Option<Look>,
    pub(super) totals: Totals,
}

impl Oracle {
    pub(super) fn new(is_roomy: bool) -> Self {
        let of_prompt = |prompt: Prompt| {
            let groups = prompt.keys().into_iter().enumerate();
            groups.flat_map(|(group, keys)| keys.into_iter().map(move |key| (key, group)))
        };
        Self {
            is_roomy,
            groups: Prompt::all().flat_map(of_prompt).collect(),
            weights: 0,
            used: BTreeSet::new(),
            promised: BTreeSet::new(),
            look: Look::default(),
            former: None,
            totals: Totals::default(),
        }
    }

    /// Takes in what a child told, in its order.
    pub(super) fn take_all(&mut self, reports: Vec<Report>) {
        for report in reports {
            self.take(report);
        }
    }

    fn take(&mut self, report: Report) {
        match report {
            Report::Opened => self.look = Look::default(),
            Report::Found(keys) => self.found(keys),
            Report::Hit(key, bytes) => self.hit(key, &bytes),
            Report::Looked => self.looked(),
            Report::Using(keys) => {
                self.former = None;
                self.used.extend(keys);
                if !self.is_roomy {
                    // Each write may need the slot of another chunk.
                    self.promised.clear();
                }
            }
            // Where there is little room, the next write may need its slot.
            Report::Written(keys) if self.is_roomy => self.promised.extend(keys),
            Report::Written(_) => {}
            Report::Flushed(keys) => self.promised.extend(keys),
            Report::Clearing => {
                self.former = None;
                self.promised.clear();
            }
            Report::Cleared => {
                self.used.clear();
                self.weights += 1;
                self.totals.clears += 1;
            }
        }
    }

    fn found(&mut self, keys: Vec<Key>) {
        for key in &keys {
            assert!(self.used.contains(key), "{key} is there: it was cleared, or never stored");
        }
        self.look.found.extend(keys);
        let mut lost = self.promised.difference(&self.look.found);
        assert_eq!(lost.next(), None, "it was promised, and is not there");
    }

    fn hit(&mut self, key: Key, bytes: &[u8]) {
        assert!(self.used.contains(&key), "{key} is handed over: it was cleared, or never stored");
        let expected = chunk_bytes(self.groups[&key], key, self.weights);
        assert!(bytes == expected, "wrong bytes of {key} were handed over");
        self.totals.hits += u64::from(self.look.hits.insert(key));
    }

    /// A look has ended: what it must have found, and what the one before found, it did.
    fn looked(&mut self) {
        for prompt in Prompt::all() {
            let must_hit = |&chunk_count: &u32| {
                let keys = Prompt { chunk_count, ..prompt }.keys();
                keys.iter().flatten().all(|key| self.promised.contains(key))
            };
            let chunk_count = (1..=CHUNKS_MAX).take_while(must_hit).last().unwrap_or(0);
            for key in (Prompt { chunk_count, ..prompt }).keys().iter().flatten() {
                assert!(self.look.hits.contains(key), "{key} was promised, and is no hit");
            }
        }
        let kept = self.promised.intersection(&self.look.hits).count();
        self.totals.kept += kept as u64;
        let look = std::mem::take(&mut self.look);
        if let Some(former) = &self.former {
            assert_eq!(*former, look, "a second recovery brought something else");
            self.totals.repeats += 1;
        }
        self.promised.extend(&look.hits);
        self.former = Some(look);
    }

    /// Takes in what the files hold after a kill: chunks that a scan of the headers offers, and
    /// those of them whose bytes do not match their sums.
    pub(super) fn check(&mut self, offered: &BTreeSet<Key>, torn: &BTreeSet<Key>) {
        for key in offered {
            assert!(self.used.contains(key), "{key} is on disk: it was cleared, or never stored");
        }
        for key in &self.promised {
            assert!(offered.contains(key), "{key} was promised, and is not on disk");
            assert!(!torn.contains(key), "{key} was promised, and its bytes are torn");
        }
        self.totals.torn += torn.len() as u64;
    }
}
