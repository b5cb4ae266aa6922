//! Instructions as they run: names are numbers, opcodes are enums, nothing is looked up by text.
//!
//! Made by the decoder once a module, read by execution in its loop.

use super::error::{Space, Unsupported};
use super::function::Function;
use super::integer::Integer;

/// An instruction with its guard, its line and its text.
#[derive(Clone, Debug)]
pub(super) struct Instruction {
    pub(super) guard: Option<Guard>,
    pub(super) operation: Operation,
    pub(super) line: u32,
    pub(super) text: String,
}

/// Runs an instruction in lanes whose predicate is true, or false if `negated`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guard {
    pub(super) predicate: Register,
    pub(super) negated: bool,
}

/// A register of a kernel, by its number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Register {
    pub(super) index: usize,
    /// 1 for predicates.
    pub(super) bits: u32,
}

/// Where an operand comes from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    Register(Register),
    /// The same in all lanes: a literal, or the address of a variable.
    Constant(u64),
    Special(Special),
}

/// A special register (PTX ISA, "Special Registers"); axes are 0 to 2.
#[derive(Clone, Copy, Debug)]
pub(super) enum Special {
    ThreadIndex(usize),
    ThreadCount(usize),
    ThreadBlockIndex(usize),
    ThreadBlockCount(usize),
    Lane,
    Warp,
    WarpCount,
}

/// An operand and the type that it is read through.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operand {
    pub(super) source: Source,
    pub(super) kind: Integer,
}

/// An address operand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address {
    pub(super) base: Source,
    pub(super) offset: u64,
}

/// What a load or store moves; no space stands for a generic address.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryType {
    pub(super) space: Option<Space>,
    /// Of one element.
    pub(super) kind: Integer,
}

/// What an `atom` or `red` does with the old value and its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtomicFunction {
    /// A function of the old value and one operand.
    Apply(Function),
    Exchange,
    CompareAndSwap,
    /// Counts up to the operand, then from 0.
    Increment,
    /// Counts down from the operand.
    Decrement,
}

/// How a shuffle finds the lane that it reads from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShuffleMode {
    Up,
    Down,
    Butterfly,
    Index,
}

/// What a vote asks of the members' predicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VoteMode {
    All,
    Any,
    Uniform,
    Ballot,
}

/// What members of a warp do together.
#[derive(Clone, Copy, Debug)]
pub(super) enum Exchange {
    /// `bar.warp.sync`: wait for each other.
    Wait,
    Shuffle {
        mode: ShuffleMode,
        target: Register,
        /// Whether the lane read from is in range.
        is_in_range: Option<Register>,
        value: Source,
        lane: Source,
        clamp: Source,
    },
    Vote {
        mode: VoteMode,
        target: Register,
        predicate: Source,
        negated: bool,
    },
    /// The members with the same value.
    MatchAny {
        target: Register,
        value: Operand,
    },
    /// The members if all have the same value, else 0.
    MatchAll {
        target: Register,
        is_same: Option<Register>,
        value: Operand,
    },
}

/// What an instruction does.
#[derive(Clone, Debug)]
pub(super) enum Operation {
    Compute {
        function: Function,
        target: Register,
        operands: Vec<Operand>,
    },
    /// `mov.b64 d, {a, b}`: the first is lowest.
    Pack {
        target: Register,
        parts: Vec<Source>,
        part_bits: u32,
    },
    /// `mov.b64 {a, _}, d`.
    Unpack {
        targets: Vec<Option<Register>>,
        source: Source,
        part_bits: u32,
    },
    Load {
        memory: MemoryType,
        targets: Vec<Option<Register>>,
        address: Address,
    },
    Store {
        memory: MemoryType,
        sources: Vec<Source>,
        address: Address,
    },
    Atomic {
        memory: MemoryType,
        function: AtomicFunction,
        target: Option<Register>,
        address: Address,
        operands: Vec<Source>,
    },
    /// What waits for its members, whose mask is `members`.
    Exchange {
        exchange: Exchange,
        members: Source,
    },
    ActiveMask {
        target: Register,
    },
    Branch {
        target: usize,
    },
    BranchIndexed {
        index: Source,
        targets: Vec<usize>,
    },
    Barrier {
        barrier: Source,
    },
    /// Orders memory, which is in order here.
    Fence,
    Exit,
    Trap,
    Unsupported(Unsupported),
}
