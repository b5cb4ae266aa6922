//! Integer types of instructions and registers (PTX ISA, "Types").
//!
//! A register holds its value zero-extended to 64 bits. An instruction reads it through a type as
//! an `i128`, which holds every value of every type, and writes back the low bits that the target
//! has; so one plain formula serves all widths and both signs. Called by decoder and execution.

/// An integer type: a width, and whether values are signed. Untyped bits read as unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Integer {
    /// Its width; 1 for predicates.
    pub(super) bits: u32,
    pub(super) is_signed: bool,
}

impl Integer {
    pub(super) const PREDICATE: Self = Self::unsigned(1);
    pub(super) const U32: Self = Self::unsigned(32);

    pub(super) const fn unsigned(bits: u32) -> Self {
        Self { bits, is_signed: false }
    }

    /// Reads the type of an instruction: `u32`, `s64`, `b16` or `pred`.
    pub(super) fn parse(suffix: &str) -> Option<Self> {
        if suffix == "pred" {
            return Some(Self::PREDICATE);
        }
        let kind = suffix.chars().next().filter(|kind| "bus".contains(*kind))?;
        let bits = match &suffix[1..] {
            "8" => 8,
            "16" => 16,
            "32" => 32,
            "64" => 64,
            _ => return None,
        };
        Some(Self { bits, is_signed: kind == 's' })
    }

    /// Returns the bytes of a value in memory.
    pub(super) const fn bytes(self) -> usize {
        self.bits.div_ceil(8) as usize
    }

    /// Reads a register's low bits as a value of the type.
    pub(super) fn extend(self, value: u64) -> i128 {
        let unused = 64 - self.bits;
        if self.is_signed {
            i128::from((value << unused).cast_signed() >> unused)
        } else {
            i128::from(value << unused >> unused)
        }
    }

    /// Returns the value of the type that is nearest to `value`.
    pub(super) fn saturate(self, value: i128) -> i128 {
        let end = 1_i128 << (self.bits - u32::from(self.is_signed));
        value.clamp(if self.is_signed { -end } else { 0 }, end - 1)
    }
}

/// Returns the low `bits` of `value`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the low bits")]
pub(super) fn truncate(value: i128, bits: u32) -> u64 {
    value as u64 & (u64::MAX >> (64 - bits))
}
