//! A pager without threads: whoever tests with it runs their rounds one by one, in virtual time.
//!
//! All else is the pager that engines use: its calls, the core, the stores and the code of both
//! threads. With a device and a disk that are simulated too, one seed decides the order of
//! everything that happens, so that what it finds can be played again.
//!
//! Invariants: nothing happens but in the calls of this type and of the pager; time passes only
//! when somebody moves the clock on. Calls that wait ([`Ticket::wait`](super::Ticket::wait),
//! [`Pager::flush`], [`Pager::clear`], [`Pager::erase`]) would wait for ever: poll instead.
//!
//! Only with the `testing` feature. Called by tests, here and of engines that link kvtide.

use super::clock::Clock;
use super::device_thread::DeviceThread;
use super::disk::{DiskCommand, DiskThread};
use super::shared::Round;
use super::{CloseReport, DiskCommandError, Erasure, OpenError, Pager, PagerConfig, assemble};
use crate::core::Core;
use crate::device::Device;
use crate::io::Disk;
use crate::io::sim::SimClock;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

/// A pager whose threads are run round by round.
#[derive(Debug)]
pub struct SimulatedPager {
    pager: Pager,
    device: DeviceThread,
    disk: Option<DiskThread>,
}

/// The answer to something that was asked of the disk tier.
#[derive(Debug)]
pub struct DiskAnswer(Receiver<Result<(), DiskCommandError>>);

impl DiskAnswer {
    /// Returns the answer once there is one, and only once.
    pub fn poll(&self) -> Option<Result<(), DiskCommandError>> {
        match self.0.try_recv() {
            Ok(answer) => Some(answer),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(DiskCommandError::Gone)),
        }
    }
}

impl SimulatedPager {
    /// Opens a pager that takes its time from `clock`. Its disk tier, if the configuration has
    /// one, lies on `disk`.
    ///
    /// # Errors
    ///
    /// As [`Pager::open`].
    pub fn open(
        config: &PagerConfig,
        device: Arc<dyn Device>,
        disk: Box<dyn Disk>,
        clock: SimClock,
    ) -> Result<Self, OpenError> {
        let disk = config.disk.is_some().then_some(disk);
        let (shared, tier) = assemble(config, device, disk, Clock::simulated(clock))?;
        let disk = tier.zip(config.disk.as_ref());
        let disk =
            disk.map(|(tier, settings)| DiskThread::new(Arc::clone(&shared), tier, settings));
        let device = DeviceThread::new(Arc::clone(&shared));
        let close_timeout = config.close_timeout;
        let pager = Pager { shared, thread: None, disk_thread: None, close_timeout };
        Ok(Self { pager, device, disk })
    }

    /// Returns the pager, for every call that does not wait.
    pub fn pager(&self) -> &Pager {
        &self.pager
    }

    /// Runs one round of the device thread. Returns how long it would sleep now; `None` when it
    /// has more to do.
    pub fn run_device(&mut self) -> Option<Duration> {
        sleep_of(self.device.round())
    }

    /// Runs one round of the disk thread, as [`run_device`](Self::run_device). Without a disk tier
    /// it sleeps for ever.
    pub fn run_disk(&mut self) -> Option<Duration> {
        self.disk.as_mut().map_or(Some(Duration::MAX), |disk| sleep_of(disk.round()))
    }

    /// Begins what [`Pager::flush`] does.
    ///
    /// # Errors
    ///
    /// As [`Pager::flush`].
    pub fn begin_flush(&self) -> Result<DiskAnswer, DiskCommandError> {
        self.pager.shared.command(Core::flush);
        self.pager.send_disk(DiskCommand::Flush).map(DiskAnswer)
    }

    /// Begins what [`Pager::clear`] does: everything is dropped at once, and durably when the
    /// answer comes.
    ///
    /// # Errors
    ///
    /// As [`Pager::clear`].
    pub fn begin_clear(&self) -> Result<DiskAnswer, DiskCommandError> {
        self.pager.shared.command(Core::clear);
        self.pager.send_disk(DiskCommand::Clear).map(DiskAnswer)
    }

    /// Begins what [`Pager::erase`] does.
    ///
    /// # Errors
    ///
    /// As [`Pager::erase`].
    pub fn begin_erase(&self, what: &Erasure) -> Result<DiskAnswer, DiskCommandError> {
        let what = what.clone();
        self.pager.send_disk(|answer| DiskCommand::Erase(what, answer)).map(DiskAnswer)
    }

    /// Does what [`Pager::close`] does. In place of waiting it calls `step`, which runs rounds and
    /// lets time pass.
    pub fn close(mut self, mut step: impl FnMut(&mut Self)) -> CloseReport {
        let shared = Arc::clone(&self.pager.shared);
        let start = shared.clock().instant();
        let close_timeout = self.pager.close_timeout;
        let is_in_time = || shared.clock().since(start) < close_timeout;
        shared.start_closing();
        while shared.is_busy() && is_in_time() {
            step(&mut self);
        }
        let is_drained = !shared.is_busy();
        if !is_drained {
            shared.lose_device();
        }
        if let Ok(flushed) = self.begin_flush() {
            while flushed.poll().is_none() && is_in_time() {
                step(&mut self);
            }
        }
        let is_disk_clean = self.close_disk();
        shared.end_device_thread();
        while self.device.round() != Round::Over {}
        shared.setup.device.release();
        CloseReport { is_drained, is_disk_clean }
    }

    fn close_disk(&mut self) -> bool {
        let Some(mut disk) = self.disk.take() else { return true };
        self.pager.shared.disk_state().command(DiskCommand::Close);
        loop {
            match disk.round() {
                Round::Over => return disk.end(),
                Round::Busy => {}
                Round::Idle(sleep) => disk.wait(sleep),
            }
        }
    }
}

impl Drop for SimulatedPager {
    /// Ends as a process does that is killed: nothing is written, nothing is closed.
    fn drop(&mut self) {
        self.pager.shared.setup.device.release();
    }
}

fn sleep_of(round: Round) -> Option<Duration> {
    match round {
        Round::Busy => None,
        Round::Idle(sleep) => Some(sleep),
        Round::Over => Some(Duration::MAX),
    }
}
