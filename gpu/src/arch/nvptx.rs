//! An NVIDIA GPU as a machine for kernel bodies: the only file with intrinsics and PTX.
//!
//! Every access is one PTX instruction in a volatile `asm!` that may touch memory (neither `pure`
//! nor `readonly`), so that rustc keeps their order, and an offset known at compile time stays in
//! the instruction. Words are read past the first-level cache, which a copy would only flood; they
//! are not read by `ld.global.nc`, because ptxas moves such loads behind stores and leaves one in
//! flight. `cargo xtask ptx-shape` looks at the machine code.
//!
//! No panic handler: a body that could panic leaves a call to an undefined function in the PTX,
//! which is refused there. Called by the entry points in [`kernels`](crate::kernels).

use super::{Arch, Word};
use crate::abi::WARP_LANES;
use core::arch::asm;
use core::arch::nvptx::{_block_dim_x, _block_idx_x, _grid_dim_x, _thread_idx_x};

/// One thread of a launch of one dimension whose thread blocks are whole warps.
#[derive(Clone, Copy, Debug)]
pub struct NvptxLane;

/// Loads the quarter at `address + OFFSET_BYTES` if `enabled`, without a branch; else returns 0.
///
/// Through the first-level cache: the quarters of a sector are read by separate instructions.
///
/// # Safety
///
/// As [`Arch::load_u32`] if `enabled`; none otherwise.
#[inline]
unsafe fn load_quarter_if<const OFFSET_BYTES: u64>(address: u64, enabled: bool) -> u32 {
    let value: u32;
    // SAFETY: reads what the caller vouches for, and only if enabled.
    unsafe {
        asm!(
            "{{ .reg .pred enabled; setp.ne.u32 enabled, {2}, 0; mov.u32 {0}, 0; \
             @enabled ld.global.u32 {0}, [{1}+{3}]; }}",
            out(reg32) value,
            in(reg64) address,
            in(reg32) u32::from(enabled),
            const OFFSET_BYTES,
            options(nostack),
        );
    }
    value
}

/// Stores `value` at `address + OFFSET_BYTES` if `enabled`, without a branch.
///
/// # Safety
///
/// As [`Arch::store_u32`] if `enabled`; none otherwise.
#[inline]
unsafe fn store_quarter_if<const OFFSET_BYTES: u64>(address: u64, value: u32, enabled: bool) {
    // SAFETY: writes what the caller vouches for, and only if enabled.
    unsafe {
        asm!(
            "{{ .reg .pred enabled; setp.ne.u32 enabled, {2}, 0; \
             @enabled st.global.u32 [{0}+{3}], {1}; }}",
            in(reg64) address,
            in(reg32) value,
            in(reg32) u32::from(enabled),
            const OFFSET_BYTES,
            options(nostack),
        );
    }
}

/// Returns `value` of the lane whose number differs in the bits of `lane_mask`.
///
/// # Safety
///
/// All lanes of the warp make the call, with the same mask, below 32.
#[inline]
unsafe fn exchange_u32(value: u32, lane_mask: u32) -> u32 {
    let other: u32;
    // SAFETY: all lanes take part, by the caller's word; no memory is touched.
    unsafe {
        asm!(
            "shfl.sync.bfly.b32 {0}, {1}, {2}, 31, 0xffffffff;",
            out(reg32) other,
            in(reg32) value,
            in(reg32) lane_mask,
            options(nostack),
        );
    }
    other
}

/// As [`exchange_u32`], for both halves of a `u64`.
///
/// # Safety
///
/// As [`exchange_u32`].
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "a half of the value at a time")]
unsafe fn exchange_u64(value: u64, lane_mask: u32) -> u64 {
    // SAFETY: the same contract, by the caller's word.
    let low = unsafe { exchange_u32(value as u32, lane_mask) };
    // SAFETY: the same contract, by the caller's word.
    let high = unsafe { exchange_u32((value >> 32) as u32, lane_mask) };
    u64::from(high) << 32 | u64::from(low)
}

impl Arch for NvptxLane {
    #[inline]
    fn lane(self) -> u32 {
        // SAFETY: reads a special register.
        let thread = unsafe { _thread_idx_x() };
        thread % WARP_LANES
    }

    #[inline]
    fn warp(self) -> u32 {
        // SAFETY: reads a special register.
        let thread_block = unsafe { _block_idx_x() };
        // SAFETY: reads a special register.
        let thread_count = unsafe { _block_dim_x() };
        // SAFETY: reads a special register.
        let thread = unsafe { _thread_idx_x() };
        (thread_block * thread_count + thread) / WARP_LANES
    }

    #[inline]
    fn warp_count(self) -> u32 {
        // SAFETY: reads a special register.
        let thread_block_count = unsafe { _grid_dim_x() };
        // SAFETY: reads a special register.
        let thread_count = unsafe { _block_dim_x() };
        thread_block_count * thread_count / WARP_LANES
    }

