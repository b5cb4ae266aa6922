//! From a tree to instructions: resolves names and opcodes, so that a run looks nothing up.
//!
//! What the decoder does not know becomes [`Operation::Unsupported`], an error when it is reached,
//! and is never skipped. Called by [`Module::parse`](super::Module::parse).

mod exchange;
mod integer;
mod memory;
mod opcode;
mod scope;

use super::error::{ParseError, Unsupported};
use super::instruction::{Guard, Instruction, Operation};
use super::integer::Integer;
use super::syntax::{Entry, Item, Operand, RegisterName, Statement};
use opcode::Opcode;

pub(super) use scope::{Layout, Scope, Symbol};

/// A body, decoded.
#[derive(Debug, Default)]
pub(super) struct Body {
    pub(super) instructions: Vec<Instruction>,
    /// The registers' names, by number.
    pub(super) registers: Vec<String>,
}

/// Decodes a body; `scope` has what is declared outside, the layouts grow by its variables.
pub(super) fn decode(
    entry: &Entry,
    scope: &Scope<'_>,
    shared: &mut Layout,
    local: &mut Layout,
) -> Result<Body, ParseError> {
    let mut decoder = Decoder { body: Body::default(), shared, local };
    decoder.block(&entry.body, scope)?;
    decoder.body.instructions.push(Instruction {
        guard: None,
        operation: Operation::Unsupported(Unsupported::EndOfBody),
        line: entry.end_line,
        text: "}".to_owned(),
    });
    Ok(decoder.body)
}

struct Decoder<'layout> {
    body: Body,
    shared: &'layout mut Layout,
    local: &'layout mut Layout,
}

