//! Host memory that devices and disks read and write directly: the slab of slots.
//!
//! Called by the pager, devices and disk back ends. See [`Slab`] for the contract.

mod slab;

pub use slab::{PageKind, Slab, SlabError, SlotMemory};
