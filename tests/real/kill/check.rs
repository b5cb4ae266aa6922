//! What the files of a directory hold after a kill, looked at as `kvtide check` does.

use kvtide::io::{Disk, DiskOptions, open_disk};
use kvtide::key::Key;
use kvtide::store::{
    Access, Finding, ReadFault, SlotCheck, Standing, Store, TagSpace, check, find_stores,
};
use kvtide::units::SlotIndex;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::Hasher;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a process that was killed may keep its stores locked: until the kernel has ended its
/// operations.
const LOCK_WAIT: Duration = Duration::from_secs(30);

const WAIT: Duration = Duration::from_secs(1);

/// What the stores of a directory hold.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// Stores that are made.
    pub(super) made_count: usize,
    /// Chunks that a scan of the headers offers.
    pub(super) offered: BTreeSet<Key>,
    /// Those of them whose bytes do not match their sums.
    pub(super) torn: BTreeSet<Key>,
}

/// Checks every store below a root that nobody has any more.
///
/// A store may be half made. One that is made is never refused, and of its slots that count as
/// chunks each is sound, but for payloads that were being written.
pub(super) fn check_files(root: &Path) -> Files {
    let mut disk = open_disk(&DiskOptions::default()).expect("a disk");
    let mut files = Files::default();
    for found in find_stores(&mut *disk, root).expect("the root is there") {
        let examined = Store::examine(&mut *disk, &found, Access::Read, LOCK_WAIT);
        let (survey, store) = examined.expect("its files can be read");
        assert_eq!(survey.held_by, None, "whoever had it was killed");
        let Some(mut store) = store else {
            assert_eq!(survey.standing, Standing::Unfinished);
            continue;
        };
        files.made_count += 1;
        let mut slots = BTreeMap::new();
        let checked = check(&mut *disk, &found.directory, &mut |slot, check| {
            slots.insert(slot, check);
        });
        checked.expect("it was examined");
        for (slot, key) in scan(&mut *disk, &mut store) {
            match &slots[&slot] {
                SlotCheck::Sound(header) => assert_eq!(header.identity.key, key),
                SlotCheck::Unsound(ReadFault::Part { .. }) => {
                    files.torn.insert(key);
                }
                other => panic!("slot {slot} counts as chunk {key}, and is {other:?}"),
            }
            files.offered.insert(key);
        }
        store.abandon(&mut *disk);
    }
    files
}

/// Returns the chunks of a store, by its headers alone.
fn scan(disk: &mut dyn Disk, store: &mut Store) -> BTreeMap<SlotIndex, Key> {
    let mut chunks = BTreeMap::new();
    let mut scan = store.scan(TagSpace::new(1)).expect("it was examined, not opened");
    while !scan.is_done() {
        disk.submit(scan.operations(store, disk.depth()));
        disk.wait(WAIT);
        let mut reports = Vec::new();
        disk.poll(&mut reports);
        for report in reports {
            scan.finished(report);
        }
        for scanned in scan.take(store, usize::MAX) {
            if let Finding::Chunk { entry, replaces } = scanned.finding {
                chunks.insert(scanned.slot, entry.key);
                replaces.map(|older| chunks.remove(&older));
            }
        }
    }
    chunks
}

/// Returns a digest of every file below a directory.
pub(super) fn digests(directory: &Path) -> BTreeMap<PathBuf, u64> {
    let mut digests = BTreeMap::new();
    for entry in fs::read_dir(directory).expect("it can be read") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            digests.extend(self::digests(&path));
        } else {
            let mut hasher = DefaultHasher::new();
            hasher.write(&fs::read(&path).expect("it can be read"));
            digests.insert(path, hasher.finish());
        }
    }
    digests
}
