//! The copy of the repository in which mistakes are made.
//!
//! It stays between runs, as what is built from it does: renewing it writes only what differs, so
//! that no more is built anew than what has changed.

use super::patch::Mutant;
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where it is, from the root of the repository.
const FOLDER: &str = "target/mutants/tree";

/// A file of the copy, and what is in it.
pub(super) type Original = (PathBuf, Vec<u8>);

/// A copy of the repository's files.
#[derive(Debug)]
pub(super) struct Copy {
    source: PathBuf,
    root: PathBuf,
}

impl Copy {
    /// Makes the copy, or brings it up to date: `files`, named from the repository's root, and
    /// nothing else.
    pub(super) fn renew(source: &Path, files: &[PathBuf]) -> Result<Self, String> {
        let copy = Self { source: source.to_owned(), root: source.join(FOLDER) };
        let renewed = files
            .iter()
            .try_for_each(|file| copy.renew_file(file))
            .and_then(|()| remove_others(&copy.root, Path::new(""), &files.iter().collect()));
        renewed.map_err(|error| format!("{}: {error}", copy.root.display()))?;
        Ok(copy)
    }

    /// Returns its folder.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Makes a mutant's mistake.
    pub(super) fn apply(&self, mutant: &Mutant) -> Result<(), String> {
        let applied = Command::new("git")
            .args(["apply", "--whitespace=nowarn"])
            .arg(&mutant.path)
            .current_dir(&self.root)
            // It is no part of the repository around it, which ignores it.
            .env("GIT_CEILING_DIRECTORIES", self.root.parent().unwrap_or(&self.root))
            .output()
            .map_err(|error| format!("git: {error}"))?;
        if applied.status.success() {
            return Ok(());
        }
        let why = String::from_utf8_lossy(&applied.stderr);
        Err(format!("{} does not apply: {}", mutant.path.display(), why.trim_end()))
    }

    /// Returns what a mutant changes as it is before that; what is not there it cannot change.
    pub(super) fn originals(&self, mutant: &Mutant) -> Vec<Original> {
        let read = |file: &PathBuf| Some((file.clone(), std::fs::read(self.root.join(file)).ok()?));
        mutant.files.iter().filter_map(read).collect()
    }

    /// Takes a mutant's mistake back, whatever has become of the repository meanwhile.
    pub(super) fn restore(&self, originals: &[Original]) -> Result<(), String> {
        let write = |(file, bytes): &Original| self.write_file(file, bytes);
        let restored = originals.iter().try_for_each(write);
        restored.map_err(|error| format!("{}: {error}", self.root.display()))
    }

    fn renew_file(&self, file: &Path) -> io::Result<()> {
        self.write_file(file, &std::fs::read(self.source.join(file))?)
    }

    /// Writes a file if it differs, with the time of now: what was built from it is older.
    fn write_file(&self, file: &Path, bytes: &[u8]) -> io::Result<()> {
        let target = self.root.join(file);
        if std::fs::read(&target).is_ok_and(|there| there == bytes) {
            return Ok(());
        }
        if let Some(folder) = target.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(target, bytes)
    }
}

/// Removes what is below `folder` of `root` and not among `files`.
fn remove_others(root: &Path, folder: &Path, files: &HashSet<&PathBuf>) -> io::Result<()> {
    for entry in std::fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            remove_others(root, &path, files)?;
        } else if !files.contains(&path) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::patch::Mutant;
    use super::Copy;
    use std::path::{Path, PathBuf};

    const MUTANT: &str = "\
mistake: b is c
test: kvtide lib tests

--- a/host/file.rs
+++ b/host/file.rs
@@ -1,3 +1,3 @@
 a
-b
+c
 d
";

    /// A repository of one file, in a folder of its own.
    fn repository(name: &str) -> PathBuf {
        let root = std::env::temp_dir().join(format!("kvtide-{name}-{}", std::process::id()));
        std::fs::create_dir_all(root.join("host")).expect("the temporary folder is writable");
        std::fs::write(root.join("host/file.rs"), "a\nb\nd\n").expect("writable");
        std::fs::write(root.join("b-is-c.patch"), MUTANT).expect("writable");
        root
    }

    fn text(copy: &Copy) -> String {
        std::fs::read_to_string(copy.root().join("host/file.rs")).expect("it is there")
    }

    #[test]
    fn a_mistake_is_made_in_the_copy_alone_and_taken_back() {
        let root = repository("mistake");
        let mutant = Mutant::read(&root.join("b-is-c.patch")).expect("it is well formed");
        let copy = Copy::renew(&root, &mutant.files).expect("writable");
        let originals = copy.originals(&mutant);
        assert_eq!(copy.apply(&mutant), Ok(()));
        assert_eq!(text(&copy), "a\nc\nd\n");
        let again = copy.apply(&mutant).expect_err("b is not there any more");
        assert!(again.contains("b-is-c.patch does not apply"), "{again}");
        assert_eq!(copy.restore(&originals), Ok(()));
        assert_eq!(text(&copy), "a\nb\nd\n");
        let source = std::fs::read_to_string(root.join("host/file.rs"));
        assert_eq!(source.expect("it is there"), "a\nb\nd\n");
        std::fs::remove_dir_all(&root).expect("the folder is this test's");
    }

    #[test]
    fn a_renewed_copy_has_the_files_as_they_are_and_no_others() {
        let root = repository("renew");
        let files = [PathBuf::from("host/file.rs")];
        let copy = Copy::renew(&root, &files).expect("writable");
        let time = |copy: &Copy| {
            let metadata = std::fs::metadata(copy.root().join("host/file.rs"));
            metadata.and_then(|metadata| metadata.modified()).expect("it is there")
        };
        let before = time(&copy);
        std::fs::write(copy.root().join("host/left.rs"), "from an older tree").expect("writable");
        let copy = Copy::renew(&root, &files).expect("writable");
        assert_eq!(time(&copy), before, "what has not changed is not written again");
        assert!(!copy.root().join("host/left.rs").exists());
        std::fs::write(root.join("host/file.rs"), "changed").expect("writable");
        let copy = Copy::renew(&root, &files).expect("writable");
        assert_eq!(text(&copy), "changed");
        let missing = Copy::renew(&root, &[Path::new("none").to_owned()]);
        assert!(missing.is_err());
        std::fs::remove_dir_all(&root).expect("the folder is this test's");
    }
}
