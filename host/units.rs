//! Newtypes for ids, counts and bytes.
//!
//! A bare integer never crosses the public API as an id or a size: the type says which it is.
//! Token ids are the exception: engines hold them as plain `u32` arrays, and kvtide hashes those
//! arrays in place. Used by every module; depends on none.

use std::fmt;

/// Defines a transparent integer newtype with its conversions.
macro_rules! integer_newtype {
    ($(#[$doc:meta])* $name:ident, $inner:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name($inner);

        impl $name {
            #[doc = concat!("Wraps a plain integer as a `", stringify!($name), "`.")]
            #[inline]
            pub const fn new(value: $inner) -> Self {
                Self(value)
            }

            /// Returns the plain integer.
            #[inline]
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl From<$inner> for $name {
            #[inline]
            fn from(value: $inner) -> Self {
                Self(value)
            }
        }

        impl From<$name> for $inner {
            #[inline]
            fn from(value: $name) -> Self {
                value.0
            }
        }

    };
}

/// Prints the plain integer of a newtype.
macro_rules! display_plainly {
    ($($name:ident),+) => {
        $(impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, formatter)
            }
        })+
    };
}

integer_newtype!(
    /// Number of a block in the engine's pool; one id space per group.
    ///
    /// [`BlockId::SKIP`] is reserved: in a load it means "verify, but do not write".
    BlockId,
    u32
);
integer_newtype!(
    /// A number of blocks.
    BlockCount,
    u32
);
integer_newtype!(
    /// A number of tokens, or a position counted in tokens.
    TokenCount,
    u32
);
integer_newtype!(
    /// A number of bytes. Its `Display` uses binary units: `2.0 GiB`.
    ByteCount,
    u64
);
integer_newtype!(
    /// Index of a group inside its layout: 0 to 7.
    GroupIndex,
    u8
);
integer_newtype!(
    /// Index of a stripe inside its disk tier: 0 to 15.
    StripeIndex,
    u8
);
integer_newtype!(
    /// Index of a slot inside one group's region of a tier.
    SlotIndex,
    u32
);
integer_newtype!(
    /// Number of a tenant: who quotas, metrics and erasure count its chunks for. What keeps its
    /// keys apart is its [`TenantSalt`](crate::key::TenantSalt).
    TenantId,
    u64
);
integer_newtype!(
    /// A tenant's number folded to 32 bits, as indexes keep it: see [`TenantId::tag`].
    TenantTag,
    u32
);
integer_newtype!(
    /// A number of chunks, such as a tier's capacity.
    ChunkCount,
    u32
);
integer_newtype!(
    /// A point on the caller's monotonic clock, in nanoseconds from any origin.
    ///
    /// The core has no clock: whoever calls it says what time it is.
    Timestamp,
    u64
);

display_plainly!(BlockId, BlockCount, TokenCount, GroupIndex, StripeIndex);
display_plainly!(SlotIndex, TenantId, TenantTag, ChunkCount);

impl BlockId {
    /// The id that is never a block: a load verifies the fragment but does not write it.
    pub const SKIP: Self = Self(kvtide_kernels::abi::BLOCK_ID_SKIP);
}

impl TenantId {
    /// Returns the number folded to 32 bits: both halves by exclusive or. A number below 2^32 is
    /// its own tag; of greater ones, one in 2^32 has the tag of another tenant.
    ///
    /// ```
    /// use kvtide::units::{TenantId, TenantTag};
    ///
    /// assert_eq!(TenantId::new(7).tag(), TenantTag::new(7));
    /// assert_eq!(TenantId::new(1 << 32 | 7).tag(), TenantTag::new(6));
    /// ```
    #[expect(clippy::cast_possible_truncation, reason = "folds both halves")]
    pub const fn tag(self) -> TenantTag {
        TenantTag((self.0 ^ self.0 >> 32) as u32)
    }
}

impl From<TenantTag> for TenantId {
    /// Returns the least number with that tag.
    fn from(tag: TenantTag) -> Self {
        Self(tag.0.into())
    }
}

impl Timestamp {
    /// A point that no clock reaches: no deadline.
    pub const NEVER: Self = Self(u64::MAX);

    /// Returns the point `nanoseconds` later, at most [`Timestamp::NEVER`].
    #[must_use]
    pub const fn after(self, nanoseconds: u64) -> Self {
        Self(self.0.saturating_add(nanoseconds))
    }
}

impl fmt::Display for ByteCount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
        for (unit, shift) in UNITS {
            if self.0 >= 1 << shift {
                let tenths = (u128::from(self.0) * 10) >> shift;
                return write!(formatter, "{}.{} {unit}", tenths / 10, tenths % 10);
            }
        }
        write!(formatter, "{} B", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{BlockId, ByteCount};

    #[test]
    fn byte_counts_print_in_binary_units() {
        let printed = |bytes| ByteCount::new(bytes).to_string();
        assert_eq!(printed(0), "0 B");
        assert_eq!(printed(1023), "1023 B");
        assert_eq!(printed(1024), "1.0 KiB");
        assert_eq!(printed((3 << 20) + (1 << 19)), "3.5 MiB");
        assert_eq!(printed(u64::MAX), "16777215.9 TiB");
    }

    #[test]
    fn the_skip_id_is_the_kernels_skip_id() {
        assert_eq!(BlockId::SKIP.get(), u32::MAX);
    }
}
