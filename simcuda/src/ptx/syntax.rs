//! A PTX text as a tree (PTX ISA, "Syntax"): names are names still, instructions are words.
//!
//! Made by the parser, read by the decoder.

use super::error::Space;

/// All that a text declares.
#[derive(Clone, Debug, Default)]
pub(super) struct Text {
    /// Variables of module scope.
    pub(super) variables: Vec<Variable>,
    pub(super) entries: Vec<Entry>,
}

/// One `.entry`.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) line: u32,
    pub(super) parameters: Vec<Variable>,
    /// From `.maxntid` or `.reqntid`.
    pub(super) threads_max: Option<u32>,
    pub(super) body: Vec<Item>,
    /// Line of the brace that ends the body.
    pub(super) end_line: u32,
}

/// A variable in memory.
#[derive(Clone, Debug)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) line: u32,
    pub(super) space: Space,
    pub(super) align_bytes: u64,
    pub(super) element_bytes: u64,
    pub(super) count: u64,
    /// Its first elements; the others are zeros.
    pub(super) initial: Vec<i128>,
}

/// What a body is made of.
#[derive(Clone, Debug)]
pub(super) enum Item {
    Block(Vec<Item>),
    Registers(Vec<RegisterName>),
    Variable(Variable),
    Label { name: String, line: u32 },
    Targets { name: String, line: u32, labels: Vec<String> },
    Instruction(Statement),
}

/// A declared register.
#[derive(Clone, Debug)]
pub(super) struct RegisterName {
    pub(super) name: String,
    pub(super) line: u32,
    /// 1 for predicates.
    pub(super) bits: u32,
}

/// An instruction.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub(super) line: u32,
    /// As it is written, from guard to semicolon.
    pub(super) text: String,
    pub(super) guard: Option<Operand>,
    /// The opcode's parts, which dots separate.
    pub(super) opcode: Vec<String>,
    /// `None` if the operands follow no form that the parser knows.
    pub(super) operands: Option<Vec<Operand>>,
}

/// An operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    Name(String),
    /// `!name`.
    Negated(String),
    Integer(i128),
    /// `{a, b}`.
    Vector(Vec<Operand>),
    /// `[base+offset]`.
    Address {
        base: Box<Operand>,
        offset: i128,
    },
    /// `a|b`.
    Pair(String, String),
}
