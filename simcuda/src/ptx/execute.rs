//! What an instruction does in the lanes of a mask.
//!
//! Called by the warp, which decides which lanes those are and what comes next.

mod exchange;
mod memory;

use super::error::Cause;
use super::instruction::{Operand, Operation, Register, Source, Special};
use super::integer::{Integer, truncate};
use super::memory::{Memory, Region};
use super::order::Order;
use super::warp::{Fault, LANES, Lanes, Warp, lanes};
use super::{Kernel, function::Function};

/// What lanes of one thread block share.
#[derive(Debug)]
pub(super) struct Machine<'launch> {
    pub(super) kernel: &'launch Kernel,
    pub(super) spaces: Spaces<'launch>,
    pub(super) order: Order,
    pub(super) grid: [u32; 3],
    pub(super) thread_block: [u32; 3],
    /// Index of the thread block that runs.
    pub(super) thread_block_index: [u32; 3],
    /// Lanes that ran each instruction.
    pub(super) executed: Vec<u64>,
    pub(super) step_limit: u64,
    pub(super) steps: u64,
}

/// All memory but a lane's own.
#[derive(Debug)]
pub(super) struct Spaces<'launch> {
    pub(super) global: &'launch mut Memory,
    pub(super) shared: Region,
    pub(super) constants: Region,
    pub(super) parameters: Region,
}

impl Machine<'_> {
    /// Counts an instruction in some lanes.
    #[inline]
    pub(super) fn count(&mut self, counter: usize, active: u32) -> Result<(), Fault> {
        let steps = u64::from(active.count_ones());
        self.executed[counter] += steps;
        self.steps += steps;
        if self.steps > self.step_limit {
            let limit = self.step_limit;
            return Err(Fault::first(active, Cause::StepLimit { limit }));
        }
        Ok(())
    }

    fn special(&self, special: Special, warp: u32, lane: u32) -> u32 {
        let thread = warp * LANES + lane;
        let [width, height, _] = self.thread_block;
        match special {
            Special::ThreadIndex(0) => thread % width,
            Special::ThreadIndex(1) => thread / width % height,
            Special::ThreadIndex(_) => thread / width / height,
            Special::ThreadCount(axis) => self.thread_block[axis],
            Special::ThreadBlockIndex(axis) => self.thread_block_index[axis],
            Special::ThreadBlockCount(axis) => self.grid[axis],
            Special::Lane => lane,
            Special::Warp => warp,
            Special::WarpCount => self.thread_block.iter().product::<u32>().div_ceil(LANES),
        }
    }
}

/// Where lanes go after an instruction; those that are not named go on.
#[derive(Debug)]
pub(super) enum Flow {
    Next,
    Branch {
        taken: u32,
        target: usize,
    },
    /// Each lane to a target of its own.
    Scatter {
        taken: u32,
        targets: [usize; LANES as usize],
    },
    Exit(u32),
    /// Lanes wait for the other members of their warp.
    Park(u32),
    /// Lanes wait at a barrier of their thread block.
    Bar {
        barred: u32,
        barriers: [u32; LANES as usize],
    },
}

impl Warp {
    /// Returns what lanes read from a source.
    #[inline]
    pub(super) fn fetch(
        &self,
        source: Source,
        mask: u32,
        machine: &Machine<'_>,
    ) -> Result<Lanes, Fault> {
        match source {
            Source::Constant(value) => Ok([value; LANES as usize]),
            Source::Register(register) => {
                let unwritten = mask & !self.written[register.index];
                if unwritten != 0 {
                    let register = machine.kernel.registers[register.index].clone();
                    return Err(Fault::first(unwritten, Cause::UninitialisedRegister { register }));
                }
                Ok(self.registers[register.index])
            }
            Source::Special(special) => {
                let mut values = [0; LANES as usize];
                for (lane, value) in (0..).zip(&mut values) {
                    *value = machine.special(special, self.number, lane).into();
                }
                Ok(values)
            }
        }
    }

    /// Writes a register in the lanes of a mask.
    #[inline]
    pub(super) fn write(&mut self, target: Register, mask: u32, values: &Lanes) {
        self.written[target.index] |= mask;
        let register = &mut self.registers[target.index];
        if mask == u32::MAX {
            *register = *values;
        } else {
            lanes(mask).for_each(|lane| register[lane] = values[lane]);
        }
    }

    /// Runs an operation in the lanes of a mask.
    #[inline]
    pub(super) fn execute(
        &mut self,
        operation: &Operation,
        mask: u32,
        machine: &mut Machine<'_>,
    ) -> Result<Flow, Fault> {
        match operation {
            Operation::Compute { function, target, operands } => {
                self.compute(*function, *target, operands, mask, machine)?;
            }
            Operation::Pack { target, parts, part_bits } => {
                let mut packed = [0; LANES as usize];
                for (index, part) in (0..).zip(parts) {
                    let values = self.fetch(*part, mask, machine)?;
                    lanes(mask)
                        .for_each(|lane| packed[lane] |= values[lane] << (index * part_bits));
                }
                self.write(*target, mask, &packed);
            }
            Operation::Unpack { targets, source, part_bits } => {
                let values = self.fetch(*source, mask, machine)?;
                for (index, target) in (0..).zip(targets) {
                    let Some(target) = target else { continue };
                    let part = |value: u64| (value >> (index * part_bits)) & ((1 << part_bits) - 1);
                    self.write(*target, mask, &values.map(part));
                }
            }
            Operation::Load { memory, targets, address } => {
                self.load(*memory, targets, *address, mask, machine)?;
            }
            Operation::Store { memory, sources, address } => {
                self.store(*memory, sources, *address, mask, machine)?;
            }
            Operation::Atomic { .. } => self.atomic(operation, mask, machine)?,
            Operation::ActiveMask { target } => {
                self.write(*target, mask, &[mask.into(); LANES as usize]);
            }
            // The warp itself runs exchanges, when the members have met.
            Operation::Fence | Operation::Exchange { .. } => {}
            flow => return self.flow(flow, mask, machine),
        }
        Ok(Flow::Next)
    }

