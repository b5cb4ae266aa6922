//! Disks: the suite that each must pass, and what a real machine does to the real ones.

pub(in crate::io) mod conformance;
mod machine;
mod mounts;
mod stage;
mod transfers;

use self::conformance::conformance_tests;
use self::stage::Folder;
use super::DiskBackend;

conformance_tests!(uring, Folder::new(DiskBackend::Uring));
conformance_tests!(psync, Folder::new(DiskBackend::Psync));
