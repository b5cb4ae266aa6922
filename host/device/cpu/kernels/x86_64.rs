//! The loops for x86-64 with AVX2 and with AVX-512.
//!
//! Called by `kernels` where the CPU has the instructions.
#![expect(unsafe_code, reason = "instructions that not every CPU has")]
#![expect(clippy::inline_always, reason = "only inlined code has its caller's instructions")]

use super::body::{self, AlignedLine, Line, Machine};
use super::{Job, LANES, Pair};
use kvtide_kernels::checksum::MULTIPLIER;
use std::arch::x86_64::{
    __m256i, __m512i, _MM_HINT_T0, _MM_HINT_T1, _mm_prefetch, _mm_sfence, _mm256_add_epi64,
    _mm256_loadu_si256, _mm256_mul_epu32, _mm256_set1_epi64x, _mm256_slli_epi64, _mm256_srli_epi64,
    _mm256_storeu_si256, _mm256_stream_si256, _mm256_xor_si256, _mm512_add_epi64,
    _mm512_loadu_si512, _mm512_mullo_epi64, _mm512_set1_epi64, _mm512_srli_epi64,
    _mm512_storeu_si512, _mm512_stream_si512, _mm512_xor_si512,
};

/// The multiplier of the sum, as intrinsics take it.
const MULTIPLIER_BITS: i64 = MULTIPLIER.cast_signed();

/// Proof that the CPU has AVX2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Avx2(());

/// Proof that the CPU has AVX-512 with 64-bit multiplication (F and DQ).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Avx512(());

impl Avx2 {
    pub(super) fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx2").then_some(Self(()))
    }
}

impl Avx512 {
    pub(super) fn detect() -> Option<Self> {
        let is_there = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq");
        is_there.then_some(Self(()))
    }
}

/// Orders stores past the caches before whatever this thread does next.
pub(super) fn finish_stores() {
    // SAFETY: every x86-64 CPU has the instruction.
    unsafe { _mm_sfence() }
}

/// Asks the first cache for a line.
#[inline(always)]
fn prefetch_near(address: *const u8) {
    // SAFETY: a hint, which faults on no address; every x86-64 CPU has it.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
}

/// Asks the second cache for a line.
#[inline(always)]
fn prefetch_far(address: *const u8) {
    // SAFETY: as in `prefetch_near`.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) }
}

/// Compiles a machine's entry points with its instructions switched on.
macro_rules! entry_points {
    ($machine:ty, $features:literal) => {
        impl $machine {
            /// Copies one fragment; see [`body::copy`].
            pub(super) fn copy(self, job: Job<'_>, target: &mut [u8]) -> u64 {
                #[target_feature(enable = $features)]
                fn run(machine: $machine, job: Job<'_>, target: &mut [u8]) -> u64 {
                    body::copy(machine, job, target)
                }
                // SAFETY: `self` proves the instructions.
                unsafe { run(self, job, target) }
            }

            /// Copies fragments by turns; see [`body::copy_side_by_side`].
            pub(super) fn copy_side_by_side(self, pairs: [Pair<'_, '_>; LANES]) -> u64 {
                #[target_feature(enable = $features)]
                fn run(machine: $machine, pairs: [Pair<'_, '_>; LANES]) -> u64 {
                    body::copy_side_by_side(machine, pairs)
                }
                // SAFETY: `self` proves the instructions.
                unsafe { run(self, pairs) }
            }

            /// Sums words; see [`body::sum`].
            pub(super) fn sum(self, bytes: &[u8], first_index: u64) -> u64 {
                #[target_feature(enable = $features)]
                fn run(machine: $machine, bytes: &[u8], first_index: u64) -> u64 {
                    body::sum(machine, bytes, first_index)
                }
                // SAFETY: `self` proves the instructions.
                unsafe { run(self, bytes, first_index) }
            }
        }
    };
}

entry_points!(Avx2, "avx2");
entry_points!(Avx512, "avx512f,avx512dq");

impl Machine for Avx2 {
    type Words = [__m256i; 2];

    const SUMS_SIDE_BY_SIDE: bool = false;

    #[inline(always)]
    fn load(self, source: &Line) -> Self::Words {
        source.as_chunks::<32>().0.as_array().expect("a line has two halves").each_ref().map(
            |half| {
                // SAFETY: the half is valid for reads; `self` proves the instructions.
                unsafe { _mm256_loadu_si256(half.as_ptr().cast()) }
            },
        )
    }

    #[inline(always)]
    fn store(self, words: Self::Words, target: &mut Line) {
        for (half, words) in target.as_chunks_mut::<32>().0.iter_mut().zip(words) {
            // SAFETY: the half is valid for writes; `self` proves the instructions.
            unsafe { _mm256_storeu_si256(half.as_mut_ptr().cast(), words) }
        }
    }

