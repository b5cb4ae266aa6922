//! Folders and file systems of [`mounts`](super::mounts), with the disk that a test runs on them.

use super::conformance::Stage;
use super::mounts::{self, Frozen};
use crate::io::{Disk, DiskBackend, DiskOptions, open_disk};
use std::path::{Path, PathBuf};

/// A folder of its own below the temporary one, removed at the end.
#[derive(Debug)]
pub(super) struct Folder {
    backend: DiskBackend,
    folder: mounts::Folder,
}

impl Folder {
    pub(super) fn new(backend: DiskBackend) -> Self {
        Self { backend, folder: mounts::Folder::new() }
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Stage for Folder {
    fn directory(&self) -> PathBuf {
        self.path().to_owned()
    }

    fn disk(&self) -> Box<dyn Disk> {
        open(self.backend)
    }
}

fn open(backend: DiskBackend) -> Box<dyn Disk> {
    let options = DiskOptions { backend, depth: 4, ..DiskOptions::default() };
    open_disk(&options).expect("this machine has the back end")
}

/// A file system of its own, mounted for one test.
#[derive(Debug)]
pub(super) struct Mounted {
    backend: DiskBackend,
    mounted: mounts::Mounted,
}

impl Mounted {
    /// As [`mounts::Mounted::in_memory`].
    pub(super) fn in_memory(backend: DiskBackend, kind: &str, options: &str) -> Self {
        Self { backend, mounted: mounts::Mounted::in_memory(kind, options) }
    }

    /// As [`mounts::Mounted::ext4`].
    pub(super) fn ext4(backend: DiskBackend, bytes: u64, block_bytes: u32) -> Self {
        Self { backend, mounted: mounts::Mounted::ext4(bytes, block_bytes) }
    }

    /// As [`mounts::Mounted::image`].
    pub(super) fn image(&self) -> PathBuf {
        self.mounted.image()
    }

    /// As [`mounts::Mounted::device`].
    pub(super) fn device(&self) -> &str {
        self.mounted.device()
    }

    /// As [`mounts::Mounted::freeze`].
    pub(super) fn freeze(&self) -> Frozen {
        self.mounted.freeze()
    }
}

impl Stage for Mounted {
    fn directory(&self) -> PathBuf {
        self.mounted.directory()
    }

    fn disk(&self) -> Box<dyn Disk> {
        open(self.backend)
    }
}
