//! Doubly linked lists over dense indices, in one preallocated array.
//!
//! Recency order, children of a chunk, forgotten chunks, plans by lease and transfers that wait are
//! all lists whose nodes are indices of some table. [`Links`] holds one pair of links an index, and
//! any number of [`List`]s with disjoint members share it.
//!
//! Invariants: a node is in at most one list of its `Links`; lists are circular, so that a head
//! alone finds both ends; every operation is O(1) and allocates nothing.
//!
//! Called by `policy` and `core`.

/// Stands for "no node" in links and heads.
pub(crate) const NONE: u32 = u32::MAX;

/// The neighbours of one node; both [`NONE`] while it is in no list.
#[derive(Clone, Copy, Debug)]
struct Link {
    previous: u32,
    next: u32,
}

const UNLINKED: Link = Link { previous: NONE, next: NONE };

/// One pair of links for each index below a fixed count.
#[derive(Debug)]
pub(crate) struct Links {
    links: Box<[Link]>,
}

/// The head of one list; the members' links live in a [`Links`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct List {
    head: u32,
}

impl List {
    /// A list without members.
    pub(crate) const EMPTY: Self = Self { head: NONE };

    /// Whether the list has no member.
    pub(crate) const fn is_empty(self) -> bool {
        self.head == NONE
    }

    /// Returns the member at the front.
    pub(crate) fn first(self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }
}

impl Links {
    /// Bytes of one node's links.
    pub(crate) const NODE_BYTES: usize = size_of::<Link>();

    /// Makes links for the indices `0..count`, none in a list.
    pub(crate) fn new(count: u32) -> Self {
        Self { links: vec![UNLINKED; count as usize].into_boxed_slice() }
    }

    /// Whether `node` is in some list.
    pub(crate) fn is_linked(&self, node: u32) -> bool {
        self.at(node).next != NONE
    }

    /// Puts `node` at the front of `list`.
    ///
    /// # Panics
    ///
    /// Panics when `node` is in a list already.
    pub(crate) fn push_front(&mut self, list: &mut List, node: u32) {
        self.push_back(list, node);
        list.head = node;
    }

    /// Puts `node` at the back of `list`.
    ///
    /// # Panics
    ///
    /// Panics when `node` is in a list already.
    pub(crate) fn push_back(&mut self, list: &mut List, node: u32) {
        assert!(!self.is_linked(node), "node {node} is in a list already");
        let Some(head) = list.first() else {
            *self.at_mut(node) = Link { previous: node, next: node };
            list.head = node;
            return;
        };
        let back = self.at(head).previous;
        *self.at_mut(node) = Link { previous: back, next: head };
        self.at_mut(back).next = node;
        self.at_mut(head).previous = node;
    }

    /// Takes `node` out of `list`.
    ///
    /// # Panics
    ///
    /// Panics when `node` is in no list.
    pub(crate) fn remove(&mut self, list: &mut List, node: u32) {
        assert!(self.is_linked(node), "node {node} is in no list");
        let Link { previous, next } = self.at(node);
        *self.at_mut(node) = UNLINKED;
        if next == node {
            *list = List::EMPTY;
            return;
        }
        self.at_mut(previous).next = next;
        self.at_mut(next).previous = previous;
        if list.head == node {
            list.head = next;
        }
    }

    /// Moves all members of `other` to the back of `list`, in their order.
    pub(crate) fn append(&mut self, list: &mut List, other: &mut List) {
        let moved = std::mem::replace(other, List::EMPTY);
        let (Some(head), Some(first)) = (list.first(), moved.first()) else {
            if list.is_empty() {
                *list = moved;
            }
            return;
        };
        let back = self.at(head).previous;
        let other_back = self.at(first).previous;
        self.at_mut(back).next = first;
        self.at_mut(first).previous = back;
        self.at_mut(other_back).next = head;
        self.at_mut(head).previous = other_back;
    }

    /// Returns the member at the back of `list`.
    pub(crate) fn last(&self, list: List) -> Option<u32> {
        list.first().map(|head| self.at(head).previous)
    }

    /// Returns the member in front of `node` in `list`; `None` for the one at the front.
    pub(crate) fn before(&self, list: List, node: u32) -> Option<u32> {
        (list.head != node).then(|| self.at(node).previous)
    }

    /// Returns the members of `list`, front to back.
    pub(crate) fn members(&self, list: List) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(list.first(), move |&node| {
            let next = self.at(node).next;
            (next != list.head).then_some(next)
        })
    }

    fn at(&self, node: u32) -> Link {
        self.links[node as usize]
    }

    fn at_mut(&mut self, node: u32) -> &mut Link {
        &mut self.links[node as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::{Links, List};
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const NODES: u32 = 12;

    proptest! {
        #[test]
        fn two_lists_that_share_links_behave_as_deques(
            steps in prop::collection::vec((0..NODES + 1, 0..2_usize, any::<bool>()), 0..200),
        ) {
            let mut links = Links::new(NODES);
            let mut lists = [List::EMPTY; 2];
            let mut models = [VecDeque::new(), VecDeque::new()];
            for (node, which, front) in steps {
                if node == NODES {
                    let [left, right] = &mut lists;
                    let [left_model, right_model] = &mut models;
                    if which == 0 {
                        links.append(left, right);
                        left_model.append(right_model);
                    } else {
                        links.append(right, left);
                        right_model.append(left_model);
                    }
                } else if let Some(owner) = models.iter().position(|model| model.contains(&node)) {
                    prop_assert!(links.is_linked(node));
                    links.remove(&mut lists[owner], node);
                    models[owner].retain(|&member| member != node);
                } else if front {
                    links.push_front(&mut lists[which], node);
                    models[which].push_front(node);
                } else {
                    links.push_back(&mut lists[which], node);
                    models[which].push_back(node);
                }
                for (list, model) in lists.iter().zip(&models) {
                    prop_assert!(links.members(*list).eq(model.iter().copied()));
                    prop_assert_eq!(list.first(), model.front().copied());
                    prop_assert_eq!(links.last(*list), model.back().copied());
                    prop_assert_eq!(list.is_empty(), model.is_empty());
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "in a list already")]
    fn a_node_cannot_be_in_two_lists() {
        let mut links = Links::new(1);
        links.push_back(&mut List::EMPTY.clone(), 0);
        links.push_back(&mut List::EMPTY.clone(), 0);
    }
}
