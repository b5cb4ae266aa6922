//! The loops, generic over the machine that runs them.
//!
//! A copy runs in three stretches: bytes up to the target's next line (if it is stored past the
//! caches), whole lines, and what is left with its zeros. Only the middle is fast; the ends are
//! `portable.rs`. Four lines are read before the first is written, and memory is prefetched a
//! distance ahead, across the border to the next fragment.
//!
//! Gathered fragments of one length are copied four at a time, a block of each in turn: where one
//! ends and another begins, the CPU's own prefetching starts over, which costs a lone copy about
//! 600 ns, and four at a time hardly anything. Scattered ones, whose sources follow one another,
//! gain nothing by it.
//!
//! The numbers are what was best on a Zen 4 and, where it differs, did no harm on a Xeon; the turns
//! were measured on the Zen 4 only. See `benches/cpu_device.rs`.
//!
//! Called by the machines' entry points, with their instructions switched on.
#![expect(clippy::inline_always, reason = "only inlined code has its caller's instructions")]

use super::portable::{self, WORD_BYTES};
use super::{Job, LANES, Order, Pair, Sum};
use kvtide_kernels::checksum::STEP;

/// Words of a line.
const LINE_WORDS: usize = LINE_BYTES / WORD_BYTES;

/// Bytes of a line: a cache line of every CPU that matters, the widest register, the step of all
/// loops.
pub(super) const LINE_BYTES: usize = 64;

/// Lines that are read before the first is written.
const BLOCK_LINES: usize = 4;

/// Gathered fragments from this length on are stored past the caches.
const GATHER_STREAM_BYTES: usize = 4 << 10;

/// Scattered fragments from this length on are: a target that is not read first saves most here,
/// since each begins anew.
const SCATTER_STREAM_BYTES: usize = 2 << 10;

/// Gathered fragments from this length on are left to the CPU's own prefetching, helped a little.
/// It takes hold too late in shorter ones, and runs past their ends.
const LONG_BYTES: usize = 64 << 10;

/// How far ahead the first cache is asked for what the CPU foresees, in bytes.
const NEAR_BYTES: usize = 2 << 10;

/// How far ahead the second cache is asked for what it does not, in bytes.
const FAR_BYTES: usize = 8 << 10;

/// A line at any address.
pub(super) type Line = [u8; LINE_BYTES];

/// A line at a multiple of its length.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct AlignedLine(pub(super) Line);

/// Instructions that this CPU has: the value is the proof, so all methods are safe to call.
pub(super) trait Machine: Copy {
    /// A line in registers: eight words.
    type Words: Copy;

    /// Whether there are registers for the sums of several copies that take turns.
    const SUMS_SIDE_BY_SIDE: bool;

    /// Reads a line.
    fn load(self, source: &Line) -> Self::Words;

    /// Writes a line.
    fn store(self, words: Self::Words, target: &mut Line);

    /// Writes a line past the caches.
    fn stream(self, words: Self::Words, target: &mut AlignedLine);

    /// Adds word by word, modulo 2^64.
    fn add(self, one: Self::Words, other: Self::Words) -> Self::Words;

    /// Mixes each word, as [`mix`](kvtide_kernels::checksum::mix) does.
    fn mix(self, words: Self::Words) -> Self::Words;

    /// Asks the first cache for the line at any address, mapped or not.
    fn prefetch_near(self, address: *const u8);

    /// Asks the second cache for it.
    fn prefetch_far(self, address: *const u8);
}

/// Copies a job's source to the start of `target`, fills the rest with zeros, and sums the words
/// written if asked for.
#[inline(always)]
pub(super) fn copy<M: Machine>(machine: M, job: Job<'_>, target: &mut [u8]) -> u64 {
    Cut::new(job, target).copy(machine)
}

