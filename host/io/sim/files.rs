//! Directories and files of a handle: synchronous, and done when they return.

use super::faults::{SimFault, SimKind};
use super::file::SimFile;
use super::image::Change;
use super::record::SimRecord;
use super::state::OpenFile;
use super::tree::{Entries, Node, NodeId};
use super::{SimDisk, State};
use crate::capability::Downgrade;
use crate::io::Space;
use crate::io::{DirectoryEntry, FileCall, FileError, FileId, Files, Lock, OpenMode, OpenedFile};
use crate::units::{ByteCount, Timestamp};
use nix::errno::Errno;
use std::io;
use std::path::{Path, PathBuf};

/// A call that changes something.
struct Call<'path> {
    disk: u32,
    kind: SimKind,
    path: &'path Path,
    length: u64,
}

impl State {
    /// Fails for a handle whose power went, and when the part of the drive with a path is gone.
    fn check_alive(&mut self, disk: u32, path: &Path) -> Result<(), Errno> {
        let is_gone = self.gone.contains(&self.part_of(path));
        if is_gone || self.disk(disk).is_dead { Err(Errno::ENODEV) } else { Ok(()) }
    }

    /// Returns an open file.
    fn opened(&mut self, disk: u32, file: FileId) -> Result<&mut OpenFile, Errno> {
        let open = self.disk(disk).files.get(&file).filter(|open| !open.is_closed);
        let path = open.map(|open| open.path.clone());
        self.check_alive(disk, path.as_deref().unwrap_or(Path::new("")))?;
        let open = self.disk(disk).files.get_mut(&file).filter(|open| !open.is_closed);
        open.ok_or(Errno::EBADF)
    }