    /// Computes a function in each lane.
    fn compute(
        &mut self,
        function: Function,
        target: Register,
        operands: &[Operand],
        mask: u32,
        machine: &Machine<'_>,
    ) -> Result<(), Fault> {
        let mut read = [([0; LANES as usize], Integer::U32); 4];
        for ((values, kind), operand) in read.iter_mut().zip(operands) {
            *values = self.fetch(operand.source, mask, machine)?;
            *kind = operand.kind;
        }
        let results = match function {
            Function::Divide | Function::Remainder => divide(function, &read, target.bits, mask)?,
            _ => in_every_lane(function, &read, target.bits),
        };
        self.write(target, mask, &results);
        Ok(())
    }

    /// Runs what does not simply go on to the next instruction.
    fn flow(&self, operation: &Operation, mask: u32, machine: &Machine<'_>) -> Result<Flow, Fault> {
        match operation {
            Operation::Branch { target } => Ok(Flow::Branch { taken: mask, target: *target }),
            Operation::BranchIndexed { index, targets } => {
                let indices = self.fetch(*index, mask, machine)?;
                let mut chosen = [0; LANES as usize];
                for lane in lanes(mask) {
                    let target = usize::try_from(indices[lane]).ok().and_then(|at| targets.get(at));
                    let Some(target) = target else {
                        let (index, count) = (indices[lane], targets.len());
                        return Err(Fault { lane, cause: Cause::BranchIndex { index, count } });
                    };
                    chosen[lane] = *target;
                }
                Ok(Flow::Scatter { taken: mask, targets: chosen })
            }
            Operation::Barrier { barrier } => {
                let values = self.fetch(*barrier, mask, machine)?;
                // The source has 32 bits.
                let barriers = values.map(|value| u32::try_from(value).unwrap_or(u32::MAX));
                Ok(Flow::Bar { barred: mask, barriers })
            }
            Operation::Exit => Ok(Flow::Exit(mask)),
            Operation::Trap => Err(Fault::first(mask, Cause::Trap)),
            Operation::Unsupported(unsupported) => {
                Err(Fault::first(mask, Cause::Unsupported(unsupported.clone())))
            }
            _ => Ok(Flow::Next),
        }
    }
}

/// What each operand is in each lane, and the type that it is read through.
type Read = [(Lanes, Integer); 4];

/// Returns one lane's operands.
#[inline(always)]
#[expect(clippy::inline_always, reason = "so that operands which a function ignores are not read")]
fn read_lane(read: &Read, lane: usize) -> [i128; 4] {
    let [a, b, c, d] = read;
    [a.1.extend(a.0[lane]), b.1.extend(b.0[lane]), c.1.extend(c.0[lane]), d.1.extend(d.0[lane])]
}

/// Computes a function that no value is wrong for, in all lanes, also in those not asked for.
fn in_every_lane(function: Function, read: &Read, target_bits: u32) -> Lanes {
    /// Makes a loop of its own for each of the functions that are run most.
    macro_rules! loops {
        ($($known:pat => $constant:expr),+ $(,)?) => {
            match function {
                $($known => map(read, target_bits, |values| $constant.evaluate(values)),)+
                other => map(read, target_bits, |values| other.evaluate(values)),
            }
        };
    }
    loops! {
        Function::Move => Function::Move,
        Function::Add => Function::Add,
        Function::Subtract => Function::Subtract,
        Function::MultiplyAdd { shift: 0 } => Function::MultiplyAdd { shift: 0 },
        Function::And => Function::And,
        Function::Or => Function::Or,
        Function::Xor => Function::Xor,
        Function::ShiftLeft => Function::ShiftLeft,
        Function::ShiftRight => Function::ShiftRight,
        Function::Select => Function::Select,
        Function::Convert { to, saturates: false } => Function::Convert { to, saturates: false },
    }
}

/// Computes in all lanes; the function never divides.
#[inline(always)]
#[expect(clippy::inline_always, reason = "so that each function has a loop of its own")]
fn map(read: &Read, bits: u32, function: impl Fn([i128; 4]) -> Option<i128>) -> Lanes {
    let mut results = [0; LANES as usize];
    for (lane, result) in results.iter_mut().enumerate() {
        let values = read_lane(read, lane);
        *result = truncate(function(values).unwrap_or(0), bits);
    }
    results
}

/// Divides in the lanes of a mask.
fn divide(function: Function, read: &Read, bits: u32, mask: u32) -> Result<Lanes, Fault> {
    let mut results = [0; LANES as usize];
    for lane in lanes(mask) {
        let values = read_lane(read, lane);
        let result = function.evaluate(values);
        let result = result.ok_or(Fault { lane, cause: Cause::DivisionByZero })?;
        results[lane] = truncate(result, bits);
    }
    Ok(results)
}
