//! Bytes become steps on a block pool, checked against the model of the property test.
#![no_main]

#[path = "../../tests/support/block_table_model.rs"]
mod block_table_model;

use arbitrary::Arbitrary;
use block_table_model::{Harness, Operation, Reference};
use libfuzzer_sys::fuzz_target;

/// A pool and what to do with it; `Operation`s by small numbers, so that most bytes mean one.
#[derive(Arbitrary, Debug)]
struct Input {
    block_count: u8,
    block_tokens: u8,
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
struct Step {
    kind: Kind,
    sequence: u8,
    tokens: u8,
}

#[derive(Arbitrary, Debug)]
enum Kind {
    Open,
    Append,
    AppendMost,
    Fork,
    ForkPrefix,
    Truncate,
    DropBefore,
    Close,
}

impl Step {
    /// Names one of the open sequences; `None` when the step means nothing now.
    fn operation(&self, reference: &Reference) -> Option<Operation> {
        let sequence = usize::from(self.sequence).checked_rem(reference.open.len()).unwrap_or(0);
        let tokens = u32::from(self.tokens);
        let operation = match self.kind {
            Kind::Open => Operation::Open,
            Kind::Append => Operation::Append { sequence, tokens },
            Kind::AppendMost => Operation::Append { sequence, tokens: u32::MAX - tokens },
            Kind::Fork => Operation::Fork { sequence },
            Kind::ForkPrefix => Operation::ForkPrefix { sequence, tokens },
            Kind::Truncate => Operation::Truncate { sequence, tokens },
            Kind::DropBefore => Operation::DropBefore { sequence, tokens },
            Kind::Close => Operation::Close { sequence },
        };
        reference.can_apply(&operation).then_some(operation)
    }
}

fuzz_target!(|input: Input| {
    let block_count = u32::from(input.block_count % 24) + 1;
    let block_tokens = u32::from(input.block_tokens % 6) + 1;
    let mut reference = Reference::new(block_count, block_tokens);
    let mut harness = Harness::new(&reference);
    for step in &input.steps {
        let Some(operation) = step.operation(&reference) else {
            continue;
        };
        reference.apply(&operation);
        harness.apply(&operation, &reference);
        harness.check(&reference);
    }
});
