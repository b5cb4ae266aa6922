//! The machines that a test runs kernels on: this process, and an interpreter of the PTX.

use crate::kernel::Kernel;
use crate::memory::{Random, Reservation};
use kvtide_kernels::abi::LaunchGeometry;
use kvtide_kernels::arch::host::HostLane;
use kvtide_kernels::ptx;
use kvtide_simcuda::ptx::{Launch, LaunchError, Memory, Module, Statistics};
use std::sync::{Arc, LazyLock};

/// The committed PTX.
pub(crate) static COMMITTED: LazyLock<Arc<Module>> =
    LazyLock::new(|| Arc::new(Module::parse(ptx::TEXT).expect("the interpreter knows the PTX")));

/// Where the interpreter's memory begins: as a GPU's often does.
const GLOBAL_START: u64 = 0x7f00_0000_0000;

/// Lane instructions of a launch: many times what the largest scene takes.
const STEP_LIMIT: u64 = 1 << 27;

/// What runs kernels.
#[derive(Clone, Debug)]
pub(crate) enum Machine {
    /// The bodies compiled for the host, lane by lane, on this process's memory.
    Twins,
    /// A module, the committed PTX as a rule, in the interpreter: every reservation of a memory is
    /// a region of its own there.
    Ptx(Arc<Module>),
}

impl Machine {
    /// Returns both machines.
    pub(crate) fn both() -> [Self; 2] {
        [Self::Twins, Self::committed()]
    }

    /// Returns the machine that runs the committed PTX.
    pub(crate) fn committed() -> Self {
        Self::Ptx(Arc::clone(&COMMITTED))
    }

    /// Returns the address of byte `offset` of a memory that lies at `host`.
    pub(crate) fn address(&self, host: usize, offset: usize) -> u64 {
        match self {
            Self::Twins => (host + offset) as u64,
            Self::Ptx(_) => GLOBAL_START + offset as u64,
        }
    }
}

/// Runs the twin's lanes in a random order: a kernel may count on none.
pub(crate) fn run_twin(kernel: &impl Kernel, warp_count: u32, random: &mut Random) {
    let mut numbers: Vec<u32> = (0..warp_count * 32).collect();
    random.shuffle(&mut numbers);
    for number in numbers {
        // SAFETY: a test reserves all that its descriptors name, and names each target once.
        unsafe { kernel.run(HostLane::new(number, warp_count)) }
    }
}

/// Runs the PTX on `bytes`, thread blocks and warps in a random order.
///
/// Whole thread blocks are as a device's if `warp_count` allows, else one warp each. Outputs count
/// as never written, so that reading one before it is written fails.
pub(crate) fn run_ptx(
    module: &Module,
    kernel: &impl Kernel,
    warp_count: u32,
    order_seed: u64,
    reservations: &[Reservation],
    bytes: &mut [u8],
) -> Result<Statistics, LaunchError> {
    let address = |reservation: &Reservation| {
        reservation.address.unwrap_or(GLOBAL_START + reservation.range.start as u64)
    };
    let mut memory = Memory::new();
    for reservation in reservations {
        let bytes = &bytes[reservation.range.clone()];
        let map = if reservation.is_output { Memory::map_uninitialised } else { Memory::map };
        let mapped = map(&mut memory, address(reservation), bytes);
        mapped.expect("reservations are apart");
    }
    let launch = launch(warp_count, order_seed, kernel.bytes());
    let entry = module.kernel(kernel.name()).expect("the PTX has it");
    let statistics = entry.launch(&launch, &mut memory)?;
    for reservation in reservations {
        let range = reservation.range.clone();
        let after = memory.read(address(reservation), range.len());
        bytes[range].copy_from_slice(after.expect("it is mapped"));
    }
    Ok(statistics)
}

/// Returns a launch of so many warps.
pub(crate) fn launch(warp_count: u32, order_seed: u64, arguments: &[u8]) -> Launch<'_> {
    let warps = LaunchGeometry::WARPS_PER_THREAD_BLOCK;
    let (thread_blocks, warps) = if warp_count.is_multiple_of(warps) {
        (warp_count / warps, warps)
    } else {
        (warp_count, 1)
    };
    Launch {
        order_seed: Some(order_seed),
        step_limit: STEP_LIMIT,
        ..Launch::new(thread_blocks, warps * 32, arguments)
    }
}
