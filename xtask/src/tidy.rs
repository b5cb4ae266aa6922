//! The house style as executable rules over the text of the repository.
//!
//! Each rule is a function from one file to its findings. Files are those that git tracks or
//! would track, so that build outputs and ignored files stay out; in a copy without git, all files
//! but build outputs and hidden folders.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Lines that a file of code may have; tests and benches are not counted.
const LINE_COUNT_MAX: usize = 500;

/// Characters that a line of code may have.
const LINE_LENGTH_MAX: usize = 100;

/// Names of unfinished work. Spelled in halves, so that this file passes its own rule.
const UNFINISHED: [&str; 4] =
    [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X"), concat!("#[ign", "ore")];

/// One breach of the style.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    file: PathBuf,
    /// Counted from 1; 0 stands for the whole file.
    line: usize,
    rule: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.file.display(), self.line, self.rule)
    }
}

/// Checks every file of the repository; returns what was checked, or all findings.
pub(crate) fn check(root: &Path) -> Result<String, String> {
    let findings =
        findings(root).map_err(|error| format!("cannot read the repository: {error}"))?;
    if findings.is_empty() {
        return Ok("every file keeps the house style".to_owned());
    }
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    Err(lines.join("\n"))
}

/// Checks every file of the repository.
fn findings(root: &Path) -> io::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for file in all_files(root)? {
        // What is not text is nobody's prose or code.
        let Ok(text) = std::fs::read_to_string(root.join(&file)) else { continue };
        let rules = check_file(root, &file, &text);
        findings.extend(rules.into_iter().map(|(line, rule)| Finding {
            file: file.clone(),
            line,
            rule,
        }));
    }
    Ok(findings)
}

/// Lists every file of the repository, named from its root.
pub(crate) fn all_files(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    match tracked_files(root) {
        Some(tracked) => files = tracked,
        None => collect_files(root, Path::new(""), &mut files)?,
    }
    Ok(files)
}

/// Lists the files that git tracks, and those it would track; `None` where git does not answer, as
/// in a copy of the sources or in a checkout that it holds to be another user's.
fn tracked_files(root: &Path) -> Option<Vec<PathBuf>> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .ok()?;
    let names = String::from_utf8_lossy(&output.stdout).into_owned();
    let files = names.lines().map(PathBuf::from).filter(|file| root.join(file).is_file());
    output.status.success().then(|| files.collect())
}

/// Lists all files below `folder`, but no build outputs and nothing in hidden folders.
fn collect_files(root: &Path, folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in std::fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let name = entry.file_name();
        let path = folder.join(&name);
        let is_left_out = name == "target" || name.to_string_lossy().starts_with('.');
        match entry.file_type()? {
            kind if kind.is_dir() && !is_left_out => collect_files(root, &path, files)?,
            kind if kind.is_file() => files.push(path),
            _ => {}
        }
    }
    Ok(())
}

/// Applies all rules that are for this kind of file.
fn check_file(root: &Path, file: &Path, text: &str) -> Vec<(usize, String)> {
    let extension = file.extension().and_then(|extension| extension.to_str()).unwrap_or("");
    let mut findings = Vec::new();
    if extension == "rs" {
        findings.extend(code_rules(file, text));
    }
    if matches!(extension, "rs" | "md" | "toml" | "yml" | "sh" | "") {
        findings.extend(path_rules(text));
    }
    if extension == "md" {
        findings.extend(link_rules(root, file, text));
    }
    findings
}

