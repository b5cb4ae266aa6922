//! Integer instructions: each a [`Function`] of its operands.

use super::super::error::Unsupported;
use super::super::function::{Combine, Comparison, Function, FunnelAmount, Logic};
use super::super::instruction::{Operand as Read, Operation, Register};
use super::super::integer::Integer;
use super::super::syntax::Operand;
use super::opcode::Opcode;
use super::scope::{Scope, refused};

const U64: Integer = Integer::unsigned(64);

/// Decodes an instruction that computes.
pub(super) fn operation(
    opcode: &mut Opcode<'_>,
    operands: &[Operand],
    scope: &Scope<'_>,
) -> Result<Operation, Unsupported> {
    match opcode.name() {
        "mul" | "mad" => multiply(opcode, operands, scope),
        "shf" => funnel(opcode, operands, scope),
        "setp" | "set" => compare(opcode, operands, scope),
        "cvt" => convert(opcode, operands, scope),
        "cvta" => address_of(opcode, operands, scope),
        _ => simple(opcode, operands, scope),
    }
}

/// What of a type an instruction takes: signs and widths.
type Types = (&'static str, &'static [u32]);

const ARITHMETIC: Types = ("us", &[16, 32, 64]);
const SIGNED: Types = ("s", &[16, 32, 64]);
const LOGIC: Types = ("b", &[1, 16, 32, 64]);
const SHIFTED: Types = ("b", &[16, 32, 64]);
const ANY_SHIFTED: Types = ("usb", &[16, 32, 64]);
const WORDS: Types = ("b", &[32, 64]);
const ARITHMETIC_WORDS: Types = ("us", &[32, 64]);
const WORD: Types = ("b", &[32]);

/// Decodes an instruction with one type and no other modifier.
fn simple(
    opcode: &mut Opcode<'_>,
    operands: &[Operand],
    scope: &Scope<'_>,
) -> Result<Operation, Unsupported> {
    let (signs, widths): Types = match opcode.name() {
        "add" | "sub" | "div" | "rem" | "min" | "max" => ARITHMETIC,
        "abs" | "neg" => SIGNED,
        "and" | "or" | "xor" | "not" => LOGIC,
        "shl" => SHIFTED,
        "shr" => ANY_SHIFTED,
        "bfe" => ARITHMETIC_WORDS,
        "bfi" | "popc" | "clz" | "brev" => WORDS,
        "prmt" => WORD,
        _ => ("usb", &[16, 32, 64]),
    };
    let kind = opcode.integer(signs, widths)?;
    opcode.finish()?;
    let word = Integer::U32;
    let (function, target, sources): (_, _, &[Integer]) = match opcode.name() {
        "add" => (Function::Add, kind, &[kind; 2]),
        "sub" => (Function::Subtract, kind, &[kind; 2]),
        "div" => (Function::Divide, kind, &[kind; 2]),
        "rem" => (Function::Remainder, kind, &[kind; 2]),
        "min" => (Function::Minimum, kind, &[kind; 2]),
        "max" => (Function::Maximum, kind, &[kind; 2]),
        "abs" => (Function::Absolute, kind, &[kind]),
        "neg" => (Function::Negate, kind, &[kind]),
        "and" => (Function::And, kind, &[kind; 2]),
        "or" => (Function::Or, kind, &[kind; 2]),
        "xor" => (Function::Xor, kind, &[kind; 2]),
        "not" => (Function::Not, kind, &[kind]),
        "shl" => (Function::ShiftLeft, kind, &[kind, word]),
        "shr" => (Function::ShiftRight, kind, &[kind, word]),
        "bfe" => (Function::ExtractBits(kind), kind, &[kind, word, word]),
        "bfi" => (Function::InsertBits(kind.bits), kind, &[kind, kind, word, word]),
        "popc" => (Function::CountOnes, word, &[kind]),
        "clz" => (Function::LeadingZeros(kind.bits), word, &[kind]),
        "brev" => (Function::ReverseBits(kind.bits), kind, &[kind]),
        "prmt" => (Function::Permute, kind, &[kind, kind, word]),
        "selp" => (Function::Select, kind, &[kind, kind, Integer::PREDICATE]),
        name => return Err(Unsupported::Instruction(name.to_owned())),
    };
    compute(function, target, sources, operands, scope)
}

/// Resolves a target and as many operands as there are types.
pub(super) fn compute(
    function: Function,
    target: Integer,
    sources: &[Integer],
    operands: &[Operand],
    scope: &Scope<'_>,
) -> Result<Operation, Unsupported> {
    expect_count(operands, 1 + sources.len())?;
    let target = scope.register(&operands[0], target.bits)?;
    let read = |(operand, kind): (&Operand, &Integer)| read(operand, *kind, scope);
    let operands: Result<_, _> = operands[1..].iter().zip(sources).map(read).collect();
    Ok(Operation::Compute { function, target, operands: operands? })
}

/// Resolves an operand that is read through `kind`.
fn read(operand: &Operand, kind: Integer, scope: &Scope<'_>) -> Result<Read, Unsupported> {
    Ok(Read { source: scope.source(operand, kind.bits)?, kind })
}

pub(super) fn expect_count(operands: &[Operand], expected: usize) -> Result<(), Unsupported> {
    let actual = operands.len();
    if actual == expected { Ok(()) } else { Err(Unsupported::OperandCount { expected, actual }) }
}

