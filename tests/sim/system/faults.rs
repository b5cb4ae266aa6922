//! What goes wrong with the device and the drive, and whether the system tells.

use super::life::Life;
use super::step::HOPS;
use super::world::{DRIVES, World};
use kvtide::core::Hop;
use kvtide::device::cpu::Fault;
use kvtide::io::sim::{SimFault, SimRule};
use kvtide::pager::{DiskHealth, Health, Pager};

/// What a drive does wrong, by number.
pub(crate) const DRIVE_FAULTS: [SimFault; 12] = [
    SimFault::Error,
    SimFault::NoSpace,
    SimFault::EndOfFile,
    SimFault::Stall,
    SimFault::Hang,
    SimFault::FlipAtRest,
    SimFault::FlipOnWire,
    SimFault::Misdirect,
    SimFault::Stale,
    SimFault::Lose,
    SimFault::Vanish,
    SimFault::ReadOnly,
];

/// After these, what was reported as dropped may be read all the same.
const LIES: [SimFault; 5] =
    [SimFault::Misdirect, SimFault::Lose, SimFault::FlipOnWire, SimFault::Error, SimFault::Stale];

/// What a device does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceFault {
    /// An operation fails.
    Fail,
    /// An operation changes a bit.
    Corrupt,
    /// An operation does not end, and none after it begins.
    Hang,
}

/// All of it.
pub(crate) const DEVICE_FAULTS: [DeviceFault; 3] =
    [DeviceFault::Fail, DeviceFault::Corrupt, DeviceFault::Hang];

/// A fault of one operation of the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct DevicePlan {
    fault: DeviceFault,
    hop: Hop,
    /// Which of the hop's operations, counted over all lives.
    number: u64,
    /// How many of them began in lives that are over.
    begun_before: u64,
}

impl DevicePlan {
    /// Tells a life's device, before it begins anything, if it is its turn.
    fn tell(self, life: &mut Life) {
        let Some(number) = self.number.checked_sub(self.begun_before) else { return };
        match self.fault {
            DeviceFault::Fail => life.device.inject(self.hop, number, Fault::Fail),
            DeviceFault::Corrupt => {
                let payload_byte = self.number * 7;
                life.device.inject(self.hop, number, Fault::Corrupt { payload_byte });
            }
            DeviceFault::Hang => life.hang_at = Some((self.hop, number)),
        }
    }
}

impl World {
    /// Plans a fault of one operation of the device in this or a later life.
    pub(crate) fn plan_device_fault(&mut self, fault: DeviceFault, hop: Hop, number: u64) {
        self.tally.faults += 1;
        self.oracle.has_faults = true;
        self.has_hung |= fault == DeviceFault::Hang;
        let plan = DevicePlan { fault, hop, number, begun_before: 0 };
        plan.tell(self.life());
        self.device_plan = Some(plan);
    }

    /// Goes on with what was planned for the device in the life that begins.
    pub(super) fn tell_device_plan(&self, life: &mut Life) {
        if let Some(plan) = self.device_plan {
            plan.tell(life);
        }
    }

    /// Counts what the device did in the life that ends.
    pub(super) fn count_device_plan(&mut self, life: &Life) {
        if let Some(plan) = &mut self.device_plan {
            plan.begun_before += life.device.begun(plan.hop);
        }
    }

    /// Whether the operation of the device that was planned for has begun.
    pub(crate) fn has_device_been_faulted(&mut self) -> bool {
        let Some(DevicePlan { hop, number, begun_before, .. }) = self.device_plan else {
            return false;
        };
        let life = self.life();
        life.is_device_hung || begun_before + life.device.begun(hop) > number
    }

    pub(super) fn fault_device(&mut self, life: &mut Life, first: usize, second: usize) {
        self.tally.faults += 1;
        self.oracle.has_faults = true;
        let hop = HOPS[first % HOPS.len()];
        let fault = match second % 3 {
            0 => Fault::Fail,
            _ => Fault::Corrupt { payload_byte: second as u64 },
        };
        life.is_device_hung |= second.is_multiple_of(17);
        self.has_hung |= life.is_device_hung;
        life.device.inject(hop, life.device.begun(hop) + first as u64 % 5, fault);
    }

    pub(super) fn fault_drive(&mut self, first: usize, second: usize) {
        let fault = DRIVE_FAULTS[first % DRIVE_FAULTS.len()];
        let rule = SimRule::new(fault);
        // Half the time, only of the last drive.
        let drive = if second & 1 << 9 == 0 { DRIVES[self.drive_count - 1] } else { "" };
        let rule = rule.named(drive);
        let rule = match second % 4 {
            0 => rule.one_in(16),
            _ => rule.at(second as u64 / 4 % 8),
        };
        self.plan_drive_fault(fault, rule);
    }

    /// Plans a fault of the drive.
    pub(crate) fn plan_drive_fault(&mut self, fault: SimFault, rule: SimRule) {
        self.tally.faults += 1;
        self.oracle.has_faults = true;
        self.has_hung |= fault == SimFault::Hang;
        self.oracle.has_drive_lied |= LIES.contains(&fault);
        self.drive.inject(rule);
    }

    /// Whether a fault that was planned has befallen an operation of the drive.
    pub(crate) fn has_drive_been_faulted(&self) -> bool {
        self.drive.counters().faults > 0
    }

    /// Notes whether a life's health or counters tell that something went wrong.
    pub(super) fn note_told(&mut self, life: &Life) {
        self.has_told |= life.has_refused || tells(life.pager.pager());
    }

    /// Whether anything has told so far that something went wrong: health, counters, an answer or
    /// a refusal to open.
    pub(crate) fn has_told(&self) -> bool {
        self.has_told
    }
}

/// Whether a pager tells by itself that something went wrong.
pub(super) fn tells(pager: &Pager) -> bool {
    let (counters, hops, recovered) = (pager.counters(), pager.hops(), pager.recovered());
    let health = pager.disk_health();
    let is_serving = matches!(health, Some(DiskHealth::Serving | DiskHealth::Recovering { .. }));
    let hops = [hops.pack, hops.out_link, hops.in_link, hops.unpack, hops.write, hops.read];
    let failures = hops.map(|hop| hop.failed_operations).iter().sum::<u64>()
        + counters.write_failures
        + counters.read_failures
        + counters.lost
        + counters.adoptions_skipped
        + u64::from(recovered.unreadable + recovered.refused);
    pager.health() != Health::Serving
        || !is_serving
        || failures > 0
        || !pager.uncleared().is_empty()
}