    #[inline]
    unsafe fn load<const OFFSET_BYTES: u64>(self, address: u64) -> Word {
        let (low, high): (u64, u64);
        // SAFETY: aligned, readable and initialised by the caller's word.
        unsafe {
            asm!(
                "ld.global.L1::no_allocate.v2.u64 {{{0}, {1}}}, [{2}+{3}];",
                out(reg64) low,
                out(reg64) high,
                in(reg64) address,
                const OFFSET_BYTES,
                options(nostack),
            );
        }
        Word { low, high }
    }

    #[inline]
    unsafe fn store<const OFFSET_BYTES: u64>(self, address: u64, word: Word) {
        // SAFETY: aligned and writable by the caller's word.
        unsafe {
            asm!(
                "st.global.v2.u64 [{0}+{3}], {{{1}, {2}}};",
                in(reg64) address,
                in(reg64) word.low,
                in(reg64) word.high,
                const OFFSET_BYTES,
                options(nostack),
            );
        }
    }

    #[inline]
    unsafe fn store_if(self, address: u64, word: Word, enabled: bool) {
        // SAFETY: aligned and writable by the caller's word, and only if enabled.
        unsafe {
            asm!(
                "{{ .reg .pred enabled; setp.ne.u32 enabled, {3}, 0; \
                 @enabled st.global.v2.u64 [{0}], {{{1}, {2}}}; }}",
                in(reg64) address,
                in(reg64) word.low,
                in(reg64) word.high,
                in(reg32) u32::from(enabled),
                options(nostack),
            );
        }
    }

    #[inline]
    unsafe fn load_quarters(self, address: u64, quarters: u32) -> Word {
        // SAFETY: enabled for the quarters that the caller vouches for.
        let first = unsafe { load_quarter_if::<0>(address, quarters > 0) };
        // SAFETY: enabled for the quarters that the caller vouches for.
        let second = unsafe { load_quarter_if::<4>(address, quarters > 1) };
        // SAFETY: enabled for the quarters that the caller vouches for.
        let third = unsafe { load_quarter_if::<8>(address, quarters > 2) };
        // SAFETY: enabled for the quarters that the caller vouches for.
        let fourth = unsafe { load_quarter_if::<12>(address, quarters > 3) };
        Word {
            low: u64::from(second) << 32 | u64::from(first),
            high: u64::from(fourth) << 32 | u64::from(third),
        }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a half of a half at a time")]
    unsafe fn store_quarters(self, address: u64, word: Word, quarters: u32) {
        // SAFETY: enabled for the quarters that the caller vouches for.
        unsafe { store_quarter_if::<0>(address, word.low as u32, quarters > 0) };
        // SAFETY: enabled for the quarters that the caller vouches for.
        unsafe { store_quarter_if::<4>(address, (word.low >> 32) as u32, quarters > 1) };
        // SAFETY: enabled for the quarters that the caller vouches for.
        unsafe { store_quarter_if::<8>(address, word.high as u32, quarters > 2) };
        // SAFETY: enabled for the quarters that the caller vouches for.
        unsafe { store_quarter_if::<12>(address, (word.high >> 32) as u32, quarters > 3) };
    }

    #[inline]
    unsafe fn load_u32(self, address: u64) -> u32 {
        let value: u32;
        // SAFETY: aligned, readable and initialised by the caller's word.
        unsafe {
            asm!(
                "ld.global.u32 {0}, [{1}];",
                out(reg32) value,
                in(reg64) address,
                options(nostack),
            );
        }
        value
    }

    #[inline]
    unsafe fn load_u64(self, address: u64) -> u64 {
        let value: u64;
        // SAFETY: aligned, readable and initialised by the caller's word.
        unsafe {
            asm!(
                "ld.global.u64 {0}, [{1}];",
                out(reg64) value,
                in(reg64) address,
                options(nostack),
            );
        }
        value
    }

    #[inline]
    unsafe fn store_u32(self, address: u64, value: u32) {
        // SAFETY: aligned and writable by the caller's word.
        unsafe {
            asm!(
                "st.global.u32 [{0}], {1};",
                in(reg64) address,
                in(reg32) value,
                options(nostack),
            );
        }
    }

    #[inline]
    unsafe fn accumulate(self, address: u64, value: u64) {
        let mut total = value;
        let mut lane_mask = WARP_LANES / 2;
        while lane_mask > 0 {
            // SAFETY: all lanes of the warp are here, by the caller's word.
            total = total.wrapping_add(unsafe { exchange_u64(total, lane_mask) });
            lane_mask /= 2;
        }
        if self.lane() == 0 {
            // SAFETY: aligned and writable by the caller's word; the addition is atomic.
            unsafe {
                asm!(
                    "red.global.add.u64 [{0}], {1};",
                    in(reg64) address,
                    in(reg64) total,
                    options(nostack),
                );
            }
        }
    }
}
