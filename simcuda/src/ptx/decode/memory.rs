//! Moves, loads, stores and atomics.

use super::super::error::{Space, Unsupported};
use super::super::function::Function;
use super::super::instruction::{AtomicFunction, MemoryType, Operation, Register, Source};
use super::super::integer::Integer;
use super::super::syntax::Operand;
use super::integer::{compute, expect_count};
use super::opcode::Opcode;
use super::scope::{Scope, refused};

/// Where a load or store may keep what it moved: advice that changes no result.
const CACHE_OPERATORS: [&str; 14] = [
    "ca",
    "cg",
    "cs",
    "cv",
    "lu",
    "wb",
    "wt",
    "L1::evict_normal",
    "L1::evict_unchanged",
    "L1::evict_first",
    "L1::evict_last",
    "L1::no_allocate",
    "L2::64B",
    "L2::128B",
];

/// `mov`: a register, a literal, an address; or parts of a register.
pub(super) fn movement(
    opcode: &mut Opcode<'_>,
    operands: &[Operand],
    scope: &Scope<'_>,
) -> Result<Operation, Unsupported> {
    let kind = opcode.integer("usb", &[1, 16, 32, 64])?;
    opcode.finish()?;
    expect_count(operands, 2)?;
    match (&operands[0], &operands[1]) {
        (Operand::Vector(targets), source) => {
            let part_bits = part_bits(kind, targets)?;
            let sink = |target: &Operand| match target {
                Operand::Name(name) if name == "_" => Ok(None),
                _ => scope.register(target, part_bits).map(Some),
            };
            let targets = targets.iter().map(sink).collect::<Result<_, _>>()?;
            Ok(Operation::Unpack { targets, source: scope.source(source, kind.bits)?, part_bits })
        }
        (target, Operand::Vector(parts)) => {
            let part_bits = part_bits(kind, parts)?;
            let part = |part: &Operand| scope.source(part, part_bits);
            let parts = parts.iter().map(part).collect::<Result<_, _>>()?;
            Ok(Operation::Pack { target: scope.register(target, kind.bits)?, parts, part_bits })
        }
        _ => compute(Function::Move, kind, &[kind], operands, scope),
    }
}

/// Returns the width of each of a register's parts: two or four of at least 16 bits.
fn part_bits(kind: Integer, parts: &[Operand]) -> Result<u32, Unsupported> {
    match (kind.bits, parts.len()) {
        (64, 2) => Ok(32),
        (32, 2) | (64, 4) => Ok(16),
        (_, actual) => Err(Unsupported::OperandCount { expected: 2, actual }),
    }
}

/// Takes a state space; none stands for a generic address.
fn space(opcode: &mut Opcode<'_>, spaces: &[(&str, Space)]) -> Option<Space> {
    spaces.iter().find(|(name, _)| opcode.accept(&[name])).map(|(_, space)| *space)
}

/// Takes what is between the state space and the operands of a load or store, and returns the
/// number of elements and their type.
fn elements(opcode: &mut Opcode<'_>) -> Result<(usize, Integer), Unsupported> {
    while opcode.accept(&CACHE_OPERATORS) {}
    let count = match (opcode.accept(&["v2"]), opcode.accept(&["v4"])) {
        (true, _) => 2,
        (_, true) => 4,
        _ => 1,
    };
    let kind = opcode.integer("usb", &[8, 16, 32, 64])?;
    opcode.finish()?;
    if count * kind.bytes() > 16 {
        return opcode.refuse();
    }
    Ok((count, kind))
}

/// Returns the elements of an operand: those of a vector, or the operand alone.
fn vector(operand: &Operand, count: usize) -> Result<&[Operand], Unsupported> {
    match operand {
        Operand::Vector(elements) if elements.len() == count => Ok(elements),
        _ if count == 1 => Ok(std::slice::from_ref(operand)),
        _ => Err(refused(operand)),
    }
}

