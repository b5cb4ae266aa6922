//! Eviction policies: which chunk leaves next.
//!
//! A [`Policy`] ranks the slots of one group in one tier. It decides order and nothing else: the
//! core asks for a victim, checks that the victim may go (no pin, no descendant) and keeps the
//! slot states. Slots that are pinned, in flight or free are not ranked.
//!
//! Invariants: a slot is ranked at most once; every call is O(1) amortised and allocates nothing
//! after construction; the order is a function of the calls alone, so that a run replays.
//!
//! Called by `core` under its lock.

mod lru;

pub use lru::Lru;

use crate::units::SlotIndex;
use std::fmt::Debug;

/// Ranks the evictable slots of one group in one tier.
///
/// The core calls [`rank`](Policy::rank) when a chunk has been stored or its last reader has left,
/// leaf before root within one request; [`unrank`](Policy::unrank) when it is pinned or lost.
pub trait Policy: Debug + Send {
    /// Names the policy in reports and metrics.
    fn name(&self) -> &'static str;

    /// Takes `slot` into the ranking as just used.
    ///
    /// # Panics
    ///
    /// May panic when `slot` is ranked already.
    fn rank(&mut self, slot: SlotIndex);

    /// Takes `slot` out of the ranking.
    ///
    /// # Panics
    ///
    /// May panic when `slot` is not ranked.
    fn unrank(&mut self, slot: SlotIndex);

    /// Takes the slot that should leave next out of the ranking and returns it.
    ///
    /// The core need not evict it: a chunk with descendants is set aside and comes back through
    /// [`rank_next`](Policy::rank_next) once they are gone.
    fn pop_victim(&mut self) -> Option<SlotIndex>;

    /// Takes `slot`, popped earlier, back into the ranking as the one that leaves next.
    ///
    /// # Panics
    ///
    /// May panic when `slot` is ranked already.
    fn rank_next(&mut self, slot: SlotIndex);

    /// Returns the slot that would leave after `slot` if the ranking stayed as it is, or the one
    /// that leaves next for `None`; `None` at the end.
    ///
    /// # Panics
    ///
    /// May panic when `slot` is not ranked.
    fn victim_after(&self, slot: Option<SlotIndex>) -> Option<SlotIndex>;

    /// Whether `slot` is ranked.
    fn is_ranked(&self, slot: SlotIndex) -> bool;

    /// Bytes that the policy holds for one slot.
    fn slot_bytes(&self) -> usize;
}
