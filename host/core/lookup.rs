//! The longest stored prefix over several groups, found step by step.
//!
//! The result is the largest token count that is a multiple of every group's chunk tokens, for
//! which each full group has all chunks before it, and each window group all chunks that hold any
//! of the last `window` tokens before it. (A window that counts the next token itself needs one
//! token less; asking for the whole window can cost a chunk's hit and never a wrong byte.)
//!
//! A [`Lookup`] lives with the caller and touches the core only in [`Lookup::step`], which makes
//! one bounded call: the caller holds its lock for one step at a time. Every key is probed at most
//! once. The boundary only ever falls, so the steps end.

use super::plan::PlanId;
use super::{Core, KEY_COUNT_MAX, MissReason, Refused};
use crate::key::Key;
use crate::layout::{Attention, GROUP_COUNT_MAX};
use crate::units::{GroupIndex, Timestamp, TokenCount};
use thiserror::Error;

/// What a lookup needs to know of one group.
#[derive(Clone, Copy, Debug)]
pub struct GroupKeys<'a> {
    /// Keys of all full chunks of the prompt in this group, root first.
    pub keys: &'a [Key],
    /// Tokens of one chunk.
    pub chunk_tokens: TokenCount,
    /// Which chunks before the boundary the group needs: as the core was made with.
    pub attention: Attention,
}

/// Why a lookup cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LookupError {
    /// Fewer or more groups than the core has: a prefix is there only if each group has it.
    #[error("groups: {group_count} given; a lookup takes all {core_group_count} of the core")]
    GroupCount {
        /// Groups given.
        group_count: usize,
        /// Groups that the core was made with.
        core_group_count: usize,
    },
    /// A group whose attention is not what the core was made with.
    #[error("groups[{group}].attention: is {given:?}; the core was made with {made_with:?}")]
    Attention {
        /// Position of the group.
        group: usize,
        /// The attention given.
        given: Attention,
        /// That of the core's configuration.
        made_with: Attention,
    },
    /// A chunk of no tokens.
    #[error("groups[{group}].chunk_tokens: is 0; give the tokens of one chunk")]
    ZeroChunkTokens {
        /// Position of the group.
        group: usize,
    },
    /// The groups' chunks have no common multiple within 32 bits.
    #[error(
        "groups[{group}].chunk_tokens: {chunk_tokens} has no common multiple below 2^32 with the \
         groups before it; choose blocks_per_chunk so that the chunks line up"
    )]
    NoCommonBoundary {
        /// Position of the group.
        group: usize,
        /// The group's chunk tokens.
        chunk_tokens: TokenCount,
    },
    /// The core refused to open a plan.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// Chunks of one group that a lookup found and its plan holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupHits {
    /// Position of the first chunk held: 0 in a full group, where the window begins in others.
    pub first_chunk: u32,
    /// Chunks held.
    pub chunk_count: u32,
    /// Those of them that were on disk only when they were found.
    pub disk_chunk_count: u32,
    /// Why the group could not reach further; `None` when the prompt or another group ended it.
    pub miss: Option<MissReason>,
}

/// The answer to a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixHit {
    /// Holds the chunks below until it is dropped or lapses.
    pub plan: PlanId,
    /// Tokens that need not be computed again.
    pub tokens: TokenCount,
    hits: [GroupHits; GROUP_COUNT_MAX],
    group_count: usize,
}

impl PrefixHit {
    /// Returns what was found in each group, in the order of the lookup's groups.
    pub fn groups(&self) -> &[GroupHits] {
        &self.hits[..self.group_count]
    }
}

