//! One mutant's file: what the mistake is, which test must fail on it, and the diff.
//!
//! ```text
//! mistake: a generation is given out twice
//! test: kvtide store a_read_counts_only_from_the_last_write
//! hangs: yes                                                  (only where the test may not end)
//!
//! --- a/host/store/state.rs
//! +++ b/host/store/state.rs
//! @@ ...
//! ```
//!
//! The test is named by its package, its target (`lib`, or the name of one in `tests`), and what
//! its name contains.

use std::fmt;
use std::path::{Path, PathBuf};

/// The end of a mutant's file name.
const EXTENSION: &str = "patch";

/// A test as a mutant names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NamedTest {
    pub(super) package: String,
    /// `lib` for the tests inside the package, else the name of a target in `tests`.
    pub(super) target: String,
    /// What the names of the tests contain that are run.
    pub(super) filter: String,
}

impl fmt::Display for NamedTest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {} {}", self.package, self.target, self.filter)
    }
}

/// A mistake, and the test that must fail on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mutant {
    /// The file's name without its extension.
    pub(super) name: String,
    /// Where the file is.
    pub(super) path: PathBuf,
    /// What the mistake is, in a line.
    pub(super) mistake: String,
    pub(super) test: NamedTest,
    /// Whether the test may not end instead of failing.
    pub(super) may_hang: bool,
    /// What the diff changes, from the root of the repository.
    pub(super) files: Vec<PathBuf>,
}

impl Mutant {
    /// Reads a mutant's file.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let failed = |why: String| format!("{}: {why}", path.display());
        let contents = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        Self::parse(path, &contents).map_err(failed)
    }

    fn parse(path: &Path, contents: &str) -> Result<Self, String> {
        let is_named = path.extension().is_some_and(|extension| extension == EXTENSION);
        let name = path.file_stem().filter(|_| is_named).and_then(|stem| stem.to_str());
        let name = name.ok_or(format!("a mutant is a file NAME.{EXTENSION}"))?.to_owned();
        let (header, diff) = contents.split_once("\n\n").ok_or("no empty line above the diff")?;
        let (mut mistake, mut test, mut may_hang) = (None, None, false);
        for line in header.lines() {
            match line.split_once(": ") {
                Some(("mistake", what)) if mistake.is_none() => mistake = Some(what.to_owned()),
                Some(("test", named)) if test.is_none() => test = Some(parse_test(named)?),
                Some(("hangs", "yes")) => may_hang = true,
                _ => {
                    let known = "one `mistake: ..`, one `test: ..` and maybe `hangs: yes`";
                    return Err(format!("`{line}`: {known} stand above the diff"));
                }
            }
        }
        let files: Vec<PathBuf> = diff
            .lines()
            .filter_map(|line| line.strip_prefix("+++ b/"))
            .map(PathBuf::from)
            .collect();
        if files.is_empty() {
            return Err("no diff of a file, which begins with --- a/FILE and +++ b/FILE".to_owned());
        }
        Ok(Self {
            name,
            path: path.to_owned(),
            mistake: mistake.ok_or("no line `mistake: ..`")?,
            test: test.ok_or("no line `test: PACKAGE TARGET NAME`")?,
            may_hang,
            files,
        })
    }
}

fn parse_test(named: &str) -> Result<NamedTest, String> {
    match named.split(' ').collect::<Vec<_>>()[..] {
        [package, target, filter] if ![package, target, filter].contains(&"") => Ok(NamedTest {
            package: package.to_owned(),
            target: target.to_owned(),
            filter: filter.to_owned(),
        }),
        _ => Err(format!("`test: {named}`: it is `test: PACKAGE TARGET NAME`")),
    }
}

#[cfg(test)]
mod tests {
    use super::Mutant;
    use std::path::{Path, PathBuf};

    const HEADER: &str = "mistake: a key is never removed\ntest: kvtide lib index::tests\n";
    const DIFF: &str = "\n--- a/host/a.rs\n+++ b/host/a.rs\n@@ -1 +1 @@\n-a\n+b\n";

    fn parse(text: &str) -> Result<Mutant, String> {
        Mutant::parse(Path::new("mutants/index-keeps.patch"), text)
    }

    #[test]
    fn a_mutant_says_what_it_is_and_who_finds_it() {
        let mutant = parse(&format!("{HEADER}{DIFF}")).expect("it is well formed");
        assert_eq!(mutant.name, "index-keeps");
        assert_eq!(mutant.mistake, "a key is never removed");
        assert_eq!(mutant.test.to_string(), "kvtide lib index::tests");
        assert_eq!(mutant.files, [PathBuf::from("host/a.rs")]);
        assert!(!mutant.may_hang);
        let hangs = parse(&format!("{HEADER}hangs: yes\n{DIFF}")).expect("it is well formed");
        assert!(hangs.may_hang);
    }

    #[test]
    fn every_file_of_a_diff_is_found() {
        let mutant = parse(&format!("{HEADER}{DIFF}{}", DIFF.replace("a.rs", "b.rs")));
        let files = mutant.expect("it is well formed").files;
        assert_eq!(files, ["host/a.rs", "host/b.rs"].map(PathBuf::from));
    }

    #[test]
    fn what_is_missing_or_unknown_is_refused_by_name() {
        let whole = format!("{HEADER}{DIFF}");
        for (from, to, named) in [
            ("mistake: a", "mistook: a", "mistook"),
            ("mistake: a key is never removed\n", "", "no line `mistake"),
            ("test: kvtide lib index::tests\n", "", "no line `test"),
            ("lib index::tests", "lib", "`test: kvtide lib`"),
            ("lib index::tests", "lib  tests", "`test: kvtide lib  tests`"),
            ("test: ", "test: kvtide lib other\ntest: ", "one `test: ..`"),
            ("\n\n", "\n", "no empty line"),
            ("+++ b/", "+++ ", "no diff"),
            ("tests\n", "tests\nhangs: no\n", "`hangs: no`"),
        ] {
            let refused = parse(&whole.replacen(from, to, 1)).expect_err(named);
            assert!(refused.contains(named), "{refused}");
        }
        assert!(Mutant::parse(Path::new("mutants/readme.md"), &whole).is_err());
    }
}
