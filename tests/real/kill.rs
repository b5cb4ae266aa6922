//! Kills at any moment: a child works on a directory and tells what it was promised, the parent
//! kills it, and an oracle in the parent holds what the next child finds against what was promised.
//!
//! A run is one directory under one seed, over a number of cycles. A cycle: a child works and is
//! killed at a moment that the seed draws; the parent checks the files; a child that only looks is
//! killed too; the next one must find the same. The seed decides everything but how long things
//! take, so a replay falls into the same steps, though not to the microsecond.

mod check;
mod child;
mod oracle;
mod report;

use crate::counted::counted;
use crate::engine::PATIENT;
use crate::mounts::Folder;
use crate::support::scatter;
use check::{check_files, digests};
use oracle::{Oracle, Totals};
use report::Report;
use std::collections::hash_map::RandomState;
use std::env;
use std::hash::BuildHasher;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

const TEST: &str = "kill::a_kill_at_any_moment_loses_nothing_promised_and_brings_no_wrong_byte";

/// Set in a child: its [`Task`].
const CHILD: &str = "KVTIDE_TEST_KILL_CHILD";

/// A seed to be run alone.
const SEED: &str = "KVTIDE_TEST_KILL_SEED";

/// Every write policy, both back ends, both kinds of directories.
const SEEDS: [u64; 4] = [0, 3, 5, 8];

/// Kills of working children in a run.
const CYCLES: u64 = 20;

/// Stores of a directory: one a group.
const STORES: usize = 2;

/// Reports before the moment of a kill, at most.
const REPORTS_MAX: u64 = 70;

/// What a child does once its pager is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Loads everything that is there, and waits.
    Look,
    /// Loads everything that is there, and works.
    Work,
    /// Works, whether what is there was scanned or not.
    WorkAtOnce,
}

/// How much room a run's directory has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Enough for everything.
    Roomy,
    /// Enough for a part, so that slots are written over.
    Tight,
}

impl Kind {
    /// Returns chunks of the first group that fit.
    fn chunks(self) -> u64 {
        match self {
            Self::Roomy => 120,
            Self::Tight => 36,
        }
    }
}

/// What a child is told.
#[derive(Clone, Copy, Debug)]
struct Task {
    seed: u64,
    cycle: u64,
    weights: u64,
    role: Role,
}

impl Task {
    fn kind(&self) -> Kind {
        if self.seed % 3 == 2 { Kind::Tight } else { Kind::Roomy }
    }

    fn to_text(self) -> String {
        format!("{} {} {} {}", self.seed, self.cycle, self.weights, self.role as u64)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(' ').map(|number| number.parse().ok());
        let mut number = || numbers.next().flatten();
        let (seed, cycle, weights) = (number()?, number()?, number()?);
        let roles = [Role::Look, Role::Work, Role::WorkAtOnce];
        let role = *roles.get(usize::try_from(number()?).ok()?)?;
        Some(Self { seed, cycle, weights, role })
    }
}

/// When a child is killed: after so many reports that are no hits, and a while.
#[derive(Clone, Copy, Debug)]
struct Moment {
    reports: u64,
    delay: Duration,
}

impl Moment {
    /// Draws one: every eighth falls into the time before the child works.
    fn drawn(chance: u64) -> Self {
        let reports = match chance % 8 {
            0 => scatter(chance) % 4,
            _ => 3 + scatter(chance) % (REPORTS_MAX - 3),
        };
        // Opening takes longer than a step.
        let delay_max_us = if reports < 2 { 20_000 } else { 2000 };
        Self { reports, delay: Duration::from_micros(scatter(chance ^ 1) % delay_max_us) }
    }
}

/// A child that does not outlive the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.0.kill();
        let _status = self.0.wait();
    }
}

