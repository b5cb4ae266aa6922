//! Bytes become what happens to a whole simulated system, checked by the oracle of the seeded runs.
#![no_main]

#[expect(dead_code, unused_imports, reason = "the tests make runs of seeds, and write them down")]
#[path = "../../tests/sim/system/mod.rs"]
mod system;

use libfuzzer_sys::fuzz_target;
use system::{Run, SETUP_BYTES, STEP_BYTES, play};

/// Steps after which a run shows nothing new for its time.
const STEP_COUNT_MAX: usize = 300;

fuzz_target!(|bytes: &[u8]| {
    let length = bytes.len().min(SETUP_BYTES + STEP_COUNT_MAX * STEP_BYTES);
    if let Some(run) = Run::of_bytes(&bytes[..length]) {
        play(&run);
    }
});