/// `mul` and `mad`: the low or high half of the product, or all of it.
fn multiply(
    opcode: &mut Opcode<'_>,
    operands: &[Operand],
    scope: &Scope<'_>,
) -> Result<Operation, Unsupported> {
    let half = opcode.next()?;
    let (signs, widths) = if half == "wide" { ("us", &[16, 32][..]) } else { ARITHMETIC };
    let kind = opcode.integer(signs, widths)?;
    opcode.finish()?;
    let wide = Integer { bits: kind.bits * 2, ..kind };
    let (shift, target) = match half {
        "lo" => (0, kind),
        "hi" => (kind.bits, kind),
        "wide" => (0, wide),
        other => return Err(Unsupported::Modifier(other.to_owned())),
    };
    let sources = [kind, kind, target];
    let count = if opcode.name() == "mad" { 3 } else { 2 };
    compute(Function::MultiplyAdd { shift }, target, &sources[..count], operands, scope)
}

/// `shf`: shifts two words as one.
fn funnel(
    opcode: &mut Opcode<'_>,
    operands: &[Operand],
    scope: &Scope<'_>,
) -> Result<Operation, Unsupported> {
    let direction = opcode.next()?;
    let amounts = [FunnelAmount::Wrap, FunnelAmount::Clamp];
    let amount = opcode.one_of(&["wrap", "clamp"], &amounts)?;
    let kind = opcode.integer("b", &[32])?;
    opcode.finish()?;
    let function = match direction {
        "l" => Function::FunnelLeft(amount),
        "r" => Function::FunnelRight(amount),
        other => return Err(Unsupported::Modifier(other.to_owned())),
    };
    compute(function, kind, &[kind; 3], operands, scope)
}

/// `setp` and `set`: a comparison, alone or with a predicate.
fn compare(
    opcode: &mut Opcode<'_>,
    operands: &[Operand],
    scope: &Scope<'_>,
) -> Result<Operation, Unsupported> {
    let asked = opcode.next()?;
    let logics = [Logic::And, Logic::Or, Logic::Xor];
    let logic = ["and", "or", "xor"].iter().zip(logics).find(|(name, _)| opcode.accept(&[name]));
    let (target, truth) = match opcode.name() {
        "setp" => (Integer::PREDICATE, 1),
        // All ones; `.f32` would be 1.0.
        _ => (opcode.integer("us", &[32])?, -1),
    };
    let kind = opcode.integer("usb", &[16, 32, 64])?;
    opcode.finish()?;
    let (comparison, kind) = comparison(asked, kind)?;
    expect_count(operands, 3 + usize::from(logic.is_some()))?;
    let mut reads = vec![read(&operands[1], kind, scope)?, read(&operands[2], kind, scope)?];
    let mut combine = Combine::NONE;
    if let Some((_, logic)) = logic {
        let (Operand::Name(name) | Operand::Negated(name)) = &operands[3] else {
            return Err(refused(&operands[3]));
        };
        combine = Combine { logic, negates: matches!(operands[3], Operand::Negated(_)) };
        reads.push(read(&Operand::Name(name.clone()), Integer::PREDICATE, scope)?);
    }
    Ok(Operation::Compute {
        function: Function::Compare { comparison, combine, truth },
        target: scope.register(&operands[0], target.bits)?,
        operands: reads,
    })
}

/// Reads a comparison; `lo`, `ls`, `hi` and `hs` are unsigned whatever the type says.
fn comparison(name: &str, kind: Integer) -> Result<(Comparison, Integer), Unsupported> {
    let unsigned = Integer::unsigned(kind.bits);
    Ok(match name {
        "eq" => (Comparison::Equal, kind),
        "ne" => (Comparison::NotEqual, kind),
        "lt" => (Comparison::Less, kind),
        "le" => (Comparison::LessOrEqual, kind),
        "gt" => (Comparison::Greater, kind),
        "ge" => (Comparison::GreaterOrEqual, kind),
        "lo" => (Comparison::Less, unsigned),
        "ls" => (Comparison::LessOrEqual, unsigned),
        "hi" => (Comparison::Greater, unsigned),
        "hs" => (Comparison::GreaterOrEqual, unsigned),
        other => return Err(Unsupported::Modifier(other.to_owned())),
    })
}

/// `cvt` between integers; source and target may lie in wider registers.
fn convert(
    opcode: &mut Opcode<'_>,
    operands: &[Operand],
    scope: &Scope<'_>,
) -> Result<Operation, Unsupported> {
    let saturates = opcode.accept(&["sat"]);
    let to = opcode.integer("us", &[8, 16, 32, 64])?;
    let from = opcode.integer("us", &[8, 16, 32, 64])?;
    opcode.finish()?;
    expect_count(operands, 2)?;
    let target: Register = scope.wide_register(&operands[0], to.bits)?;
    let source = scope.wide_source(&operands[1], from.bits)?;
    let function = Function::Convert { to, saturates };
    Ok(Operation::Compute { function, target, operands: vec![Read { source, kind: from }] })
}

/// `cvta`: here an address names its space by itself, so that generic ones are the same.
fn address_of(
    opcode: &mut Opcode<'_>,
    operands: &[Operand],
    scope: &Scope<'_>,
) -> Result<Operation, Unsupported> {
    opcode.accept(&["to"]);
    opcode.one_of(&["global", "shared", "local", "const", "param"], &[(); 5])?;
    opcode.integer("u", &[64])?;
    opcode.finish()?;
    compute(Function::Move, U64, &[U64], operands, scope)
}
