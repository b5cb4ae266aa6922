//! The memory of a test's device, and launches on it.

use crate::kernel::Kernel;
use crate::machine::{Machine, run_ptx, run_twin};
use kvtide_kernels::arch::Word;
use kvtide_simcuda::ptx::{LaunchError, Statistics};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::{error, fmt};

/// Bytes between two reservations at least, so that a stray write hits nobody's data.
const GUARD_BYTES: usize = 32;

/// Numbers from a seed (xorshift64*).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() >> 33).expect("31 bits") % end
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for index in (1..items.len()).rev() {
            items.swap(index, self.below(index + 1));
        }
    }
}

/// Places in a memory that does not exist yet.
#[derive(Default)]
pub(crate) struct Reservations {
    end: usize,
    reserved: Vec<Reservation>,
}

/// A place in a memory.
pub(crate) struct Reservation {
    pub(crate) range: Range<usize>,
    /// Whether the next launch only writes it.
    pub(crate) is_output: bool,
    /// Where it lies on the device, if not at its place in the memory.
    pub(crate) address: Option<u64>,
}

impl Reservations {
    /// Reserves `bytes` at an odd multiple of `align`, behind a guard, and returns their offset.
    ///
    /// Odd, so that no more alignment is there than was asked for.
    pub(crate) fn reserve(&mut self, bytes: usize, align: usize) -> usize {
        let start = (self.end + GUARD_BYTES).next_multiple_of(2 * align) + align;
        self.end = start + bytes;
        self.reserved.push(Reservation { range: start..self.end, is_output: false, address: None });
        start
    }

    /// Makes the memory of a machine, full of random bytes.
    pub(crate) fn build(self, machine: Machine, random: &mut Random) -> Memory {
        let word_count = (self.end + GUARD_BYTES).div_ceil(16);
        let word = |_| Word { low: random.next(), high: random.next() };
        Memory {
            machine,
            words: (0..word_count).map(word).collect(),
            reserved: self.reserved,
            executed: BTreeMap::new(),
        }
    }
}

/// Everything that a launch may touch.
pub(crate) struct Memory {
    machine: Machine,
    words: Vec<Word>,
    reserved: Vec<Reservation>,
    /// Of kernels that ran as PTX: how many lanes came to each instruction.
    pub(crate) executed: BTreeMap<&'static str, Statistics>,
}

impl Memory {
    /// Returns the address of byte `offset`.
    pub(crate) fn address(&mut self, offset: usize) -> u64 {
        self.machine.address(self.words.as_mut_ptr().expose_provenance(), offset)
    }

    /// Cuts the reservation that starts at `start` into pieces of `bytes`, and puts piece `index`
    /// at `address(index)`.
    pub(crate) fn spread(&mut self, start: usize, bytes: usize, address: impl Fn(usize) -> u64) {
        let is_it = |reservation: &Reservation| reservation.range.start == start;
        let index = self.reserved.iter().position(is_it).expect("a reservation starts there");
        let range = self.reserved.swap_remove(index).range;
        let pieces = range.step_by(bytes).enumerate().map(|(index, start)| Reservation {
            range: start..start + bytes,
            is_output: false,
            address: Some(address(index)),
        });
        self.reserved.extend(pieces);
    }

    /// Returns whether a reservation starts at `start`.
    pub(crate) fn has_reservation(&self, start: usize) -> bool {
        self.reserved.iter().any(|reservation| reservation.range.start == start)
    }

    /// Runs a kernel, which only writes the reservations that `outputs` lie in.
    pub(crate) fn launch(
        &mut self,
        kernel: &impl Kernel,
        outputs: &[usize],
        warp_count: u32,
        random: &mut Random,
    ) -> Result<(), Wrong> {
        // Both machines draw one number, so that a test goes on alike on both.
        let seed = random.next();
        let module = match &self.machine {
            Machine::Twins => {
                run_twin(kernel, warp_count, &mut Random::new(seed));
                return Ok(());
            }
            Machine::Ptx(module) => Arc::clone(module),
        };
        for reservation in &mut self.reserved {
            reservation.is_output = outputs.iter().any(|at| reservation.range.contains(at));
        }
        let mut bytes = self.bytes();
        let statistics = run_ptx(&module, kernel, warp_count, seed, &self.reserved, &mut bytes)?;
        self.restore(&bytes);
        let total = self.executed.entry(kernel.name()).or_default();
        total.executed.resize(statistics.executed.len(), 0);
        for (total, lanes) in total.executed.iter_mut().zip(statistics.executed) {
            *total += lanes;
        }
        Ok(())
    }

    /// Returns a copy of all bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let halves = self.words.iter().flat_map(|word| [word.low, word.high]);
        halves.flat_map(u64::to_le_bytes).collect()
    }

    /// Overwrites bytes.
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) {
        for (at, &byte) in (offset..).zip(bytes) {
            let word = &mut self.words[at / 16];
            let half = if at % 16 < 8 { &mut word.low } else { &mut word.high };
            let shift = at % 8 * 8;
            *half = *half & !(0xff << shift) | u64::from(byte) << shift;
        }
    }

    /// Overwrites all bytes.
    pub(crate) fn restore(&mut self, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.words.len() * 16);
        for (word, bytes) in self.words.iter_mut().zip(bytes.chunks_exact(16)) {
            word.low = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
            word.high = u64::from_le_bytes(bytes[8..].try_into().expect("8 bytes"));
        }
    }

    /// Overwrites `u64`s.
    pub(crate) fn write_u64s(&mut self, offset: usize, values: &[u64]) {
        for (index, value) in values.iter().enumerate() {
            self.write(offset + index * 8, &value.to_le_bytes());
        }
    }

    /// Overwrites `u32`s.
    pub(crate) fn write_u32s(&mut self, offset: usize, values: &[u32]) {
        for (index, value) in values.iter().enumerate() {
            self.write(offset + index * 4, &value.to_le_bytes());
        }
    }
}

/// Reads a `u64` of a memory's bytes.
pub(crate) fn read_u64(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("8 bytes"))
}

/// Reads a `u32` of a memory's bytes.
pub(crate) fn read_u32(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(bytes[offset..offset + 4].try_into().expect("4 bytes"))
}

/// What a kernel did wrong.
#[derive(Debug)]
pub(crate) enum Wrong {
    /// The interpreter stopped it.
    Fault(LaunchError),
    /// The first byte that is not as the reference has it.
    Byte { offset: usize, actual: u8, expected: u8 },
}

impl fmt::Display for Wrong {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fault(error) => error.fmt(formatter),
            Self::Byte { offset, actual, expected } => {
                write!(formatter, "byte {offset} is {actual:#x}, and must be {expected:#x}")
            }
        }
    }
}

impl error::Error for Wrong {}

impl From<LaunchError> for Wrong {
    fn from(error: LaunchError) -> Self {
        Self::Fault(error)
    }
}

/// Compares all bytes.
pub(crate) fn same(actual: &[u8], expected: &[u8]) -> Result<(), Wrong> {
    assert_eq!(actual.len(), expected.len());
    let differs = |(actual, expected): &(&u8, &u8)| actual != expected;
    let first = (0..).zip(actual.iter().zip(expected)).find(|(_, pair)| differs(pair));
    first.map_or(Ok(()), |(offset, (&actual, &expected))| {
        Err(Wrong::Byte { offset, actual, expected })
    })
}
