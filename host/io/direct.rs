//! Whether a file bears `O_DIRECT` at our alignment of 4 KiB.
//!
//! A drive with logical blocks of 512 or 4,096 bytes does. Since Linux 6.1 `statx` tells what a
//! file needs; file systems that do not tell are taken at their word when they open the file.
//!
//! Called by [`files`](super::files).
#![expect(unsafe_code, reason = "statx, which nix does not have")]

use super::IO_ALIGN_BYTES;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

/// What `statx` says that direct reads and writes of a file need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DirectNeeds {
    /// Multiple for memory addresses, in bytes; 0: there are no direct reads and writes.
    pub(super) memory_align_bytes: u32,
    /// Multiple for offsets and lengths, in bytes; 0: there are no direct reads and writes.
    pub(super) offset_align_bytes: u32,
}

impl DirectNeeds {
    /// Returns why 4 KiB are not enough; `None` where they are.
    pub(super) fn unfit(self) -> Option<String> {
        let most = self.memory_align_bytes.max(self.offset_align_bytes);
        let is_none = self.memory_align_bytes == 0 || self.offset_align_bytes == 0;
        if is_none {
            return Some("the file system has no direct reads and writes of it".to_owned());
        }
        (!IO_ALIGN_BYTES.is_multiple_of(u64::from(most)))
            .then(|| format!("the drive needs multiples of {most} bytes, ours are of 4,096"))
    }
}

/// Turns `O_DIRECT` off where the file needs more than multiples of 4 KiB, and says why.
pub(super) fn refuse_unfit(handle: &File) -> io::Result<Option<String>> {
    let unfit = direct_needs(handle).and_then(DirectNeeds::unfit);
    if unfit.is_some() {
        fcntl(handle, FcntlArg::F_SETFL(OFlag::empty()))?;
    }
    Ok(unfit)
}

/// Asks what direct reads and writes need; `None` where kernel or file system do not tell.
fn direct_needs(handle: &File) -> Option<DirectNeeds> {
    let mut status = MaybeUninit::<libc::statx>::zeroed();
    let (flags, mask) = (libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN);
    // SAFETY: the descriptor is open, the path is an empty C string, and `status` is a `statx`.
    let result =
        unsafe { libc::statx(handle.as_raw_fd(), c"".as_ptr(), flags, mask, status.as_mut_ptr()) };
    Errno::result(result).ok()?;
    // SAFETY: a `statx` of zeroes is a good one, and the kernel filled it in.
    let status = unsafe { status.assume_init() };
    (status.stx_mask & mask != 0).then_some(DirectNeeds {
        memory_align_bytes: status.stx_dio_mem_align,
        offset_align_bytes: status.stx_dio_offset_align,
    })
}