/// Runs a child in a directory until its moment has come; returns everything that it told.
fn kill_child(task: Task, directory: &Path, moment: impl Fn(&Receiver<()>)) -> Vec<Report> {
    let (mut ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    let mut command = Command::new(env::current_exe().expect("it runs"));
    command.args(["--exact", TEST, "--nocapture"]).env(CHILD, task.to_text());
    command.current_dir(directory).stdin(OwnedFd::from(theirs)).stdout(Stdio::null());
    let mut child = Running(command.spawn().expect("it is this program"));
    // It holds the child's end of the socket, which would never end.
    drop(command);
    let (sender, receiver) = channel();
    let reader = thread::spawn(move || {
        let mut reports = Vec::new();
        while let Some(report) = Report::receive(&mut ours) {
            let is_hit = matches!(report, Report::Hit(..));
            reports.push(report);
            // Nobody counts any more once the moment has come.
            let _uncounted = if is_hit { Ok(()) } else { sender.send(()) };
        }
        reports
    });
    moment(&receiver);
    let ended = child.0.try_wait().expect("it is our child");
    assert_eq!(ended, None, "the child ended by itself: {task:?}");
    drop(child);
    reader.join().expect("a child tells whole reports")
}

/// Waits for a number of reports.
fn await_reports(receiver: &Receiver<()>, count: u64) {
    for _ in 0..count {
        // A child that ended by itself tells nothing any more.
        if receiver.recv_timeout(PATIENT).is_err() {
            return;
        }
    }
}

/// Says on a failure how to come by it again.
struct Replay(u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if thread::panicking() {
            tell(&format!("seed {0} failed: {SEED}={0} cargo test --test real kill", self.0));
        }
    }
}

/// Tells something past the harness.
fn tell(text: &str) {
    writeln!(std::io::stderr(), "{text}").expect("stderr takes a line");
}

/// Runs one seed in a directory of its own.
fn run(seed: u64) -> Totals {
    let _replay = Replay(seed);
    // Where the build is, since temporary folders may lie in memory.
    let folder = Folder::below(Path::new(env!("CARGO_TARGET_TMPDIR")));
    let is_roomy = Task { seed, cycle: 0, weights: 0, role: Role::Look }.kind() == Kind::Roomy;
    let mut oracle = Oracle::new(is_roomy);
    for cycle in 0..CYCLES {
        let chance = scatter(scatter(seed) ^ cycle);
        let role =
            if scatter(chance ^ 2).is_multiple_of(4) { Role::WorkAtOnce } else { Role::Work };
        let task = Task { seed, cycle, weights: oracle.weights, role };
        let Moment { reports, delay } = Moment::drawn(chance);
        let told = kill_child(task, folder.path(), |receiver| {
            await_reports(receiver, reports);
            thread::sleep(delay);
        });
        oracle.take_all(told);
        let files = check_files(folder.path());
        oracle.check(&files.offered, &files.torn);

        let before = digests(folder.path());
        let task = Task { weights: oracle.weights, role: Role::Look, ..task };
        let told = kill_child(task, folder.path(), |receiver| await_reports(receiver, 3));
        assert_eq!(told.last(), Some(&Report::Looked), "the look comes to its end");
        oracle.take_all(told);
        // A store that was being made is made anew.
        if files.made_count == STORES {
            assert!(digests(folder.path()) == before, "recovery changed a file");
        }
    }
    oracle.totals
}

#[test]
fn a_kill_at_any_moment_loses_nothing_promised_and_brings_no_wrong_byte() {
    if let Ok(task) = env::var(CHILD) {
        return child::run(&Task::parse(&task).expect("the parent wrote it"));
    }
    let seeds = match env::var(SEED) {
        Ok(seed) => vec![seed.parse().expect("KVTIDE_TEST_KILL_SEED is a number")],
        Err(_) => SEEDS.into_iter().chain([RandomState::new().hash_one(())]).collect(),
    };
    for seed in seeds {
        let totals = run(seed);
        tell(&format!("killed {CYCLES} working children with seed {seed}: {totals:?}"));
        counted("working processes killed", CYCLES);
        counted("chunks handed over after a kill", totals.hits);
        counted("of those promised", totals.kept);
        counted("clears answered before a kill", totals.clears);
        counted("writes torn by a kill", totals.torn);
        assert!(totals.hits > 0, "the kills left something to be found");
    }
}
