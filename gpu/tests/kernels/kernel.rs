//! The kernels with their arguments, each for both machines: the twin's body and the PTX's name.

use kvtide_kernels::abi::{
    ChecksumArguments, CopyArguments, EngineAlign, FillArguments, GatherArguments, JudgeArguments,
    KERNELS, ScatterArguments,
};
use kvtide_kernels::arch::host::HostLane;
use kvtide_kernels::arch::{Aligned4, Aligned16};
use kvtide_kernels::kernels::{checksum, copy, fill, gather, judge, scatter};

/// Arguments of a kernel, which say what to run.
pub(crate) trait Kernel: Sized {
    /// Returns the name of the entry point.
    fn name(&self) -> &'static str;

    /// Runs one lane of the twin.
    ///
    /// # Safety
    ///
    /// As the body's `run`.
    unsafe fn run(&self, lane: HostLane);

    /// Returns the arguments as they are passed to a device.
    fn bytes(&self) -> &[u8] {
        let signature = KERNELS.iter().find(|kernel| kernel.name == self.name());
        assert_eq!(signature.map(|kernel| kernel.arguments_bytes), Some(size_of::<Self>()));
        // SAFETY: arguments are plain data without padding, which is explicit in them.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }
}

/// Implements [`Kernel`] for arguments of two kernels, or of one.
macro_rules! kernel {
    ($arguments:ty, $body:ident, $sixteen:literal, $four:literal) => {
        impl Kernel for $arguments {
            fn name(&self) -> &'static str {
                match self.engine_align() {
                    EngineAlign::Sixteen => $sixteen,
                    EngineAlign::Four => $four,
                }
            }

            unsafe fn run(&self, lane: HostLane) {
                let run = match self.engine_align() {
                    EngineAlign::Sixteen => $body::run::<HostLane, Aligned16>,
                    EngineAlign::Four => $body::run::<HostLane, Aligned4>,
                };
                // SAFETY: the same contract, and the way is the arguments'.
                unsafe { run(lane, self) }
            }
        }
    };
    ($arguments:ty, $body:ident, $name:literal) => {
        impl Kernel for $arguments {
            fn name(&self) -> &'static str {
                $name
            }

            unsafe fn run(&self, lane: HostLane) {
                // SAFETY: the same contract.
                unsafe { $body::run(lane, self) }
            }
        }
    };
}

kernel!(GatherArguments, gather, "kvtide_gather_16", "kvtide_gather_4");
kernel!(ScatterArguments, scatter, "kvtide_scatter_16", "kvtide_scatter_4");
kernel!(CopyArguments, copy, "kvtide_copy_16", "kvtide_copy_4");
kernel!(ChecksumArguments, checksum, "kvtide_checksum");
kernel!(JudgeArguments, judge, "kvtide_judge");
kernel!(FillArguments, fill, "kvtide_fill");