    #[inline(always)]
    fn stream(self, words: Self::Words, target: &mut AlignedLine) {
        for (half, words) in target.0.as_chunks_mut::<32>().0.iter_mut().zip(words) {
            // SAFETY: the half is valid for writes and at a multiple of 32, being half an aligned
            // line; `self` proves the instructions.
            unsafe { _mm256_stream_si256(half.as_mut_ptr().cast(), words) }
        }
    }

    #[inline(always)]
    fn add(self, one: Self::Words, other: Self::Words) -> Self::Words {
        let mut sums = one;
        for (sum, words) in sums.iter_mut().zip(other) {
            // SAFETY: `self` proves the instructions.
            *sum = unsafe { _mm256_add_epi64(*sum, words) };
        }
        sums
    }

    #[inline(always)]
    fn mix(self, words: Self::Words) -> Self::Words {
        words.map(|half| {
            // SAFETY: `self` proves the instructions.
            unsafe { mix_avx2(half) }
        })
    }

    #[inline(always)]
    fn prefetch_near(self, address: *const u8) {
        prefetch_near(address);
    }

    #[inline(always)]
    fn prefetch_far(self, address: *const u8) {
        prefetch_far(address);
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn mix_avx2(words: __m256i) -> __m256i {
    let mixed = multiply_folded_avx2(multiply_folded_avx2(words));
    _mm256_xor_si256(mixed, _mm256_srli_epi64::<32>(mixed))
}

/// Returns `(word ^ word >> 32) * MULTIPLIER` for each word.
///
/// AVX2 multiplies 32 by 32 bits, so: low times low, and above it the two mixed products. The fold
/// leaves the high half as it was, so one shift serves both.
#[target_feature(enable = "avx2")]
#[inline]
fn multiply_folded_avx2(words: __m256i) -> __m256i {
    let low_factor = _mm256_set1_epi64x(MULTIPLIER_BITS);
    let high_factor = _mm256_set1_epi64x(MULTIPLIER_BITS >> 32);
    let high = _mm256_srli_epi64::<32>(words);
    let folded = _mm256_xor_si256(words, high);
    let low_by_low = _mm256_mul_epu32(folded, low_factor);
    let low_by_high = _mm256_mul_epu32(folded, high_factor);
    let high_by_low = _mm256_mul_epu32(high, low_factor);
    let above = _mm256_slli_epi64::<32>(_mm256_add_epi64(low_by_high, high_by_low));
    _mm256_add_epi64(low_by_low, above)
}

impl Machine for Avx512 {
    type Words = __m512i;

    const SUMS_SIDE_BY_SIDE: bool = true;

    #[inline(always)]
    fn load(self, source: &Line) -> Self::Words {
        // SAFETY: the line is valid for reads; `self` proves the instructions.
        unsafe { _mm512_loadu_si512(source.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, words: Self::Words, target: &mut Line) {
        // SAFETY: the line is valid for writes; `self` proves the instructions.
        unsafe { _mm512_storeu_si512(target.as_mut_ptr().cast(), words) }
    }

    #[inline(always)]
    fn stream(self, words: Self::Words, target: &mut AlignedLine) {
        // SAFETY: the line is valid for writes and aligned; `self` proves the instructions.
        unsafe { _mm512_stream_si512(target.0.as_mut_ptr().cast(), words) }
    }

    #[inline(always)]
    fn add(self, one: Self::Words, other: Self::Words) -> Self::Words {
        // SAFETY: `self` proves the instructions.
        unsafe { _mm512_add_epi64(one, other) }
    }

    #[inline(always)]
    fn mix(self, words: Self::Words) -> Self::Words {
        // SAFETY: `self` proves the instructions.
        unsafe { mix_avx512(words) }
    }

    #[inline(always)]
    fn prefetch_near(self, address: *const u8) {
        prefetch_near(address);
    }

    #[inline(always)]
    fn prefetch_far(self, address: *const u8) {
        prefetch_far(address);
    }
}

#[target_feature(enable = "avx512f,avx512dq")]
#[inline]
fn mix_avx512(words: __m512i) -> __m512i {
    let mixed = multiply_folded_avx512(multiply_folded_avx512(words));
    _mm512_xor_si512(mixed, _mm512_srli_epi64::<32>(mixed))
}

/// Returns `(word ^ word >> 32) * MULTIPLIER` for each word.
#[target_feature(enable = "avx512f,avx512dq")]
#[inline]
fn multiply_folded_avx512(words: __m512i) -> __m512i {
    let folded = _mm512_xor_si512(words, _mm512_srli_epi64::<32>(words));
    _mm512_mullo_epi64(folded, _mm512_set1_epi64(MULTIPLIER_BITS))
}
