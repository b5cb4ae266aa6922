//! How much memory may be taken before the system kills us.
//!
//! Linux hands out more memory than it has and picks a victim once it is touched, so a slab asks
//! first: the machine's own estimate, and the limit of every control group above this process
//! (version 1 and 2). What a control group holds of the page cache counts as free, since it gives
//! way. Swap counts for nothing: a slab in swap is slower than a miss.
//!
//! Called by `region.rs` and by the replay, which asks for all it will take at once.

use crate::units::ByteCount;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// What bounds the memory that can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLimit {
    /// `MemAvailable` of the machine.
    Machine,
    /// The memory limit of a control group, as set by a container or a service manager.
    ControlGroup,
}

impl fmt::Display for MemoryLimit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Machine => "the machine's MemAvailable",
            Self::ControlGroup => "the control group's memory limit",
        })
    }
}

/// The files that state a control group's memory, in one version of the interface.
struct Interface {
    /// The controller's name in `/proc/self/cgroup`; empty in version 2.
    controller: &'static str,
    mounts: &'static [&'static str],
    limit: &'static str,
    usage: &'static str,
    /// Lines of `memory.stat` that count page cache.
    cache: [&'static str; 2],
}

const INTERFACES: [Interface; 2] = [
    Interface {
        controller: "",
        mounts: &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"],
        limit: "memory.max",
        usage: "memory.current",
        cache: ["inactive_file", "active_file"],
    },
    Interface {
        controller: "memory",
        mounts: &["/sys/fs/cgroup/memory"],
        limit: "memory.limit_in_bytes",
        usage: "memory.usage_in_bytes",
        cache: ["total_inactive_file", "total_active_file"],
    },
];

/// Returns the bytes that can be taken and what bounds them; none where nothing says so.
pub(crate) fn available() -> Option<(ByteCount, MemoryLimit)> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| mem_available(&text));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = INTERFACES
        .iter()
        .flat_map(|interface| {
            let path = group_path(&groups, interface.controller);
            let mounts = if path.is_some() { interface.mounts } else { &[] };
            mounts.iter().filter_map(move |mount| {
                interface.available_below(Path::new(mount), path.unwrap_or_default())
            })
        })
        .min();
    let bounds = [(machine, MemoryLimit::Machine), (group, MemoryLimit::ControlGroup)];
    bounds
        .into_iter()
        .filter_map(|(bytes, limit)| Some((ByteCount::new(bytes?), limit)))
        .min_by_key(|&(bytes, _)| bytes)
}

/// Reads `MemAvailable` out of `/proc/meminfo`, in bytes.
pub(super) fn mem_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Finds the control group of a controller in `/proc/self/cgroup`: lines of `id:controllers:path`.
pub(super) fn group_path<'groups>(groups: &'groups str, controller: &str) -> Option<&'groups str> {
    groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next()?;
        let path = fields.next()?;
        controllers.split(',').any(|name| name == controller).then_some(path)
    })
}

impl Interface {
    /// Returns the least that a group or one above it leaves; none without a limit.
    ///
    /// A container may see its own group as the mount itself, so groups that are not there are
    /// passed over.
    fn available_below(&self, mount: &Path, group: &str) -> Option<u64> {
        let relative = Path::new(group.trim_start_matches('/'));
        relative.ancestors().filter_map(|ancestor| self.available_in(&mount.join(ancestor))).min()
    }

    fn available_in(&self, folder: &Path) -> Option<u64> {
        let number = |path: PathBuf| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
        // "max" in version 2 is no number, so no limit.
        let limit = number(folder.join(self.limit))?;
        let usage = number(folder.join(self.usage))?;
        let statistics = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let cache: u64 = self.cache.iter().filter_map(|name| counted(&statistics, name)).sum();
        Some(limit.saturating_sub(usage.saturating_sub(cache)))
    }
}

/// Reads one line of `memory.stat`.
fn counted(statistics: &str, name: &str) -> Option<u64> {
    statistics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

/// Returns what a version 2 group under `mount` leaves, for tests.
#[cfg(test)]
pub(super) fn available_below(mount: &Path, group: &str) -> Option<u64> {
    INTERFACES[0].available_below(mount, group)
}
