//! Executes PTX text on the CPU, thread by thread, and faults where a GPU might not.
//!
//! The reference is NVIDIA's "Parallel Thread Execution ISA"; module docs name its sections. What
//! is covered: the integer instructions of PTX 7.4, loads, stores and atomics in all state spaces,
//! predicates and branches, barriers, and exchanges inside a warp. Not covered: floating point,
//! calls, module variables in global memory, textures, matrices. An instruction that is not known
//! is an error when it is reached, with its text, and never skipped; a directive, at once.
//!
//! | file | what |
//! |---|---|
//! | `lexer`, `parser`, `syntax` | from text to a tree |
//! | `decode`, `instruction` | from names to numbers, once a module |
//! | `integer`, `function` | what instructions compute |
//! | `memory`, `order` | regions, and what is known of each byte |
//! | `warp`, `execute` | 32 lanes, where each is, and what an instruction does in them |
//! | `launch` | thread blocks and barriers |
//!
//! # Threads
//!
//! Thread blocks run one after another, the warps of one in turns that end at barriers; a seed
//! changes the order of both. In a warp each lane has its own program counter; the lanes at the
//! lowest one run together, and `.sync` instructions wait for their members, so that lanes meet
//! again without any analysis of the text. That is one order of many: what depends on it is found
//! as a race (two warps touch one byte, not both by reads or both by atomics, and no barrier
//! between) rather than by trying all. A lane that spins until another writes may spin for ever,
//! which the step limit ends.

mod decode;
mod error;
mod execute;
mod function;
mod instruction;
mod integer;
mod launch;
mod lexer;
mod memory;
mod order;
mod parser;
mod syntax;
mod warp;

pub use error::{Access, Cause, LaunchError, MapError, ParseError, Place, Space, Unsupported};
pub use launch::{Launch, Statistics};
pub use memory::Memory;

use decode::{Layout, decode};
use instruction::Instruction;
use std::collections::BTreeMap;
use syntax::Entry;

/// The most threads of a thread block on any GPU.
const THREADS_MAX: u32 = 1024;

/// Kernels and constants of one PTX text.
///
/// ```
/// use kvtide_simcuda::ptx::{Launch, Memory, Module};
///
/// let module = Module::parse(
///     ".version 7.4
///      .target sm_75
///      .address_size 64
///      .visible .entry number(.param .u64 target) {
///          .reg .b32 %thread;
///          .reg .b64 %address;
///          ld.param.u64 %address, [target];
///          mov.u32 %thread, %tid.x;
///          mad.wide.u32 %address, %thread, 4, %address;
///          st.global.u32 [%address], %thread;
///          ret;
///      }",
/// )?;
/// let mut memory = Memory::new();
/// memory.map_uninitialised(0x7000_0000_0000, &[0; 8])?;
/// let arguments = 0x7000_0000_0000_u64.to_le_bytes();
/// let kernel = module.kernel("number").expect("it is in the text");
/// kernel.launch(&Launch::new(1, 2, &arguments), &mut memory)?;
/// assert_eq!(memory.read(0x7000_0000_0004, 4), Some(&[1, 0, 0, 0][..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Module {
    kernels: BTreeMap<String, Kernel>,
}

impl Module {
    /// Parses a PTX text.
    ///
    /// # Errors
    ///
    /// [`ParseError`] naming the line, for what is not PTX and for unknown directives.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let text = parser::parse(text)?;
        let mut outer = decode::Scope::default();
        let mut shared = Layout::at(Space::Shared.window());
        let mut constants = Layout::at(Space::Const.window());
        for variable in &text.variables {
            let is_const = variable.space == Space::Const;
            let layout = if is_const { &mut constants } else { &mut shared };
            let symbol = decode::Symbol::Variable(layout.place(variable));
            outer.declare(&variable.name, variable.line, symbol)?;
        }
        let mut kernels = BTreeMap::new();
        for entry in &text.entries {
            let kernel = Kernel::new(entry, &outer, shared.clone(), constants.bytes())?;
            if kernels.insert(entry.name.clone(), kernel).is_some() {
                let name = entry.name.clone();
                return Err(ParseError::DeclaredTwice { line: entry.line, name });
            }
        }
        Ok(Self { kernels })
    }

    /// Returns the kernel of this name.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.get(name)
    }

    /// Returns all kernels, by name.
    pub fn kernels(&self) -> impl Iterator<Item = &Kernel> {
        self.kernels.values()
    }
}

/// An entry point, ready to run.
#[derive(Clone, Debug)]
pub struct Kernel {
    name: String,
    argument_bytes: usize,
    threads_max: u32,
    instructions: Vec<Instruction>,
    /// The registers' names, by number.
    registers: Vec<String>,
    shared_bytes: usize,
    local_bytes: usize,
    constants: Vec<u8>,
}

impl Kernel {
    fn new(
        entry: &Entry,
        outer: &decode::Scope<'_>,
        mut shared: Layout,
        constants: &[u8],
    ) -> Result<Self, ParseError> {
        let mut scope = decode::Scope::inside(outer);
        let mut parameters = Layout::at(Space::Param.window());
        for parameter in &entry.parameters {
            let symbol = decode::Symbol::Variable(parameters.place(parameter));
            scope.declare(&parameter.name, parameter.line, symbol)?;
        }
        let mut local = Layout::at(Space::Local.window());
        let body = decode(entry, &scope, &mut shared, &mut local)?;
        Ok(Self {
            name: entry.name.clone(),
            argument_bytes: parameters.bytes().len(),
            threads_max: entry.threads_max.unwrap_or(THREADS_MAX).min(THREADS_MAX),
            instructions: body.instructions,
            registers: body.registers,
            shared_bytes: shared.bytes().len(),
            local_bytes: local.bytes().len(),
            constants: constants.to_vec(),
        })
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the bytes of its parameters, each aligned as it is declared.
    pub fn argument_bytes(&self) -> usize {
        self.argument_bytes
    }

    /// Returns line and text of its instructions, in order; the last stands for the body's end.
    pub fn instructions(&self) -> impl ExactSizeIterator<Item = (u32, &str)> {
        self.instructions.iter().map(|instruction| (instruction.line, instruction.text.as_str()))
    }
}
