//! Which registers an instruction of `sm_90` reads and writes, as far as waiting for results goes.
//!
//! The listing does not say; the rules here hold for the instructions of the kernels: results stand
//! first, a wide result fills several registers, and a carry is a predicate right after the result.

use crate::shape::listing::Instruction;

/// A register of a lane or of the warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Register {
    General(u32),
    Uniform(u32),
    Predicate(u32),
    UniformPredicate(u32),
}

impl Register {
    /// Reads a name such as `R12`; none for `RZ`, `PT` and what is no register.
    fn parse(name: &str) -> Option<Self> {
        let digits = name.find(|character: char| character.is_ascii_digit())?;
        let number = name[digits..].parse().ok()?;
        Some(match &name[..digits] {
            "R" => Self::General(number),
            "UR" => Self::Uniform(number),
            "P" => Self::Predicate(number),
            "UP" => Self::UniformPredicate(number),
            _ => return None,
        })
    }

    /// Returns the register `offset` numbers further on.
    const fn plus(self, offset: u32) -> Self {
        match self {
            Self::General(number) => Self::General(number + offset),
            Self::Uniform(number) => Self::Uniform(number + offset),
            other => other,
        }
    }
}

/// What an instruction waits for and what it fills.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) read: Vec<Register>,
    pub(super) written: Vec<Register>,
}

impl Use {
    /// Reads an instruction's operands.
    pub(super) fn of(instruction: &Instruction) -> Self {
        let operands: Vec<&str> = instruction.operands().split(", ").map(str::trim).collect();
        let result_count = result_count(instruction, &operands);
        let (results, sources) = operands.split_at(result_count.min(operands.len()));
        let is_wide = instruction.has_modifier("WIDE");
        let mut used = Self::default();
        for result in results {
            let width = result_width(instruction);
            used.written.extend(names(result).flat_map(|(name, _)| span(name, width)));
        }
        for (number, source) in sources.iter().enumerate() {
            // What a wide multiply-add adds to, and what a wide store stores, are pairs and more.
            let is_last = number + 1 == sources.len();
            let width = match instruction.operation() {
                "STG" | "RED" | "REDG" if is_last => access_width(instruction),
                "IMAD" if is_wide && number == 2 => 2,
                _ => 1,
            };
            let read = names(source)
                .flat_map(|(name, is_pair)| span(name, if is_pair { width.max(2) } else { width }));
            used.read.extend(read);
        }
        used.read.extend(names(instruction.guard()).filter_map(|(name, _)| Register::parse(name)));
        used
    }
}

/// Returns how many of the operands are results: the first, predicates after it, and what a
/// shuffle moves.
fn result_count(instruction: &Instruction, operands: &[&str]) -> usize {
    match instruction.operation() {
        "STG" | "RED" | "REDG" | "BRA" | "BSSY" | "BSYNC" | "EXIT" => 0,
        "SHFL" => 2,
        _ => {
            let is_predicate = |operand: &&&str| {
                operand.trim_start_matches('U').strip_prefix('P').is_some_and(|number| {
                    number == "T" || number.bytes().all(|byte| byte.is_ascii_digit())
                })
            };
            1 + operands.iter().skip(1).take_while(is_predicate).count()
        }
    }
}

/// Returns how many registers a result fills.
fn result_width(instruction: &Instruction) -> u32 {
    match instruction.operation() {
        "LDG" | "LDC" | "ULDC" => access_width(instruction),
        "CS2R" => 2,
        _ if instruction.has_modifier("WIDE") => 2,
        _ => 1,
    }
}

/// Returns how many registers an access moves.
fn access_width(instruction: &Instruction) -> u32 {
    match (instruction.has_modifier("128"), instruction.has_modifier("64")) {
        (true, _) => 4,
        (_, true) => 2,
        _ => 1,
    }
}

/// Returns the words of an operand, and whether each is a pair.
fn names(operand: &str) -> impl Iterator<Item = (&str, bool)> {
    let words =
        operand.split(|character: char| !(character.is_ascii_alphanumeric() || character == '.'));
    words
        .map(|word| word.split_once('.').map_or((word, false), |(name, rest)| (name, rest == "64")))
}

/// Returns `width` registers from the named one on; one where it is a predicate.
fn span(name: &str, width: u32) -> Vec<Register> {
    match Register::parse(name) {
        Some(first @ (Register::General(_) | Register::Uniform(_))) => {
            (0..width).map(|offset| first.plus(offset)).collect()
        }
        other => other.into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::Register::{General, Predicate, Uniform};
    use super::{Register, Use};
    use crate::shape::listing::Instruction;

    fn used(text: &str) -> (Vec<Register>, Vec<Register>) {
        let Use { read, written } = Use::of(&Instruction::parse(text));
        (written, read)
    }

    #[test]
    fn results_come_first_and_wide_ones_fill_several_registers() {
        assert_eq!(
            used("IMAD.WIDE.U32 R14, R19, 0x4, R34.reuse"),
            (vec![General(14), General(15)], vec![General(19), General(34), General(35)])
        );
        assert_eq!(
            used("LDG.E.NA.128 R16, desc[UR8][R20.64+0x200]"),
            ((16..20).map(General).collect(), vec![Uniform(8), General(20), General(21)])
        );
        assert_eq!(
            used("@!P3 STG.E.128 desc[UR8][R42.64], R12"),
            (
                vec![],
                vec![
                    Uniform(8),
                    General(42),
                    General(43),
                    General(12),
                    General(13),
                    General(14),
                    General(15),
                    Predicate(3)
                ]
            )
        );
    }

    #[test]
    fn carries_are_results_where_they_follow_one_and_sources_elsewhere() {
        assert_eq!(
            used("IADD3 R9, P0, P4, R12, -R42, R9"),
            (
                vec![General(9), Predicate(0), Predicate(4)],
                vec![General(12), General(42), General(9)]
            )
        );
        assert_eq!(
            used("IMAD.X R41, RZ, RZ, R31, P0"),
            (vec![General(41)], vec![General(31), Predicate(0)])
        );
        assert_eq!(
            used("ISETP.GE.U32.AND P0, PT, R9, UR4, PT"),
            (vec![Predicate(0)], vec![General(9), Uniform(4)])
        );
        assert_eq!(used("SHFL.BFLY PT, R4, R9, 0x10, 0x1f"), (vec![General(4)], vec![General(9)]));
        assert_eq!(used("@P0 BRA `(.L_x_62)"), (vec![], vec![Predicate(0)]));
    }
}
