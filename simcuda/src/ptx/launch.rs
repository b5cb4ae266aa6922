//! A launch: thread blocks one after another, warps in turns that end at barriers.

use super::Kernel;
use super::error::{Cause, LaunchError, Place, Space};
use super::execute::{Machine, Spaces};
use super::memory::{Memory, Region};
use super::warp::{Fault, FaultAt, LANES, Warp};

/// Lane instructions of a launch that names no other limit.
const STEP_LIMIT: u64 = 10_000_000_000;

/// The most thread blocks of a launch: as many as anyone waits for.
const THREAD_BLOCKS_MAX: u64 = 1 << 24;

/// What a launch is made with.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'arguments> {
    /// Thread blocks along each axis.
    pub grid: [u32; 3],
    /// Threads of a thread block along each axis.
    pub thread_block: [u32; 3],
    /// The kernel's parameters as they lie in memory.
    pub arguments: &'arguments [u8],
    /// Lane instructions after which the launch fails.
    pub step_limit: u64,
    /// Shuffles the order of thread blocks and of warps; `None` keeps that of their numbers.
    pub order_seed: Option<u64>,
}

impl<'arguments> Launch<'arguments> {
    /// Returns a launch of one dimension, in order, of at most 10^10 lane instructions.
    pub fn new(thread_blocks: u32, threads: u32, arguments: &'arguments [u8]) -> Self {
        Self {
            grid: [thread_blocks, 1, 1],
            thread_block: [threads, 1, 1],
            arguments,
            step_limit: STEP_LIMIT,
            order_seed: None,
        }
    }
}

/// What a launch did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// For each of the kernel's instructions, how many lanes came to it.
    pub executed: Vec<u64>,
}

impl Statistics {
    /// Returns the instructions run, counted once a lane.
    pub fn lane_instructions(&self) -> u64 {
        self.executed.iter().sum()
    }
}

impl Kernel {
    /// Runs the kernel. Of a launch that fails, `memory` keeps what was written until then.
    ///
    /// # Errors
    ///
    /// [`LaunchError`]: arguments or geometry that do not fit the kernel, or the first fault of a
    /// thread, with its instruction.
    pub fn launch(
        &self,
        launch: &Launch<'_>,
        memory: &mut Memory,
    ) -> Result<Statistics, LaunchError> {
        let threads = self.check(launch)?;
        let warp_count = threads.div_ceil(LANES);
        let order = memory.begin_launch(warp_count);
        let parameters = Region::new(Space::Param.window(), launch.arguments.to_vec(), true);
        let constants = Region::new(Space::Const.window(), self.constants.clone(), true);
        let spaces = Spaces { global: memory, shared: self.shared(), constants, parameters };
        let mut machine = Machine {
            kernel: self,
            spaces,
            order,
            grid: launch.grid,
            thread_block: launch.thread_block,
            thread_block_index: [0; 3],
            executed: vec![0; self.instructions.len()],
            step_limit: launch.step_limit,
            steps: 0,
        };
        let outcome = machine.run_grid(threads, launch.order_seed);
        let Machine { executed, order, .. } = machine;
        memory.end_launch(&order);
        outcome.map(|()| Statistics { executed })
    }

    /// Checks arguments and geometry, and returns the threads of a thread block.
    fn check(&self, launch: &Launch<'_>) -> Result<u32, LaunchError> {
        let Launch { grid, thread_block, arguments, .. } = launch;
        if arguments.len() != self.argument_bytes {
            return Err(LaunchError::ArgumentBytes {
                kernel: self.name.clone(),
                expected: self.argument_bytes,
                actual: arguments.len(),
            });
        }
        let axes = thread_block.iter().map(|axis| u64::from(*axis));
        let threads = axes.fold(1, u64::saturating_mul);
        let threads = u32::try_from(threads).unwrap_or(u32::MAX);
        let axes = grid.iter().map(|axis| u64::from(*axis));
        let thread_blocks = axes.fold(1, u64::saturating_mul);
        let is_good = (1..=self.threads_max).contains(&threads)
            && (1..=THREAD_BLOCKS_MAX).contains(&thread_blocks);
        is_good.then_some(threads).ok_or_else(|| LaunchError::Geometry {
            kernel: self.name.clone(),
            grid: *grid,
            thread_block: *thread_block,
            threads_max: self.threads_max,
        })
    }

    /// Returns a thread block's shared memory, which nobody has written.
    fn shared(&self) -> Region {
        Region::new(Space::Shared.window(), vec![0; self.shared_bytes], false)
    }

