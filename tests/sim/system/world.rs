//! The drive, the clock, and one life after another.

use super::engine::{CONVERSATION_COUNT, Engine, GROUP_COUNT, group_index};
use super::faults::DevicePlan;
use super::life::{Life, Prompt};
use super::oracle::Oracle;
use super::step::{Kind, SETUP_BYTES, Step};
use super::support::content;
use kvtide::core::WritePolicy;
use kvtide::fingerprint::KeyMode;
use kvtide::io::Files;
use kvtide::io::sim::{SimClock, SimDrive, SimOptions};
use kvtide::pager::{DiskConfig, DiskStripe, PagerConfig};
use kvtide::units::ByteCount;
use std::path::{Path, PathBuf};
use std::time::Duration;

const IO_TIMEOUT: Duration = Duration::from_secs(1);
const TICKET_TIMEOUT: Duration = Duration::from_secs(3);
const DEVICE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a sweep of all slots may take: one operation of the drive that is cancelled, and what
/// else is due.
const SWEEP_TIME: Duration = Duration::from_secs(3);

/// Turns that it may take.
const SWEEP_TURN_COUNT_MAX: u32 = 20_000;

/// Prompts of a flood.
const FLOOD_COUNT: usize = 6;

/// The drives.
pub(super) const DRIVES: [&str; 2] = ["/a", "/b"];

/// Sizes that the disk tier may have.
pub(super) const SIZE_COUNT: usize = 3;

/// Bytes of each drive that it may use then: when there is one, and when there are two.
const CAPACITIES_KIB: [[u64; SIZE_COUNT]; 2] = [[640, 512, 800], [448, 416, 520]];

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) steps: u64,
    /// Commands and completions that the cores took in.
    pub(crate) core_steps: u64,
    pub(crate) lives: u64,
    pub(crate) power_cuts: u64,
    pub(crate) kills: u64,
    pub(crate) recoveries: u64,
    pub(crate) faults: u64,
    /// Chunks that were loaded and compared.
    pub(crate) compared: u64,
    pub(crate) written: u64,
    pub(crate) promoted: u64,
}

impl Tally {
    /// Adds another run.
    pub(crate) fn add(&mut self, other: Self) {
        self.steps += other.steps;
        self.core_steps += other.core_steps;
        self.lives += other.lives;
        self.power_cuts += other.power_cuts;
        self.kills += other.kills;
        self.recoveries += other.recoveries;
        self.faults += other.faults;
        self.compared += other.compared;
        self.written += other.written;
        self.promoted += other.promoted;
    }
}

/// A simulated system.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct World {
    pub(super) clock: SimClock,
    pub(super) drive: SimDrive,
    pub(super) engine: Engine,
    pub(super) oracle: Oracle,
    pub(super) life: Option<Life>,
    /// Whether device and drive may do more than lose power.
    has_faults: bool,
    /// Something was not let go of: slots may stay taken.
    pub(super) has_hung: bool,
    /// Somebody has told that something went wrong.
    pub(super) has_told: bool,
    /// The last close left all stores clean.
    pub(super) was_closed: bool,
    pub(super) device_plan: Option<DevicePlan>,
    host_chunks: u64,
    write_policy: WritePolicy,
    pub(super) scrub_budget: ByteCount,
    /// Which size the disk tier has.
    pub(super) size: usize,
    /// Drives that the disk tier lies on.
    pub(super) drive_count: usize,
    /// Raised when a root cannot be opened any more.
    pub(super) root: u32,
    pub(super) handles: u64,
    pub(super) seed: u64,
    pub(super) tally: Tally,
}

