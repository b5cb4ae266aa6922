//! What can be wrong with a PTX text, with a launch, and with what a thread does.

use std::fmt;
use thiserror::Error;

/// Why a text is not a module that can be run.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseError {
    /// The text does not follow the grammar.
    #[error("line {line}: expected {expected}, found `{found}`")]
    Unexpected {
        /// Line of the text, from 1.
        line: u32,
        /// What the grammar has there.
        expected: &'static str,
        /// What the text has there.
        found: String,
    },
    /// A directive that the interpreter does not know, so that it cannot know its meaning either.
    #[error("line {line}: the directive `{directive}` is unknown; teach the parser what it means")]
    UnknownDirective {
        /// Line of the text, from 1.
        line: u32,
        /// The directive.
        directive: String,
    },
    /// A name is declared twice in one scope.
    #[error("line {line}: `{name}` is declared again; give it another name")]
    DeclaredTwice {
        /// Line of the text, from 1.
        line: u32,
        /// The name.
        name: String,
    },
}

/// Why a region cannot be mapped.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum MapError {
    /// The addresses are those of other state spaces, or beyond the last one.
    #[error(
        "{bytes} bytes at {address:#x} are not global memory; map them from 0x100000000 on, and \
         below the last 16 bytes"
    )]
    NotGlobal {
        /// First address asked for.
        address: u64,
        /// Bytes asked for.
        bytes: u64,
    },
    /// A region is so near that an access that leaves one could reach the other.
    #[error(
        "{bytes} bytes at {address:#x} are too near the region at {neighbour:#x}; leave 16 bytes"
    )]
    TooNear {
        /// First address asked for.
        address: u64,
        /// Bytes asked for.
        bytes: u64,
        /// First address of the region that is there.
        neighbour: u64,
    },
}

/// Why a launch did not come to its end.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum LaunchError {
    /// The arguments are not as long as the kernel's parameters.
    #[error("{kernel} takes {expected} bytes of arguments, not {actual}")]
    ArgumentBytes {
        /// The kernel.
        kernel: String,
        /// Bytes of its parameters.
        expected: usize,
        /// Bytes given.
        actual: usize,
    },
    /// A dimension is 0, or a thread block has more threads than the kernel or a GPU allows, or
    /// the grid more thread blocks than the interpreter.
    #[error(
        "{kernel} cannot run in a grid of {grid:?} thread blocks of {thread_block:?} threads; it \
         takes 1 to {threads_max} threads a thread block, and 1 to 2^24 thread blocks"
    )]
    Geometry {
        /// The kernel.
        kernel: String,
        /// Thread blocks asked for.
        grid: [u32; 3],
        /// Threads of a thread block asked for.
        thread_block: [u32; 3],
        /// The most threads of a thread block.
        threads_max: u32,
    },
    /// A thread did what it must not.
    #[error("{place}: {cause}")]
    Thread {
        /// Who and where.
        place: Box<Place>,
        /// What.
        cause: Cause,
    },
}

impl LaunchError {
    /// Returns what a thread did, if it was a thread's doing.
    pub fn cause(&self) -> Option<&Cause> {
        match self {
            Self::Thread { cause, .. } => Some(cause),
            _ => None,
        }
    }
}

/// A thread at an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The kernel.
    pub kernel: String,
    /// Line of the text, from 1.
    pub line: u32,
    /// The instruction as it is written.
    pub instruction: String,
    /// Index of the thread block in the grid.
    pub thread_block: [u32; 3],
    /// The warp's number in the thread block.
    pub warp: u32,
    /// The lane's number in the warp.
    pub lane: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, line, instruction, thread_block, warp, lane } = self;
        write!(
            formatter,
            "{kernel}, line {line}, `{instruction}`, thread block {thread_block:?}, warp {warp}, \
             lane {lane}"
        )
    }
}

/// A state space (PTX ISA, "State Spaces").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Space {
    /// Device memory.
    Global,
    /// Memory of a thread block.
    Shared,
    /// Memory of a thread.
    Local,
    /// Read-only tables of the module.
    Const,
    /// Arguments of the kernel.
    Param,
}

impl fmt::Display for Space {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Global => "global",
            Self::Shared => "shared",
            Self::Local => "local",
            Self::Const => "const",
            Self::Param => "param",
        })
    }
}

/// How an instruction touches memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A plain load.
    Read,
    /// A plain store.
    Write,
    /// An `atom` or `red`.
    Atomic,
}

impl fmt::Display for Access {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Atomic => "atomic access",
        })
    }
}

