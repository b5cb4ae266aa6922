//! Copies and sums over bytes, as fast as this CPU can.
//!
//! On x86-64 one body (`body.rs`), generic over what a register is, is compiled for AVX-512 and
//! for AVX2; [`Level::detect`] chooses at run time. `portable.rs` runs anywhere. All levels give
//! the same bytes and sums.
//!
//! Long fragments are stored past the caches: a chunk is larger than they are, and a target that
//! is not read into them first saves a third of the traffic.
//!
//! Called by `image.rs` and `hops.rs`; by benchmarks with the `testing` feature.

#[cfg(target_arch = "x86_64")]
mod body;
mod portable;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use kvtide_kernels::abi::FRAGMENT_ALIGN_BYTES;
use portable::WORD_BYTES;
use std::fmt;
use std::iter::Peekable;
use std::ops::Range;
#[cfg(target_arch = "x86_64")]
use x86_64::{Avx2, Avx512};

/// Bytes to which a gathered fragment is filled up with zeros.
#[expect(clippy::cast_possible_truncation, reason = "16 fits every target")]
const ALIGN_BYTES: usize = FRAGMENT_ALIGN_BYTES as usize;

/// Gathered fragments that are copied side by side, if they are alike.
const LANES: usize = 4;

/// Lengths of those that are. In shorter ones the CPU's prefetching never takes hold, whatever
/// else is under way; longer ones begin too seldom to gain.
const SIDE_BY_SIDE_BYTES: Range<usize> = 16 << 10..512 << 10;

/// A set of instructions that this CPU has: the value is the proof.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Level(Instructions);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Instructions {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
}

impl fmt::Debug for Level {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self.0 {
            Instructions::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2(_) => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512(_) => "AVX-512",
        })
    }
}

/// What a copy does besides copying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sum {
    /// Nothing.
    None,
    /// Sums the words that it writes.
    Words,
}

/// Whether the sources or the targets of copies follow one another in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// The targets do.
    Gather,
    /// The sources do.
    Scatter,
}

/// One copy out of several.
#[derive(Clone, Copy)]
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "hints for wide loops"))]
struct Job<'bytes> {
    source: &'bytes [u8],
    /// What will be read next.
    ahead: &'bytes [u8],
    order: Order,
    sum: Sum,
    /// Payload word index of the first word written.
    first_index: u64,
}

/// A copy and where to.
type Pair<'source, 'target> = (Job<'source>, &'target mut [u8]);

/// What of a target is still to be gathered.
struct Packed<'bytes> {
    rest: &'bytes mut [u8],
    /// Payload word index of its first word.
    index: u64,
    sum: Sum,
}

impl<'bytes> Packed<'bytes> {
    /// Gives the next fragment its place.
    #[inline]
    fn place<'source>(
        &mut self,
        source: &'source [u8],
        ahead: &'source [u8],
    ) -> Pair<'source, 'bytes> {
        let stride = source.len().next_multiple_of(ALIGN_BYTES);
        let target = self.rest.split_off_mut(..stride).expect("the target holds all fragments");
        let (sum, first_index) = (self.sum, self.index);
        self.index = first_index.wrapping_add((stride / WORD_BYTES) as u64);
        (Job { source, ahead, order: Order::Gather, sum, first_index }, target)
    }
}

impl Level {
    /// Returns every level that this CPU has, slowest first.
    pub fn available() -> Vec<Self> {
        let portable = Some(Instructions::Portable);
        #[cfg(target_arch = "x86_64")]
        let wide =
            [Avx2::detect().map(Instructions::Avx2), Avx512::detect().map(Instructions::Avx512)];
        #[cfg(not(target_arch = "x86_64"))]
        let wide: [Option<Instructions>; 0] = [];
        portable.into_iter().chain(wide.into_iter().flatten()).map(Self).collect()
    }

    /// Returns the fastest level that this CPU has.
    pub fn detect() -> Self {
        Self::available().pop().unwrap_or(Self(Instructions::Portable))
    }

