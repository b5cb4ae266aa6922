//! The core against a naive model, and the promises that the model has taught.
//!
//! - `model`, `commands`, `plans`: the core's promises in hash maps and linear scans.
//! - `operation`: what a run is made of.
//! - `rig`: runs one operation on both and compares all that can be seen from outside.
//! - `disk_operation`, `disk_rig`, `disk_checks`: runs with a disk tier, whose oracle knows the
//!   bytes of every slot.
//! - `lookup`: the longest prefix against its definition.
//! - `promises`, `disk_promises`, `recover_promises`, `clear_promises`: single promises, each with
//!   the shortest run that would break it; `disk_bench` drives those with a disk tier.

#[path = "core_model/clear_promises.rs"]
mod clear_promises;
#[path = "core_model/commands.rs"]
mod commands;
#[path = "core_model/disk_bench.rs"]
mod disk_bench;
#[path = "core_model/disk_checks.rs"]
mod disk_checks;
#[path = "core_model/disk_operation.rs"]
mod disk_operation;
#[path = "core_model/disk_promises.rs"]
mod disk_promises;
#[path = "core_model/disk_rig.rs"]
mod disk_rig;
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

use disk_operation::{DiskOperation, disk_config, disk_operation};
use disk_rig::DiskRig;
use kvtide::core::CoreConfig;
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
