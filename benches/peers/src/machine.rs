//! What the figures were taken on, without any path of the machine.
//!
//! Called by `main.rs`.

use nix::sys::statfs::{EXT4_SUPER_MAGIC, TMPFS_MAGIC, XFS_SUPER_MAGIC, statfs};
use serde::Serialize;
use std::fmt;
use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::Path;
use std::thread;

/// Facts about the machine and the folder's drive.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    kernel: String,
    cpu: String,
    cpu_count: usize,
    memory: String,
    transparent_huge_pages: String,
    reserved_huge_pages: String,
    file_system: String,
    drive: String,
    load_average: String,
}

impl Machine {
    /// Looks at the machine, and at the drive that `folder` lies on.
    pub(crate) fn look(folder: &Path) -> Self {
        let cpu_count = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            kernel: read("/proc/sys/kernel/osrelease"),
            cpu: field("/proc/cpuinfo", "model name"),
            cpu_count,
            memory: field("/proc/meminfo", "MemTotal"),
            transparent_huge_pages: read("/sys/kernel/mm/transparent_hugepage/enabled"),
            reserved_huge_pages: read("/proc/sys/vm/nr_hugepages"),
            file_system: file_system(folder),
            drive: drive(folder),
            load_average: read("/proc/loadavg"),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, cpu, cpu_count, memory, file_system, drive, .. } = self;
        writeln!(formatter, "- Linux {kernel}; {cpu_count} cores of {cpu}; {memory} of memory")?;
        writeln!(formatter, "- {file_system} on {drive}")?;
        writeln!(
            formatter,
            "- transparent huge pages: {}; reserved 2 MiB pages: {}; load: {}",
            self.transparent_huge_pages, self.reserved_huge_pages, self.load_average
        )
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// Returns the first value of `name` in a file of lines `name : value`.
fn field(path: &str, name: &str) -> String {
    let text = read(path);
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let found = lines.into_iter().find(|(key, _)| key.trim() == name);
    found.map_or_else(|| "unknown".to_owned(), |(_, value)| value.trim().to_owned())
}

fn file_system(folder: &Path) -> String {
    let Ok(status) = statfs(folder) else { return "unknown file system".to_owned() };
    match status.filesystem_type() {
        EXT4_SUPER_MAGIC => "ext4".to_owned(),
        XFS_SUPER_MAGIC => "XFS".to_owned(),
        TMPFS_MAGIC => "tmpfs".to_owned(),
        other => format!("file system {:#x}", other.0),
    }
}

/// Describes the block device of a folder: name, model or driver, and limits of its queue.
fn drive(folder: &Path) -> String {
    let Ok(status) = fs::metadata(folder) else { return "unknown drive".to_owned() };
    let number = status.st_dev();
    let (major, minor) = (nix::sys::stat::major(number), nix::sys::stat::minor(number));
    let Ok(device) = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")) else {
        return "no block device".to_owned();
    };
    // A partition's queue and model are its drive's.
    let is_partition = device.join("partition").exists();
    let whole =
        if is_partition { device.parent().map_or(device.clone(), Path::to_owned) } else { device };
    let name = last(&whole);
    let model = fs::read_to_string(whole.join("device/model")).map(|text| text.trim().to_owned());
    let model = model.unwrap_or_else(|_| {
        fs::canonicalize(whole.join("device/driver")).map_or("no model".to_owned(), |it| last(&it))
    });
    let limit = |name: &str| {
        let text = fs::read_to_string(whole.join("queue").join(name));
        text.map_or_else(|_| "?".to_owned(), |text| text.trim().to_owned())
    };
    format!(
        "{name} ({model}; at most {} segments and {} KiB a request; scheduler {})",
        limit("max_segments"),
        limit("max_sectors_kb"),
        limit("scheduler")
    )
}

fn last(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
