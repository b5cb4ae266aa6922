//! What names stand for, block inside block (PTX ISA, "Identifiers"), and where variables lie.

use super::super::error::{ParseError, Unsupported};
use super::super::instruction::{Address, Register, Source, Special};
use super::super::integer::{Integer, truncate};
use super::super::syntax::{Operand, Variable};
use std::collections::HashMap;

/// What a name stands for.
#[derive(Clone, Debug)]
pub(in super::super) enum Symbol {
    Register(Register),
    /// The address of a variable, in the window of its state space.
    Variable(u64),
    /// The number of the instruction behind a label.
    Label(usize),
    /// Names of labels.
    Targets(Vec<String>),
}

/// The names of a block, and of those around it.
#[derive(Debug, Default)]
pub(in super::super) struct Scope<'outer> {
    outer: Option<&'outer Scope<'outer>>,
    symbols: HashMap<String, Symbol>,
}

impl<'outer> Scope<'outer> {
    pub(in super::super) fn inside(outer: &'outer Scope<'outer>) -> Self {
        Self { outer: Some(outer), symbols: HashMap::new() }
    }

    pub(in super::super) fn declare(
        &mut self,
        name: &str,
        line: u32,
        symbol: Symbol,
    ) -> Result<(), ParseError> {
        match self.symbols.insert(name.to_owned(), symbol) {
            None => Ok(()),
            Some(_) => Err(ParseError::DeclaredTwice { line, name: name.to_owned() }),
        }
    }

    fn find(&self, name: &str) -> Option<&Symbol> {
        self.symbols.get(name).or_else(|| self.outer.and_then(|outer| outer.find(name)))
    }

    /// Returns the register of this name if it has `bits`.
    pub(super) fn register_named(&self, name: &str, bits: u32) -> Result<Register, Unsupported> {
        match self.find(name) {
            Some(Symbol::Register(register)) if register.bits == bits => Ok(*register),
            _ => Err(Unsupported::Operand(name.to_owned())),
        }
    }

    /// Resolves a target register of `bits`.
    pub(super) fn register(&self, operand: &Operand, bits: u32) -> Result<Register, Unsupported> {
        match operand {
            Operand::Name(name) => self.register_named(name, bits),
            _ => Err(refused(operand)),
        }
    }

    /// Resolves a target of at least `bits`, or `_`, which takes nothing.
    pub(super) fn sink(
        &self,
        operand: &Operand,
        bits: u32,
    ) -> Result<Option<Register>, Unsupported> {
        match operand {
            Operand::Name(name) if name == "_" => Ok(None),
            _ => self.wide_register(operand, bits).map(Some),
        }
    }

    /// Resolves a register of at least `bits`, as conversions, loads and stores take it.
    pub(super) fn wide_register(
        &self,
        operand: &Operand,
        bits: u32,
    ) -> Result<Register, Unsupported> {
        let Operand::Name(name) = operand else { return Err(refused(operand)) };
        match self.find(name) {
            Some(Symbol::Register(register)) if register.bits >= bits.max(8) => Ok(*register),
            _ => Err(refused(operand)),
        }
    }

    /// Resolves an operand that is read, of `bits`.
    pub(super) fn source(&self, operand: &Operand, bits: u32) -> Result<Source, Unsupported> {
        match operand {
            Operand::Integer(value) => Ok(Source::Constant(truncate(*value, bits))),
            Operand::Name(name) => match (self.find(name), special(name)) {
                (Some(Symbol::Register(register)), _) if register.bits == bits => {
                    Ok(Source::Register(*register))
                }
                // Windows of other spaces than global lie below 2^32.
                (Some(Symbol::Variable(address)), _) if bits >= 32 => {
                    Ok(Source::Constant(*address))
                }
                (None, Some(special)) if bits >= 32 => Ok(special),
                _ => Err(refused(operand)),
            },
            _ => Err(refused(operand)),
        }
    }

