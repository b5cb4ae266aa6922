//! One life after another: how a process ends, what the next one finds, and what it must find.

use super::faults::tells;
use super::life::{Life, pass_time};
use super::world::{SIZE_COUNT, World};
use kvtide::core::StorePoint;
use kvtide::device::Device;
use kvtide::device::cpu::{CpuConfig, CpuDevice};
use kvtide::key::Key;
use kvtide::pager::{DiskHealth, SimulatedPager};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// How long a recovery may take: its reads, should every one of them time out.
const RECOVERY_TIME: Duration = Duration::from_mins(10);

impl World {
    /// Opens a pager on what the last life left, whatever that is.
    pub(super) fn begin_life(&mut self) {
        self.oracle.begin_life();
        self.engine.take_all_back();
        let pieces = CpuConfig { out_pieces: 3, in_pieces: 3 };
        let mut has_failed = false;
        loop {
            self.handles += 1;
            let disk = self.drive.disk(self.seed << 20 | self.handles);
            let number = disk.number();
            let memory = vec![Arc::clone(&self.engine.memory)];
            let device = CpuDevice::open_stepped(&self.engine.layout, memory, pieces);
            let device = device.expect("a device opens");
            let shared = Arc::clone(&device) as Arc<dyn Device>;
            let config = self.config();
            match SimulatedPager::open(&config, shared, Box::new(disk), self.clock.clone()) {
                Ok(pager) => {
                    self.tally.lives += 1;
                    let mut life = Life::new(pager, device, number, self.clock.clone());
                    self.tell_device_plan(&mut life);
                    self.life = Some(life);
                    return;
                }
                Err(error) => {
                    // A power cut that was planned may have come, and a drive that lies may have
                    // left nothing that can be opened.
                    assert!(
                        self.was_cut() || self.oracle.has_faults,
                        "opening fails by itself: {error}"
                    );
                    self.has_told = true;
                    if self.take_in_cut() {
                        continue;
                    }
                    self.drive.clear_faults();
                    self.cut_power();
                    // Faults may have left nothing that can be opened.
                    self.root += u32::from(has_failed);
                    has_failed = true;
                }
            }
        }
    }

    fn cut_power(&mut self) {
        self.drive.cut_power();
        self.take_in_cut();
    }

    /// Takes in a power cut, if one has come.
    pub(super) fn take_in_cut(&mut self) -> bool {
        let was_cut = self.was_cut();
        if was_cut {
            self.oracle.cut_power();
            self.tally.power_cuts = self.drive.counters().cuts;
        }
        was_cut
    }

    /// Whether a power cut has come that nobody has taken in yet.
    pub(super) fn was_cut(&self) -> bool {
        self.drive.counters().cuts > self.tally.power_cuts
    }

    /// Cuts the power now.
    pub(super) fn drive_cut(&mut self, how: usize) {
        self.remember(StorePoint::Durable);
        self.drive.cut_power();
        self.after_cut(how);
    }

    /// Takes in a power cut that came by itself.
    pub(super) fn notice_cut(&mut self) {
        if self.was_cut() {
            self.remember(StorePoint::Durable);
            self.after_cut(usize::try_from(self.tally.steps).expect("few"));
        }
    }

    fn remember(&mut self, least: StorePoint) {
        let life = self.life.take().expect("a life is on");
        self.oracle.end_life(life.pager.pager(), least);
        self.life = Some(life);
    }

    fn after_cut(&mut self, how: usize) {
        self.take_in_cut();
        self.end_life();
        self.next_life(how);
    }

    pub(super) fn kill(&mut self, how: usize) {
        self.remember(StorePoint::Written);
        self.tally.kills += 1;
        let disk = self.life().disk;
        self.drive.kill(disk);
        self.end_life();
        self.next_life(how);
    }

    fn end_life(&mut self) {
        drop(self.take_life());
    }

    /// Takes the life that ends, after everything of the engine's was let go of.
    fn take_life(&mut self) -> Life {
        let mut life = self.life.take().expect("a life is on");
        life.let_go();
        self.note_told(&life);
        self.count_device_plan(&life);
        let counters = life.pager.pager().counters();
        self.tally.core_steps += counters.steps;
        self.tally.written += counters.written;
        self.tally.promoted += counters.promoted;
        life
    }