/// Copies as [`copy`] does, jobs that are alike, taking turns block by block.
///
/// No prefetching besides the CPU's own: with four sources under way it does better alone.
#[inline(always)]
pub(super) fn copy_side_by_side<M: Machine>(machine: M, pairs: [Pair<'_, '_>; LANES]) -> u64 {
    let sum = pairs[0].0.sum;
    if sum == Sum::Words && !M::SUMS_SIDE_BY_SIDE {
        let sums = pairs.map(|(job, target)| copy(machine, job, target));
        return sums.into_iter().fold(0, u64::wrapping_add);
    }
    let mut cuts = pairs.map(|(job, target)| Cut::new(job, target));
    let block_count = cuts.iter().map(Cut::streamed_blocks).min().unwrap_or(0);
    let lanes = cuts.each_mut().map(|cut| cut.take_blocks(block_count));
    let together = match sum {
        Sum::None => copy_lanes::<M, false>(machine, lanes),
        Sum::Words => copy_lanes::<M, true>(machine, lanes),
    };
    cuts.into_iter().fold(together, |total, cut| total.wrapping_add(cut.copy(machine)))
}

/// A copy, cut into whole lines and two ends; at the target's lines, if it is to be stored past
/// the caches.
struct Cut<'bytes> {
    sum: Sum,
    head: End<'bytes>,
    lines: Lines<'bytes>,
    /// The lines' target.
    target: &'bytes mut [u8],
    is_streamed: bool,
    tail: End<'bytes>,
}

/// Bytes that are no whole lines.
struct End<'bytes> {
    source: &'bytes [u8],
    target: &'bytes mut [u8],
    first_index: u64,
}

impl End<'_> {
    #[inline(always)]
    fn copy(self, sum: Sum) -> u64 {
        portable::copy(sum, self.target, self.source, self.first_index)
    }
}

impl<'bytes> Cut<'bytes> {
    #[inline(always)]
    fn new(job: Job<'bytes>, target: &'bytes mut [u8]) -> Self {
        let Job { source, ahead, order, sum, first_index } = job;
        let stream_bytes = match order {
            Order::Gather => GATHER_STREAM_BYTES,
            Order::Scatter => SCATTER_STREAM_BYTES,
        };
        let to_next_line = target.as_ptr().align_offset(LINE_BYTES);
        let is_streamed = source.len() >= stream_bytes && to_next_line.is_multiple_of(WORD_BYTES);
        let head_bytes = if is_streamed { to_next_line } else { 0 };
        let middle_bytes = (source.len() - head_bytes) / LINE_BYTES * LINE_BYTES;
        let (source_head, source_rest) = source.split_at(head_bytes);
        let (source_middle, source_tail) = source_rest.split_at(middle_bytes);
        let (target_head, target_rest) = target.split_at_mut(head_bytes);
        let (target_middle, target_tail) = target_rest.split_at_mut(middle_bytes);

        let middle_index = first_index.wrapping_add((head_bytes / WORD_BYTES) as u64);
        let tail_index = middle_index.wrapping_add((middle_bytes / WORD_BYTES) as u64);
        let is_far = order == Order::Gather && source.len() < LONG_BYTES;
        let source_lines = source_middle.as_chunks().0;
        Self {
            sum,
            head: End { source: source_head, target: target_head, first_index },
            lines: Lines { source: source_lines, ahead, is_far, first_index: middle_index },
            target: target_middle,
            is_streamed,
            tail: End { source: source_tail, target: target_tail, first_index: tail_index },
        }
    }

    /// Copies all that was not taken, and returns the sum, or 0.
    #[inline(always)]
    fn copy<M: Machine>(self, machine: M) -> u64 {
        let Self { sum, head, lines, target, is_streamed, tail } = self;
        let head = head.copy(sum);
        let middle = match (aligned_lines(is_streamed, target), sum) {
            (Places::Aligned(target), Sum::None) => lines.copy::<M, _, false>(machine, target),
            (Places::Aligned(target), Sum::Words) => lines.copy::<M, _, true>(machine, target),
            (Places::Any(target), Sum::None) => lines.copy::<M, _, false>(machine, target),
            (Places::Any(target), Sum::Words) => lines.copy::<M, _, true>(machine, target),
        };
        let tail = tail.copy(sum);
        head.wrapping_add(middle).wrapping_add(tail)
    }

    /// Returns how many blocks may be taken: whole ones, if they are stored past the caches.
    #[inline(always)]
    fn streamed_blocks(&self) -> usize {
        if self.is_streamed { self.lines.source.len() / BLOCK_LINES } else { 0 }
    }

