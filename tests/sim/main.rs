//! The whole system under seeds: stores, loads, clears, flushes, restarts, power cuts and kills in
//! any order that a scheduler of the same seed may choose, with and without faults of device and
//! drive. `system/mod.rs` says what is simulated.
//!
//! A run that fails is made as short as it can be, and printed with the command that plays it
//! again. What was found once is kept in `seeds/` and played every time.
//!
//! | variable | what |
//! |---|---|
//! | `KVTIDE_SIM_RUNS` | how many runs; 200 unless given |
//! | `KVTIDE_SIM_SEED` | the first run's seed; 0 unless given |
//! | `KVTIDE_SIM_POWER_CUTS_MIN` | how many the runs must have; 0 unless given |
//! | `KVTIDE_SIM_CORE_STEPS_MIN` | the same of commands and completions of the core |
//! | `KVTIDE_SIM_PLAY` | a file with one run in words, as a failure prints it, for `plays_one` |

#[path = "../support/counted.rs"]
mod counted;
mod minimise;
mod sweeps;
mod system;

use counted::counted;
use minimise::minimise;
use std::panic::{catch_unwind, set_hook, take_hook};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use system::{Run, SETUP_BYTES, STEP_BYTES, Tally, play, scatter};

/// Steps of one run.
const STEP_COUNT: usize = 400;

/// Runs unless the caller says otherwise.
const RUN_COUNT: u64 = 200;

/// Returns a number that the caller gave.
fn given(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

/// Returns the run of a seed.
fn run_of(seed: u64) -> Run {
    let length = SETUP_BYTES + STEP_COUNT * STEP_BYTES;
    let words =
        (0..length.div_ceil(8) as u64).map(|word| scatter(scatter(seed) ^ word).to_le_bytes());
    let bytes: Vec<u8> = words.flatten().take(length).collect();
    Run::of_bytes(&bytes).expect("enough bytes")
}

/// Makes a run that fails short, and fails with it.
fn report(seed: u64, run: &Run) -> ! {
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    let shortest = minimise(run, |run| catch_unwind(|| play(run)).is_err());
    set_hook(hook);
    println!("seed {seed} fails, also with no more than this; put it into a file and play it with");
    println!("KVTIDE_SIM_PLAY=FILE cargo test --test sim plays_one\n\n{shortest}");
    let tally = play(&shortest);
    panic!("seed {seed} fails, and not when it is played again: {tally:?}");
}

/// Says what runs did.
fn tell(tally: &Tally) {
    let counts = [
        ("simulated steps", tally.steps),
        ("simulated core steps", tally.core_steps),
        ("simulated lives", tally.lives),
        ("simulated power cuts", tally.power_cuts),
        ("simulated kills", tally.kills),
        ("simulated recoveries", tally.recoveries),
        ("simulated faults", tally.faults),
        ("simulated chunks compared", tally.compared),
    ];
    for (what, times) in counts {
        counted(what, times);
    }
}

#[test]
fn no_seed_brings_a_wrong_byte_or_loses_what_was_promised_or_hangs() {
    let first = given("KVTIDE_SIM_SEED").unwrap_or(0);
    let end = first + given("KVTIDE_SIM_RUNS").unwrap_or(RUN_COUNT);
    let next = AtomicU64::new(first);
    let failed = Mutex::new(None);
    let total = Mutex::new(Tally::default());
    let core_count = std::thread::available_parallelism().map_or(1, usize::from);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..core_count {
            scope.spawn(|| {
                let mut tally = Tally::default();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end || failed.lock().expect("nobody panics with it").is_some() {
                        break;
                    }
                    match catch_unwind(|| play(&run_of(seed))) {
                        Ok(one) => tally.add(one),
                        Err(_) => *failed.lock().expect("nobody panics with it") = Some(seed),
                    }
                }
                total.lock().expect("nobody panics with it").add(tally);
            });
        }
    });
    if let Some(seed) = *failed.lock().expect("all have ended") {
        report(seed, &run_of(seed));
    }
    let tally = *total.lock().expect("all have ended");
    let core_ms = start.elapsed().as_millis() * core_count as u128;
    let rate = u128::from(1000 * (end - first)) / core_ms.max(1);
    println!("{} runs, {rate} a second and core: {tally:?}", end - first);
    counted("simulated runs", end - first);
    tell(&tally);
    for (variable, done) in [
        ("KVTIDE_SIM_POWER_CUTS_MIN", tally.power_cuts),
        ("KVTIDE_SIM_CORE_STEPS_MIN", tally.core_steps),
    ] {
        let least = given(variable).unwrap_or(0);
        assert!(done >= least, "{done} is less than {variable}={least}");
    }
    assert!(tally.compared > 0 && tally.power_cuts > 0 && tally.kills > 0, "{tally:?}");
}

#[test]
fn what_was_found_once_stays_found() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sim/seeds");
    let entries = std::fs::read_dir(&folder).expect("the folder of seeds is there");
    let mut count = 0;
    for entry in entries {
        let path = entry.expect("a readable folder").path();
        let run = std::fs::read_to_string(&path).expect("a readable seed");
        println!("{}", path.display());
        play(&Run::parse(&run));
        count += 1;
    }
    assert!(count > 0, "no seed in {}", folder.display());
}

#[test]
fn plays_one() {
    let run = match std::env::var("KVTIDE_SIM_PLAY") {
        Ok(path) => Run::parse(&std::fs::read_to_string(path).expect("a readable file")),
        Err(_) => run_of(given("KVTIDE_SIM_SEED").unwrap_or(0)),
    };
    let tally = play(&run);
    assert!(tally.lives > 0, "{tally:?}");
}