    /// Begins the next life: usually it recovers before anything else happens, and is killed and
    /// recovers again, which must find the same.
    fn next_life(&mut self, how: usize) {
        self.begin_life();
        if how.is_multiple_of(4) {
            self.oracle.forget_left();
            return;
        }
        if how % 4 == 1 {
            // The power goes again while the first recovery is under way.
            for _ in 0..how % 7 {
                self.turn();
            }
            self.cut_power();
            self.end_life();
            self.begin_life();
        }
        self.recover();
        let (found, cuts) = (self.found(), self.tally.power_cuts);
        let disk = self.life().disk;
        self.drive.kill(disk);
        self.end_life();
        self.begin_life();
        self.recover();
        // What the power tore is found until somebody reads it, as a scrub does.
        let is_known = !self.oracle.has_faults && cuts == self.tally.power_cuts;
        if is_known && self.scrub_budget.get() == 0 {
            assert_eq!(found, self.found(), "a second recovery finds something else");
        }
        self.oracle.forget_left();
    }

    /// Returns what the tiers hold.
    fn found(&self) -> HashSet<Key> {
        let life = self.life.as_ref().expect("a life is on");
        self.oracle.keys_at(life.pager.pager(), StorePoint::Host)
    }

    pub(super) fn turn(&mut self) {
        let mut life = self.life.take().expect("a life is on");
        if let Some(sleep) = life.turn(&self.engine) {
            life.pass_time(&self.drive, sleep);
        }
        self.life = Some(life);
    }

    /// Runs until the disk tier knows what it holds, and checks that this is what was left. A power
    /// cut on the way begins another life, which recovers too.
    fn recover(&mut self) {
        self.tally.recoveries += 1;
        let start = self.clock.now();
        loop {
            if self.take_in_cut() {
                self.end_life();
                self.begin_life();
            }
            if !self.is_recovering() {
                break;
            }
            let passed = self.clock.now().get() - start.get();
            assert!(Duration::from_nanos(passed) < RECOVERY_TIME, "recovery does not end");
            self.turn();
        }
        let life = self.life.take().expect("a life is on");
        self.oracle.check_recovered(life.pager.pager());
        self.life = Some(life);
    }

    fn is_recovering(&mut self) -> bool {
        let health = self.life().pager.pager().disk_health().expect("a disk tier");
        matches!(health, DiskHealth::Recovering { .. })
    }

    /// Closes and opens again.
    pub(super) fn restart(&mut self, how: usize) {
        self.settle();
        if self.life.is_none() {
            return;
        }
        let has_grown_or_shrunk = how.is_multiple_of(3);
        self.close();
        if has_grown_or_shrunk {
            self.size = how / 3 % SIZE_COUNT;
        }
        self.begin_life();
        // A store that was closed and has to be scanned tells that its index was not read.
        self.has_told |= self.was_closed && self.is_recovering();
        self.recover();
        self.oracle.forget_left();
    }

    /// Runs until all that was asked for has ended.
    pub(crate) fn settle(&mut self) {
        let mut life = self.life.take().expect("a life is on");
        let (engine, oracle) = (&mut self.engine, &mut self.oracle);
        life.settle(engine, oracle, &self.drive, &mut self.tally, self.has_hung);
        self.note_told(&life);
        self.life = Some(life);
    }

    /// Closes the pager, and checks what it leaves.
    pub(super) fn close(&mut self) {
        // What is still being scanned has no snapshot yet.
        let was_known = !self.is_recovering();
        let life = self.take_life();
        let clock = self.clock.clone();
        let drive = self.drive.clone();
        // What is durable already is kept by a close; what it still writes may evict others.
        self.oracle.forget_left();
        let mut has_told = false;
        let report = life.pager.close(|pager| {
            has_told |= tells(pager.pager());
            let sleeps = [pager.run_device(), pager.run_disk()];
            if let [Some(device), Some(disk)] = sleeps {
                pass_time(&clock, &drive, device.min(disk));
            }
        });
        self.has_told |= has_told || !report.is_drained || was_known && !report.is_disk_clean;
        self.was_closed = report.is_disk_clean;
        if !self.oracle.has_faults && !self.was_cut() {
            assert!(report.is_drained, "{report:?}");
            assert!(report.is_disk_clean || !was_known, "{report:?}");
        }
        self.take_in_cut();
    }
}
