//! What the built-in workloads look like: the numbers behind the generator.
//!
//! Sizes are in tokens, times in milliseconds, chances in permille; all integers, so that a seed
//! means the same requests everywhere. The presets have the shape of published traces: a chat
//! service with many short sessions, and coding agents with long ones that share their tools.

use super::request::REQUEST_BLOCKS_MAX;
use crate::random::high_half;
use crate::units::TokenCount;

/// An inclusive range that a number is drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    low: u32,
    /// At least `low`.
    high: u32,
}

impl Span {
    /// Makes the range from the smaller to the larger of two numbers, both included.
    pub const fn new(one: u32, other: u32) -> Self {
        if one <= other { Self { low: one, high: other } } else { Self { low: other, high: one } }
    }

    /// Returns the smallest number.
    pub const fn low(self) -> u32 {
        self.low
    }

    /// Returns the largest number.
    pub const fn high(self) -> u32 {
        self.high
    }

    /// Returns the number that lies `fraction / 2^64` of the way through the range.
    pub(super) fn at(self, fraction: u64) -> u32 {
        let size = u64::from(self.high - self.low) + 1;
        let offset = u32::try_from(high_half(fraction, size));
        self.low + offset.expect("an offset below the size of a u32 range is a u32")
    }
}

/// Why a workload cannot be generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// A number is outside of what it may be.
    #[error("{field} is {value}; give {low} to {high}")]
    OutOfRange {
        /// The number's name.
        field: &'static str,
        /// The number.
        value: u64,
        /// Smallest accepted.
        low: u64,
        /// Largest accepted.
        high: u64,
    },
}

/// The shape of a generated workload; [`Workload::CHAT`] and [`Workload::AGENT`] are presets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Tokens of a block; a request has the full blocks of its prompt.
    pub block_tokens: TokenCount,
    /// Sessions live at once; forks come on top.
    pub live_sessions: u32,
    /// Tokens of the tool definitions that open every prompt; 0 for none.
    pub tool_tokens: TokenCount,
    /// Different system prompts. The n-th most popular opens 1/n as many sessions as the first.
    pub system_prompts: u32,
    /// Tokens of a system prompt, uniform.
    pub system_tokens: Span,
    /// Turns of a session before it ends, small numbers more likely.
    pub turns: Span,
    /// Tokens that a turn adds before the model answers, small numbers more likely.
    pub input_tokens: Span,
    /// Tokens of an answer, small numbers more likely; the next turn's prompt holds them.
    pub output_tokens: Span,
    /// Milliseconds from one request of a session to its next, small numbers more likely.
    pub gap_ms: Span,
    /// Chance that a turn forks a branch, which shares the prompt so far and goes its own way
    /// beside the session: a sub-agent, or an answer asked for again.
    pub fork_permille: u32,
    /// Turns of a fork before it ends, small numbers more likely.
    pub fork_turns: Span,
    /// Tokens of the longest prompt; a session that gets there ends.
    pub context_tokens_max: TokenCount,
}

impl Workload {
    /// Most requests of a generated trace.
    pub const REQUESTS_MAX: u64 = 1_000_000;
    /// Most sessions live at once, and most system prompts.
    pub const SESSIONS_MAX: u32 = 1 << 16;

    /// Multi-turn chat: many sessions, short turns, think times of a person, skewed prompts.
    pub const CHAT: Self = Self {
        block_tokens: TokenCount::new(256),
        live_sessions: 256,
        tool_tokens: TokenCount::new(0),
        system_prompts: 64,
        system_tokens: Span::new(256, 4096),
        turns: Span::new(1, 24),
        input_tokens: Span::new(16, 6144),
        output_tokens: Span::new(32, 2048),
        gap_ms: Span::new(2_000, 240_000),
        fork_permille: 20,
        fork_turns: Span::new(1, 3),
        context_tokens_max: TokenCount::new(65_536),
    };

    /// Agent loops: few sessions, long prompts, tool results of any size, forked sub-agents.
    pub const AGENT: Self = Self {
        block_tokens: TokenCount::new(256),
        live_sessions: 32,
        tool_tokens: TokenCount::new(12_288),
        system_prompts: 8,
        system_tokens: Span::new(2_048, 6_144),
        turns: Span::new(8, 160),
        input_tokens: Span::new(32, 12_288),
        output_tokens: Span::new(32, 2_048),
        gap_ms: Span::new(500, 60_000),
        fork_permille: 15,
        fork_turns: Span::new(2, 40),
        context_tokens_max: TokenCount::new(200_000),
    };

    /// Checks that requests can be generated.
    pub(super) fn validate(&self) -> Result<(), WorkloadError> {
        let sessions_max = u64::from(Self::SESSIONS_MAX);
        let block_tokens = self.block_tokens.get().into();
        let live_sessions = self.live_sessions.into();
        let fork_permille = self.fork_permille.into();
        in_range("block_tokens", block_tokens, 1, 1 << 20)?;
        in_range("live_sessions", live_sessions, 1, sessions_max)?;
        in_range("system_prompts", self.system_prompts.into(), 1, sessions_max)?;
        in_range("fork_permille", fork_permille, 0, 1000)?;
        // Each prompt has a token of the session's own at least, and its blocks fit a request.
        let opening = u64::from(self.tool_tokens.get()) + u64::from(self.system_tokens.high());
        let longest = (block_tokens * u64::from(REQUEST_BLOCKS_MAX)).min(u32::MAX.into());
        let context = self.context_tokens_max.get().into();
        in_range("context_tokens_max", context, opening + 1, longest)
    }
}

/// Checks `value` against the bounds of its field.
pub(super) fn in_range(
    field: &'static str,
    value: u64,
    low: u64,
    high: u64,
) -> Result<(), WorkloadError> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(WorkloadError::OutOfRange { field, value, low, high })
}