/// Rules for Rust source: a module doc, no unfinished work, bounded lines and files, and no
/// `matches!` whose answer is thrown away.
fn code_rules(file: &Path, text: &str) -> Vec<(usize, String)> {
    let mut findings = Vec::new();
    let is_fuzz_target = file.starts_with("fuzz");
    if !text.starts_with("//!") && !is_fuzz_target {
        findings.push((1, "a module opens with //! saying what it is".to_owned()));
    }
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(word) = UNFINISHED.iter().find(|word| line.contains(*word)) {
            findings.push((number, format!("{word} marks unfinished work; finish it")));
        }
        let length = line.chars().count();
        if length > LINE_LENGTH_MAX {
            findings.push((number, format!("{length} characters; break at {LINE_LENGTH_MAX}")));
        }
        if line.trim_start().starts_with("matches!(") && line.trim_end().ends_with(");") {
            findings.push((number, "matches! as a statement checks nothing".to_owned()));
        }
    }
    let line_count = text.lines().count();
    let is_test = ["tests", "benches"].iter().any(|folder| file.iter().any(|part| part == *folder))
        || file.file_name().is_some_and(|name| name == "tests.rs");
    if line_count > LINE_COUNT_MAX && !is_test {
        findings.push((0, format!("{line_count} lines; split it below {LINE_COUNT_MAX}")));
    }
    findings
}

/// Rules for every text: nothing that is true of one machine only.
fn path_rules(text: &str) -> Vec<(usize, String)> {
    let homes = [concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/wo", "rk/")];
    (1..)
        .zip(text.lines())
        .filter(|(_, line)| homes.iter().any(|home| line.contains(home)))
        .map(|(number, _)| (number, "an absolute path of one machine".to_owned()))
        .collect()
}

/// Rules for documents: every relative link leads somewhere.
fn link_rules(root: &Path, file: &Path, text: &str) -> Vec<(usize, String)> {
    let folder = root.join(file);
    let folder = folder.parent().unwrap_or(root);
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        for target in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = target.split('#').next().unwrap_or("");
            let is_local =
                !path.is_empty() && !path.contains("://") && !path.starts_with("mailto:");
            if is_local && !folder.join(path).exists() {
                findings.push((number, format!("the link to {path} leads nowhere")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::{check_file, collect_files, findings, tracked_files};
    use std::path::{Path, PathBuf};

    fn rules(name: &str, text: &str) -> Vec<String> {
        let root = crate::repository_root();
        check_file(root, Path::new(name), text).into_iter().map(|(_, rule)| rule).collect()
    }

    #[test]
    fn the_repository_keeps_its_style() {
        let findings = findings(crate::repository_root()).expect("git lists the files");
        let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(lines.is_empty(), "{}", lines.join("\n"));
    }

    #[test]
    fn without_git_the_files_are_found_all_the_same() {
        let root = crate::repository_root();
        let mut files = Vec::new();
        collect_files(root, Path::new(""), &mut files).expect("the sources can be read");
        let is_code = |file: &&PathBuf| file.extension().is_some_and(|extension| extension == "rs");
        assert!(files.iter().filter(is_code).any(|file| file.ends_with("xtask/src/tidy.rs")));
        assert!(!files.iter().any(|file| file.starts_with("target")));
        for tracked in tracked_files(root).iter().flatten().filter(is_code) {
            assert!(files.contains(tracked), "{}", tracked.display());
        }
        assert_eq!(tracked_files(&std::env::temp_dir().join("no such folder")), None);
    }

    #[test]
    fn each_breach_is_found() {
        let marker = concat!("//! Doc.\n// TO", "DO\n");
        assert_eq!(rules("host/a.rs", marker).len(), 1);
        assert_eq!(rules("host/a.rs", "fn main() {}\n").len(), 1);
        assert_eq!(rules("host/a.rs", &format!("//! {}\n", "x".repeat(100))).len(), 1);
        assert_eq!(rules("host/a.rs", "//! Doc.\n    matches!(a, B);\n").len(), 1);
        assert_eq!(rules("host/a.rs", &"//! Doc.\n".repeat(501)).len(), 1);
        assert_eq!(rules("tests/a.rs", &"//! Doc.\n".repeat(501)).len(), 0);
        assert_eq!(rules("docs/a.md", "[gone](missing.md)\n").len(), 1);
        assert_eq!(rules("docs/a.md", "[site](https://example.org) [top](#top)\n").len(), 0);
        assert_eq!(rules("docs/a.md", concat!("see /ho", "me/me/kvtide\n")).len(), 1);
    }
}
