//! Functions against Rust's own arithmetic, or against the loops of the PTX ISA bit by bit.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    clippy::cast_lossless,
    reason = "the same text for every type: bits as they are"
)]

use super::super::integer::{Integer, truncate};
use super::{Combine, Comparison, Function, FunnelAmount, Logic};
use proptest::prelude::*;

/// Runs a function as an instruction does: operands extended by types, the result truncated.
fn run(function: Function, target_bits: u32, operands: &[(Integer, u64)]) -> Option<u64> {
    let mut values = [0; 4];
    for (value, (kind, bits)) in values.iter_mut().zip(operands) {
        *value = kind.extend(*bits);
    }
    function.evaluate(values).map(|result| truncate(result, target_bits))
}

/// Values that are often at the ends of a width.
fn value() -> impl Strategy<Value = u64> {
    let edges = [0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, 1 << 31, u64::MAX, 1 << 63];
    prop_oneof![
        any::<u64>(),
        any::<u32>().prop_map(u64::from),
        0..70_u64,
        prop::sample::select(edges.to_vec()),
    ]
}

fn width() -> impl Strategy<Value = u32> {
    prop::sample::select(vec![32_u32, 64])
}

/// Checks the functions of two operands of one Rust type.
macro_rules! arithmetic {
    ($name:ident, $type:ty, $bits:literal, $is_signed:literal, $wide:ty) => {
        proptest! {
        #[test]
        fn $name(left in value(), right in value()) {
            let kind = Integer { bits: $bits, is_signed: $is_signed };
            let (a, b) = (left as $type, right as $type);
            let both = [(kind, left), (kind, right)];
            let low = |value: $type| Some(value as u64 & (u64::MAX >> (64 - $bits)));
            let multiply = |shift| Function::MultiplyAdd { shift };
            prop_assert_eq!(run(Function::Add, $bits, &both), low(a.wrapping_add(b)));
            prop_assert_eq!(run(Function::Subtract, $bits, &both), low(a.wrapping_sub(b)));
            prop_assert_eq!(run(multiply(0), $bits, &both), low(a.wrapping_mul(b)));
            let product = (a as $wide).wrapping_mul(b as $wide);
            prop_assert_eq!(run(multiply($bits), $bits, &both), low((product >> $bits) as $type));
            if $bits < 64 {
                let wide_bits = ($bits * 2_u32).min(64);
                let mask = u64::MAX >> (64 - wide_bits);
                prop_assert_eq!(run(multiply(0), wide_bits, &both), Some(product as u64 & mask));
            }
            let (divided, rest) = match b {
                0 => (None, None),
                _ => (low(a.wrapping_div(b)), low(a.wrapping_rem(b))),
            };
            prop_assert_eq!(run(Function::Divide, $bits, &both), divided);
            prop_assert_eq!(run(Function::Remainder, $bits, &both), rest);
            prop_assert_eq!(run(Function::Minimum, $bits, &both), low(a.min(b)));
            prop_assert_eq!(run(Function::Maximum, $bits, &both), low(a.max(b)));
            let amount = right as u32;
            let shifts = [(kind, left), (Integer::U32, u64::from(amount))];
            let shifted = if amount < $bits { a >> amount } else { a >> ($bits - 1) >> 1 };
            prop_assert_eq!(run(Function::ShiftRight, $bits, &shifts), low(shifted));
            let shifted = if amount < $bits { a << amount } else { 0 };
            prop_assert_eq!(run(Function::ShiftLeft, $bits, &shifts), low(shifted));
            for (comparison, expected) in [
                (Comparison::Equal, a == b),
                (Comparison::NotEqual, a != b),
                (Comparison::Less, a < b),
                (Comparison::LessOrEqual, a <= b),
                (Comparison::Greater, a > b),
                (Comparison::GreaterOrEqual, a >= b),
            ] {
                let compare = Function::Compare { comparison, combine: Combine::NONE, truth: 1 };
                prop_assert_eq!(run(compare, 1, &both), Some(u64::from(expected)));
            }
        }
        }
    };
}

arithmetic!(arithmetic_of_u16_is_rusts, u16, 16, false, u32);
arithmetic!(arithmetic_of_s16_is_rusts, i16, 16, true, i32);
arithmetic!(arithmetic_of_u32_is_rusts, u32, 32, false, u64);
arithmetic!(arithmetic_of_s32_is_rusts, i32, 32, true, i64);
arithmetic!(arithmetic_of_u64_is_rusts, u64, 64, false, u128);
arithmetic!(arithmetic_of_s64_is_rusts, i64, 64, true, i128);

