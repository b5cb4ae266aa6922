//! A ring as the kernel at hand can best give it.
//!
//! Completions do not interrupt the owner (`COOP_TASKRUN`). Deferring them altogether
//! (`DEFER_TASKRUN`, which needs `SINGLE_ISSUER`) would tie the disk to the thread that opened it,
//! and gained nothing measurable (docs/measurements.md, "Disks").
//!
//! Called by the ring's engine.

use io_uring::{Builder, IoUring};
use nix::errno::Errno;
use std::io;

/// Ways to ask for a ring, best first; a kernel refuses with `EINVAL` what it does not know.
const SETUPS: [fn(&mut Builder); 2] = [cooperative, plain];

/// From Linux 5.19: completions wait for the owner's next call.
fn cooperative(builder: &mut Builder) {
    builder.setup_submit_all().setup_coop_taskrun().setup_taskrun_flag();
}

fn plain(_builder: &mut Builder) {}

/// Makes a ring with room for `entry_count` submissions.
///
/// # Errors
///
/// What the system says; `Unsupported` before Linux 5.11, where a wait has no timeout.
pub(super) fn make(entry_count: u32) -> io::Result<IoUring> {
    let mut refusal = io::Error::from(Errno::EINVAL);
    for setup in SETUPS {
        let mut builder = IoUring::builder();
        // The queues are not for children of a fork.
        builder.dontfork();
        setup(&mut builder);
        match builder.build(entry_count) {
            Ok(ring) if ring.params().is_feature_ext_arg() && ring.params().is_feature_nodrop() => {
                return Ok(ring);
            }
            Ok(_) => return Err(io::Error::new(io::ErrorKind::Unsupported, "before Linux 5.11")),
            Err(error) => refusal = error,
        }
        if refusal.raw_os_error() != Some(Errno::EINVAL as i32) {
            break;
        }
    }
    Err(refusal)
}