/// A lookup under way, over one or several groups.
///
/// It finds the largest token count that is a multiple of every group's chunk tokens, for which
/// each full group has all chunks before it and each window group all chunks that hold any of the
/// last `window` tokens before it. It lives with the caller and touches the core only in
/// [`Lookup::step`], so that the caller holds its lock for one bounded call at a time.
#[derive(Debug)]
pub struct Lookup<'a> {
    plan: PlanId,
    groups: &'a [GroupKeys<'a>],
    /// Chunks `first_chunk..first_chunk + chunk_count` of each group are pinned.
    hits: [GroupHits; GROUP_COUNT_MAX],
    /// Tokens that the groups can still agree on; a multiple of `unit`.
    boundary: u32,
    /// Least common multiple of the groups' chunk tokens.
    unit: u32,
}

impl<'a> Lookup<'a> {
    /// Opens a plan for a lookup of `groups`: all groups of the core, in the layout's order.
    ///
    /// # Errors
    ///
    /// See [`LookupError`].
    pub fn begin(
        core: &mut Core,
        groups: &'a [GroupKeys<'a>],
        now: Timestamp,
    ) -> Result<Self, LookupError> {
        check_groups(core, groups)?;
        let unit = common_unit(groups.iter().map(|group| group.chunk_tokens))?;
        let reach = |group: &GroupKeys<'_>| {
            let tokens = group.keys.len() as u64 * u64::from(group.chunk_tokens.get());
            u32::try_from(tokens).unwrap_or(u32::MAX)
        };
        let shortest = groups.iter().map(reach).min().unwrap_or(0);
        Ok(Self {
            plan: core.open_plan(now)?,
            groups,
            hits: [GroupHits::default(); GROUP_COUNT_MAX],
            boundary: shortest - shortest % unit,
            unit,
        })
    }

    /// Returns the plan that holds what was found so far, to be dropped when the lookup is given
    /// up half way.
    pub fn plan(&self) -> PlanId {
        self.plan
    }

    /// Makes one bounded call to the core. Returns the answer once there is nothing left to ask.
    ///
    /// # Errors
    ///
    /// [`Refused::PlanLapsed`] when the steps outlasted the lease, and [`Refused::Poisoned`].
    pub fn step(&mut self, core: &mut Core) -> Result<Option<PrefixHit>, Refused> {
        // Full groups first: they bound where the windows need to be looked for.
        for windows in [false, true] {
            for at in 0..self.groups.len() {
                if self.is_window(at) == windows && self.step_group(core, at)? {
                    return Ok(None);
                }
            }
        }
        for (at, hits) in self.hits.iter_mut().enumerate().take(self.groups.len()) {
            hits.disk_chunk_count = core.disk_count(self.plan, at);
        }
        Ok(Some(PrefixHit {
            plan: self.plan,
            tokens: TokenCount::new(self.boundary),
            hits: self.hits,
            group_count: self.groups.len(),
        }))
    }

    /// Brings one group a step nearer to the boundary; returns whether there was anything to do.
    fn step_group(&mut self, core: &mut Core, at: usize) -> Result<bool, Refused> {
        let wanted_end = self.chunks_before(at, self.boundary);
        let held = self.hits[at];
        let end = held.first_chunk + held.chunk_count;
        if held.chunk_count == 0 && held.first_chunk != wanted_end && self.is_window(at) {
            self.hits[at].first_chunk = wanted_end;
            return Ok(true);
        }
        if held.chunk_count > 0 && end > wanted_end {
            return self.trim(core, at, wanted_end).map(|()| true);
        }
        match self.groups[at].attention {
            Attention::Full if end < wanted_end => {
                self.reach_deeper(core, at, end, wanted_end).map(|()| true)
            }
            Attention::Window { tokens } => {
                let window_start = self.boundary.saturating_sub(tokens.get());
                let wanted_start = self.chunks_before(at, window_start);
                if held.first_chunk <= wanted_start {
                    return Ok(false);
                }
                self.reach_back(core, at, wanted_start).map(|()| true)
            }
            Attention::Full => Ok(false),
        }
    }

    fn trim(&mut self, core: &mut Core, at: usize, wanted_end: u32) -> Result<(), Refused> {
        let kept = wanted_end.saturating_sub(self.hits[at].first_chunk);
        if core.trim_plan(self.plan, group_index(at), kept)? {
            self.hits[at].chunk_count = kept;
        }
        Ok(())
    }

    fn reach_deeper(
        &mut self,
        core: &mut Core,
        at: usize,
        end: u32,
        wanted_end: u32,
    ) -> Result<(), Refused> {
        let keys = &self.groups[at].keys[end as usize..wanted_end as usize];
        let keys = &keys[..keys.len().min(KEY_COUNT_MAX)];
        let probe = core.extend_plan(self.plan, group_index(at), keys)?;
        self.hits[at].chunk_count += probe.hit_count;
        if probe.miss.is_some() {
            self.fall_to(at, end + probe.hit_count, probe.miss);
        }
        Ok(())
    }

    fn reach_back(&mut self, core: &mut Core, at: usize, start: u32) -> Result<(), Refused> {
        let first = self.hits[at].first_chunk as usize;
        let from = (start as usize).max(first.saturating_sub(KEY_COUNT_MAX));
        let mut keys = [Key::from_u128(0); KEY_COUNT_MAX];
        let count = first - from;
        for (target, key) in keys.iter_mut().zip(self.groups[at].keys[from..first].iter().rev()) {
            *target = *key;
        }
        let probe = core.extend_plan_back(self.plan, group_index(at), &keys[..count])?;
        self.hits[at].first_chunk -= probe.hit_count;
        self.hits[at].chunk_count += probe.hit_count;
        if probe.miss.is_some() {
            self.fall_to(at, self.hits[at].first_chunk - 1, probe.miss);
        }
        Ok(())
    }

    /// Lowers the boundary to what the group's chunks before `chunk` allow.
    fn fall_to(&mut self, at: usize, chunk: u32, miss: Option<MissReason>) {
        let tokens = chunk * self.groups[at].chunk_tokens.get();
        self.boundary = self.boundary.min(tokens - tokens % self.unit);
        self.hits[at].miss = miss;
    }

    fn chunks_before(&self, at: usize, tokens: u32) -> u32 {
        tokens / self.groups[at].chunk_tokens.get()
    }

    fn is_window(&self, at: usize) -> bool {
        matches!(self.groups[at].attention, Attention::Window { .. })
    }
}