    /// Copies fragments one after the other into `target`, each filled up to 16 bytes with zeros.
    ///
    /// Returns the sum of all words written, the first of which has payload word index
    /// `first_index`; 0 if none is asked for. Bytes of `target` after the last fragment stay as
    /// they are.
    ///
    /// # Panics
    ///
    /// If `target` is too short for the fragments.
    pub fn gather<'fragments>(
        self,
        sum: Sum,
        target: &mut [u8],
        first_index: u64,
        fragments: impl Iterator<Item = &'fragments [u8]>,
    ) -> u64 {
        let mut fragments = fragments.peekable();
        let mut packed = Packed { rest: target, index: first_index, sum };
        let mut total = 0_u64;
        while let Some(source) = fragments.next() {
            total = total.wrapping_add(if SIDE_BY_SIDE_BYTES.contains(&source.len()) {
                self.gather_alike(source, &mut fragments, &mut packed)
            } else {
                let ahead = fragments.peek().copied().unwrap_or(source);
                self.copy_one(packed.place(source, ahead))
            });
        }
        self.finish_stores();
        total
    }

    /// Copies each source to its target, of the same length.
    ///
    /// # Panics
    ///
    /// If a pair differs in length.
    pub fn scatter<'bytes>(self, pairs: impl Iterator<Item = (&'bytes [u8], &'bytes mut [u8])>) {
        for (source, target) in pairs {
            assert_eq!(source.len(), target.len(), "a fragment is copied whole");
            // What follows the source in memory is read next, or never, in the case of a skip.
            let ahead = &source[source.len()..];
            let order = Order::Scatter;
            let job = Job { source, ahead, order, sum: Sum::None, first_index: 0 };
            self.copy_one((job, target));
        }
        self.finish_stores();
    }

    /// Copies `source` to `target`, of the same length.
    ///
    /// # Panics
    ///
    /// If they differ in length.
    pub fn copy(self, target: &mut [u8], source: &[u8]) {
        self.scatter([(source, target)].into_iter());
    }

    /// Returns the sum of the words of `bytes`, the first of which has payload word index
    /// `first_index`.
    ///
    /// # Panics
    ///
    /// If there are not whole words.
    pub fn sum(self, bytes: &[u8], first_index: u64) -> u64 {
        assert!(bytes.len().is_multiple_of(WORD_BYTES), "{} bytes are no words", bytes.len());
        match self.0 {
            Instructions::Portable => portable::sum(bytes, first_index),
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2(machine) => machine.sum(bytes, first_index),
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512(machine) => machine.sum(bytes, first_index),
        }
    }

    /// Gathers a fragment, together with those after it that are as long.
    ///
    /// Apart, so that the loop over short fragments stays short.
    #[inline(never)]
    fn gather_alike<'fragments>(
        self,
        first: &'fragments [u8],
        fragments: &mut Peekable<impl Iterator<Item = &'fragments [u8]>>,
        packed: &mut Packed<'_>,
    ) -> u64 {
        let mut sources = [first; LANES];
        let mut count = 1;
        for source in &mut sources[1..] {
            let Some(next) = fragments.next_if(|next| next.len() == first.len()) else { break };
            *source = next;
            count += 1;
        }
        let next = fragments.peek().copied().unwrap_or(first);
        let sources = &sources[..count];
        let aheads = sources[1..].iter().chain([&next]);
        let mut pairs =
            sources.iter().zip(aheads).map(|(source, ahead)| packed.place(source, ahead));
        if count == LANES {
            self.copy_side_by_side([(); LANES].map(|()| pairs.next().expect("one a lane")))
        } else {
            pairs.map(|pair| self.copy_one(pair)).fold(0, u64::wrapping_add)
        }
    }

    /// Copies one fragment, fills its target up with zeros, and returns the sum if asked for.
    fn copy_one(self, (job, target): Pair<'_, '_>) -> u64 {
        match self.0 {
            Instructions::Portable => portable::copy(job.sum, target, job.source, job.first_index),
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2(machine) => machine.copy(job, target),
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512(machine) => machine.copy(job, target),
        }
    }

    /// Copies fragments of one length, each as [`Level::copy_one`] does.
    fn copy_side_by_side(self, pairs: [Pair<'_, '_>; LANES]) -> u64 {
        match self.0 {
            Instructions::Portable => {
                pairs.map(|pair| self.copy_one(pair)).into_iter().fold(0, u64::wrapping_add)
            }
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2(machine) => machine.copy_side_by_side(pairs),
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512(machine) => machine.copy_side_by_side(pairs),
        }
    }

    /// Orders stores past the caches before whatever this thread does next.
    fn finish_stores(self) {
        #[cfg(target_arch = "x86_64")]
        if self.0 != Instructions::Portable {
            x86_64::finish_stores();
        }
    }
}
