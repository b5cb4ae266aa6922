//! Names that a store gives out: itself, its runs, and each slot write.
//!
//! Invariants: a uuid names one creation of one directory; an epoch names one run of it; a
//! generation names one slot write of one run, and is never given out again.
//!
//! Called by all of `store`.

use crate::key::hex;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};

/// Names one creation of a store: a directory that was made anew has another.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoreUuid([u8; 16]);

impl StoreUuid {
    /// Bytes of a uuid.
    pub const BYTES: usize = 16;

    /// Takes a uuid that was made before; all zeros name no store.
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Returns the uuid's bytes.
    pub const fn to_bytes(self) -> [u8; Self::BYTES] {
        self.0
    }

    /// Makes a new uuid out of the system's randomness, by way of the standard library's hash
    /// seeds. Unlikely to repeat; no secret.
    pub fn random() -> Self {
        let word = |number: u64| {
            let mut hasher = RandomState::new().build_hasher();
            hasher.write_u64(number);
            hasher.finish()
        };
        let bits = u128::from(word(1)) << 64 | u128::from(word(2));
        // Never the one that names no store.
        Self(bits.max(1).to_le_bytes())
    }

    /// Returns bytes 0 to 7 as a little-endian integer.
    pub(super) const fn low_u64(self) -> u64 {
        let [low @ .., _, _, _, _, _, _, _, _] = self.0;
        u64::from_le_bytes(low)
    }
}

impl fmt::Display for StoreUuid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write(&self.0, formatter)
    }
}

impl fmt::Debug for StoreUuid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "StoreUuid({self})")
    }
}

/// Number of a store's run, from 1; 0 for a store that was never written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Epoch(u32);

impl Epoch {
    /// The last run that a store can have: what fits beside a counter in a [`Generation`].
    pub const MAX: Self = Self((1 << (u64::BITS - Generation::COUNTER_BITS)) - 1);

    /// Takes a number; `None` above [`Epoch::MAX`].
    pub const fn new(number: u32) -> Option<Self> {
        if number <= Self::MAX.0 { Some(Self(number)) } else { None }
    }

    /// Returns the number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the epoch of the next run; `None` after the last one.
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        Self::new(self.0 + 1)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, formatter)
    }
}

/// Names one slot write: the run's epoch, then a counter inside the run. Later writes have greater
/// ones.
///
/// ```
/// use kvtide::store::{Epoch, Generation};
///
/// let epoch = Epoch::new(3).expect("a small number");
/// let generation = Generation::new(epoch, 7).expect("a small number");
/// assert_eq!(generation.get(), 3 << 40 | 7);
/// assert_eq!((generation.epoch(), generation.to_string()), (epoch, "3.7".to_owned()));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Generation(u64);

impl Generation {
    /// Bits of the counter.
    pub const COUNTER_BITS: u32 = 40;

    /// The generation that no write has.
    pub const NONE: Self = Self(0);

    /// Names the write number `counter` of a run; `None` for a counter of more than 40 bits.
    pub const fn new(epoch: Epoch, counter: u64) -> Option<Self> {
        if counter >> Self::COUNTER_BITS == 0 {
            Some(Self((epoch.0 as u64) << Self::COUNTER_BITS | counter))
        } else {
            None
        }
    }

    /// Reads a generation from its number.
    pub const fn from_u64(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the run's epoch.
    pub const fn epoch(self) -> Epoch {
        Epoch((self.0 >> Self::COUNTER_BITS) as u32)
    }

    /// Returns the counter inside the run.
    pub const fn counter(self) -> u64 {
        self.0 & ((1 << Self::COUNTER_BITS) - 1)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.epoch(), self.counter())
    }
}
