//! The disk tier: a directory of slots on a drive, and everything that keeps it right.
//!
//! One [`Store`] is one directory: the chunks of one group, under one store id, on one drive. Each
//! is complete in itself; a tier over several drives or groups is a set of stores that whoever
//! drives them keeps.
//!
//! | file | what |
//! |---|---|
//! | `open.rs`, `opener.rs` | [`Store::open`], [`Store::close`]: lock, make, refuse, resize |
//! | `as_found.rs` | what files say before anybody trusts them |
//! | `survey.rs` | [`survey`], [`Store::examine`]: stores in any state, for who looks after them |
//! | `directory.rs` | where stores lie under a root; who has them |
//! | `files.rs` | the three files, open |
//! | `state.rs` | [`Store`]: slot writes, read checks, what is under way |
//! | `task.rs` | [`Task`]: begin a run, clear, erase, sync, as steps among other operations |
//! | `scan.rs` | [`Scan`]: the headers of all slots, after a run that was not closed |
//! | `snapshot.rs`, `read_ahead.rs` | the index that a closed store leaves |
//! | `superblock.rs` | [`SuperblockCopies`]: which copy counts |
//! | `records.rs` | what each slot's header page holds on disk |
//! | `verify.rs` | [`Expected`], [`ReadFault`]: whether a slot is what it should be |
//! | `reclaim.rs` | room under a root: [`collect`] |
//! | `siblings.rs` | [`Store::remove_siblings`]: stores of the same id in other instances |
//! | `inspect.rs` | looking at a store without having it: [`inspect`], [`check`] |
//! | `shape.rs` | [`ChunkShape`]: where parts lie |
//! | `ids.rs`, `entry.rs`, `error.rs` | names, index entries, errors |
//! | [`mod@format`] | the only code that knows disk bytes; `docs/disk-format.md` |
//!
//! # Life of a store
//!
//! ```text
//! open ----> Ready(entries) ----------------> serve ---- close
//!      \---> ScanNeeded: scan, in the background --/
//!
//! serve:  begin_run, once, before the first slot write
//!         begin_write -> one write of the slot -> end_write
//!         a read of a slot, or of its header and a part -> check_read
//!         sync, clear, erase, whenever
//! ```
//!
//! Invariants: a chunk is handed over only from a header of this store, slot, key and last write;
//! what was cleared or erased durably never comes back; a directory that holds something else is
//! refused as it is; a failed sync is never repeated and never reported as done.
//!
//! Uses files by [`Files`](crate::io::Files) and [`Disk`](crate::io::Disk) alone. Called by the
//! pager's disk thread and the `kvtide` program.

mod as_found;
mod directory;
mod entry;
mod error;
mod files;
pub mod format;
mod ids;
mod inspect;
mod open;
mod opener;
mod read_ahead;
mod reclaim;
mod records;
mod scan;
mod shape;
mod siblings;
mod snapshot;
mod state;
mod superblock;
mod survey;
mod task;
mod verify;

pub use directory::{FoundStore, LOCK_NAME, find_store, find_stores};
pub use entry::Entry;
pub use error::{StoreCall, StoreError, StoreFile};
pub use ids::{Epoch, Generation, StoreUuid};
pub use inspect::{Inspection, SlotCheck, check, inspect};
pub use open::{CloseReport, DEFAULT_LOCK_WAIT, Opened, Recovery, StoreOptions};
pub use reclaim::{HeldStore, Reclaim, Reclaimed, collect, keep_within, plan_collection};
pub use records::Erasure;
pub use scan::{Finding, Scan, ScanProgress, Scanned};
pub use shape::ChunkShape;
pub use siblings::Siblings;
pub use snapshot::ScanReason;
pub use state::{Landed, SlotWrite, Store};
pub use superblock::SuperblockCopies;
pub use survey::{Access, Holder, Standing, Survey, survey};
pub use task::{TagSpace, Task};
pub use verify::{Expected, ReadFault};