impl World {
    /// Makes a system that is as `setup` says, and begins its first life.
    pub(crate) fn new(setup: [u8; SETUP_BYTES]) -> Self {
        let seed = u64::from(u32::from_le_bytes(setup));
        let clock = SimClock::default();
        let options = SimOptions {
            clock: clock.clone(),
            io_timeout: IO_TIMEOUT,
            depth: 8,
            ..SimOptions::default()
        };
        let mut world = Self {
            drive: SimDrive::with_options(seed, options),
            clock,
            engine: Engine::new(),
            oracle: Oracle::new(setup[0] >> 4 & 1 == 1),
            life: None,
            has_faults: setup[0] & 1 == 1,
            has_hung: false,
            has_told: false,
            was_closed: false,
            device_plan: None,
            host_chunks: [8, 20][usize::from(setup[0] >> 1 & 1)],
            write_policy: match setup[0] >> 2 & 3 {
                0 | 1 => WritePolicy::Through,
                2 => WritePolicy::Back { high_percent: 80, low_percent: 40 },
                _ => WritePolicy::OnEvict,
            },
            scrub_budget: ByteCount::new(u64::from(setup[0] >> 4 & 1) << 23),
            size: 0,
            drive_count: 1 + usize::from(setup[0] >> 5 & 1),
            root: 0,
            handles: 0,
            seed,
            tally: Tally::default(),
        };
        for drive in DRIVES {
            world.drive.mount(Path::new(drive));
        }
        world.begin_life();
        world
    }

    /// Returns the directories of the disk tier, one a drive.
    fn roots(&self) -> impl Iterator<Item = PathBuf> {
        let name = format!("root{}", self.root);
        DRIVES.iter().take(self.drive_count).map(move |drive| Path::new(drive).join(&name))
    }

    /// Returns the bytes of each drive that the disk tier may use.
    fn capacity(&self) -> ByteCount {
        ByteCount::new(CAPACITIES_KIB[self.drive_count - 1][self.size] << 10)
    }

    pub(super) fn config(&self) -> PagerConfig {
        let content = content("simulated", KeyMode::EngineHashes);
        let capacity = self.capacity();
        let stripes = self.roots().map(|root| DiskStripe::new(root, capacity)).collect();
        let mut disk = DiskConfig::new(DRIVES[0], capacity, content);
        disk.stripes = stripes;
        disk.write_policy = self.write_policy;
        disk.write_queue_max = 8;
        disk.io_timeout = IO_TIMEOUT;
        disk.depth = 8;
        disk.scrub_budget = self.scrub_budget;
        let host_capacity = ByteCount::new(self.host_chunks * 2 * 8192);
        let mut config = PagerConfig::new(self.engine.layout.clone(), host_capacity);
        config.ticket_timeout = TICKET_TIMEOUT;
        config.device_timeout = DEVICE_TIMEOUT;
        config.lease = Duration::from_secs(5);
        config.transfer_count_max = 24;
        config.plan_count_max = 8;
        config.disk = Some(disk);
        config
    }

    pub(super) fn life(&mut self) -> &mut Life {
        self.life.as_mut().expect("a life is on")
    }

    /// Does one step, and checks what must always hold.
    pub(crate) fn step(&mut self, step: Step) {
        self.tally.steps += 1;
        self.act(step);
        self.look();
        let life = self.life.take().expect("a life is on");
        let pager = life.pager.pager();
        assert_eq!(pager.audit(), Ok(()));
        let counters = pager.counters();
        assert_eq!(counters.hits + counters.misses, counters.probes);
        assert_eq!(counters.hits, counters.host_hits + counters.disk_hits);
        self.note_told(&life);
        self.life = Some(life);
        self.notice_cut();
        if self.tally.steps.is_multiple_of(16) {
            self.check_capacity();
        }
    }

    fn look(&mut self) {
        let may_fail = self.oracle.has_faults || self.was_cut();
        let life = self.life.as_mut().expect("a life is on");
        life.look(&mut self.engine, &mut self.oracle, &mut self.tally, may_fail);
    }

