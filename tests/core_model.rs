//! The core against a naive model, and the promises that the model has taught.
//!
//! - `model`, `commands`, `plans`: the core's promises in hash maps and linear scans.
//! - `operation`: what a run is made of.
//! - `rig`: runs one operation on both and compares all that can be seen from outside.
//! - `disk_operation`, `disk_rig`, `disk_events`, `disk_checks`: runs with a disk tier, whose
//!   oracle knows the bytes of every slot.
//! - `lookup`: the longest prefix against its definition.
//! - `promises`, `disk_promises`, `stripe_promises`, `recover_promises`, `clear_promises`,
//!   `erase_promises`: single promises, each with the shortest run that would break it;
//!   `disk_bench` drives those with a disk tier.

#[path = "core_model/clear_promises.rs"]
mod clear_promises;
#[path = "core_model/commands.rs"]
mod commands;
#[path = "support/counted.rs"]
mod counted;
#[path = "core_model/disk_bench.rs"]
mod disk_bench;
#[path = "core_model/disk_checks.rs"]
mod disk_checks;
#[path = "core_model/disk_events.rs"]
mod disk_events;
#[path = "core_model/disk_operation.rs"]
mod disk_operation;
#[path = "core_model/disk_promises.rs"]
mod disk_promises;
#[path = "core_model/disk_rig.rs"]
mod disk_rig;
#[path = "core_model/erase_promises.rs"]
mod erase_promises;
#[path = "core_model/lookup.rs"]
mod lookup;
#[path = "core_model/model.rs"]
mod model;
#[path = "core_model/operation.rs"]
mod operation;
#[path = "core_model/plans.rs"]
mod plans;
#[path = "core_model/promises.rs"]
mod promises;
#[path = "core_model/recover_promises.rs"]
mod recover_promises;
#[path = "core_model/rig.rs"]
mod rig;
#[path = "core_model/stripe_promises.rs"]
mod stripe_promises;

use disk_operation::{Action, DiskOperation, disk_config, disk_operation};
use disk_rig::DiskRig;
use kvtide::core::{CoreConfig, GroupConfig};
use kvtide::layout::Attention;
use kvtide::units::TokenCount;
use operation::{FailureRate, Operation, config, operation};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rig::Rig;

fn run(config: &CoreConfig, operations: &[Operation]) {
    let mut rig = Rig::new(config);
    for operation in operations {
        rig.run(operation);
    }
    rig.drain();
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn without_losses_the_core_does_what_the_model_does(
        config in config(),
        operations in prop::collection::vec(operation(FailureRate(0)), 0..200),
    ) {
        run(&config, &operations);
    }

    #[test]
    fn with_losses_the_core_does_what_the_model_does(
        config in config(),
        operations in prop::collection::vec(operation(FailureRate(10)), 0..200),
    ) {
        run(&config, &operations);
    }

    #[test]
    fn with_a_disk_tier_every_promise_holds(
        config in disk_config(),
        operations in prop::collection::vec(disk_operation(false), 0..300),
    ) {
        run_on_disk(&config, &operations, false);
    }

    #[test]
    fn with_a_disk_tier_and_failures_every_promise_holds(
        config in disk_config(),
        operations in prop::collection::vec(disk_operation(true), 0..300),
    ) {
        run_on_disk(&config, &operations, true);
    }
}

fn run_on_disk(config: &CoreConfig, operations: &[DiskOperation], may_fail: bool) {
    let mut rig = DiskRig::new(config, may_fail);
    for operation in operations {
        rig.run(operation);
    }
    rig.drain();
}

#[test]
fn a_load_goes_on_when_the_write_that_kept_host_memory_full_finds_no_disk_slot() {
    let attention =
        [Attention::Full, Attention::Window { tokens: TokenCount::new(1) }, Attention::Full];
    let groups = attention.map(|attention| GroupConfig {
        slot_count: 2,
        attention,
        pieces_per_chunk: 1,
        disk_slot_counts: vec![1],
    });
    let config = CoreConfig {
        history_count: 1,
        plan_count_max: 2,
        transfer_count_max: 5,
        staging_out_pieces: 2,
        staging_in_pieces: 2,
        lease_ns: 30,
        write_queue_max: 1,
        disk_writes_max: 1,
        disk_reads_max: 1,
        ..CoreConfig::new(groups.to_vec())
    };
    let operations = [
        (Action::Load, [0, 0, 0]),
        (Action::Store, [205, 0, 0]),
        (Action::Store, [0, 47, 209]),
        (Action::Store, [44, 2, 217]),
        (Action::Store, [482, 6, 265]),
        (Action::Store, [0, 0, 0]),
        (Action::Store, [0, 0, 0]),
        (Action::Detach, [0, 2, 0]),
        (Action::Complete, [0, 0, 0]),
        (Action::Store, [656, 1, 0]),
        (Action::Detach, [0, 0, 0]),
        (Action::Adopt, [764, 765, 1]),
        (Action::Plan, [0, 0, 0]),
        (Action::Plan, [0, 0, 0]),
        (Action::Plan, [0, 0, 0]),
        (Action::Plan, [0, 0, 0]),
        (Action::Load, [119, 525, 0]),
        (Action::Complete, [0, 288, 0]),
        (Action::Complete, [0, 0, 0]),
        (Action::Complete, [0, 0, 0]),
        (Action::Complete, [0, 0, 0]),
        (Action::Complete, [0, 0, 0]),
    ];
    let operations = operations.map(|(action, numbers)| DiskOperation { action, numbers });
    run_on_disk(&config, &operations, false);
}

/// Steps of one long run.
const STEP_COUNT: usize = 5_000;

/// Rounds of long runs, one of each failure rate.
const ROUND_COUNT: usize = 20;

#[test]
fn the_core_does_what_the_model_does_for_long() {
    let mut random = TestRunner::deterministic();
    for failures in [0, 3, 10, 30].repeat(ROUND_COUNT) {
        let config = config().new_tree(&mut random).expect("a config").current();
        let operations = operation(FailureRate(failures));
        let mut rig = Rig::new(&config);
        for _ in 0..STEP_COUNT {
            rig.run(&operations.new_tree(&mut random).expect("an operation").current());
        }
        rig.drain();
    }
}

#[test]
fn with_a_disk_tier_every_promise_holds_for_long() {
    let mut random = TestRunner::deterministic();
    for may_fail in [false, true].repeat(ROUND_COUNT) {
        let config = disk_config().new_tree(&mut random).expect("a config").current();
        let operations = disk_operation(may_fail);
        let mut rig = DiskRig::new(&config, may_fail);
        for _ in 0..STEP_COUNT {
            rig.run(&operations.new_tree(&mut random).expect("an operation").current());
        }
        rig.drain();
    }
}