proptest! {
    #[test]
    fn one_operand_is_taken_as_by_rust(value in value()) {
        let word = Integer::U32;
        let long = Integer::unsigned(64);
        let low = truncate(value.into(), 32);
        let low_word = u32::try_from(low).expect("32 bits");
        let bits_of = |count: u32| Some(u64::from(count));
        let count_ones = Function::CountOnes;
        prop_assert_eq!(run(count_ones, 32, &[(word, value)]), bits_of(low_word.count_ones()));
        prop_assert_eq!(run(count_ones, 32, &[(long, value)]), bits_of(value.count_ones()));
        let zeros = Function::LeadingZeros;
        prop_assert_eq!(run(zeros(32), 32, &[(word, value)]), bits_of(low_word.leading_zeros()));
        prop_assert_eq!(run(zeros(64), 32, &[(long, value)]), bits_of(value.leading_zeros()));
        let reverse = Function::ReverseBits;
        let reversed = u64::from(low_word.reverse_bits());
        prop_assert_eq!(run(reverse(32), 32, &[(word, value)]), Some(reversed));
        prop_assert_eq!(run(reverse(64), 64, &[(long, value)]), Some(value.reverse_bits()));
        let signed = Integer { bits: 32, is_signed: true };
        let number = low_word.cast_signed();
        let as_bits = |number: i32| Some(u64::from(number.cast_unsigned()));
        let absolute = run(Function::Absolute, 32, &[(signed, value)]);
        prop_assert_eq!(absolute, as_bits(number.wrapping_abs()));
        let negated = run(Function::Negate, 32, &[(signed, value)]);
        prop_assert_eq!(negated, as_bits(number.wrapping_neg()));
        prop_assert_eq!(run(Function::Not, 32, &[(word, value)]), Some(u64::from(!low_word)));
    }

    #[test]
    fn bit_fields_follow_the_loops_of_the_isa(
        bits in width(),
        is_signed: bool,
        [a, b] in [value(), value()],
        [position, length] in [0..300_u64, 0..300_u64],
    ) {
        let kind = Integer { bits, is_signed };
        let bit = |value: u64, index: u64| value >> index & 1;
        let last = u64::from(bits) - 1;
        let (start, count) = (position & 0xff, length & 0xff);
        let sign = if is_signed && count > 0 { bit(a, (start + count - 1).min(last)) } else { 0 };
        let extracted = (0..=last).fold(0, |field, index| {
            let is_inside = index < count && start + index <= last;
            field | if is_inside { bit(a, start + index) } else { sign } << index
        });
        let word = Integer::U32;
        let operands = [(kind, a), (word, position), (word, length)];
        prop_assert_eq!(run(Function::ExtractBits(kind), bits, &operands), Some(extracted));

        let inserted = (0..count).take_while(|index| start + index <= last).fold(b, |field, index| {
            let at = start + index;
            field & !(1 << at) | bit(a, index) << at
        });
        let plain = Integer::unsigned(bits);
        let operands = [(plain, a), (plain, b), (word, position), (word, length)];
        let inserted = truncate(inserted.into(), bits);
        prop_assert_eq!(run(Function::InsertBits(bits), bits, &operands), Some(inserted));
    }

    #[test]
    fn funnel_shifts_take_from_both_words(low: u32, high: u32, amount: u32) {
        let word = Integer::U32;
        let operands = [low, high, amount].map(|value| (word, u64::from(value)));
        let wrapped = amount & 31;
        let (left, right) = match wrapped {
            0 => (high, low),
            _ => (high << wrapped | low >> (32 - wrapped), high << (32 - wrapped) | low >> wrapped),
        };
        let wrap = FunnelAmount::Wrap;
        prop_assert_eq!(run(Function::FunnelLeft(wrap), 32, &operands), Some(left.into()));
        prop_assert_eq!(run(Function::FunnelRight(wrap), 32, &operands), Some(right.into()));
        let (left, right) = if amount < 32 { (left, right) } else { (low, high) };
        let clamp = FunnelAmount::Clamp;
        prop_assert_eq!(run(Function::FunnelLeft(clamp), 32, &operands), Some(left.into()));
        prop_assert_eq!(run(Function::FunnelRight(clamp), 32, &operands), Some(right.into()));
    }

    #[test]
    fn permute_picks_bytes_and_signs(low: u32, high: u32, selector: u16) {
        let bytes = (u64::from(high) << 32 | u64::from(low)).to_le_bytes();
        let picked = [0, 4, 8, 12].map(|shift| {
            let nibble = selector >> shift & 15;
            let byte = bytes[usize::from(nibble & 7)];
            match nibble & 8 {
                0 => byte,
                _ => if byte.cast_signed() < 0 { 0xff } else { 0 },
            }
        });
        let word = Integer::U32;
        let operands = [(word, low.into()), (word, high.into()), (word, selector.into())];
        let expected = u64::from(u32::from_le_bytes(picked));
        prop_assert_eq!(run(Function::Permute, 32, &operands), Some(expected));
    }

    #[test]
    fn conversions_wrap_or_saturate(value in value()) {
        let signed = |bits| Integer { bits, is_signed: true };
        let convert = |to, saturates| Function::Convert { to, saturates };
        let number = value.cast_signed();
        let wide = [(signed(64), value)];
        let wrapped = i64::from(number as i16).cast_unsigned();
        prop_assert_eq!(run(convert(signed(16), false), 64, &wide), Some(wrapped));
        let clamped = number.clamp(-128, 127).cast_unsigned();
        prop_assert_eq!(run(convert(signed(8), true), 64, &wide), Some(clamped));
        let clamped = number.clamp(0, 0xffff).cast_unsigned();
        prop_assert_eq!(run(convert(Integer::unsigned(16), true), 64, &wide), Some(clamped));
        let plain = [(Integer::unsigned(64), value)];
        prop_assert_eq!(run(convert(signed(32), true), 64, &plain), Some(value.min(0x7fff_ffff)));
    }

    #[test]
    fn comparisons_combine_with_a_predicate(a in 0..3_u64, b in 0..3_u64, c: bool, negates: bool) {
        let other = c != negates;
        for (logic, expected) in [
            (Logic::First, a < b),
            (Logic::And, a < b && other),
            (Logic::Or, a < b || other),
            (Logic::Xor, (a < b) != other),
        ] {
            let combine = Combine { logic, negates };
            let function = Function::Compare { comparison: Comparison::Less, combine, truth: -1 };
            let kind = Integer::U32;
            let operands = [(kind, a), (kind, b), (Integer::PREDICATE, u64::from(c))];
            let mask = if expected { 0xffff_ffff } else { 0 };
            prop_assert_eq!(run(function, 32, &operands), Some(mask));
        }
    }
}
