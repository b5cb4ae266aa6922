//! Folders and file systems that tests make and remove again, whatever becomes of the test.
//!
//! Also part of `tests/real`, so nothing of this crate is used.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// When a frozen file system thaws by itself, so that a broken disk fails a test, and the machine
/// goes on.
const THAW_AFTER: Duration = Duration::from_mins(1);

/// A folder of its own, removed at the end.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes one below the temporary folder.
    pub(super) fn new() -> Self {
        Self::below(&std::env::temp_dir())
    }

    /// Makes one below a folder that exists.
    pub(super) fn below(parent: &Path) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("kvtide-io-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = parent.join(name);
        fs::create_dir(&path).expect("a folder");
        Self { path }
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

/// A file system of its own, mounted for one test.
#[derive(Debug)]
pub(super) struct Mounted {
    folder: Folder,
    /// The loop device beneath it.
    device: Option<String>,
}

impl Mounted {
    /// Mounts a file system in memory, `tmpfs` or `ramfs`.
    pub(super) fn in_memory(kind: &str, options: &str) -> Self {
        let folder = Folder::new();
        let path = folder.path().join("mounted");
        fs::create_dir(&path).expect("the folder is ours");
        command("mount", &["-t", kind, "-o", options, "none", text(&path)]);
        Self { folder, device: None }
    }

    /// Makes and mounts an ext4 of `bytes` on a loop device with logical blocks of `block_bytes`.
    pub(super) fn ext4(bytes: u64, block_bytes: u32) -> Self {
        let folder = Folder::new();
        let image = folder.path().join("image");
        File::create_new(&image).and_then(|file| file.set_len(bytes)).expect("room for an image");
        let block_bytes = block_bytes.to_string();
        let device = command("losetup", &["--find", "--show", "-b", &block_bytes, text(&image)]);
        let device = device.trim().to_owned();
        let path = folder.path().join("mounted");
        fs::create_dir(&path).expect("the folder is ours");
        let mounted = Self { folder, device: Some(device.clone()) };
        command("mkfs.ext4", &["-q", "-m", "0", &device]);
        command("mount", &["-o", "errors=remount-ro", &device, text(&path)]);
        // Its own entry would be in the way of tests that list the folder.
        fs::remove_dir(path.join("lost+found")).expect("mkfs made it");
        mounted
    }

    /// Returns where it is mounted.
    pub(super) fn directory(&self) -> PathBuf {
        self.folder.path().join("mounted")
    }

    /// Returns the file that the file system's blocks lie in.
    pub(super) fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    /// Returns the device's name below `/dev`.
    pub(super) fn device(&self) -> &str {
        self.device.as_deref().and_then(|device| device.strip_prefix("/dev/")).expect("a device")
    }

    /// Has writes hang until the result is dropped.
    pub(super) fn freeze(&self) -> Frozen {
        let path = self.directory();
        command("fsfreeze", &["--freeze", text(&path)]);
        let (thaw, told) = mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            // Ends when the sender is dropped.
            let _ = told.recv_timeout(THAW_AFTER);
            command("fsfreeze", &["--unfreeze", text(&path)]);
        });
        Frozen { thaw: Some(thaw), thread: Some(thread) }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily, since a disk that leaked on purpose keeps its file open.
        let _ = Command::new("umount").arg("--lazy").arg(self.directory()).status();
        if let Some(device) = &self.device {
            let _ = Command::new("losetup").args(["--detach", device]).status();
        }
    }
}

/// A frozen file system.
#[derive(Debug)]
pub(super) struct Frozen {
    thaw: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Frozen {
    fn drop(&mut self) {
        drop(self.thaw.take());
        let thread = self.thread.take().expect("dropped once");
        assert!(thread.join().is_ok() || thread::panicking(), "the file system cannot be thawed");
    }
}

pub(super) fn text(path: &Path) -> &str {
    path.to_str().expect("temporary folders are UTF-8")
}

/// Runs a program that must do, and returns what it prints.
pub(super) fn command(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("programs print UTF-8")
}

/// Returns whether this process is root's.
pub(super) fn is_root() -> bool {
    fs::metadata("/proc/self").expect("a process has its folder").uid() == 0
}

/// Returns whether this process may mount file systems; says so past the harness if it may not.
///
/// As root they must be mounted, and a test fails if they cannot, unless
/// `KVTIDE_TESTS_WITHOUT_MOUNTS` is set, as in a container without loop devices.
pub(super) fn may_mount(test: &str) -> bool {
    let why = if !is_root() {
        "mounts need root"
    } else if std::env::var_os("KVTIDE_TESTS_WITHOUT_MOUNTS").is_some() {
        "KVTIDE_TESTS_WITHOUT_MOUNTS is set"
    } else {
        return true;
    };
    writeln!(std::io::stderr(), "did not run: {test}: {why}").expect("stderr takes a line");
    false
}