    /// Resolves an operand that is read and may lie in a wider register.
    pub(super) fn wide_source(&self, operand: &Operand, bits: u32) -> Result<Source, Unsupported> {
        self.wide_register(operand, bits)
            .map(Source::Register)
            .or_else(|_| self.source(operand, bits))
    }

    /// Resolves `[base+offset]`.
    pub(super) fn address(&self, operand: &Operand) -> Result<Address, Unsupported> {
        let Operand::Address { base, offset } = operand else { return Err(refused(operand)) };
        let bits = Integer::unsigned(64).bits;
        let base = self.source(base, bits).or_else(|_| self.source(base, Integer::U32.bits))?;
        Ok(Address { base, offset: truncate(*offset, bits) })
    }

    /// Resolves a label to the number of the instruction behind it.
    pub(super) fn label(&self, name: &str) -> Result<usize, Unsupported> {
        match self.find(name) {
            Some(Symbol::Label(position)) => Ok(*position),
            _ => Err(Unsupported::Operand(name.to_owned())),
        }
    }

    /// Resolves the name of a list of labels.
    pub(super) fn targets(&self, name: &str) -> Result<Vec<usize>, Unsupported> {
        match self.find(name) {
            Some(Symbol::Targets(labels)) => labels.iter().map(|label| self.label(label)).collect(),
            _ => Err(Unsupported::Operand(name.to_owned())),
        }
    }
}

/// Names an operand that cannot stand where it stands.
pub(super) fn refused(operand: &Operand) -> Unsupported {
    Unsupported::Operand(match operand {
        Operand::Name(name) | Operand::Negated(name) => name.clone(),
        Operand::Integer(value) => value.to_string(),
        Operand::Vector(_) => "{...}".to_owned(),
        Operand::Address { .. } => "[...]".to_owned(),
        Operand::Pair(first, second) => format!("{first}|{second}"),
    })
}

/// Reads the name of a special register.
fn special(name: &str) -> Option<Source> {
    if name == "WARP_SZ" {
        return Some(Source::Constant(32));
    }
    let (register, axis) = match name.rsplit_once('.') {
        Some((register, "x")) => (register, 0),
        Some((register, "y")) => (register, 1),
        Some((register, "z")) => (register, 2),
        Some(_) => return None,
        None => {
            let special = match name {
                "%laneid" => Special::Lane,
                "%warpid" => Special::Warp,
                "%nwarpid" => Special::WarpCount,
                _ => return None,
            };
            return Some(Source::Special(special));
        }
    };
    let special = match register {
        "%tid" => Special::ThreadIndex(axis),
        "%ntid" => Special::ThreadCount(axis),
        "%ctaid" => Special::ThreadBlockIndex(axis),
        "%nctaid" => Special::ThreadBlockCount(axis),
        _ => return None,
    };
    Some(Source::Special(special))
}

/// Variables of one state space, one behind the other.
#[derive(Clone, Debug)]
pub(in super::super) struct Layout {
    start: u64,
    bytes: Vec<u8>,
}

impl Layout {
    /// Starts at an address that is aligned for everything.
    pub(in super::super) fn at(start: u64) -> Self {
        Self { start, bytes: Vec::new() }
    }

    /// Gives a variable its place, and returns its address.
    pub(in super::super) fn place(&mut self, variable: &Variable) -> u64 {
        let align = usize::try_from(variable.align_bytes).unwrap_or(1).max(1);
        let offset = self.bytes.len().next_multiple_of(align);
        let element_bytes = usize::try_from(variable.element_bytes).unwrap_or(1);
        let count = usize::try_from(variable.count).unwrap_or(usize::MAX);
        self.bytes.resize(offset + count.saturating_mul(element_bytes), 0);
        let places = self.bytes[offset..].chunks_exact_mut(element_bytes);
        for (place, value) in places.zip(&variable.initial) {
            place.copy_from_slice(&value.to_le_bytes()[..element_bytes]);
        }
        self.start + offset as u64
    }

    /// Returns the variables' bytes.
    pub(in super::super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