/// What a thread did that it must not, or that cannot be run.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The bytes lie in no memory.
    #[error("{bytes} bytes at {address:#x} lie outside all memory that is there")]
    OutOfBounds {
        /// First address.
        address: u64,
        /// Bytes of the access.
        bytes: u64,
    },
    /// The address is not a multiple of the access's size.
    #[error("{address:#x} is not a multiple of the {bytes} bytes of the access")]
    Misaligned {
        /// First address.
        address: u64,
        /// Bytes of the access.
        bytes: u64,
    },
    /// The address belongs to another state space than the instruction names.
    #[error("{address:#x} is an address of {actual} memory, accessed as {named}")]
    WrongSpace {
        /// First address.
        address: u64,
        /// The space that the instruction names.
        named: Space,
        /// The space of the address.
        actual: Space,
    },
    /// A register is read that was never written.
    #[error("register {register} is read before it is written")]
    UninitialisedRegister {
        /// The register.
        register: String,
    },
    /// A byte is read that nobody wrote.
    #[error("the byte at {address:#x} is read before it is written")]
    UninitialisedMemory {
        /// Address of the byte.
        address: u64,
    },
    /// Two warps touch one byte, and nothing says which is first.
    #[error(
        "this {access} of the byte at {address:#x} and a {other} by another warp{} are not ordered",
        other_block(*.other_thread_block)
    )]
    Race {
        /// Address of the byte.
        address: u64,
        /// This access.
        access: Access,
        /// The access before.
        other: Access,
        /// The number of the thread block that made the access before, if one alone did.
        other_thread_block: Option<u64>,
    },
    /// Threads wait at a barrier for others that never come.
    #[error(
        "of the thread block's {threads} threads, {waiting} wait at barrier {barrier}, {elsewhere} \
         at another and {exited} have exited"
    )]
    BarrierDeadlock {
        /// The barrier of the first thread that waits.
        barrier: u32,
        /// Threads of the thread block.
        threads: u32,
        /// Threads that wait at this barrier.
        waiting: u32,
        /// Threads that wait at another barrier.
        elsewhere: u32,
        /// Threads that have exited.
        exited: u32,
    },
    /// Lanes wait at a `.sync` instruction for members that never come.
    #[error("the lanes of {missing:#010x}, members of {members:#010x}, never come here")]
    WarpDeadlock {
        /// Lanes that the instruction waits for.
        members: u32,
        /// Those of them that are alive and not here.
        missing: u32,
    },
    /// A lane runs a `.sync` instruction of which it is no member.
    #[error("the lane is none of the members {members:#010x}")]
    NotAMember {
        /// Lanes that are members.
        members: u32,
    },
    /// A shuffle reads from a lane that takes no part in it.
    #[error("lane {source_lane}, read from, takes no part: it has exited or is no member")]
    ShuffleFromAbsent {
        /// The lane that is read from.
        source_lane: u32,
    },
    /// A division by zero.
    #[error("division by zero")]
    DivisionByZero,
    /// An index of `brx.idx` beyond its targets.
    #[error("branch target {index} of {count}")]
    BranchIndex {
        /// The index.
        index: u64,
        /// Number of targets.
        count: usize,
    },
    /// A `trap`.
    #[error("trap")]
    Trap,
    /// The launch took too many steps.
    #[error("the launch took {limit} lane instructions and has not ended")]
    StepLimit {
        /// The limit.
        limit: u64,
    },
    /// An instruction that the interpreter cannot run.
    #[error("not supported: {0}")]
    Unsupported(Unsupported),
}

/// Says in which thread block, for [`Cause::Race`].
fn other_block(thread_block: Option<u64>) -> String {
    thread_block.map_or(String::new(), |number| format!(" in thread block number {number}"))
}

/// What of an instruction the interpreter does not know.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unsupported {
    /// The instruction itself.
    #[error("instruction {0}")]
    Instruction(String),
    /// A modifier or type, or its place.
    #[error("modifier .{0}")]
    Modifier(String),
    /// A modifier or type is missing.
    #[error("no modifier where one belongs")]
    ModifierMissing,
    /// An operand's kind, size or name.
    #[error("operand {0}")]
    Operand(String),
    /// The number of operands.
    #[error("{actual} operands where {expected} belong")]
    OperandCount {
        /// Operands that the interpreter knows what to do with.
        expected: usize,
        /// Operands that are there.
        actual: usize,
    },
    /// The end of a body that does not return.
    #[error("running past the end of the body")]
    EndOfBody,
}
