//! The kernels' entry points: what the PTX exports, one launchable function a line.
//!
//! Arguments go by value, so a launch passes one pointer to the checked struct. Names, sizes and
//! offsets are those of [`KERNELS`](crate::abi::KERNELS), on which the host relies and which a test
//! compares with the PTX. Compiled for the device only.

use crate::abi::{
    ChecksumArguments, CopyArguments, FillArguments, GatherArguments, JudgeArguments,
    ScatterArguments,
};
use crate::arch::nvptx::NvptxLane;
use crate::arch::{Aligned4, Aligned16};
use crate::kernels::{checksum, copy, fill, gather, judge, scatter};

/// Defines entry points: name, arguments, body.
macro_rules! entry_points {
    ($($name:ident($arguments:ident) = $body:path;)*) => {$(
        /// Runs one lane of the kernel's body on the device.
        ///
        /// # Safety
        ///
        /// As the body, in a launch of one dimension with thread blocks of
        /// [`THREADS_PER_BLOCK`](crate::abi::THREADS_PER_BLOCK) threads.
        // SAFETY: the prefix keeps the exported name from meeting another.
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $name(arguments: $arguments) {
            // SAFETY: the same contract, by the launch's word.
            unsafe { $body(NvptxLane, &arguments) }
        }
    )*};
}

entry_points! {
    kvtide_gather_16(GatherArguments) = gather::run::<NvptxLane, Aligned16>;
    kvtide_gather_4(GatherArguments) = gather::run::<NvptxLane, Aligned4>;
    kvtide_scatter_16(ScatterArguments) = scatter::run::<NvptxLane, Aligned16>;
    kvtide_scatter_4(ScatterArguments) = scatter::run::<NvptxLane, Aligned4>;
    kvtide_copy_16(CopyArguments) = copy::run::<NvptxLane, Aligned16>;
    kvtide_copy_4(CopyArguments) = copy::run::<NvptxLane, Aligned4>;
    kvtide_checksum(ChecksumArguments) = checksum::run::<NvptxLane>;
    kvtide_judge(JudgeArguments) = judge::run::<NvptxLane>;
    kvtide_fill(FillArguments) = fill::run::<NvptxLane>;
}
