//! The disk tier of a pager: its settings, its thread, and what callers share with it.
//!
//! | file | what |
//! |---|---|
//! | `config.rs` | [`DiskConfig`]: directories, capacities, times |
//! | `open.rs` | stores of all stripes and groups, opened together |
//! | `merge.rs` | one order of recency over several stores |
//! | `places.rs` | which store and slot a disk slot of the core is |
//! | `thread.rs` | the disk thread |
//! | `group.rs` | a group's store in one stripe as that thread sees it |
//! | `erase.rs` | erasures that wait for a scan |
//! | `scrub.rs` | reading slots before anybody asks for them |
//! | `syncs.rs` | when to sync, and who waits for it |
//! | `state.rs` | requests, commands and health, shared with callers |

mod config;
mod erase;
mod group;
mod merge;
mod open;
mod places;
mod scrub;
mod state;
mod syncs;
mod thread;

pub use config::{
    DEFAULT_SCRUB_BUDGET, DEFAULT_SYNC_INTERVAL, DiskConfig, DiskStripe, ProgressListener,
};
pub(super) use open::{OpenedTier, open};
pub(super) use state::{DiskCommand, DiskState};
pub use state::{DiskCommandError, DiskHealth, ScrubTotals, Unreached};
pub(super) use thread::DiskThread;