    fn act(&mut self, Step { kind, first, second }: Step) {
        let Some(mut life) = self.life.take() else { return };
        match kind {
            Kind::Request => {
                let (conversation, chunk_count) = (first % CONVERSATION_COUNT, 1 + (first >> 5));
                let prompt = Prompt { conversation, chunk_count, how: second };
                life.request(&mut self.engine, &self.oracle, prompt);
            }
            Kind::Flood => {
                for number in 0..FLOOD_COUNT {
                    let conversation = (first + number) % CONVERSATION_COUNT;
                    let prompt = Prompt { conversation, chunk_count: 6, how: second };
                    life.request(&mut self.engine, &self.oracle, prompt);
                }
            }
            Kind::EndWork => life.end_work(&self.engine, first),
            Kind::Hop(hop) => {
                life.step_device(hop);
            }
            Kind::DeviceRound => {
                life.pager.run_device();
            }
            Kind::DiskRound => {
                life.pager.run_disk();
            }
            Kind::Pump => {
                for _ in 0..=first % 16 {
                    if let Some(sleep) = life.turn(&self.engine) {
                        life.pass_time(&self.drive, sleep);
                    }
                    self.life = Some(life);
                    self.look();
                    life = self.life.take().expect("a life is on");
                }
            }
            Kind::PassTime => {
                life.pass_time(&self.drive, Duration::from_micros(first as u64 * 40));
            }
            Kind::Stall => self.clock.advance(Duration::from_millis(first as u64 * 16)),
            Kind::StepClock => self.step_clock(first, second),
            Kind::Cancel => life.cancel(first),
            Kind::DropPlan => life.drop_plan(first),
            Kind::Flush => life.flush(),
            Kind::Clear => life.clear(&mut self.oracle),
            Kind::EraseKeys => {
                life.erase_keys(&mut self.oracle, first % CONVERSATION_COUNT, first >> 5);
            }
            Kind::EraseTenant => life.erase_tenant(&mut self.oracle, first % CONVERSATION_COUNT),
            Kind::DeviceFault if self.has_faults => self.fault_device(&mut life, first, second),
            Kind::DriveFault if self.has_faults => self.fault_drive(first, second),
            Kind::EndDriveFaults => self.drive.clear_faults(),
            Kind::DeviceFault | Kind::DriveFault => {}
            Kind::CutLater => self.drive.cut_after(first as u64 % 64),
            Kind::CutPower => {
                self.life = Some(life);
                self.drive_cut(second);
                return;
            }
            Kind::Kill => {
                self.life = Some(life);
                self.kill(second);
                return;
            }
            Kind::Restart => {
                self.life = Some(life);
                self.restart(first);
                return;
            }
        }
        self.life = Some(life);
    }

    /// Sets the time of day forward or back, by minutes or by decades.
    fn step_clock(&self, first: usize, second: usize) {
        let seconds = i64::try_from(second).expect("16 bits") - (1 << 15);
        self.clock.step_wall(seconds << (first % 20));
    }

    fn check_capacity(&mut self) {
        let mut handle = self.drive.disk(0);
        let Ok(space) = handle.space(Path::new("/")) else { return };
        let used = space.total.get() - space.available.get();
        // Roots that were given up still hold their blocks.
        if self.root == 0 {
            let capacity = self.capacity().get() * self.drive_count as u64;
            assert!(used <= capacity, "{used} bytes below all roots");
        }
    }

    /// Runs until every slot has come back, which it must in time, once everything is cleared.
    fn sweep(&mut self) {
        let (start, mut turns) = (self.clock.now(), 0);
        loop {
            let pager = self.life().pager.pager();
            let groups = (0..GROUP_COUNT).map(group_index);
            let counts = groups.flat_map(|group| [pager.slots(group), pager.disk_slots(group)]);
            let used: Vec<u32> = counts.map(|one| one.expect("the group is there").used).collect();
            let passed = Duration::from_nanos(self.clock.now().get() - start.get());
            if used.iter().all(|used| *used == 0) || self.has_hung && passed >= SWEEP_TIME {
                return;
            }
            assert!(passed < SWEEP_TIME, "leaked slots: {used:?}");
            turns += 1;
            assert!(turns < SWEEP_TURN_COUNT_MAX, "somebody spins, with slots used: {used:?}");
            self.turn();
        }
    }

    /// Ends the run: everything that was asked for ends, every slot comes back once all is cleared,
    /// and the pager closes.
    pub(crate) fn end(mut self) -> Tally {
        self.settle();
        self.life.as_mut().expect("a life is on").let_go();
        self.act(Step { kind: Kind::Clear, first: 0, second: 0 });
        self.settle();
        self.sweep();
        self.close();
        self.tally
    }
}
