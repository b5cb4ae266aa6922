//! `cargo xtask mutants`: mistakes that would hurt, each with the test that must find it.
//!
//! A mutant is a file in `xtask/mutants`: a diff, and above it what the mistake is and which test
//! fails on it. Each is applied alone, in a copy of the repository below `target`, where that test
//! is built and run. If it passes all the same, nothing holds what it is named for.
//!
//! Invariants: the repository itself is not changed; each test passes in the same copy before any
//! mistake is made there; a mutant that does not apply or compile is an error, not killed.
//!
//! Called by people, and by `.ci/run` with a few of them by turns.

mod cargo;
mod choice;
mod copy;
mod patch;

pub(crate) use choice::Choice;

use crate::tidy::all_files;
use cargo::{Cargo, Ended};
use copy::Copy;
use patch::{Mutant, NamedTest};
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::time::Instant;

/// Where the mutants are, from the root of the repository.
const FOLDER: &str = "xtask/mutants";

/// What became of one mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// The test failed, as it should.
    Killed,
    /// The test did not end, as the mutant says that it may.
    Hung,
    /// The test passed.
    Survived,
    /// The mutant is at fault itself.
    Broken(String),
}

impl Verdict {
    /// Decides what the end of the test says of a mutant.
    fn of(ended: &Ended, may_hang: bool) -> Self {
        match (ended, may_hang) {
            (Ended::Failed { .. }, _) => Self::Killed,
            (Ended::Passed { .. }, _) => Self::Survived,
            (Ended::TimedOut, true) => Self::Hung,
            (Ended::TimedOut, false) => {
                Self::Broken("its test does not end; is that `hangs: yes`?".to_owned())
            }
        }
    }

    fn is_killed(&self) -> bool {
        matches!(self, Self::Killed | Self::Hung)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Killed => write!(formatter, "killed"),
            Self::Hung => write!(formatter, "killed (hung)"),
            Self::Survived => write!(formatter, "SURVIVED"),
            Self::Broken(_) => write!(formatter, "BROKEN"),
        }
    }
}

/// Runs the mutants of a choice; returns how many were killed, or which were not.
pub(crate) fn run(root: &Path, choice: &Choice) -> Result<String, String> {
    let start = Instant::now();
    let mutants = read_all(root)?;
    let chosen = choice.of(&mutants)?;
    let copy = Copy::renew(root, &all_files(root).map_err(|error| error.to_string())?)?;
    let cargo = Cargo::new(root, copy.root());
    check_unmutated(&cargo, chosen)?;
    let mut left = Vec::new();
    for mutant in chosen {
        let begun = Instant::now();
        let verdict = judge(mutant, &copy, &cargo, matches!(choice, Choice::Only(_)))?;
        let Mutant { name, mistake, .. } = mutant;
        let seconds = begun.elapsed().as_secs();
        println!("{name:32} {seconds:>4} s  {verdict}: {mistake}");
        if let Verdict::Broken(why) = &verdict {
            println!("{why}");
        }
        if !verdict.is_killed() {
            left.push(name.as_str());
        }
    }
    let (count, seconds) = (chosen.len(), start.elapsed().as_secs());
    if left.is_empty() {
        Ok(format!("{count} of {} mutants run and killed in {seconds} s", mutants.len()))
    } else {
        Err(format!("not killed: {} ({} of {count}, {seconds} s)", left.join(", "), left.len()))
    }
}

/// Reads every mutant, in the order of their names.
fn read_all(root: &Path) -> Result<Vec<Mutant>, String> {
    let folder = root.join(FOLDER);
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut mutants = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(failed)? {
        mutants.push(Mutant::read(&entry.map_err(failed)?.path())?);
    }
    mutants.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(mutants)
}

/// Builds and runs each test that the mutants name without any mistake, when it must pass.
fn check_unmutated(cargo: &Cargo, mutants: &[Mutant]) -> Result<(), String> {
    let begun = Instant::now();
    let tests: BTreeSet<&NamedTest> = mutants.iter().map(|mutant| &mutant.test).collect();
    for test in &tests {
        match cargo.build(test)?.run(&test.filter)? {
            Ended::Passed { tests: 1.. } => {}
            Ended::Passed { tests: 0 } => return Err(format!("{test}: there is no such test")),
            Ended::Failed { said } => {
                return Err(format!("{said}\n{test} fails without any mistake"));
            }
            Ended::TimedOut => return Err(format!("{test} does not end without any mistake")),
        }
    }
    let seconds = begun.elapsed().as_secs();
    println!("{:32} {seconds:>4} s  {} tests pass without a mistake", "", tests.len());
    Ok(())
}

/// Makes a mistake, sees what its test says, and takes it back. What a test says that fails is
/// printed where that is asked for.
fn judge(mutant: &Mutant, copy: &Copy, cargo: &Cargo, is_told: bool) -> Result<Verdict, String> {
    let originals = copy.originals(mutant);
    let binary = copy.apply(mutant).and_then(|()| cargo.build(&mutant.test));
    let ended = binary.map(|binary| binary.run(&mutant.test.filter));
    copy.restore(&originals)?;
    let ended = match ended {
        Ok(ended) => ended?,
        Err(why) => return Ok(Verdict::Broken(why)),
    };
    if let Ended::Failed { said } = &ended
        && is_told
    {
        println!("{said}");
    }
    Ok(Verdict::of(&ended, mutant.may_hang))
}

#[cfg(test)]
mod tests {
    use super::{Ended, Mutant, Verdict, read_all};
    use std::collections::BTreeSet;

    #[test]
    fn a_mutant_is_killed_by_a_failure_and_by_a_hang_that_it_announces() {
        assert!(Verdict::of(&Ended::TimedOut, true).is_killed());
        assert!(!Verdict::of(&Ended::TimedOut, false).is_killed());
        for may_hang in [false, true] {
            let failed = Ended::Failed { said: "it panicked".to_owned() };
            assert_eq!(Verdict::of(&failed, may_hang), Verdict::Killed);
            let survived = Verdict::of(&Ended::Passed { tests: 1 }, may_hang);
            assert_eq!(survived, Verdict::Survived);
            assert!(!survived.is_killed());
        }
        assert!(!Verdict::Broken("it does not compile".to_owned()).is_killed());
    }

    #[test]
    fn every_mutant_is_well_formed_and_changes_files_that_there_are() {
        let root = crate::repository_root();
        let mutants = read_all(root).expect("they can be read");
        assert!(mutants.len() >= 30, "{} mutants", mutants.len());
        let mistakes: BTreeSet<&str> =
            mutants.iter().map(|mutant| mutant.mistake.as_str()).collect();
        assert_eq!(mistakes.len(), mutants.len(), "no mistake is told twice");
        for Mutant { name, files, .. } in &mutants {
            for file in files {
                assert!(root.join(file).is_file(), "{name}: there is no {}", file.display());
            }
        }
    }
}
