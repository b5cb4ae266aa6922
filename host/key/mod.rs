//! Keys: what a chunk is called on every tier.
//!
//! A [`Key`] is a 128-bit content address. In token mode keys are chained, so that a key names its
//! chunk's tokens and the whole prefix before them:
//!
//! ```text
//! key_0 = H(content fingerprint, tenant salt, group)      the root: names no chunk
//! key_i = H(key_(i-1), tokens of chunk i, extras)
//! ```
//!
//! In engine-hash mode the engine has already chained hashes of its blocks, and a key is
//! `H(content fingerprint, tenant salt, domain, group, hash of the chunk's last block)`.
//! H is BLAKE3 cut to 128 bits. Its inputs are framed so that no two of them share their bytes;
//! docs/keys.md holds the framing and vectors for other languages.
//!
//! Invariants: equal keys mean equal KV (up to a collision of BLAKE3); tokens, salts and hashes
//! never appear in a `Debug` text. Engines keep a [`KeyChain`] with each sequence; the index, the
//! slots and the pager know only [`Key`].

mod chain;
#[cfg(test)]
pub(crate) mod decode;
mod engine;
mod error;
mod extra;
pub(crate) mod frame;
pub(crate) mod hex;
mod link;
mod tenant;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

pub use crate::units::TenantId;
pub use chain::{KeyChain, TailKey};
pub use engine::{EngineHashDomain, HashSeed, Persistence};
pub use error::KeyError;
pub use extra::{Extra, Lora, MultimodalItem};
pub use hex::HexError;
pub use tenant::TenantSalt;

/// 128-bit content address of a chunk.
///
/// Held as two 64-bit words, so that a compare is two word compares and an array of keys packs at
/// 16 bytes each. The words are the little-endian halves of the 16 bytes: [`Key::low_u64`] is
/// bytes 0 to 7, [`Key::high_u64`] bytes 8 to 15, [`Key::to_u128`] all of them. Keys order as
/// those `u128` do; the order is total and stable, and means nothing. The text form is 32
/// lowercase hexadecimal digits, byte 0 first.
///
/// ```
/// use kvtide::key::Key;
///
/// let key = Key::from_u128(0x0102);
/// assert_eq!(key.to_string(), "02010000000000000000000000000000");
/// assert_eq!(key.to_string().parse(), Ok(key));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Key {
    low: u64,
    high: u64,
}

const _: () = assert!(size_of::<Key>() == Key::BYTES && align_of::<Key>() <= 8);

impl Key {
    /// Bytes of a key.
    pub const BYTES: usize = 16;

    /// Reads a key from its bytes.
    #[inline]
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self::from_u128(u128::from_le_bytes(bytes))
    }

    /// Returns the key's bytes.
    #[inline]
    pub const fn to_bytes(self) -> [u8; Self::BYTES] {
        self.to_u128().to_le_bytes()
    }

    /// Reads a key from the integer whose little-endian bytes are the key's.
    #[inline]
    pub const fn from_u128(value: u128) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "keeps one half each")]
        Self { low: value as u64, high: (value >> 64) as u64 }
    }

    /// Returns the integer whose little-endian bytes are the key's.
    #[inline]
    pub const fn to_u128(self) -> u128 {
        (self.high as u128) << 64 | self.low as u128
    }

    /// Returns bytes 0 to 7 as a little-endian integer: what seals the chunk's checksums.
    #[inline]
    pub const fn low_u64(self) -> u64 {
        self.low
    }

    /// Returns bytes 8 to 15 as a little-endian integer.
    #[inline]
    pub const fn high_u64(self) -> u64 {
        self.high
    }
}

impl Ord for Key {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        (self.high, self.low).cmp(&(other.high, other.low))
    }
}

impl PartialOrd for Key {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write(&self.to_bytes(), formatter)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Key({self})")
    }
}

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        Ok(Self::from_bytes(hex::parse(text)?))
    }
}
