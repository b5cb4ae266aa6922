//! Seeded request streams of chat services and agent loops.
//!
//! A virtual clock runs sessions side by side: the one whose next request is due goes first, ties
//! by age. A session opens with the tool definitions and one of the shared system prompts, grows
//! by an input and an answer a turn, may fork, and ends; a new one takes its place.
//!
//! Invariant, as in every trace: a number is handed out once, for one block behind one prefix.
//! Sequence numbers are taken from a counter as prompts grow, so a block's parent never changes.

use super::request::{BlockNumber, BlockRun, Request, RunList, Scope};
use super::workload::{Workload, WorkloadError, in_range};
use crate::random::SplitMix64;
use crate::units::TokenCount;
use std::collections::BTreeMap;

/// A prompt as far as it is written: its tokens, and the numbers of its full blocks.
#[derive(Clone, Debug, Default)]
struct Prompt {
    tokens: u32,
    blocks: RunList,
}

/// A conversation under way.
#[derive(Clone, Debug)]
struct Session {
    prompt: Prompt,
    turns_left: u32,
    /// A fork has no successor when it ends.
    is_fork: bool,
}

/// An endless workload, cut off after a number of requests: the same for the same seed anywhere.
///
/// ```
/// use kvtide::replay::{Generator, Trace, Workload};
///
/// let requests: Vec<_> = Generator::new(Workload::CHAT, 7, 100)?.collect();
/// let again: Vec<_> = Generator::new(Workload::CHAT, 7, 100)?.collect();
/// assert_eq!(requests, again);
/// assert_eq!(Trace::from_requests(requests)?.requests().len(), 100);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Generator {
    workload: Workload,
    random: SplitMix64,
    requests_left: u64,
    openings: Openings,
    numbers: NumberCounter,
    /// By time due, then age.
    due: BTreeMap<(u64, u64), Session>,
    scheduled: u64,
}

/// The prompts that sessions open with, by popularity.
#[derive(Clone, Debug)]
struct Openings {
    prompts: Vec<Prompt>,
    /// `weights[i]` is the sum of the weights of prompts 0 to i.
    weights: Vec<u64>,
}

/// Hands out block numbers, each once.
#[derive(Clone, Debug)]
struct NumberCounter {
    next: u64,
    block_tokens: u32,
}

impl NumberCounter {
    /// Adds `tokens` to `prompt` and numbers the blocks that are full now.
    fn grow(&mut self, prompt: &mut Prompt, tokens: u32) {
        prompt.tokens += tokens;
        let full = prompt.tokens / self.block_tokens - prompt.blocks.block_count();
        if full == 0 {
            return;
        }
        let run = BlockRun::new(BlockNumber::new(self.next), full.into()).expect(
            "a prompt's blocks fit a request, and 2^40 requests do not reach the last number",
        );
        let pushed = prompt.blocks.push(run);
        pushed.expect("the workload's longest prompt fits a request");
        self.next = run.end();
    }
}

impl Openings {
    fn new(workload: &Workload, random: &mut SplitMix64, numbers: &mut NumberCounter) -> Self {
        let mut tools = Prompt::default();
        numbers.grow(&mut tools, workload.tool_tokens.get());
        let mut prompts = Vec::new();
        let mut weights = Vec::new();
        let mut weight_sum = 0;
        for rank in 1..=u64::from(workload.system_prompts) {
            let mut prompt = tools.clone();
            numbers.grow(&mut prompt, random.uniform(workload.system_tokens));
            prompts.push(prompt);
            weight_sum += (1 << 32) / rank;
            weights.push(weight_sum);
        }
        Self { prompts, weights }
    }

    fn pick(&self, random: &mut SplitMix64) -> Prompt {
        let draw = random.below(self.weights.last().copied().unwrap_or(0));
        let rank = self.weights.partition_point(|&weight| weight <= draw);
        self.prompts[rank].clone()
    }
}

impl Generator {
    /// Starts `workload` from `seed`, to end after `request_count` requests.
    ///
    /// # Errors
    ///
    /// [`WorkloadError`] when a number of the workload is out of range, or `request_count` is 0
    /// or over [`Workload::REQUESTS_MAX`].
    pub fn new(workload: Workload, seed: u64, request_count: u64) -> Result<Self, WorkloadError> {
        workload.validate()?;
        in_range("requests", request_count, 1, Workload::REQUESTS_MAX)?;
        let mut random = SplitMix64::new(seed);
        let mut numbers = NumberCounter { next: 0, block_tokens: workload.block_tokens.get() };
        let openings = Openings::new(&workload, &mut random, &mut numbers);
        let mut generator = Self {
            workload,
            random,
            requests_left: request_count,
            openings,
            numbers,
            due: BTreeMap::new(),
            scheduled: 0,
        };
        for _ in 0..workload.live_sessions {
            generator.open_session(0);
        }
        Ok(generator)
    }

    /// Opens a session some time after `now_ms`.
    fn open_session(&mut self, now_ms: u64) {
        let session = Session {
            prompt: self.openings.pick(&mut self.random),
            turns_left: self.random.skewed(self.workload.turns),
            is_fork: false,
        };
        self.schedule(now_ms, session);
    }

    /// Makes `session` due some time after `now_ms`.
    fn schedule(&mut self, now_ms: u64, session: Session) {
        let gap_ms = self.random.skewed(self.workload.gap_ms);
        let due_ms = now_ms + u64::from(gap_ms);
        self.due.insert((due_ms, self.scheduled), session);
        self.scheduled += 1;
    }

    /// Runs one turn: the prompt grows by an input, is sent, and grows by the answer.
    fn turn(&mut self, now_ms: u64, session: &mut Session) -> Request {
        let input = self.random.skewed(self.workload.input_tokens);
        self.grow_within_context(&mut session.prompt, input);
        let output = self.random.skewed(self.workload.output_tokens);
        let prompt = session.prompt.clone();
        let request = Request::from_run_list(Scope::GLOBAL, prompt.blocks)
            .with_tokens(TokenCount::new(prompt.tokens), TokenCount::new(output))
            .with_arrival_ms(Some(now_ms));
        self.grow_within_context(&mut session.prompt, output);
        session.turns_left = session.turns_left.saturating_sub(1);
        request
    }

    fn grow_within_context(&mut self, prompt: &mut Prompt, tokens: u32) {
        let room = self.workload.context_tokens_max.get() - prompt.tokens;
        self.numbers.grow(prompt, tokens.min(room));
    }

    /// Decides what follows a turn: perhaps a fork, then the next turn or the next session.
    fn go_on(&mut self, now_ms: u64, session: Session) {
        if self.random.chance(self.workload.fork_permille) && !session.is_fork {
            let fork = Session {
                prompt: session.prompt.clone(),
                turns_left: self.random.skewed(self.workload.fork_turns),
                is_fork: true,
            };
            self.schedule(now_ms, fork);
        }
        let is_full = session.prompt.tokens >= self.workload.context_tokens_max.get();
        match session {
            session if session.turns_left > 0 && !is_full => self.schedule(now_ms, session),
            Session { is_fork: false, .. } => self.open_session(now_ms),
            Session { is_fork: true, .. } => {}
        }
    }
}

impl Iterator for Generator {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        self.requests_left = self.requests_left.checked_sub(1)?;
        let ((now_ms, _), mut session) = self.due.pop_first()?;
        let request = self.turn(now_ms, &mut session);
        self.go_on(now_ms, session);
        Some(request)
    }
}

#[cfg(test)]
mod tests;
