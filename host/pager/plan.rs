//! Plans: the answer to a lookup, pinned until it is dropped or its lease ends.
//!
//! Dropping a plan takes no lock: its id goes into a queue that the next step drains.

use super::shared::Shared;
use crate::core::{GroupHits, PlanId, PrefixHit, Refused};
use crate::units::TokenCount;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// What a lookup found. The chunks stay where they are while it lives and its lease lasts.
#[derive(Debug)]
#[must_use = "a plan pins chunks until it is dropped; load them, or drop it"]
pub struct Plan {
    hit: PrefixHit,
    shared: Arc<Shared>,
    dropped: Sender<PlanId>,
}

impl Plan {
    pub(super) fn new(hit: PrefixHit, shared: Arc<Shared>) -> Self {
        let dropped = shared.drop_queue();
        Self { hit, shared, dropped }
    }

    /// Returns the tokens of the prompt that need not be computed: all groups can load the chunks
    /// before them.
    pub fn tokens(&self) -> TokenCount {
        self.hit.tokens
    }

    /// Returns the chunks that each group holds for it, and why it could not reach further.
    pub fn groups(&self) -> &[GroupHits] {
        self.hit.groups()
    }

    /// Lets the plan live for another lease from now.
    ///
    /// # Errors
    ///
    /// [`Refused::PlanLapsed`] when it has lapsed already: look the prefix up again.
    pub fn renew(&self) -> Result<(), Refused> {
        self.shared.renew_plan(self.hit.plan)
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        // A closed queue means that the pager is gone, and with it all pins.
        let _closed = self.dropped.send(self.hit.plan);
    }
}
