//! What lanes of a warp, or threads of a thread block, do together.

use super::super::error::Unsupported;
use super::super::instruction::{
    Exchange, Operand as Read, Operation, Register, ShuffleMode, Source, VoteMode,
};
use super::super::integer::Integer;
use super::super::syntax::Operand;
use super::integer::expect_count;
use super::opcode::Opcode;
use super::scope::{Scope, refused};

const WORD_BITS: u32 = Integer::U32.bits;

/// Resolves `d` or `d|p`.
fn targets(
    operand: &Operand,
    scope: &Scope<'_>,
) -> Result<(Register, Option<Register>), Unsupported> {
    match operand {
        Operand::Pair(first, second) => Ok((
            scope.register_named(first, WORD_BITS)?,
            Some(scope.register_named(second, Integer::PREDICATE.bits)?),
        )),
        _ => Ok((scope.register(operand, WORD_BITS)?, None)),
    }
}

/// `shfl.sync`.
pub(super) fn shuffle(
    opcode: &mut Opcode<'_>,
    operands: &[Operand],
    scope: &Scope<'_>,
) -> Result<Operation, Unsupported> {
    opcode.expect("sync")?;
    let modes = [ShuffleMode::Up, ShuffleMode::Down, ShuffleMode::Butterfly, ShuffleMode::Index];
    let mode = opcode.one_of(&["up", "down", "bfly", "idx"], &modes)?;
    opcode.integer("b", &[WORD_BITS])?;
    opcode.finish()?;
    expect_count(operands, 5)?;
    let (target, is_in_range) = targets(&operands[0], scope)?;
    let word = |operand: &Operand| scope.source(operand, WORD_BITS);
    let exchange = Exchange::Shuffle {
        mode,
        target,
        is_in_range,
        value: word(&operands[1])?,
        lane: word(&operands[2])?,
        clamp: word(&operands[3])?,
    };
    Ok(Operation::Exchange { exchange, members: word(&operands[4])? })
}

/// `vote.sync`.
pub(super) fn vote(
    opcode: &mut Opcode<'_>,
    operands: &[Operand],
    scope: &Scope<'_>,
) -> Result<Operation, Unsupported> {
    opcode.expect("sync")?;
    let modes = [VoteMode::All, VoteMode::Any, VoteMode::Uniform, VoteMode::Ballot];
    let mode = opcode.one_of(&["all", "any", "uni", "ballot"], &modes)?;
    let bits = if mode == VoteMode::Ballot { WORD_BITS } else { 1 };
    opcode.integer("b", &[bits])?;
    opcode.finish()?;
    expect_count(operands, 3)?;
    let (Operand::Name(name) | Operand::Negated(name)) = &operands[1] else {
        return Err(refused(&operands[1]));
    };
    let exchange = Exchange::Vote {
        mode,
        target: scope.register(&operands[0], bits)?,
        predicate: Source::Register(scope.register_named(name, Integer::PREDICATE.bits)?),
        negated: matches!(operands[1], Operand::Negated(_)),
    };
    Ok(Operation::Exchange { exchange, members: scope.source(&operands[2], WORD_BITS)? })
}

/// `match.sync`.
pub(super) fn matching(
    opcode: &mut Opcode<'_>,
    operands: &[Operand],
    scope: &Scope<'_>,
) -> Result<Operation, Unsupported> {
    let is_all = opcode.one_of(&["any", "all"], &[false, true])?;
    opcode.expect("sync")?;
    let kind = opcode.integer("b", &[32, 64])?;
    opcode.finish()?;
    expect_count(operands, 3)?;
    let (target, is_same) = targets(&operands[0], scope)?;
    let value = Read { source: scope.source(&operands[1], kind.bits)?, kind };
    let exchange = match (is_all, is_same) {
        (true, is_same) => Exchange::MatchAll { target, is_same, value },
        (false, None) => Exchange::MatchAny { target, value },
        (false, Some(_)) => return Err(refused(&operands[0])),
    };
    Ok(Operation::Exchange { exchange, members: scope.source(&operands[2], WORD_BITS)? })
}

/// `activemask`.
pub(super) fn active_mask(
    opcode: &mut Opcode<'_>,
    operands: &[Operand],
    scope: &Scope<'_>,
) -> Result<Operation, Unsupported> {
    opcode.integer("b", &[WORD_BITS])?;
    opcode.finish()?;
    expect_count(operands, 1)?;
    Ok(Operation::ActiveMask { target: scope.register(&operands[0], WORD_BITS)? })
}

/// `bar.sync`, `barrier.sync` with or without `.cta` and `.aligned`, and `bar.warp.sync`.
///
/// A count of threads is not known: barriers are the whole thread block's.
pub(super) fn barrier(
    opcode: &mut Opcode<'_>,
    operands: &[Operand],
    scope: &Scope<'_>,
) -> Result<Operation, Unsupported> {
    let is_warps = opcode.name() == "bar" && opcode.accept(&["warp"]);
    if !is_warps {
        opcode.accept(&["cta"]);
    }
    opcode.expect("sync")?;
    if opcode.name() == "barrier" {
        opcode.accept(&["aligned"]);
    }
    opcode.finish()?;
    expect_count(operands, 1)?;
    let operand = scope.source(&operands[0], WORD_BITS)?;
    Ok(if is_warps {
        Operation::Exchange { exchange: Exchange::Wait, members: operand }
    } else {
        Operation::Barrier { barrier: operand }
    })
}