    /// Returns the file at a path, if there is one.
    fn found(&mut self, disk: u32, path: &Path) -> Result<Option<NodeId>, Errno> {
        self.check_alive(disk, path)?;
        match self.tree.find(path, Entries::Volatile) {
            Ok(node) => Ok(Some(node)),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Carries out a call that changes something, with what goes wrong with it. If the power goes
    /// with it, the change was made a moment before, so that its survival is drawn.
    fn change<Made>(
        &mut self,
        call: &Call<'_>,
        carry_out: impl FnOnce(&mut Self) -> Result<Made, Errno>,
    ) -> Result<Made, Errno> {
        let fault = self.begin(call.kind, call.path);
        let part = self.part_of(call.path);
        let made = match fault {
            _ if self.gone.contains(&part) => Err(Errno::ENODEV),
            _ if self.read_only.contains(&part) => Err(Errno::EROFS),
            Some(SimFault::NoSpace) => Err(Errno::ENOSPC),
            Some(SimFault::Error) => {
                if call.kind == SimKind::SyncDirectory {
                    self.tree.fail_sync_directory(call.path, &mut self.random);
                }
                Err(Errno::EIO)
            }
            _ => carry_out(self),
        };
        let is_cut = self.step();
        let now = Timestamp::new(self.now_ns);
        let record = SimRecord {
            disk: call.disk,
            kind: call.kind,
            path: call.path.to_owned(),
            offset: 0,
            length: call.length,
            submitted: now,
            reported: now,
            is_ok: made.is_ok() && !is_cut,
            fault,
        };
        self.counters.add(&record);
        self.log.push(record);
        if is_cut {
            self.cut();
            return Err(Errno::ENODEV);
        }
        made
    }

    fn create_directory(&mut self, disk: u32, path: &Path) -> Result<(), Errno> {
        if let Some(node) = self.found(disk, path)? {
            return if self.tree.is_directory(node) { Ok(()) } else { Err(Errno::EEXIST) };
        }
        let call = Call { disk, kind: SimKind::Create, path, length: 0 };
        self.change(&call, |state| state.tree.make_directories(path))
    }

    fn list(&mut self, disk: u32, path: &Path) -> Result<Vec<DirectoryEntry>, Errno> {
        self.check_alive(disk, path)?;
        self.tree.list(path)
    }

    fn sync_directory(&mut self, disk: u32, path: &Path) -> Result<(), Errno> {
        self.check_alive(disk, path)?;
        let call = Call { disk, kind: SimKind::SyncDirectory, path, length: 0 };
        self.change(&call, |state| state.tree.sync_directory(path))?;
        self.forget_unreachable();
        Ok(())
    }

    fn remove(&mut self, disk: u32, path: &Path, is_directory: bool) -> Result<(), Errno> {
        if self.found(disk, path)?.is_none() {
            return Ok(());
        }
        let call = Call { disk, kind: SimKind::Remove, path, length: 0 };
        self.change(&call, |state| {
            if is_directory {
                state.tree.remove_directory(path)
            } else {
                state.tree.remove_file(path)
            }
        })
    }

    fn open(&mut self, disk: u32, path: &Path, mode: OpenMode) -> Result<OpenedFile, Errno> {
        let node = match self.found(disk, path)? {
            Some(node) => node,
            None if mode == OpenMode::Create => {
                let file = SimFile::created(self.options.clock.unix_s());
                let call = Call { disk, kind: SimKind::Create, path, length: 0 };
                self.change(&call, |state| state.tree.make(path, Node::File(file)))?
            }
            None => return Err(Errno::ENOENT),
        };
        let length = ByteCount::new(self.tree.file(node)?.volatile.length());
        let is_read_only = self.read_only.contains(&self.part_of(path));
        if is_read_only && mode != OpenMode::ReadOnly {
            return Err(Errno::EROFS);
        }
        let file = self.disk(disk).open(OpenFile {
            node,
            path: path.to_owned(),
            mode,
            is_locked: false,
            is_closed: false,
            users: 0,
        });
        Ok(OpenedFile { file, length, buffered: None })
    }

    fn lock(&mut self, disk: u32, file: FileId) -> Result<Lock, Errno> {
        let node = self.opened(disk, file)?.node;
        let holder = self.disks.iter().find(|&(&number, state)| {
            state.files.iter().any(|(&id, open)| {
                open.node == node && open.is_locked && (number, id) != (disk, file)
            })
        });
        if let Some((&number, _)) = holder {
            return Ok(Lock::Held { process: Some(number) });
        }
        self.opened(disk, file)?.is_locked = true;
        Ok(Lock::Taken)
    }

    /// Changes the size of an open file.
    fn resize(
        &mut self,
        disk: u32,
        file: FileId,
        kind: SimKind,
        change: Change,
    ) -> Result<(), Errno> {
        let open = self.opened(disk, file)?;
        if open.mode == OpenMode::ReadOnly {
            return Err(Errno::EBADF);
        }
        let (node, path) = (open.node, open.path.clone());
        let (Change::Allocate { length } | Change::Truncate { length }) = change else {
            return Err(Errno::EINVAL);
        };
        let call = Call { disk, kind, path: &path, length };
        self.change(&call, |state| {
            if !state.has_room(node, &change) {
                return Err(Errno::ENOSPC);
            }
            let sequence = state.apply(node, change);
            state.tree.report(node, sequence);
            Ok(())
        })
    }

    fn length(&mut self, disk: u32, file: FileId) -> Result<ByteCount, Errno> {
        let node = self.opened(disk, file)?.node;
        Ok(ByteCount::new(self.tree.file(node)?.volatile.length()))
    }

    fn allocated(&mut self, disk: u32, path: &Path) -> Result<ByteCount, Errno> {
        let Some(node) = self.found(disk, path)? else { return Ok(ByteCount::new(0)) };
        Ok(ByteCount::new(self.tree.file(node)?.volatile.allocated()))
    }

    fn modified_s(&mut self, disk: u32, path: &Path) -> Result<u64, Errno> {
        let Some(node) = self.found(disk, path)? else { return Ok(0) };
        Ok(self.tree.file(node)?.volatile.modified_s)
    }

    fn space(&mut self, disk: u32, path: &Path) -> Result<Space, Errno> {
        self.found(disk, path)?.ok_or(Errno::ENOENT)?;
        Ok(Space { total: self.options.total, available: ByteCount::new(self.available()) })
    }
}

/// Names the call and the file of an errno.
fn file_error(call: FileCall, path: &Path) -> impl FnOnce(Errno) -> FileError {
    move |errno| FileError::new(call, path, &io::Error::from(errno))
}

impl SimDisk {
    /// Returns the path that a file was opened with.
    fn path(&self, file: FileId) -> PathBuf {
        let mut state = self.lock_state();
        let open = state.disk(self.number).files.get(&file);
        open.map_or_else(|| PathBuf::from(format!("file {}", file.get())), |open| open.path.clone())
    }
}

impl Files for SimDisk {
    fn create_directory(&mut self, path: &Path) -> Result<(), FileError> {
        let made = self.lock_state().create_directory(self.number, path);
        made.map_err(file_error(FileCall::CreateDirectory, path))
    }

    fn list(&mut self, path: &Path) -> Result<Vec<DirectoryEntry>, FileError> {
        self.lock_state().list(self.number, path).map_err(file_error(FileCall::List, path))
    }

    fn sync_directory(&mut self, path: &Path) -> Result<(), FileError> {
        let synced = self.lock_state().sync_directory(self.number, path);
        synced.map_err(file_error(FileCall::SyncDirectory, path))
    }

    fn remove_file(&mut self, path: &Path) -> Result<(), FileError> {
        let removed = self.lock_state().remove(self.number, path, false);
        removed.map_err(file_error(FileCall::Remove, path))
    }

    fn remove_directory(&mut self, path: &Path) -> Result<(), FileError> {
        let removed = self.lock_state().remove(self.number, path, true);
        removed.map_err(file_error(FileCall::Remove, path))
    }

    fn open(&mut self, path: &Path, mode: OpenMode) -> Result<OpenedFile, FileError> {
        let opened = self.lock_state().open(self.number, path, mode);
        opened.map_err(file_error(FileCall::Open, path))
    }

    fn close(&mut self, file: FileId) {
        self.lock_state().close(self.number, file);
    }

    fn lock(&mut self, file: FileId) -> Result<Lock, FileError> {
        let path = self.path(file);
        self.lock_state().lock(self.number, file).map_err(file_error(FileCall::Lock, &path))
    }

    fn allocate(
        &mut self,
        file: FileId,
        length: ByteCount,
    ) -> Result<Option<Downgrade>, FileError> {
        let path = self.path(file);
        let change = Change::Allocate { length: length.get() };
        let made = self.lock_state().resize(self.number, file, SimKind::Allocate, change);
        made.map(|()| None).map_err(file_error(FileCall::Allocate, &path))
    }

    fn truncate(&mut self, file: FileId, length: ByteCount) -> Result<(), FileError> {
        let path = self.path(file);
        let change = Change::Truncate { length: length.get() };
        let made = self.lock_state().resize(self.number, file, SimKind::Truncate, change);
        made.map_err(file_error(FileCall::Truncate, &path))
    }

    fn length(&mut self, file: FileId) -> Result<ByteCount, FileError> {
        let path = self.path(file);
        self.lock_state().length(self.number, file).map_err(file_error(FileCall::Status, &path))
    }

    fn allocated(&mut self, path: &Path) -> Result<ByteCount, FileError> {
        let allocated = self.lock_state().allocated(self.number, path);
        allocated.map_err(file_error(FileCall::Status, path))
    }

    fn modified_s(&mut self, path: &Path) -> Result<u64, FileError> {
        let modified_s = self.lock_state().modified_s(self.number, path);
        modified_s.map_err(file_error(FileCall::Status, path))
    }

    fn space(&mut self, path: &Path) -> Result<Space, FileError> {
        self.lock_state().space(self.number, path).map_err(file_error(FileCall::Status, path))
    }
}
