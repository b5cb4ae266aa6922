//! A warp: 32 lanes, each with its program counter and registers, and who of them runs next.
//!
//! The lanes at the lowest program counter run together, until they meet others, part, or wait. A
//! lane may wait at a `.sync` instruction for its members (*parked*) or at the thread block's
//! barrier (*barred*). The warp stops when all lanes that are alive are barred, or none is alive.
//! Called by the launch.

use super::error::Cause;
use super::execute::{Flow, Machine};
use super::instruction::{Exchange, Operation, Source};
use super::memory::Region;

/// Lanes of a warp.
pub(super) const LANES: u32 = 32;

/// A value for each lane.
pub(super) type Lanes = [u64; LANES as usize];

/// Iterates over the lanes of a mask.
#[inline]
pub(super) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    let mut left = mask;
    std::iter::from_fn(move || {
        let lane = left.trailing_zeros();
        left &= left.wrapping_sub(1);
        (lane < LANES).then_some(lane as usize)
    })
}

/// What a lane did that it must not.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) lane: usize,
    pub(super) cause: Cause,
}

impl Fault {
    /// Blames the first lane of a mask.
    pub(super) fn first(mask: u32, cause: Cause) -> Self {
        Self { lane: mask.trailing_zeros() as usize, cause }
    }
}

/// A fault, and at which instruction.
pub(super) type FaultAt = (usize, Fault);

/// The state of 32 lanes.
#[derive(Debug)]
pub(super) struct Warp {
    /// Its number in the thread block.
    pub(super) number: u32,
    pub(super) registers: Vec<Lanes>,
    /// For each register, the lanes that wrote it.
    pub(super) written: Vec<u32>,
    /// Local memory of each lane, if the kernel has any.
    pub(super) local: Vec<Region>,
    /// Instruction that each lane runs next, or waits at.
    counters: [usize; LANES as usize],
    /// Lanes that have threads and have not exited.
    pub(super) alive: u32,
    /// Lanes that wait for members, and for which.
    parked: u32,
    members: [u32; LANES as usize],
    /// Lanes that wait at a barrier, and at which.
    pub(super) barred: u32,
    pub(super) barriers: [u32; LANES as usize],
}

impl Warp {
    /// Makes warp `number` with `register_count` registers and no thread yet.
    pub(super) fn new(number: u32, register_count: usize) -> Self {
        Self {
            number,
            registers: vec![[0; LANES as usize]; register_count],
            written: vec![0; register_count],
            local: Vec::new(),
            counters: [0; LANES as usize],
            alive: 0,
            parked: 0,
            members: [0; LANES as usize],
            barred: 0,
            barriers: [0; LANES as usize],
        }
    }

    /// Starts a thread block's threads in the lanes of `alive`.
    pub(super) fn start(&mut self, alive: u32, local: Vec<Region>) {
        self.written.fill(0);
        self.local = local;
        self.counters.fill(0);
        (self.alive, self.parked, self.barred) = (alive, 0, 0);
    }

    /// Lets all lanes past the barrier at which they wait.
    pub(super) fn pass_barrier(&mut self) {
        lanes(self.barred).for_each(|lane| self.counters[lane] += 1);
        self.barred = 0;
    }

    /// Returns the first lane that waits at a barrier, and where.
    pub(super) fn first_barred(&self) -> Option<(usize, usize)> {
        lanes(self.barred).next().map(|lane| (lane, self.counters[lane]))
    }

    /// Runs until every lane that is alive is barred.
    pub(super) fn run(&mut self, machine: &mut Machine<'_>) -> Result<(), FaultAt> {
        loop {
            let runnable = self.alive & !self.parked & !self.barred;
            if runnable == 0 {
                if self.parked == 0 {
                    return Ok(());
                }
                self.release_parked(machine)?;
                continue;
            }
            self.run_lowest(runnable, machine)?;
        }
    }

    /// Runs the lanes at the lowest program counter as long as they are alone and together.
    fn run_lowest(&mut self, runnable: u32, machine: &mut Machine<'_>) -> Result<(), FaultAt> {
        let lowest = lanes(runnable).map(|lane| self.counters[lane]).min().unwrap_or(0);
        let at_lowest = |mask, lane: usize| mask | u32::from(self.counters[lane] == lowest) << lane;
        let active = lanes(runnable).fold(0, at_lowest);
        let others = lanes(runnable & !active).map(|lane| self.counters[lane]);
        let next_other = others.min().unwrap_or(usize::MAX);
        let mut counter = lowest;
        while counter < next_other {
            let flow = self.step(counter, active, machine).map_err(|fault| (counter, fault))?;
            match flow {
                Flow::Next => counter += 1,
                Flow::Branch { taken, target } if taken == active => counter = target,
                parting => {
                    self.part(counter, active, &parting);
                    return Ok(());
                }
            }
        }
        lanes(active).for_each(|lane| self.counters[lane] = counter);
        Ok(())
    }

