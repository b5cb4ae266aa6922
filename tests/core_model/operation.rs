//! What a run is made of: operations, and how likely each is.
//!
//! An operation names chunks, plans, transfers and hops by plain numbers that the rig takes modulo
//! what there is, so that any part of a run is a run.

use kvtide::core::{CoreConfig, GroupConfig};
use kvtide::layout::Attention;
use kvtide::units::TokenCount;
use proptest::prelude::*;

/// What is wrong with a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Twist {
    None,
    NoParent,
    ForeignParent,
    OtherGroup,
    Repeated,
    Gap,
}

/// How a hop ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    Good,
    Device,
    Checksum,
}

/// One step of a run.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Store {
        group: usize,
        node: usize,
        length: usize,
        twist: Twist,
        patience: u64,
    },
    Load {
        group: usize,
        node: usize,
        count: usize,
        patience: u64,
    },
    Lookup {
        nodes: [usize; 3],
    },
    OpenPlan,
    ExtendPlan {
        plan: usize,
        group: usize,
        node: usize,
        length: usize,
        is_back: bool,
        twist: Twist,
    },
    RenewPlan {
        plan: usize,
    },
    TrimPlan {
        plan: usize,
        group: usize,
        kept: usize,
    },
    DropPlan {
        plan: usize,
    },
    Complete {
        hop: usize,
        outcome: Outcome,
    },
    Cancel {
        transfer: usize,
    },
    Detach {
        transfer: usize,
    },
    Tick {
        passed: u64,
    },
    MakeRoom {
        group: usize,
        count: usize,
    },
}

/// More nodes than any path has.
const NODES_MAX: usize = 64;

fn twist() -> impl Strategy<Value = Twist> {
    prop_oneof![
        20 => Just(Twist::None),
        1 => Just(Twist::NoParent),
        1 => Just(Twist::ForeignParent),
        1 => Just(Twist::OtherGroup),
        1 => Just(Twist::Repeated),
        1 => Just(Twist::Gap),
    ]
}

/// Hops that fail, in a hundred.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailureRate(pub(crate) u32);

fn outcome(failures: FailureRate) -> impl Strategy<Value = Outcome> {
    prop_oneof![
        100 - failures.0 => Just(Outcome::Good),
        failures.0 => prop_oneof![Just(Outcome::Device), Just(Outcome::Checksum)],
    ]
}

/// Nanoseconds until a deadline; 0 for none.
fn patience() -> impl Strategy<Value = u64> {
    prop_oneof![3 => Just(0), 1 => 1..15_u64]
}

/// One operation; a run without failures has no cancels and deadlines either, so that chunks leave
/// by eviction alone.
pub(crate) fn operation(failures: FailureRate) -> impl Strategy<Value = Operation> {
    let number = || 0..1000_usize;
    let is_lossy = failures.0 > 0;
    let patience = move || patience().prop_map(move |patience| patience * u64::from(is_lossy));
    let length = prop_oneof![1..9_usize, Just(NODES_MAX)];
    prop_oneof![
        10 => (0..3_usize, number(), length, twist(), patience()).prop_map(
            |(group, node, length, twist, patience)| {
                Operation::Store { group, node, length, twist, patience }
            }
        ),
        6 => (0..3_usize, number(), 1..6_usize, patience()).prop_map(
            |(group, node, count, patience)| Operation::Load { group, node, count, patience }
        ),
        4 => [number(), number(), number()].prop_map(|nodes| Operation::Lookup { nodes }),
        1 => Just(Operation::OpenPlan),
        4 => (number(), 0..4_usize, number(), 0..6_usize, any::<bool>(), twist()).prop_map(
            |(plan, group, node, length, is_back, twist)| {
                Operation::ExtendPlan { plan, group, node, length, is_back, twist }
            }
        ),
        1 => number().prop_map(|plan| Operation::RenewPlan { plan }),
        1 => (number(), 0..4_usize, 0..6_usize)
            .prop_map(|(plan, group, kept)| Operation::TrimPlan { plan, group, kept }),
        4 => number().prop_map(|plan| Operation::DropPlan { plan }),
        40 => (number(), outcome(failures))
            .prop_map(|(hop, outcome)| Operation::Complete { hop, outcome }),
        1 => number().prop_map(move |transfer| {
            if is_lossy { Operation::Cancel { transfer } } else { Operation::Tick { passed: 0 } }
        }),
        12 => number().prop_map(|transfer| Operation::Detach { transfer }),
        6 => (0..15_u64).prop_map(|passed| Operation::Tick { passed }),
        1 => (0..4_usize, 0..5_usize)
            .prop_map(|(group, count)| Operation::MakeRoom { group, count }),
    ]
}

/// A core that is short of everything.
pub(crate) fn config() -> impl Strategy<Value = CoreConfig> {
    let group = |attention| {
        let slot_count = prop_oneof![2..5_u32, 2..13_u32];
        (slot_count, 1..3_u32).prop_map(move |(slot_count, pieces_per_chunk)| GroupConfig {
            slot_count,
            attention,
            pieces_per_chunk,
            disk_slot_counts: Vec::new(),
        })
    };
    let window = (1..20_u32)
        .prop_flat_map(move |tokens| group(Attention::Window { tokens: TokenCount::new(tokens) }));
    let history = prop_oneof![1..4_u32, 1..100_u32];
    let groups = (group(Attention::Full), window, group(Attention::Full));
    (groups, history, 2..6_u32, 3..9_u32, 2..10_u32, 2..10_u32, 30..150_u64).prop_map(
        |(groups, history, plans, transfers, out, into, lease)| {
            let mut config = CoreConfig::new(vec![groups.0, groups.1, groups.2]);
            config.history_count = history;
            config.plan_count_max = plans;
            config.transfer_count_max = transfers;
            config.staging_out_pieces = out;
            config.staging_in_pieces = into;
            config.lease_ns = lease;
            config
        },
    )
}
