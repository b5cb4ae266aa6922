//! A whole system under one seed: the pager with its real core, stores and thread code, over a
//! simulated drive and device, in virtual time, with an oracle outside that knows every byte.
//!
//! | file | what |
//! |---|---|
//! | `step.rs` | what can happen, and how bytes and words say it |
//! | `engine.rs` | the engine's blocks, and what belongs into them |
//! | `life.rs` | one process: an open pager and what is under way in it |
//! | `faults.rs` | what goes wrong with device and drive, and whether anybody tells |
//! | `oracle.rs` | what may be handed over, and what must be there |
//! | `world.rs` | the drive, the clock, and what each step does |
//! | `lives.rs` | one life after another: ends, recoveries, and what they must find |
//!
//! Used by the tests of `sim` and by the fuzz target `simulation`.

mod engine;
mod faults;
mod life;
mod lives;
mod oracle;
mod step;
#[path = "../../support/engine.rs"]
mod support;
mod world;

pub(crate) use faults::{DEVICE_FAULTS, DRIVE_FAULTS, DeviceFault};
pub(crate) use step::{HOPS, Run, SETUP_BYTES, STEP_BYTES};
pub(crate) use support::scatter;
pub(crate) use world::{Tally, World};

/// Plays a run.
pub(crate) fn play(run: &Run) -> Tally {
    let mut world = World::new(run.setup);
    for step in &run.steps {
        world.step(*step);
    }
    world.end()
}
