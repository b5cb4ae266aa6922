//! The generator makes traces with the properties of real ones, the same everywhere.

use super::Generator;
use crate::replay::dry_run::{DEFAULT_CAPACITY_PERCENTS, dry_run};
use crate::replay::reference_lru::ReferenceLru;
use crate::replay::request::{BlockNumber, Request};
use crate::replay::trace::Trace;
use crate::replay::workload::{Span, Workload, WorkloadError};
use crate::units::TokenCount;
use proptest::prelude::*;
use std::collections::HashMap;

fn requests(workload: Workload, seed: u64, count: u64) -> Vec<Request> {
    Generator::new(workload, seed, count).unwrap().collect()
}

/// Returns a block that appears behind two different blocks.
fn block_with_two_parents(requests: &[Request]) -> Option<BlockNumber> {
    let mut parents: HashMap<BlockNumber, Option<BlockNumber>> = HashMap::new();
    for request in requests {
        let mut parent = None;
        for block in request.blocks() {
            if *parents.entry(block).or_insert(parent) != parent {
                return Some(block);
            }
            parent = Some(block);
        }
    }
    None
}

fn any_span(high: u32) -> impl Strategy<Value = Span> {
    (0..=high, 0..=high).prop_map(|(one, other)| Span::new(one, other))
}

prop_compose! {
    fn any_workload()(
        block_tokens in 1_u32..40,
        live_sessions in 1_u32..8,
        tool_tokens in 0_u32..200,
        system_prompts in 1_u32..6,
        system_tokens in any_span(200),
        turns in any_span(8),
        input_tokens in any_span(150),
        output_tokens in any_span(150),
        gap_ms in any_span(1000),
        fork_permille in 0_u32..=1000,
        fork_turns in any_span(5),
        room in 1_u32..2000,
    ) -> Workload {
        Workload {
            block_tokens: TokenCount::new(block_tokens),
            live_sessions,
            tool_tokens: TokenCount::new(tool_tokens),
            system_prompts,
            system_tokens,
            turns,
            input_tokens,
            output_tokens,
            gap_ms,
            fork_permille,
            fork_turns,
            context_tokens_max: TokenCount::new(tool_tokens + system_tokens.high() + room),
        }
    }
}

proptest! {
    #[test]
    fn a_number_is_never_behind_two_parents(workload in any_workload(), seed: u64) {
        let requests = requests(workload, seed, 200);
        prop_assert_eq!(requests.len(), 200);
        prop_assert_eq!(block_with_two_parents(&requests), None);
    }

    #[test]
    fn requests_have_the_full_blocks_of_their_prompt_and_come_in_order_of_time(
        workload in any_workload(),
        seed: u64,
    ) {
        let mut last_ms = 0;
        for request in requests(workload, seed, 200) {
            let tokens = request.input_tokens().get();
            prop_assert!(tokens <= workload.context_tokens_max.get());
            prop_assert_eq!(request.block_count().get(), tokens / workload.block_tokens.get());
            let arrival_ms = request.arrival_ms().unwrap();
            prop_assert!(arrival_ms >= last_ms);
            last_ms = arrival_ms;
        }
    }
}

#[test]
fn agents_share_their_tool_definitions() {
    let requests = requests(Workload::AGENT, 3, 500);
    let shared = Workload::AGENT.tool_tokens.get() / Workload::AGENT.block_tokens.get();
    let opening = |request: &Request| -> Vec<u64> {
        request.blocks().take(shared as usize).map(BlockNumber::get).collect()
    };
    let first = opening(&requests[0]);
    assert_eq!(first.len(), shared as usize);
    assert!(requests.iter().all(|request| opening(request) == first));
}

#[test]
fn the_popular_system_prompts_open_more_sessions() {
    let one_turn = Workload {
        system_tokens: Span::new(256, 256),
        turns: Span::new(1, 1),
        fork_permille: 0,
        ..Workload::CHAT
    };
    let mut uses: HashMap<u64, u32> = HashMap::new();
    for request in requests(one_turn, 5, 20_000) {
        let prompt = request.blocks().next().unwrap();
        *uses.entry(prompt.get()).or_default() += 1;
    }
    assert_eq!(uses.len(), one_turn.system_prompts as usize);
    // The first 64 harmonic numbers sum to 4.74: the top prompt opens 1 in 4.74 sessions.
    assert!((4_000..4_450).contains(&uses[&0]), "{}", uses[&0]);
    assert!((1_900..2_300).contains(&uses[&1]), "{}", uses[&1]);
}

#[test]
fn workloads_out_of_range_are_refused_by_name() {
    let refused = |workload, count| {
        let error = Generator::new(workload, 0, count).map(|_| ()).unwrap_err();
        let WorkloadError::OutOfRange { field, .. } = error;
        field
    };
    let chat = Workload::CHAT;
    let none = TokenCount::new(0);
    assert_eq!(refused(chat, 0), "requests");
    assert_eq!(refused(chat, Workload::REQUESTS_MAX + 1), "requests");
    assert_eq!(refused(Workload { block_tokens: none, ..chat }, 1), "block_tokens");
    assert_eq!(refused(Workload { live_sessions: 0, ..chat }, 1), "live_sessions");
    assert_eq!(refused(Workload { system_prompts: 0, ..chat }, 1), "system_prompts");
    assert_eq!(refused(Workload { fork_permille: 1001, ..chat }, 1), "fork_permille");
    let context_tokens_max = TokenCount::new(chat.system_tokens.high());
    assert_eq!(refused(Workload { context_tokens_max, ..chat }, 1), "context_tokens_max");
    assert_eq!(
        Generator::new(chat, 0, 0).map(|_| ()).unwrap_err().to_string(),
        "requests is 0; give 1 to 1000000"
    );
}

/// What a seed means may not change from platform to platform, nor by accident from version to
/// version.
#[test]
fn seeds_mean_the_same_requests_everywhere() {
    let seen =
        [(Workload::CHAT, 1), (Workload::CHAT, 2), (Workload::AGENT, 1)].map(|(workload, seed)| {
            let trace = Trace::from_requests(requests(workload, seed, 10_000)).unwrap();
            let hit_counts = DEFAULT_CAPACITY_PERCENTS.map(|percent| {
                let open = |capacity| Ok(ReferenceLru::new(trace.unique_blocks(), capacity));
                let Ok(report) = dry_run(&trace, percent.of(&trace), open, |_| ());
                report.hit_count
            });
            (trace.block_use_count(), trace.unique_blocks().count(), hit_counts)
        });
    let golden = [
        (521_961, 78_409, [66_933, 184_334, 287_077, 443_431, 443_552]),
        (513_757, 78_011, [65_852, 182_534, 279_982, 435_449, 435_711]),
        (3_529_593, 141_708, [962_811, 2_442_913, 3_385_682, 3_387_885, 3_387_885]),
    ];
    assert_eq!(seen, golden);
}
