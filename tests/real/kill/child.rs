//! The child: a pager over a directory that works until it is killed, and tells what it was
//! promised.

use super::report::Report;
use super::{Role, Task};
use crate::engine::{Area, Engine, PATIENT, Prompt, disk_tier};
use crate::support::scatter;
use kvtide::core::{Failure, StorePoint, WritePolicy};
use kvtide::io::DiskBackend;
use kvtide::key::Key;
use kvtide::pager::{DiskConfig, DiskHealth};
use kvtide::units::ByteCount;
use std::collections::BTreeSet;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Chunks that fit into the host tier: fewer than a run uses, so that loads come from disk.
const HOST_CHUNKS: u64 = 20;

/// Works in the current directory until it is killed.
pub(super) fn run(task: &Task) {
    let stream = std::io::stdin().as_fd().try_clone_to_owned().expect("a descriptor");
    let stream = UnixStream::from(stream);
    let engine = Engine::open(HOST_CHUNKS, settings(task)).expect("what is left is a store");
    let universe: BTreeSet<Key> = Prompt::all().flat_map(|prompt| prompt.keys().concat()).collect();
    let universe = universe.into_iter().collect();
    let mut child = Child { engine, universe, stream, weights: task.weights };
    child.tell(&Report::Opened);
    if task.role != Role::WorkAtOnce {
        child.look();
    }
    if task.role == Role::Look {
        // Until the parent is gone, at the latest.
        let _end = child.stream.read(&mut [0]);
        return;
    }
    for step in 0.. {
        child.work(scatter(task.seed ^ scatter(task.cycle << 32 | step)));
    }
}

fn settings(task: &Task) -> DiskConfig {
    let root = std::env::current_dir().expect("the parent made it");
    let mut settings = disk_tier(&root, task.kind().chunks());
    settings.backend =
        if task.seed.is_multiple_of(2) { DiskBackend::Uring } else { DiskBackend::Psync };
    settings.write_policy = match task.seed / 2 % 3 {
        0 => WritePolicy::Through,
        1 => WritePolicy::Back { high_percent: 80, low_percent: 50 },
        _ => WritePolicy::OnEvict,
    };
    // Scrubbing would give torn chunks up between two looks that are to find the same.
    settings.scrub_budget = ByteCount::new(0);
    // Often, so that kills fall into syncs.
    settings.sync_interval = Duration::from_millis(5);
    settings
}

struct Child {
    engine: Engine,
    /// Every key that is ever used.
    universe: Vec<Key>,
    stream: UnixStream,
    weights: u64,
}

impl Child {
    fn tell(&mut self, report: &Report) {
        report.send(&mut self.stream).expect("the parent listens");
    }

    /// Loads all that is there.
    fn look(&mut self) {
        self.engine.wait_for(|health| *health == DiskHealth::Serving);
        let found = self.engine.at_least(StorePoint::Written, &self.universe);
        self.tell(&Report::Found(found));
        for prompt in Prompt::all() {
            for loaded in self.engine.load(prompt).1 {
                if let Ok(bytes) = loaded.bytes {
                    self.tell(&Report::Hit(loaded.key, bytes));
                }
            }
        }
        self.tell(&Report::Looked);
    }

    fn work(&mut self, chance: u64) {
        match chance % 24 {
            0 => self.clear(scatter(chance)),
            1..4 => self.flush(),
            4 => std::thread::sleep(Duration::from_micros(scatter(chance) % 3000)),
            _ => self.request(Prompt::drawn(scatter(chance))),
        }
    }

    fn request(&mut self, prompt: Prompt) {
        let keys = prompt.keys().concat();
        self.tell(&Report::Using(keys.clone()));
        let (_, failures) = self.engine.request(prompt, self.weights);
        for failure in failures {
            // Of what a kill tore, there may be one in each cycle.
            let is_miss = matches!(
                failure,
                Failure::Full
                    | Failure::Busy
                    | Failure::Draining
                    | Failure::ParentMissing
                    | Failure::Missing
                    | Failure::Checksum
                    | Failure::Disk
            );
            assert!(is_miss, "{failure}");
        }
        let written = self.engine.at_least(StorePoint::Written, &keys);
        self.tell(&Report::Written(written));
    }

    fn flush(&mut self) {
        self.engine.pager.flush(PATIENT).expect("the drive is good");
        let durable = self.engine.at_least(StorePoint::Durable, &self.universe);
        self.tell(&Report::Flushed(durable));
    }

    /// Drops everything, with a store of the former weights under way or not, and stores the same
    /// prompt anew at once.
    fn clear(&mut self, chance: u64) {
        let prompt = Prompt::drawn(chance);
        let mut tickets = Vec::new();
        if chance >> 63 == 1 {
            self.tell(&Report::Using(prompt.keys().concat()));
            tickets = self.engine.store(Area::Store, prompt, 0, self.weights);
        }
        self.tell(&Report::Clearing);
        self.engine.pager.clear(PATIENT).expect("the drive is good");
        let left = self.engine.at_least(StorePoint::Host, &self.universe);
        assert_eq!(left, [], "everything was cleared");
        self.weights += 1;
        self.tell(&Report::Cleared);
        self.tell(&Report::Using(prompt.keys().concat()));
        tickets.extend(self.engine.store(Area::OtherStore, prompt, 0, self.weights));
        for ticket in tickets {
            ticket.wait();
        }
    }
}