    /// Runs one instruction in the active lanes whose guard holds.
    fn step(
        &mut self,
        counter: usize,
        active: u32,
        machine: &mut Machine<'_>,
    ) -> Result<Flow, Fault> {
        machine.count(counter, active)?;
        let instruction = &machine.kernel.instructions[counter];
        let mask = match instruction.guard {
            None => active,
            Some(guard) => {
                let values = self.fetch(Source::Register(guard.predicate), active, machine)?;
                let holds = |lane: &usize| (values[*lane] != 0) != guard.negated;
                lanes(active).filter(holds).fold(0, |mask, lane| mask | 1 << lane)
            }
        };
        if mask == 0 {
            return Ok(Flow::Next);
        }
        if let Operation::Exchange { exchange, members } = &instruction.operation {
            return self.meet(exchange, *members, mask, machine);
        }
        self.execute(&instruction.operation, mask, machine)
    }

    /// Exchanges at once if all members are here, else parks the lanes.
    fn meet(
        &mut self,
        exchange: &Exchange,
        members: Source,
        mask: u32,
        machine: &Machine<'_>,
    ) -> Result<Flow, Fault> {
        let values = self.fetch(members, mask, machine)?;
        for lane in lanes(mask) {
            // The source has 32 bits.
            let members = u32::try_from(values[lane]).unwrap_or(u32::MAX);
            if members & (1 << lane) == 0 {
                return Err(Fault { lane, cause: Cause::NotAMember { members } });
            }
            self.members[lane] = members;
        }
        let first = self.members[mask.trailing_zeros() as usize];
        let is_common = lanes(mask).all(|lane| self.members[lane] == first);
        if is_common && mask == first & self.alive {
            self.exchange(exchange, mask, machine)?;
            return Ok(Flow::Next);
        }
        Ok(Flow::Park(mask))
    }

    /// Exchanges between parked lanes that all their members have joined.
    ///
    /// Called when no lane can run, so that whoever is not there never comes.
    fn release_parked(&mut self, machine: &mut Machine<'_>) -> Result<(), FaultAt> {
        for lane in lanes(self.parked) {
            let (counter, here) = (self.counters[lane], self.met(lane));
            if here != self.members[lane] & self.alive {
                continue;
            }
            let operation = &machine.kernel.instructions[counter].operation;
            if let Operation::Exchange { exchange, .. } = operation {
                self.exchange(exchange, here, machine).map_err(|fault| (counter, fault))?;
            }
            self.parked &= !here;
            lanes(here).for_each(|lane| self.counters[lane] += 1);
            return Ok(());
        }
        let lane = self.parked.trailing_zeros() as usize;
        let members = self.members[lane];
        let missing = members & self.alive & !self.met(lane);
        let fault = Fault { lane, cause: Cause::WarpDeadlock { members, missing } };
        Err((self.counters[lane], fault))
    }

    /// Returns the parked lanes that wait at the same instruction as `lane`, for the same members.
    fn met(&self, lane: usize) -> u32 {
        let is_met = |other: &usize| {
            self.counters[*other] == self.counters[lane]
                && self.members[*other] == self.members[lane]
        };
        lanes(self.parked).filter(is_met).fold(0, |mask, other| mask | 1 << other)
    }

    /// Writes down where lanes go that do not go on together.
    fn part(&mut self, counter: usize, active: u32, flow: &Flow) {
        lanes(active).for_each(|lane| self.counters[lane] = counter + 1);
        match *flow {
            Flow::Next => {}
            Flow::Branch { taken, target } => {
                lanes(taken).for_each(|lane| self.counters[lane] = target);
            }
            Flow::Scatter { taken, targets } => {
                lanes(taken).for_each(|lane| self.counters[lane] = targets[lane]);
            }
            Flow::Exit(exited) => self.alive &= !exited,
            Flow::Park(parked) => {
                self.parked |= parked;
                lanes(parked).for_each(|lane| self.counters[lane] = counter);
            }
            Flow::Bar { barred, barriers } => {
                self.barred |= barred;
                for lane in lanes(barred) {
                    self.counters[lane] = counter;
                    self.barriers[lane] = barriers[lane];
                }
            }
        }
    }
}
