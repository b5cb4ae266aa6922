//! Building one test and running it, within a time.
//!
//! Built without optimisation and debug information, of which a change costs seconds; only the
//! checksums are optimised, which the tests run over all their bytes.

use super::patch::NamedTest;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Where everything is built, from the root of the repository.
const FOLDER: &str = "target/mutants/build";

/// How long a test may run: those that mutants name take a few seconds.
const RUN_LIMIT: Duration = Duration::from_mins(1);

/// SIGINT, SIGKILL and SIGTERM: what others end a process with. A mistake ends it with others.
const SIGNALS_FROM_OUTSIDE: [i32; 3] = [2, 9, 15];

/// How often a test that runs is looked at.
const STEP: Duration = Duration::from_millis(20);

/// How a test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// All went well, of so many tests.
    Passed {
        /// Tests that were run.
        tests: u32,
    },
    /// One failed, or took the others with it.
    Failed {
        /// What the tests said.
        said: String,
    },
    /// It was killed after the time was over.
    TimedOut,
}

/// Cargo in a copy of the repository.
#[derive(Debug)]
pub(super) struct Cargo {
    copy: PathBuf,
    folder: PathBuf,
}

/// A test that was built.
#[derive(Debug)]
pub(super) struct TestBinary {
    executable: PathBuf,
    /// The folder of its package, where it is run.
    package: PathBuf,
}

impl Cargo {
    /// Works on `copy`, and builds below `root`.
    pub(super) fn new(root: &Path, copy: &Path) -> Self {
        Self { copy: copy.to_owned(), folder: root.join(FOLDER) }
    }

    /// Builds the target of a test.
    pub(super) fn build(&self, test: &NamedTest) -> Result<TestBinary, String> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command
            .args(["test", "--quiet", "--no-run", "--message-format=json-render-diagnostics"])
            .args(["--config", "profile.test.package.kvtide-kernels.opt-level=2"])
            .args(["--package", &test.package])
            .current_dir(&self.copy)
            .env("CARGO_TARGET_DIR", &self.folder)
            .env("CARGO_INCREMENTAL", "1")
            .env("CARGO_PROFILE_TEST_OPT_LEVEL", "0")
            .env("CARGO_PROFILE_TEST_DEBUG", "0");
        match test.target.as_str() {
            "lib" => command.arg("--lib"),
            target => command.args(["--test", target]),
        };
        let built = command.output().map_err(|error| format!("cargo: {error}"))?;
        if !built.status.success() {
            let why = String::from_utf8_lossy(&built.stderr);
            return Err(format!("{test} cannot be built:\n{}", why.trim_end()));
        }
        let messages = String::from_utf8_lossy(&built.stdout);
        let binary = messages.lines().find_map(|message| TestBinary::of_message(message, test));
        binary.ok_or_else(|| format!("{test}: cargo does not say what it built"))
    }
}