/// `ld`.
pub(super) fn load(
    opcode: &mut Opcode<'_>,
    operands: &[Operand],
    scope: &Scope<'_>,
) -> Result<Operation, Unsupported> {
    let spaces = [
        ("global", Space::Global),
        ("shared", Space::Shared),
        ("local", Space::Local),
        ("const", Space::Const),
        ("param", Space::Param),
    ];
    let space = space(opcode, &spaces);
    while opcode.accept(&CACHE_OPERATORS) {}
    if space == Some(Space::Global) {
        // Read-only while the kernel runs, which the race detector watches over.
        opcode.accept(&["nc"]);
    }
    let (count, kind) = elements(opcode)?;
    expect_count(operands, 2)?;
    let targets = vector(&operands[0], count)?;
    let targets = targets.iter().map(|target| scope.sink(target, kind.bits));
    Ok(Operation::Load {
        memory: MemoryType { space, kind },
        targets: targets.collect::<Result<_, _>>()?,
        address: scope.address(&operands[1])?,
    })
}

/// `st`.
pub(super) fn store(
    opcode: &mut Opcode<'_>,
    operands: &[Operand],
    scope: &Scope<'_>,
) -> Result<Operation, Unsupported> {
    let spaces = [("global", Space::Global), ("shared", Space::Shared), ("local", Space::Local)];
    let space = space(opcode, &spaces);
    let (count, kind) = elements(opcode)?;
    expect_count(operands, 2)?;
    let sources = vector(&operands[1], count)?;
    let sources = sources.iter().map(|source| scope.wide_source(source, kind.bits));
    Ok(Operation::Store {
        memory: MemoryType { space, kind },
        sources: sources.collect::<Result<_, _>>()?,
        address: scope.address(&operands[0])?,
    })
}

/// `atom` and `red`. One access follows the other here, whatever order and scope they ask for.
pub(super) fn atomic(
    opcode: &mut Opcode<'_>,
    operands: &[Operand],
    scope: &Scope<'_>,
) -> Result<Operation, Unsupported> {
    opcode.accept(&["relaxed", "acquire", "release", "acq_rel"]);
    opcode.accept(&["cta", "gpu", "sys"]);
    let space = space(opcode, &[("global", Space::Global), ("shared", Space::Shared)]);
    let name = opcode.next()?;
    let (function, signs): (_, &str) = match name {
        "add" => (AtomicFunction::Apply(Function::Add), "us"),
        "min" => (AtomicFunction::Apply(Function::Minimum), "us"),
        "max" => (AtomicFunction::Apply(Function::Maximum), "us"),
        "and" => (AtomicFunction::Apply(Function::And), "b"),
        "or" => (AtomicFunction::Apply(Function::Or), "b"),
        "xor" => (AtomicFunction::Apply(Function::Xor), "b"),
        "inc" => (AtomicFunction::Increment, "u"),
        "dec" => (AtomicFunction::Decrement, "u"),
        "exch" if opcode.name() == "atom" => (AtomicFunction::Exchange, "b"),
        "cas" if opcode.name() == "atom" => (AtomicFunction::CompareAndSwap, "b"),
        _ => return opcode.refuse(),
    };
    let widths: &[u32] = if matches!(name, "inc" | "dec") { &[32] } else { &[32, 64] };
    let kind = opcode.integer(signs, widths)?;
    opcode.finish()?;
    let (target, rest): (Option<Register>, _) = match (opcode.name(), operands) {
        ("atom", [target, rest @ ..]) => (Some(scope.register(target, kind.bits)?), rest),
        _ => (None, operands),
    };
    let count = if function == AtomicFunction::CompareAndSwap { 2 } else { 1 };
    expect_count(rest, 1 + count)?;
    let sources = rest[1..].iter().map(|operand| scope.source(operand, kind.bits));
    Ok(Operation::Atomic {
        memory: MemoryType { space, kind },
        function,
        target,
        address: scope.address(&rest[0])?,
        operands: sources.collect::<Result<Vec<Source>, _>>()?,
    })
}
