//! Random steps on a block pool against the naive model of `support/block_table_model.rs`.

#[path = "support/block_table_model.rs"]
mod block_table_model;
#[path = "support/counted.rs"]
mod counted;

use block_table_model::{Harness, History, Operation, Reference};
use counted::counted;
use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};

struct BlockTableMachine;

impl ReferenceStateMachine for BlockTableMachine {
    type State = Reference;
    type Transition = Operation;

    fn init_state() -> BoxedStrategy<Reference> {
        let shapes = (1_u32..24, 1_u32..6);
        shapes.prop_map(|(count, tokens)| Reference::new(count, tokens)).boxed()
    }

    fn transitions(state: &Reference) -> BoxedStrategy<Operation> {
        if state.open.is_empty() {
            return Just(Operation::Open).boxed();
        }
        let sequence = || 0..state.open.len();
        let few = 0..=2 * state.block_tokens;
        let any_length = prop_oneof![20 => few, 1 => Just(u32::MAX)];
        // A place in a sequence; one beyond the end is refused.
        let lengths: Vec<u32> = state.open.iter().map(History::tokens).collect();
        let place = sequence()
            .prop_flat_map(move |sequence| (Just(sequence), 0..=lengths[sequence] + 1))
            .boxed();
        let append = (sequence(), any_length)
            .prop_map(|(sequence, tokens)| Operation::Append { sequence, tokens });
        let fork_prefix =
            place.clone().prop_map(|(sequence, tokens)| Operation::ForkPrefix { sequence, tokens });
        let truncate =
            place.clone().prop_map(|(sequence, tokens)| Operation::Truncate { sequence, tokens });
        let drop_before =
            place.prop_map(|(sequence, tokens)| Operation::DropBefore { sequence, tokens });
        prop_oneof![
            1 => Just(Operation::Open),
            8 => append,
            2 => sequence().prop_map(|sequence| Operation::Fork { sequence }),
            2 => fork_prefix,
            3 => truncate,
            1 => drop_before,
            2 => sequence().prop_map(|sequence| Operation::Close { sequence }),
        ]
        .boxed()
    }

    fn preconditions(state: &Reference, operation: &Operation) -> bool {
        state.can_apply(operation)
    }

    fn apply(mut state: Reference, operation: &Operation) -> Reference {
        state.apply(operation);
        state
    }
}

impl StateMachineTest for BlockTableMachine {
    type SystemUnderTest = Harness;
    type Reference = Self;

    fn init_test(reference: &Reference) -> Harness {
        counted("runs of block tables", 1);
        Harness::new(reference)
    }

    fn apply(mut harness: Harness, reference: &Reference, operation: Operation) -> Harness {
        harness.apply(&operation, reference);
        harness
    }

    fn check_invariants(harness: &Harness, reference: &Reference) {
        harness.check(reference);
    }
}

prop_state_machine! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn every_sequence_reads_back_its_own_tokens(sequential 1..100 => BlockTableMachine);
}