impl TestBinary {
    /// Reads where the executable of a test is out of a message of cargo's; `None` for a message
    /// of something else.
    fn of_message(message: &str, test: &NamedTest) -> Option<Self> {
        let kind = if test.target == "lib" { "lib" } else { "test" };
        let is_of_test = message.contains(r#""reason":"compiler-artifact""#)
            && message.contains(&format!(r#""kind":["{kind}"]"#));
        let value = |field: &str| {
            let (_, rest) = message.split_once(&format!(r#""{field}":""#))?;
            rest.split('"').next()
        };
        let executable = PathBuf::from(value("executable").filter(|_| is_of_test)?);
        let package = Path::new(value("manifest_path")?).parent()?.to_owned();
        Some(Self { executable, package })
    }

    /// Runs the tests whose names contain `filter`.
    pub(super) fn run(&self, filter: &str) -> Result<Ended, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", self.executable.display());
        let mut child = Command::new(&self.executable)
            .arg(filter)
            .current_dir(&self.package)
            // Each run draws the same cases, and leaves no file behind.
            .env("PROPTEST_RNG_SEED", "1")
            .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let mut stdout = child.stdout.take();
        // Read beside it: a test that fails may say more than a pipe holds.
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let read = stdout.as_mut().map(|stdout| stdout.read_to_end(&mut bytes));
            read.transpose().map(|_| String::from_utf8_lossy(&bytes).into_owned())
        });
        let status = wait(&mut child).map_err(failed)?;
        let said = reader.join().map_err(|_| failed(std::io::ErrorKind::Other.into()))?;
        let said = said.map_err(failed)?;
        Ok(match status {
            None => Ended::TimedOut,
            Some(status) if status.success() => Ended::Passed { tests: passed(&said) },
            Some(status) if is_from_outside(status) => {
                return Err(format!(
                    "{}: ended by {status}; run it again",
                    self.executable.display()
                ));
            }
            Some(_) => Ended::Failed { said },
        })
    }
}

/// Whether somebody else ended a process, so that it says nothing of a mistake.
fn is_from_outside(status: ExitStatus) -> bool {
    status.signal().is_some_and(|signal| SIGNALS_FROM_OUTSIDE.contains(&signal))
}

/// Waits for the end of a test; `None` if it had to be killed.
fn wait(child: &mut Child) -> std::io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    while start.elapsed() < RUN_LIMIT {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(STEP);
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// Returns the tests that passed, out of what they said: `test result: ok. 3 passed; ..`.
fn passed(said: &str) -> u32 {
    let results = said.lines().filter_map(|line| line.strip_prefix("test result: ok. "));
    results.filter_map(|result| result.split(' ').next()?.parse::<u32>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::{Ended, NamedTest, TestBinary, is_from_outside, passed};
    use std::os::unix::process::ExitStatusExt;
    use std::path::Path;
    use std::process::ExitStatus;

    fn test(target: &str) -> NamedTest {
        let [package, filter] = ["kvtide", "tests"].map(str::to_owned);
        NamedTest { package, target: target.to_owned(), filter }
    }

    #[test]
    fn the_executable_of_a_test_is_found_among_what_cargo_says() {
        let of = |kind: &str, executable: &str| {
            format!(
                "{{\"reason\":\"compiler-artifact\",\"manifest_path\":\"/copy/Cargo.toml\",\
                 \"target\":{{\"kind\":[\"{kind}\"]}},\"executable\":{executable},\"fresh\":true}}"
            )
        };
        let (library, inside) = (of("lib", "null"), of("lib", "\"/build/deps/kvtide-2\""));
        let tests = of("test", "\"/build/deps/store-1\"");
        let finished = r#"{"reason":"build-finished","success":true}"#;
        for (message, target, found) in [
            (&*library, "lib", None),
            (&library, "store", None),
            (&tests, "lib", None),
            (&tests, "store", Some("/build/deps/store-1")),
            (&inside, "lib", Some("/build/deps/kvtide-2")),
            (&inside, "store", None),
            (finished, "store", None),
        ] {
            let binary = TestBinary::of_message(message, &test(target));
            let executable = binary.as_ref().map(|binary| binary.executable.as_path());
            assert_eq!(executable, found.map(Path::new), "{target}: {message}");
            assert!(binary.is_none_or(|binary| binary.package == Path::new("/copy")));
        }
    }

    #[test]
    fn a_test_ends_as_its_process_does() {
        let run = |program: &str| {
            let (executable, package) = (program.into(), std::env::temp_dir());
            TestBinary { executable, package }.run("filter")
        };
        assert_eq!(run("true"), Ok(Ended::Passed { tests: 0 }));
        assert_eq!(run("false"), Ok(Ended::Failed { said: String::new() }));
        assert!(run("there is no such program").is_err());
    }

    #[test]
    fn a_process_that_others_end_has_not_failed() {
        let (interrupted, terminated, aborted, segmentation_fault) = (2, 15, 6, 11);
        let failed = 101 << 8;
        assert!(is_from_outside(ExitStatus::from_raw(interrupted)));
        assert!(is_from_outside(ExitStatus::from_raw(terminated)));
        for by_itself in [aborted, segmentation_fault, failed] {
            assert!(!is_from_outside(ExitStatus::from_raw(by_itself)));
        }
    }

    #[test]
    fn only_tests_that_ran_count_as_passed() {
        let ran = "running 3 tests\n...\n\ntest result: ok. 3 passed; 0 failed; 0 ignored\n";
        assert_eq!(passed(ran), 3);
        assert_eq!(passed("test result: ok. 0 passed; 0 failed; 41 filtered out\n"), 0);
        assert_eq!(passed("test result: FAILED. 2 passed; 1 failed\n"), 0);
        assert_eq!(passed(""), 0);
    }
}