    /// Returns a warp's local memory, which nobody has written.
    fn local(&self) -> Vec<Region> {
        let lane_count = if self.local_bytes == 0 { 0 } else { LANES };
        let lane = |_| Region::new(Space::Local.window(), vec![0; self.local_bytes], false);
        (0..lane_count).map(lane).collect()
    }
}

impl Machine<'_> {
    /// Runs all thread blocks.
    fn run_grid(&mut self, threads: u32, order_seed: Option<u64>) -> Result<(), LaunchError> {
        let [width, height, depth] = self.grid.map(u64::from);
        let mut numbers: Vec<u64> = (0..width * height * depth).collect();
        let mut shuffler = order_seed.map(Shuffler::new);
        if let Some(shuffler) = &mut shuffler {
            shuffler.shuffle(&mut numbers);
        }
        let register_count = self.kernel.registers.len();
        let warp_count = threads.div_ceil(LANES);
        let mut warps: Vec<Warp> =
            (0..warp_count).map(|number| Warp::new(number, register_count)).collect();
        for number in numbers {
            // Each is below an axis's length.
            let axis = |index: u64| u32::try_from(index).unwrap_or(u32::MAX);
            let rows = number / width;
            self.thread_block_index = [number % width, rows % height, rows / height].map(axis);
            self.order.begin_thread_block(number);
            self.spaces.shared = self.kernel.shared();
            for warp in &mut warps {
                let lane_count = (threads - warp.number * LANES).min(LANES);
                warp.start(u32::MAX >> (LANES - lane_count), self.kernel.local());
            }
            if let Some(shuffler) = &mut shuffler {
                shuffler.shuffle(&mut warps);
            }
            self.run_thread_block(&mut warps, threads)?;
            warps.sort_unstable_by_key(|warp| warp.number);
        }
        Ok(())
    }

    /// Runs the warps of one thread block, from barrier to barrier.
    fn run_thread_block(&mut self, warps: &mut [Warp], threads: u32) -> Result<(), LaunchError> {
        loop {
            for warp in &mut *warps {
                self.order.run_warp(warp.number);
                warp.run(self).map_err(|fault| self.failure(warp.number, fault))?;
            }
            if warps.iter().all(|warp| warp.alive == 0) {
                return Ok(());
            }
            if let Some((warp, fault)) = barrier_fault(warps, threads) {
                return Err(self.failure(warp, fault));
            }
            warps.iter_mut().for_each(Warp::pass_barrier);
            self.order.pass_barrier();
        }
    }

    /// Names the thread and the instruction of a fault.
    fn failure(&self, warp: u32, (counter, fault): FaultAt) -> LaunchError {
        let instruction = &self.kernel.instructions[counter];
        let place = Place {
            kernel: self.kernel.name.clone(),
            line: instruction.line,
            instruction: instruction.text.clone(),
            thread_block: self.thread_block_index,
            warp,
            lane: u32::try_from(fault.lane).unwrap_or(LANES),
        };
        LaunchError::Thread { place: Box::new(place), cause: fault.cause }
    }
}

/// Returns why the warps, which all have stopped, cannot pass the barrier, and whose fault it is:
/// every thread of the thread block must wait at the same.
fn barrier_fault(warps: &[Warp], threads: u32) -> Option<(u32, FaultAt)> {
    let (first, lane, counter) = warps.iter().find_map(|warp| {
        let (lane, counter) = warp.first_barred()?;
        Some((warp, lane, counter))
    })?;
    let barrier = first.barriers[lane];
    let at_barrier = |warp: &Warp| {
        super::warp::lanes(warp.barred).filter(|lane| warp.barriers[*lane] == barrier).count()
    };
    let waiting = warps.iter().map(at_barrier).sum::<usize>();
    let waiting = u32::try_from(waiting).unwrap_or(threads);
    let alive = warps.iter().map(|warp| warp.alive.count_ones()).sum::<u32>();
    if waiting == threads {
        return None;
    }
    let (elsewhere, exited) = (alive - waiting, threads - alive);
    let cause = Cause::BarrierDeadlock { barrier, threads, waiting, elsewhere, exited };
    Some((first.number, (counter, Fault { lane, cause })))
}

/// Orders from a seed (xorshift64*).
#[derive(Debug)]
struct Shuffler(u64);

impl Shuffler {
    fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(number).unwrap_or(0) % end
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for index in (1..items.len()).rev() {
            items.swap(index, self.below(index + 1));
        }
    }
}
