//! A whole system under one seed: the pager with its real core, stores and thread code, over a
//! simulated drive and device, in virtual time, with an oracle outside that knows every byte.
//!
//! | file | what |
//! |---|---|
//! | `step.rs` | what can happen, and how bytes say it |
//! | `engine.rs` | the engine's blocks, and what belongs into them |
//! | `life.rs` | one process: an open pager and what is under way in it |
//! | `oracle.rs` | what may be handed over, and what must be there |
//! | `world.rs` | the drive, the clock, and what each step does |
//! | `lives.rs` | one life after another: ends, recoveries, and what they must find |
//!
//! Used by the tests of `sim` and by the fuzz target `simulation`.

mod engine;
mod life;
mod lives;
mod oracle;
mod step;
mod world;

pub(crate) use engine::scatter;
pub(crate) use step::STEP_BYTES;
use step::Step;
pub(crate) use world::{Tally, World};

/// Bytes at the front of a run that say what the system is like.
pub(crate) const SETUP_BYTES: usize = 4;

/// Runs a system by bytes: the first say what it is like, the others what happens.
pub(crate) fn run(bytes: &[u8]) -> Tally {
    let Some((setup, steps)) = bytes.split_first_chunk::<SETUP_BYTES>() else {
        return Tally::default();
    };
    let mut world = World::new(*setup);
    for step in steps_of(steps) {
        world.step(step);
    }
    world.end()
}

/// Returns the steps of a run in words.
pub(crate) fn describe(bytes: &[u8]) -> Vec<String> {
    let steps = bytes.get(SETUP_BYTES..).unwrap_or_default();
    steps_of(steps).map(|step| format!("{step:?}")).collect()
}

fn steps_of(bytes: &[u8]) -> impl Iterator<Item = Step> {
    let (steps, _) = bytes.as_chunks::<STEP_BYTES>();
    steps.iter().copied().map(Step::decode)
}
