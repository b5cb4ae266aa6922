//! Folders and file systems that tests make and remove again.

use super::conformance::Stage;
use crate::io::{Disk, DiskBackend, DiskOptions, open_disk};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder of its own below the temporary one, removed at the end.
#[derive(Debug)]
pub(super) struct Folder {
    backend: DiskBackend,
    path: PathBuf,
}

impl Folder {
    pub(super) fn new(backend: DiskBackend) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("kvtide-io-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a temporary folder");
        Self { backend, path }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

impl Stage for Folder {
    fn directory(&self) -> PathBuf {
        self.path.clone()
    }

    fn disk(&self) -> Box<dyn Disk> {
        let options = DiskOptions { backend: self.backend, depth: 4, ..DiskOptions::default() };
        open_disk(&options).expect("this machine has the back end")
    }
}
