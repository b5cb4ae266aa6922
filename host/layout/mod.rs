//! The layout of one device cache, and the packing map of its chunks.
//!
//! An engine states once, at open, all groups and planes of its cache: bases, strides, fragment
//! bytes, inner order, element type, shard. [`LayoutBuilder::build`] checks all of it; a built
//! [`Layout`] never changes, so nothing checks it again. [`engines`] has constructors for the
//! caches that engines really have; [`Packing`] maps a chunk's fragments into its payload;
//! [`Group::digest_input`] says what of it enters the store id.
//!
//! Called by engine authors, the fingerprint, the core and the devices. Pure: no clock, no I/O,
//! and it reads no byte behind the addresses it is told.

mod digest;
pub mod engines;
mod error;
mod group;
mod packing;
mod plane;
#[cfg(test)]
mod tests;

pub use error::{LayoutError, LayoutField, Place};
pub use group::{Attention, Group, GroupBuilder, Paging};
pub use packing::{Packing, Part, SLOT_BYTES_MAX};
pub use plane::{ElementType, InnerOrder, Plane, PlaneContent, PlaneName};

use crate::units::GroupIndex;

/// The most groups a layout may have.
pub const GROUP_COUNT_MAX: usize = 8;

/// The most planes a group may have: far above the deepest models, so that a slip is caught.
pub const PLANE_COUNT_MAX: usize = 4096;

/// Alignment of every base address, block stride and fragment on the engine's side, in bytes: the
/// narrower of the kernels' two copy paths.
pub const ENGINE_ALIGN_BYTES: u64 = 4;

/// This rank's part of a model that is split over several.
///
/// Replicated caches state the same shard on each rank, and so share their chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shard {
    /// This rank among those that split the heads, from 0.
    pub tensor_rank: u32,
    /// Ranks that split the heads; at least 1.
    pub tensor_ranks: u32,
    /// This rank among those that split the layers, from 0.
    pub pipeline_rank: u32,
    /// Ranks that split the layers; at least 1.
    pub pipeline_ranks: u32,
}

impl Default for Shard {
    /// Returns the whole model: rank 0 of 1 on both axes.
    fn default() -> Self {
        Self { tensor_rank: 0, tensor_ranks: 1, pipeline_rank: 0, pipeline_ranks: 1 }
    }
}

impl Shard {
    /// Checks that each rank is one of its ranks.
    const fn check(self) -> Result<(), LayoutError> {
        if self.tensor_rank >= self.tensor_ranks {
            return Err(LayoutError::RankOutOfRange {
                field: LayoutField::TensorRank,
                rank: self.tensor_rank,
                ranks: self.tensor_ranks,
            });
        }
        if self.pipeline_rank >= self.pipeline_ranks {
            return Err(LayoutError::RankOutOfRange {
                field: LayoutField::PipelineRank,
                rank: self.pipeline_rank,
                ranks: self.pipeline_ranks,
            });
        }
        Ok(())
    }
}

/// All groups and planes of one device cache, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    shard: Shard,
    groups: Vec<Group>,
}

impl Layout {
    /// Starts a layout of the whole model without groups.
    pub fn builder() -> LayoutBuilder {
        LayoutBuilder::default()
    }

    /// Returns this rank's part of the model.
    pub const fn shard(&self) -> Shard {
        self.shard
    }

    /// Returns the groups by index: 1 to 8.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }
}

/// Collects a layout; [`LayoutBuilder::build`] checks it.
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until it is built"]
pub struct LayoutBuilder {
    shard: Shard,
    groups: Vec<GroupBuilder>,
}

impl LayoutBuilder {
    /// States this rank's part of a model that is split over several.
    pub const fn shard(mut self, shard: Shard) -> Self {
        self.shard = shard;
        self
    }

    /// Adds a group; the first has index 0.
    pub fn group(mut self, group: GroupBuilder) -> Self {
        self.groups.push(group);
        self
    }

    /// Checks everything that was stated.
    ///
    /// Planes of one group must be disjoint, since they share block ids. Planes of different
    /// groups may share addresses: hybrid engines page all groups out of one pool and give each
    /// block to one group at a time, which only the engine can see to.
    ///
    /// # Errors
    ///
    /// [`LayoutError`] names the first group, plane, field and value that cannot be right.
    pub fn build(self) -> Result<Layout, LayoutError> {
        let group_count = self.groups.len();
        if group_count == 0 || group_count > GROUP_COUNT_MAX {
            return Err(LayoutError::GroupCount { group_count });
        }
        self.shard.check()?;
        let groups = (0..)
            .map(GroupIndex::new)
            .zip(self.groups)
            .map(|(index, group)| group.build(index, self.shard))
            .collect::<Result<_, _>>()?;
        Ok(Layout { shard: self.shard, groups })
    }
}