    /// Takes the first blocks, of which there are as many.
    #[inline(always)]
    fn take_blocks(&mut self, count: usize) -> Lane<'bytes> {
        let first_index = self.lines.first_index;
        let line_count = count * BLOCK_LINES;
        let (source, rest) = self.lines.source.split_at(line_count);
        self.lines.source = rest;
        self.lines.first_index = first_index.wrapping_add((line_count * LINE_WORDS) as u64);
        let target = self.target.split_off_mut(..line_count * LINE_BYTES);
        let target = match aligned_lines(self.is_streamed, target.expect("as many were counted")) {
            Places::Aligned(lines) => lines,
            Places::Any(_) => &mut [],
        };
        Lane { source: source.as_chunks().0, target: target.as_chunks_mut().0, first_index }
    }
}

/// Blocks of one out of several copies that take turns.
struct Lane<'bytes> {
    source: &'bytes [[Line; BLOCK_LINES]],
    target: &'bytes mut [[AlignedLine; BLOCK_LINES]],
    first_index: u64,
}

/// Copies as many blocks of each lane, and returns the sum, or 0.
#[inline(always)]
fn copy_lanes<M: Machine, const SUM: bool>(machine: M, mut lanes: [Lane<'_>; LANES]) -> u64 {
    let mut sums = lanes.each_ref().map(|lane| RunningSum::new(machine, lane.first_index));
    for number in 0..lanes[0].source.len() {
        for (lane, running) in lanes.iter_mut().zip(&mut sums) {
            let block = lane.source[number].each_ref().map(|line| machine.load(line));
            for (target, words) in lane.target[number].iter_mut().zip(block) {
                target.put(machine, words);
            }
            if SUM {
                running.add_block(machine, block);
            }
        }
    }
    let total = |running: RunningSum<M>| if SUM { running.total(machine) } else { 0 };
    sums.into_iter().map(total).fold(0, u64::wrapping_add)
}

/// Sums the words of `bytes`, which are whole words.
#[inline(always)]
pub(super) fn sum<M: Machine>(machine: M, bytes: &[u8], first_index: u64) -> u64 {
    let (source, tail) = bytes.as_chunks();
    let tail_index = first_index.wrapping_add((source.len() * LINE_WORDS) as u64);
    let middle = Lines { source, ahead: bytes, is_far: false, first_index }.sum(machine);
    middle.wrapping_add(portable::sum(tail, tail_index))
}

/// Where a machine puts lines.
trait Place {
    fn put<M: Machine>(&mut self, machine: M, words: M::Words);
}

impl Place for Line {
    #[inline(always)]
    fn put<M: Machine>(&mut self, machine: M, words: M::Words) {
        machine.store(words, self);
    }
}

impl Place for AlignedLine {
    #[inline(always)]
    fn put<M: Machine>(&mut self, machine: M, words: M::Words) {
        machine.stream(words, self);
    }
}

/// A target of whole lines.
enum Places<'bytes> {
    Any(&'bytes mut [Line]),
    Aligned(&'bytes mut [AlignedLine]),
}

/// Splits whole lines; as aligned ones only where they are.
#[inline(always)]
fn aligned_lines(is_streamed: bool, target: &mut [u8]) -> Places<'_> {
    if !is_streamed || !target.as_ptr().addr().is_multiple_of(LINE_BYTES) {
        return Places::Any(target.as_chunks_mut().0);
    }
    #[expect(unsafe_code, reason = "reads bytes as lines of bytes")]
    // SAFETY: an aligned line is 64 bytes of any value.
    let (_, lines, _) = unsafe { target.align_to_mut() };
    Places::Aligned(lines)
}

/// Whole lines to be read.
struct Lines<'bytes> {
    source: &'bytes [Line],
    ahead: &'bytes [u8],
    /// Whether to prefetch as for fragments whose reading the CPU does not foresee.
    is_far: bool,
    /// Payload word index of the first word.
    first_index: u64,
}

