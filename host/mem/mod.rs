//! Host memory that devices and disks read and write directly: the slab of slots.
//!
//! | file | what |
//! |---|---|
//! | `slab.rs` | [`Slab`]: one group's slots, and who may touch one |
//! | `region.rs` | mapped memory on the largest pages to be had, faulted in, kept from forks |
//! | `available.rs` | how much memory may be taken before the system kills us |
//!
//! Linux only, as the tiers are. Called by the pager, devices and disk back ends.

mod available;
mod region;
mod slab;
#[cfg(test)]
mod tests;

pub use available::MemoryLimit;
pub use region::{Downgrade, PageKind, SlabError};
pub use slab::{ReadAccess, Slab, SlotHold, SlotMemory, WriteAccess};

#[cfg(feature = "replay")]
pub(crate) use available::available as available_memory;
pub(crate) use region::Region;
pub(crate) use slab::HEADER_BYTES;
