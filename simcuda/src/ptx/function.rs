//! What integer instructions compute, free of registers, lanes and memory.
//!
//! PTX ISA, "Integer Arithmetic Instructions", "Logic and Shift Instructions", "Comparison and
//! Selection Instructions", `cvt`, `prmt`. Operands come extended by their types, results are
//! truncated by the target ([`Integer`]); a function names a width only where the formula does.
//! Called by execution; tested against Rust's own arithmetic.

use super::integer::{Integer, truncate};

/// What an instruction computes of up to four operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Move,
    Add,
    Subtract,
    /// The bits of the product from `shift` on, plus the third operand.
    MultiplyAdd {
        shift: u32,
    },
    Divide,
    Remainder,
    Minimum,
    Maximum,
    Absolute,
    Negate,
    And,
    Or,
    Xor,
    Not,
    ShiftLeft,
    ShiftRight,
    /// Shifts the 64 bits of the first two operands, the second on top.
    FunnelLeft(FunnelAmount),
    FunnelRight(FunnelAmount),
    ExtractBits(Integer),
    InsertBits(u32),
    CountOnes,
    LeadingZeros(u32),
    ReverseBits(u32),
    Permute,
    /// A saturating or truncating conversion.
    Convert {
        to: Integer,
        saturates: bool,
    },
    /// The first operand if the third is true, else the second.
    Select,
    Compare {
        comparison: Comparison,
        combine: Combine,
        truth: i128,
    },
}

/// How a funnel shift takes an amount above 31.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FunnelAmount {
    Wrap,
    Clamp,
}

/// What a comparison asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// What is done with a comparison's answer and a third operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Combine {
    pub(super) logic: Logic,
    /// Whether the third operand is negated first.
    pub(super) negates: bool,
}

/// A Boolean operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Logic {
    /// The comparison's answer alone.
    First,
    And,
    Or,
    Xor,
}

impl Function {
    /// Computes; `None` if it divides by zero. Unused operands are 0.
    ///
    /// Operands are below 2^64 in size, so that nothing wraps at 128 bits but products, whose low
    /// 128 bits are all that a target can hold.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "execution makes a loop of its own of each function")]
    pub(super) fn evaluate(self, operands: [i128; 4]) -> Option<i128> {
        let [a, b, c, d] = operands;
        let result = match self {
            Self::Move => a,
            Self::Add => a.wrapping_add(b),
            Self::Subtract => a.wrapping_sub(b),
            Self::MultiplyAdd { shift } => (a.wrapping_mul(b) >> shift).wrapping_add(c),
            Self::Divide => a.checked_div(b)?,
            Self::Remainder => a.checked_rem(b)?,
            Self::Minimum => a.min(b),
            Self::Maximum => a.max(b),
            Self::Absolute => a.wrapping_abs(),
            Self::Negate => a.wrapping_neg(),
            Self::And => a & b,
            Self::Or => a | b,
            Self::Xor => a ^ b,
            Self::Not => !a,
            // Amounts are unsigned and stop at the width; beyond it nothing is left but the sign.
            Self::ShiftLeft => a << b.min(64),
            Self::ShiftRight => a >> b.min(64),
            Self::FunnelLeft(amount) => (b << 32 | a) << amount.bits(c) >> 32,
            Self::FunnelRight(amount) => (b << 32 | a) >> amount.bits(c),
            Self::ExtractBits(kind) => extract_bits(kind, a, b, c),
            Self::InsertBits(bits) => insert_bits(bits, [a, b], c, d),
            Self::CountOnes => a.count_ones().into(),
            Self::LeadingZeros(bits) => i128::from(a.leading_zeros()) - i128::from(128 - bits),
            Self::ReverseBits(bits) => i128::from(truncate(a, bits).reverse_bits() >> (64 - bits)),
            Self::Permute => permute(a, b, c),
            Self::Convert { to, saturates: true } => to.saturate(a),
            Self::Convert { to, saturates: false } => to.extend(truncate(a, to.bits)),
            Self::Select => {
                if c != 0 {
                    a
                } else {
                    b
                }
            }
            Self::Compare { comparison, combine, truth } => {
                let answer = combine.apply(comparison.holds(a, b), c != 0);
                if answer { truth } else { 0 }
            }
        };
        Some(result)
    }
}

impl FunnelAmount {
    fn bits(self, amount: i128) -> i128 {
        match self {
            Self::Wrap => amount & 31,
            Self::Clamp => amount.min(32),
        }
    }
}

impl Comparison {
    fn holds(self, a: i128, b: i128) -> bool {
        match self {
            Self::Equal => a == b,
            Self::NotEqual => a != b,
            Self::Less => a < b,
            Self::LessOrEqual => a <= b,
            Self::Greater => a > b,
            Self::GreaterOrEqual => a >= b,
        }
    }
}

impl Combine {
    /// The comparison's answer as it is.
    pub(super) const NONE: Self = Self { logic: Logic::First, negates: false };

    fn apply(self, answer: bool, other: bool) -> bool {
        let other = other != self.negates;
        match self.logic {
            Logic::First => answer,
            Logic::And => answer && other,
            Logic::Or => answer || other,
            Logic::Xor => answer != other,
        }
    }
}

/// `bfe`: `length` bits from `position` on; a signed field repeats its top bit, which is the
/// value's own where the field reaches beyond it.
fn extract_bits(kind: Integer, value: i128, position: i128, length: i128) -> i128 {
    let (position, length) = (position & 0xff, length & 0xff);
    if length == 0 {
        return 0;
    }
    // The value is extended by its sign, so that bits beyond its width are what `bfe` wants there.
    let field = if position < 128 { value >> position } else { value >> 127 };
    if length >= 64 {
        return field;
    }
    let low = field & ((1 << length) - 1);
    let sign = 1 << (length - 1);
    if kind.is_signed && low & sign != 0 { low - (sign << 1) } else { low }
}

/// `bfi`: the first of `values` put into the second at `position`, `length` bits of it.
fn insert_bits(bits: u32, values: [i128; 2], position: i128, length: i128) -> i128 {
    let [field, target] = values;
    let (position, length) = (position & 0xff, length & 0xff);
    if position >= i128::from(bits) {
        return target;
    }
    let mask = ((1_i128 << length.min(64)) - 1) << position;
    target & !mask | field << position & mask
}

/// `prmt` in its default mode: each nibble of `selector` picks one of the eight bytes, or with its
/// top bit that byte's sign eight times.
fn permute(low: i128, high: i128, selector: i128) -> i128 {
    let bytes = high << 32 | low;
    let pick = |index: i128| {
        let nibble = selector >> (index * 4);
        let byte = bytes >> ((nibble & 7) * 8) & 0xff;
        match nibble & 8 {
            0 => byte,
            _ if byte & 0x80 != 0 => 0xff,
            _ => 0,
        }
    };
    (0..4).fold(0, |permuted, index| permuted | pick(index) << (index * 8))
}

#[cfg(test)]
mod tests;