impl Lines<'_> {
    /// Copies to as many places, and returns the sum if `SUM`, or 0.
    #[inline(always)]
    fn copy<M: Machine, P: Place, const SUM: bool>(&self, machine: M, target: &mut [P]) -> u64 {
        debug_assert_eq!(self.source.len(), target.len());
        let mut running = RunningSum::new(machine, self.first_index);
        let (blocks, lines) = self.source.as_chunks::<BLOCK_LINES>();
        let (block_places, places) = target.as_chunks_mut::<BLOCK_LINES>();
        for (number, (block, targets)) in blocks.iter().zip(block_places).enumerate() {
            self.prefetch(machine, number);
            let block = block.each_ref().map(|line| machine.load(line));
            for (target, words) in targets.iter_mut().zip(block) {
                target.put(machine, words);
            }
            if SUM {
                running.add_block(machine, block);
            }
        }
        for (line, target) in lines.iter().zip(places) {
            let words = machine.load(line);
            target.put(machine, words);
            if SUM {
                running.add_line(machine, words);
            }
        }
        if SUM { running.total(machine) } else { 0 }
    }

    /// Returns the sum.
    #[inline(always)]
    fn sum<M: Machine>(&self, machine: M) -> u64 {
        let mut running = RunningSum::new(machine, self.first_index);
        let (blocks, lines) = self.source.as_chunks::<BLOCK_LINES>();
        for (number, block) in blocks.iter().enumerate() {
            self.prefetch(machine, number);
            running.add_block(machine, block.each_ref().map(|line| machine.load(line)));
        }
        for line in lines {
            running.add_line(machine, machine.load(line));
        }
        running.total(machine)
    }

    /// Asks for what will be read a while after a block: of this source, or of the next.
    #[inline(always)]
    fn prefetch<M: Machine>(&self, machine: M, block: usize) {
        let length = self.source.len() * LINE_BYTES;
        let distance = if self.is_far { FAR_BYTES } else { NEAR_BYTES };
        let far = block * BLOCK_LINES * LINE_BYTES + distance.min(length);
        let address = if far < length {
            self.source.as_ptr().cast::<u8>().wrapping_add(far)
        } else {
            self.ahead.as_ptr().wrapping_add(far - length)
        };
        for line in (0..BLOCK_LINES).map(|line| address.wrapping_add(line * LINE_BYTES)) {
            if self.is_far {
                machine.prefetch_far(line);
            } else {
                machine.prefetch_near(line);
            }
        }
    }
}

/// The sum of the lines read so far, and the keys of the next.
struct RunningSum<M: Machine> {
    total: M::Words,
    /// What the next line's words add before mixing.
    keys: M::Words,
    /// What the words of a block's lines add beyond the keys of its first.
    offsets: [M::Words; BLOCK_LINES],
    /// From one block's keys to the next's.
    block_step: M::Words,
}

impl<M: Machine> RunningSum<M> {
    #[inline(always)]
    fn new(machine: M, first_index: u64) -> Self {
        let same = |words: usize| {
            let word = STEP.wrapping_mul(words as u64);
            from_words(machine, [word; LINE_WORDS])
        };
        let mut keys = [0; LINE_WORDS];
        let mut index = first_index;
        for key in &mut keys {
            *key = STEP.wrapping_mul(index);
            index = index.wrapping_add(1);
        }
        Self {
            total: same(0),
            keys: from_words(machine, keys),
            offsets: [same(0), same(LINE_WORDS), same(2 * LINE_WORDS), same(3 * LINE_WORDS)],
            block_step: same(BLOCK_LINES * LINE_WORDS),
        }
    }

    #[inline(always)]
    fn add_block(&mut self, machine: M, block: [M::Words; BLOCK_LINES]) {
        for (words, offset) in block.into_iter().zip(self.offsets) {
            let keys = machine.add(self.keys, offset);
            let mixed = machine.mix(machine.add(words, keys));
            self.total = machine.add(self.total, mixed);
        }
        self.keys = machine.add(self.keys, self.block_step);
    }

    /// Adds a line that does not fill a block.
    #[inline(always)]
    fn add_line(&mut self, machine: M, words: M::Words) {
        let mixed = machine.mix(machine.add(words, self.keys));
        self.total = machine.add(self.total, mixed);
        self.keys = machine.add(self.keys, self.offsets[1]);
    }

    #[inline(always)]
    fn total(self, machine: M) -> u64 {
        let mut line = [0; LINE_BYTES];
        machine.store(self.total, &mut line);
        let words = line.as_chunks().0.iter();
        words.fold(0, |total: u64, word| total.wrapping_add(u64::from_le_bytes(*word)))
    }
}

#[inline(always)]
fn from_words<M: Machine>(machine: M, words: [u64; LINE_WORDS]) -> M::Words {
    let mut line = [0; LINE_BYTES];
    for (place, word) in line.as_chunks_mut().0.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
    machine.load(&line)
}