impl Decoder<'_> {
    fn block(&mut self, items: &[Item], outer: &Scope<'_>) -> Result<(), ParseError> {
        let mut scope = Scope::inside(outer);
        self.declare(items, &mut scope)?;
        for item in items {
            match item {
                Item::Block(inner) => self.block(inner, &scope)?,
                Item::Instruction(statement) => {
                    self.body.instructions.push(instruction(statement, &scope));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Declares what a block declares itself.
    fn declare(&mut self, items: &[Item], scope: &mut Scope<'_>) -> Result<(), ParseError> {
        let mut position = self.body.instructions.len();
        for item in items {
            match item {
                Item::Block(inner) => position += instruction_count(inner),
                Item::Instruction(_) => position += 1,
                Item::Label { name, line } => {
                    scope.declare(name, *line, Symbol::Label(position))?;
                }
                Item::Targets { name, line, labels } => {
                    scope.declare(name, *line, Symbol::Targets(labels.clone()))?;
                }
                Item::Registers(registers) => self.declare_registers(registers, scope)?,
                Item::Variable(variable) => {
                    let is_local = variable.space == super::Space::Local;
                    let layout = if is_local { &mut *self.local } else { &mut *self.shared };
                    let address = layout.place(variable);
                    scope.declare(&variable.name, variable.line, Symbol::Variable(address))?;
                }
            }
        }
        Ok(())
    }

    fn declare_registers(
        &mut self,
        registers: &[RegisterName],
        scope: &mut Scope<'_>,
    ) -> Result<(), ParseError> {
        for RegisterName { name, line, bits } in registers {
            let index = self.body.registers.len();
            let register = super::instruction::Register { index, bits: *bits };
            scope.declare(name, *line, Symbol::Register(register))?;
            self.body.registers.push(name.clone());
        }
        Ok(())
    }
}

/// Counts the instructions of a block.
fn instruction_count(items: &[Item]) -> usize {
    let count = |item: &Item| match item {
        Item::Block(inner) => instruction_count(inner),
        Item::Instruction(_) => 1,
        _ => 0,
    };
    items.iter().map(count).sum()
}

fn instruction(statement: &Statement, scope: &Scope<'_>) -> Instruction {
    let decoded = guard(statement, scope)
        .and_then(|guard| Ok((guard, operation(statement, scope)?)))
        .unwrap_or_else(|unsupported| (None, Operation::Unsupported(unsupported)));
    let (guard, operation) = decoded;
    Instruction { guard, operation, line: statement.line, text: statement.text.clone() }
}

fn guard(statement: &Statement, scope: &Scope<'_>) -> Result<Option<Guard>, Unsupported> {
    let Some(operand) = &statement.guard else { return Ok(None) };
    let negated = matches!(operand, Operand::Negated(_));
    let (Operand::Name(name) | Operand::Negated(name)) = operand else {
        return Err(scope::refused(operand));
    };
    let predicate = scope.register_named(name, Integer::PREDICATE.bits)?;
    Ok(Some(Guard { predicate, negated }))
}

/// Decodes by the opcode's first word.
fn operation(statement: &Statement, scope: &Scope<'_>) -> Result<Operation, Unsupported> {
    let mut opcode = Opcode::new(&statement.opcode);
    let Some(operands) = &statement.operands else {
        return Err(Unsupported::Operand("of a form that is not known".to_owned()));
    };
    match opcode.name() {
        "add" | "sub" | "mul" | "mad" | "div" | "rem" | "min" | "max" | "abs" | "neg" | "and"
        | "or" | "xor" | "not" | "shl" | "shr" | "shf" | "bfe" | "bfi" | "popc" | "clz"
        | "brev" | "prmt" | "selp" | "setp" | "set" | "cvt" | "cvta" => {
            integer::operation(&mut opcode, operands, scope)
        }
        "mov" => memory::movement(&mut opcode, operands, scope),
        "ld" => memory::load(&mut opcode, operands, scope),
        "st" => memory::store(&mut opcode, operands, scope),
        "atom" | "red" => memory::atomic(&mut opcode, operands, scope),
        "shfl" => exchange::shuffle(&mut opcode, operands, scope),
        "vote" => exchange::vote(&mut opcode, operands, scope),
        "match" => exchange::matching(&mut opcode, operands, scope),
        "activemask" => exchange::active_mask(&mut opcode, operands, scope),
        "bar" | "barrier" => exchange::barrier(&mut opcode, operands, scope),
        "membar" | "fence" | "bra" | "brx" | "ret" | "exit" | "trap" => {
            flow(&mut opcode, operands, scope)
        }
        name => Err(Unsupported::Instruction(name.to_owned())),
    }
}

/// Decodes what moves threads, or nothing.
fn flow(
    opcode: &mut Opcode<'_>,
    operands: &[Operand],
    scope: &Scope<'_>,
) -> Result<Operation, Unsupported> {
    match opcode.name() {
        "membar" => {
            opcode.one_of(&["cta", "gl", "sys"], &[(); 3])?;
        }
        "fence" => {
            opcode.accept(&["sc", "acq_rel"]);
            opcode.one_of(&["cta", "gpu", "sys"], &[(); 3])?;
        }
        "brx" => opcode.expect("idx")?,
        _ => {}
    }
    if !matches!(opcode.name(), "membar" | "fence" | "trap") {
        // A promise that all lanes agree, which a run does not need.
        opcode.accept(&["uni"]);
    }
    opcode.finish()?;
    match (opcode.name(), operands) {
        ("membar" | "fence", []) => Ok(Operation::Fence),
        ("ret" | "exit", []) => Ok(Operation::Exit),
        ("trap", []) => Ok(Operation::Trap),
        ("bra", [Operand::Name(label)]) => Ok(Operation::Branch { target: scope.label(label)? }),
        ("brx", [index, Operand::Name(targets)]) => Ok(Operation::BranchIndexed {
            index: scope.source(index, Integer::U32.bits)?,
            targets: scope.targets(targets)?,
        }),
        (_, [operand, ..]) => Err(scope::refused(operand)),
        (_, []) => Err(Unsupported::OperandCount { expected: 1, actual: 0 }),
    }
}
