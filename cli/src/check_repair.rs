//! Mending a store that is locked: after it, a check finds nothing, and no chunk that was found
//! damaged is offered by any later open.

use crate::check::{Findings, Kind};
use crate::check_slots::Checked;
use kvtide::io::Disk;
use kvtide::store::{Entry, Erasure, Store, StoreError, Survey, TagSpace};
use kvtide::units::ByteCount;

const SPACE: TagSpace = TagSpace::new(3);

/// What was mended.
#[derive(Default)]
pub(crate) struct Mending {
    /// What was done, one line each.
    pub(crate) done: Vec<String>,
    /// What could not be done.
    pub(crate) failure: Option<String>,
}

impl Mending {
    /// Whether all that was damaged is mended.
    pub(crate) fn is_whole(&self) -> bool {
        !self.done.is_empty() && self.failure.is_none()
    }

    /// Says why a store is not touched.
    pub(crate) fn refused(why: &str) -> Self {
        Self { done: Vec::new(), failure: Some(why.to_owned()) }
    }
}

/// Mends a store and closes it.
pub(crate) fn mend(
    disk: &mut dyn Disk,
    mut store: Store,
    survey: &Survey,
    findings: &Findings,
    checked: &Checked,
) -> Mending {
    let mut mending = Mending::default();
    let mended = mend_in_place(disk, &mut store, findings, checked, &mut mending.done);
    let is_index_good = survey.standing.chunks().is_some() && !findings.has(Kind::Index);
    let ended = match mended {
        Ok(()) if is_index_good && store.is_running() => {
            let entries = survivors(survey, checked);
            store.close(disk, entries).map(|_| mending.done.push("wrote the index anew".to_owned()))
        }
        mended => {
            if mended.is_ok() && store.is_running() {
                mending.done.push("left it to be scanned when it is opened next".to_owned());
            }
            store.abandon(disk);
            mended
        }
    };
    mending.failure = ended.err().map(|error: StoreError| error.to_string());
    mending
}

/// Mends what is damaged, but for the index.
fn mend_in_place(
    disk: &mut dyn Disk,
    store: &mut Store,
    findings: &Findings,
    checked: &Checked,
    done: &mut Vec<String>,
) -> Result<(), StoreError> {
    if findings.has(Kind::Superblock) {
        store.mend_superblock(SPACE)?.run(store, disk)?;
        done.push("wrote the damaged copy of the superblock anew".to_owned());
    }
    if findings.has(Kind::Length) {
        // No index counts from here on, whenever the power goes.
        store.begin_run(SPACE).run(store, disk)?;
        let bytes = u64::from(store.slot_count()) * store.shape().slot().get();
        disk.allocate(store.data_file(), ByteCount::new(bytes))?;
        store.sync(SPACE).run(store, disk)?;
        done.push(format!("extended data to {bytes} bytes"));
    }
    if !checked.damaged.is_empty() {
        let slots = checked.damaged.iter().copied().collect();
        store.erase(SPACE, &Erasure::Slots(slots))?.run(store, disk)?;
        let count = checked.damaged.len();
        let noun = if count == 1 { "page" } else { "pages" };
        done.push(format!("overwrote {count} header {noun} with zeros"));
    }
    if findings.has(Kind::Index) {
        store.begin_run(SPACE).run(store, disk)?;
    }
    Ok(())
}

/// Returns the chunks of the index that are left, in its order.
fn survivors<'check>(
    survey: &'check Survey,
    checked: &'check Checked,
) -> impl Iterator<Item = Entry> + 'check {
    let chunks = survey.standing.chunks().into_iter().flatten().copied();
    chunks.filter(|entry| !checked.damaged.contains(&entry.slot))
}
