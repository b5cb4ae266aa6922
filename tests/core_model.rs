//! The core against a naive model, and the promises that the model has taught.
//!
//! - `model`, `commands`, `plans`: the core's promises in hash maps and linear scans.
//! - `operation`: what a run is made of.
//! - `rig`: runs one operation on both and compares all that can be seen from outside.
//! - `lookup`: the longest prefix against its definition.
//! - `promises`: single promises, each with the shortest run that would break it.

#[path = "core_model/commands.rs"]
mod commands;
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
#[path = "core_model/rig.rs"]
mod rig;

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
