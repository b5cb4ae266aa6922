//! The host as a machine for kernel bodies: one lane after the other, on this process's memory.
//!
//! The twins of the device's kernels: the oracle that device code is compared with, not a fast way
//! to copy. Addresses are those of exposed pointers (`expose_provenance`). A launch runs on the
//! calling thread, so additions need no atomics.

use super::{Arch, Word};
use crate::abi::WARP_LANES;
use core::ptr::with_exposed_provenance_mut;

/// One lane of a launch on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostLane {
    lane: u32,
    warp: u32,
    warp_count: u32,
}

impl HostLane {
    /// Names lane `number` of a launch of `warp_count` warps: 0 to `32 * warp_count - 1`.
    pub const fn new(number: u32, warp_count: u32) -> Self {
        Self { lane: number % WARP_LANES, warp: number / WARP_LANES, warp_count }
    }
}

/// Runs `body` once for every lane of a launch of `warp_count` warps, in order.
///
/// ```
/// use kvtide_kernels::arch::Arch;
/// use kvtide_kernels::arch::host::run_grid;
///
/// let mut lanes = 0;
/// run_grid(3, |lane| {
///     assert!(lane.warp() < lane.warp_count());
///     lanes += 1;
/// });
/// assert_eq!(lanes, 3 * 32);
/// ```
pub fn run_grid(warp_count: u32, mut body: impl FnMut(HostLane)) {
    for number in 0..warp_count * WARP_LANES {
        body(HostLane::new(number, warp_count));
    }
}

/// Returns the pointer whose exposed address is `address`.
fn pointer<T>(address: u64) -> *mut T {
    debug_assert!(
        address.is_multiple_of(align_of::<T>() as u64),
        "{address:#x} is misaligned for an access of {} bytes",
        size_of::<T>()
    );
    #[expect(clippy::cast_possible_truncation, reason = "addresses of this process fit its usize")]
    with_exposed_provenance_mut(address as usize)
}

/// Returns quarter `index` of `word`.
const fn quarter(word: Word, index: u32) -> u32 {
    let half = if index < 2 { word.low } else { word.high };
    #[expect(clippy::cast_possible_truncation, reason = "one half of a half")]
    {
        (half >> (index % 2 * 32)) as u32
    }
}

impl Arch for HostLane {
    fn lane(self) -> u32 {
        self.lane
    }

    fn warp(self) -> u32 {
        self.warp
    }

    fn warp_count(self) -> u32 {
        self.warp_count
    }

    unsafe fn load<const OFFSET_BYTES: u64>(self, address: u64) -> Word {
        let source = pointer::<Word>(address.wrapping_add(OFFSET_BYTES));
        // SAFETY: aligned, readable and initialised by the caller's word.
        unsafe { source.read() }
    }

    unsafe fn store<const OFFSET_BYTES: u64>(self, address: u64, word: Word) {
        let target = pointer::<Word>(address.wrapping_add(OFFSET_BYTES));
        // SAFETY: aligned and writable by the caller's word.
        unsafe { target.write(word) }
    }

    unsafe fn store_if(self, address: u64, word: Word, enabled: bool) {
        if enabled {
            // SAFETY: enabled, so the caller vouches for the store.
            unsafe { self.store::<0>(address, word) }
        }
    }

    unsafe fn load_quarters(self, address: u64, quarters: u32) -> Word {
        debug_assert!(quarters <= 4, "{quarters} quarters of a word");
        let mut loaded = [0_u64; 4];
        let mut at = address;
        for value in loaded.iter_mut().take(quarters as usize) {
            // SAFETY: one of the quarters that the caller vouches for.
            *value = u64::from(unsafe { self.load_u32(at) });
            at = at.wrapping_add(4);
        }
        let [first, second, third, fourth] = loaded;
        Word { low: second << 32 | first, high: fourth << 32 | third }
    }

    unsafe fn store_quarters(self, address: u64, word: Word, quarters: u32) {
        debug_assert!(quarters <= 4, "{quarters} quarters of a word");
        for index in 0..quarters {
            let at = address.wrapping_add(u64::from(index) * 4);
            // SAFETY: one of the quarters that the caller vouches for.
            unsafe { self.store_u32(at, quarter(word, index)) }
        }
    }

    unsafe fn load_u32(self, address: u64) -> u32 {
        let source = pointer::<u32>(address);
        // SAFETY: aligned, readable and initialised by the caller's word.
        unsafe { source.read() }
    }

    unsafe fn load_u64(self, address: u64) -> u64 {
        let source = pointer::<u64>(address);
        // SAFETY: aligned, readable and initialised by the caller's word.
        unsafe { source.read() }
    }

    unsafe fn store_u32(self, address: u64, value: u32) {
        let target = pointer::<u32>(address);
        // SAFETY: aligned and writable by the caller's word.
        unsafe { target.write(value) }
    }

    unsafe fn accumulate(self, address: u64, value: u64) {
        // SAFETY: aligned, readable and initialised by the caller's word.
        let total = unsafe { self.load_u64(address) };
        let target = pointer::<u64>(address);
        // SAFETY: aligned and writable by the caller's word.
        unsafe { target.write(total.wrapping_add(value)) }
    }
}