fn group_index(at: usize) -> GroupIndex {
    GroupIndex::new(u8::try_from(at).expect("a layout has at most 8 groups"))
}

/// Checks that the groups are those of the core. A group left out would be answered for unasked,
/// and the engine would attend to what its blocks never got.
fn check_groups(core: &Core, groups: &[GroupKeys<'_>]) -> Result<(), LookupError> {
    let (group_count, core_group_count) = (groups.len(), core.groups.len());
    if group_count != core_group_count {
        return Err(LookupError::GroupCount { group_count, core_group_count });
    }
    for (group, (keys, state)) in groups.iter().zip(&core.groups).enumerate() {
        let (given, made_with) = (keys.attention, state.attention);
        if given != made_with {
            return Err(LookupError::Attention { group, given, made_with });
        }
    }
    Ok(())
}

/// Returns the least common multiple of the groups' chunk tokens: the step of every boundary.
pub(crate) fn common_unit(
    chunk_tokens: impl Iterator<Item = TokenCount>,
) -> Result<u32, LookupError> {
    let mut unit = 1_u32;
    for (group, chunk_tokens) in chunk_tokens.enumerate() {
        if chunk_tokens.get() == 0 {
            return Err(LookupError::ZeroChunkTokens { group });
        }
        let step = chunk_tokens.get() / greatest_common_divisor(unit, chunk_tokens.get());
        unit =
            unit.checked_mul(step).ok_or(LookupError::NoCommonBoundary { group, chunk_tokens })?;
    }
    Ok(unit)
}

fn greatest_common_divisor(left: u32, right: u32) -> u32 {
    if right == 0 { left } else { greatest_common_divisor(right, left % right) }
}
