//! Stand-in for the slab.
use crate::units::{ByteCount, SlotIndex};
use std::sync::Arc;

/// a
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// a
    HugeTlb,
    /// a
    TransparentHuge,
    /// a
    Small,
}
/// a
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlabError {
    /// a
    #[error("a")]
    Memory,
}
/// a
#[derive(Debug)]
pub struct Slab;
/// a
#[derive(Debug)]
pub struct SlotMemory;
impl Slab {
    /// a
    pub fn allocate(_slot_count: u32, _slot: ByteCount) -> Result<Arc<Self>, SlabError> {
        Err(SlabError::Memory)
    }
    /// a
    pub fn page_kind(&self) -> PageKind {
        PageKind::Small
    }
    /// a
    pub fn slot(self: &Arc<Self>, _slot: SlotIndex, _length: ByteCount) -> SlotMemory {
        SlotMemory
    }
}
