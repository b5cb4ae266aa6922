//! Runs the comparisons of one slot size: pairs in turn, the two of a pair one right after the
//! other.
//!
//! Everything that contenders leave on disk lies in one folder, and goes when the bench is dropped.
//!
//! Called by `main.rs`.

use crate::Failure;
use crate::child;
use crate::contender::{Contender, Pair};
use crate::files::Files;
use crate::fio::Fio;
use crate::foyer_lap;
use crate::memory::{Memory, Pages, Reach, small_pages};
use crate::raw_block;
use crate::subject::{Subject, Variant};
use crate::work::{Lap, LapKind, Workload, provision};
use kvtide::io::{DiskBackend, DiskOptions, open_disk};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// What one pair took: the subject's lap, then the peer's.
pub(crate) type PairLap = [Lap; 2];

/// What came out of one pair.
#[derive(Debug)]
pub(crate) struct Comparison {
    /// Who was compared.
    pub(crate) pair: Pair,
    /// The lap on files just made.
    pub(crate) first: PairLap,
    /// Laps on files written before, one a round.
    pub(crate) later: Vec<PairLap>,
}

/// Everything that one slot size needs.
#[derive(Debug)]
pub(crate) struct Bench {
    folder: PathBuf,
    python: PathBuf,
    workload: Workload,
    subjects: Vec<(Variant, Subject)>,
    files: Vec<(Pages, Files)>,
    memories: Vec<((Pages, u32), Arc<Memory>)>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        // What cannot be removed is named by whoever lists the folder.
        let _ = fs::remove_file(self.data());
        for folder in [self.foyer(), self.files()] {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

impl Bench {
    /// Prepares the comparisons of one slot size in `folder`. `python` is the interpreter that has
    /// LMCache's module.
    pub(crate) fn new(folder: &Path, python: &Path, workload: Workload) -> Result<Self, Failure> {
        fs::create_dir_all(folder)?;
        let (folder, python) = (folder.to_owned(), python.to_owned());
        let (subjects, files, memories) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { folder, python, workload, subjects, files, memories })
    }

    /// Prepares a contender; says what it runs on.
    pub(crate) fn prepare(&mut self, contender: Contender) -> Result<Vec<String>, Failure> {
        match contender {
            Contender::Kvtide(variant) => Ok(self.subject(variant)?.notes()),
            Contender::Files(pages) => Ok(self.file_pool(pages)?.notes()),
            Contender::Fio(pages, reach) => Ok(self.fio(pages, reach)?.notes()),
            Contender::Foyer(_) => Ok(vec![format!("buffers of its own on {}", small_pages())]),
            Contender::RawBlock(_) => raw_block::look(&self.python),
        }
    }

    /// Has the two of a pair do the same lap, the subject first or last.
    pub(crate) fn pair_lap(
        &mut self,
        pair: Pair,
        kind: LapKind,
        is_subject_first: bool,
    ) -> Result<PairLap, Failure> {
        if is_subject_first {
            let subject = self.lap(pair.subject, kind)?;
            return Ok([subject, self.lap(pair.peer, kind)?]);
        }
        let peer = self.lap(pair.peer, kind)?;
        Ok([self.lap(pair.subject, kind)?, peer])
    }

    fn lap(&mut self, contender: Contender, kind: LapKind) -> Result<Lap, Failure> {
        let lap = match contender {
            Contender::Kvtide(variant) => self.subject(variant)?.lap(kind),
            Contender::Files(pages) => self.file_pool(pages)?.lap(kind),
            Contender::Fio(pages, reach) => self.fio(pages, reach)?.lap(kind),
            Contender::Foyer(engine) => self.foyer_lap(engine, kind),
            Contender::RawBlock(engine) => self.raw_block_lap(engine, kind),
        };
        lap.map_err(|error| format!("{}: {error}", contender.name()).into())
    }

    /// Returns the memory of a workload on pages of one kind, which all contenders in this process
    /// share.
    fn memory(&mut self, workload: &Workload, pages: Pages) -> Result<Arc<Memory>, Failure> {
        let wanted = (pages, workload.place_count);
        if let Some((_, memory)) = self.memories.iter().find(|(of, _)| *of == wanted) {
            return Ok(Arc::clone(memory));
        }
        let memory = Arc::new(Memory::allocate(workload, pages)?);
        self.memories.push((wanted, Arc::clone(&memory)));
        Ok(memory)
    }

    fn subject(&mut self, variant: Variant) -> Result<&mut Subject, Failure> {
        let at = self.subjects.iter().position(|(of, _)| *of == variant);
        let at = if let Some(at) = at {
            at
        } else {
            let depth = self.workload.depth;
            let backend = DiskBackend::Uring;
            let disk = open_disk(&DiskOptions { backend, depth, ..DiskOptions::default() })?;
            let workload = variant.workload(self.workload);
            let memory = self.memory(&workload, variant.pages)?;
            let subject = Subject::new(disk, self.data(), workload, variant.has_sums, memory);
            self.subjects.push((variant, subject));
            self.subjects.len() - 1
        };
        Ok(&mut self.subjects[at].1)
    }

    fn file_pool(&mut self, pages: Pages) -> Result<&Files, Failure> {
        let at = self.files.iter().position(|(of, _)| *of == pages);
        let at = if let Some(at) = at {
            at
        } else {
            let workload = self.workload;
            let memory = self.memory(&workload, pages)?;
            self.files.push((pages, Files::new(self.files(), workload, memory)?));
            self.files.len() - 1
        };
        Ok(&self.files[at].1)
    }

    fn fio(&self, pages: Pages, reach: Reach) -> Result<Fio, Failure> {
        Fio::new(self.data(), self.workload, pages, reach)
    }

    fn foyer_lap(&self, engine: foyer_lap::Engine, kind: LapKind) -> Result<Lap, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("foyer-lap").arg("--engine").arg(engine.word());
        command.arg("--folder").arg(self.foyer());
        child::lap(command, &self.workload, kind)
    }

    fn raw_block_lap(&self, engine: raw_block::Engine, kind: LapKind) -> Result<Lap, Failure> {
        if kind == LapKind::First {
            provision(&self.data(), self.workload.total_bytes())?;
        }
        let command = raw_block::command(&self.python, &self.data(), engine);
        child::lap(command, &self.workload, kind)
    }

    /// The file that kvtide, fio and LMCache's module share.
    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn foyer(&self) -> PathBuf {
        self.folder.join("foyer")
    }

    fn files(&self) -> PathBuf {
        self.folder.join("files")
    }
}
