//! The suite that every disk must pass.

use super::{SimDrive, SimOptions};
use crate::io::Disk;
use crate::io::tests::conformance::{Stage, conformance_tests};
use std::cell::Cell;
use std::path::PathBuf;

/// A machine with one simulated drive.
struct Machine {
    drive: SimDrive,
    seed_next: Cell<u64>,
}

impl Machine {
    fn new() -> Self {
        let drive = SimDrive::with_options(1, SimOptions { depth: 4, ..SimOptions::default() });
        let machine = Self { drive, seed_next: Cell::new(1) };
        let made = machine.disk().create_directory(&machine.directory());
        made.expect("a directory is made");
        machine
    }
}

impl Stage for Machine {
    fn directory(&self) -> PathBuf {
        PathBuf::from("/stage")
    }

    fn disk(&self) -> Box<dyn Disk> {
        let seed = self.seed_next.get();
        self.seed_next.set(seed + 1);
        Box::new(self.drive.disk(seed))
    }
}

conformance_tests!(sim, Machine::new());
