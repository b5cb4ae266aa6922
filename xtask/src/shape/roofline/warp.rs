//! One warp alone on its quarter of a multiprocessor: in order, one instruction a cycle at most,
//! each once its registers are ready and its pipe is free.
//!
//! Not a simulator: no instruction cache, no register banks, no queue behind a full memory. It
//! gives the time that a warp takes for a span when nothing else slows it, which is what bounds a
//! launch of few warps.

use super::hardware::{
    ARITHMETIC_LATENCY_CYCLES, BUSY_LATENCY_NS, CLOCK_GHZ, IDLE_LATENCY_NS, L2_LATENCY_CYCLES,
    OTHER_LATENCY_CYCLES,
};
use super::pipe::Pipe;
use super::registers::{Register, Use};
use crate::shape::listing::Instruction;
use std::collections::BTreeMap;

/// Where a load finds what it loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In L2: ids, pairs, descriptors, sums.
    L2,
    /// In device memory: the payload's words.
    Memory,
}

/// Whether others keep device memory busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    Idle,
    Busy,
}

impl Memory {
    /// Returns the cycles from a load to the use of what it loads.
    fn load_cycles(self, place: Place) -> f64 {
        let nanoseconds = match (place, self) {
            (Place::L2, _) => return L2_LATENCY_CYCLES.value,
            (Place::Memory, Self::Idle) => IDLE_LATENCY_NS,
            (Place::Memory, Self::Busy) => BUSY_LATENCY_NS,
        };
        nanoseconds.value * CLOCK_GHZ.value
    }
}

/// The warp, as far as it has come.
#[derive(Debug)]
pub(super) struct Warp {
    memory: Memory,
    /// Cycle at which it may issue its next instruction.
    now: f64,
    /// Cycle from which a register's value can be used.
    ready: BTreeMap<Register, f64>,
    alu_free: f64,
    multiply_free: f64,
}

impl Warp {
    /// Starts a warp.
    pub(super) const fn new(memory: Memory) -> Self {
        Self { memory, now: 0.0, ready: BTreeMap::new(), alu_free: 0.0, multiply_free: 0.0 }
    }

    /// Runs instructions one after the other; `place` says where a load, by its index among them,
    /// finds its words.
    ///
    /// # Errors
    ///
    /// As [`Pipe::of`].
    pub(super) fn run<'code>(
        &mut self,
        instructions: impl IntoIterator<Item = &'code Instruction>,
        place: impl Fn(usize) -> Place,
    ) -> Result<(), String> {
        for (index, instruction) in instructions.into_iter().enumerate() {
            self.issue(instruction, place(index))?;
        }
        Ok(())
    }

    /// Returns the cycles that have passed.
    pub(super) const fn cycles(&self) -> f64 {
        self.now
    }

    fn issue(&mut self, instruction: &Instruction, place: Place) -> Result<(), String> {
        let pipe = Pipe::of(instruction)?;
        let Use { read, written } = Use::of(instruction);
        let ready = read.iter().filter_map(|register| self.ready.get(register));
        let mut start = ready.fold(self.now, |latest, cycle| latest.max(*cycle));
        let free = match pipe {
            Pipe::Alu => Some(&mut self.alu_free),
            Pipe::Multiply | Pipe::Wide => Some(&mut self.multiply_free),
            _ => None,
        };
        if let Some(free) = free {
            start = start.max(*free);
            *free = start + pipe.cycles();
        }
        let latency = match pipe {
            Pipe::Memory => self.memory.load_cycles(place),
            Pipe::Alu | Pipe::Multiply | Pipe::Wide => ARITHMETIC_LATENCY_CYCLES.value,
            Pipe::Uniform | Pipe::Control | Pipe::Other => OTHER_LATENCY_CYCLES.value,
        };
        for register in written {
            self.ready.insert(register, start + latency);
        }
        self.now = start + 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Memory, Place, Warp};
    use crate::shape::listing::Instruction;

    fn cycles(texts: &[&str]) -> f64 {
        let code: Vec<Instruction> = texts.iter().map(|text| Instruction::parse(text)).collect();
        let mut warp = Warp::new(Memory::Busy);
        warp.run(&code, |_| Place::L2).expect("known instructions");
        warp.cycles()
    }

    fn assert_cycles(texts: &[&str], expected: f64) {
        let cycles = cycles(texts);
        assert!((cycles - expected).abs() < 1e-9, "{cycles} for {texts:?}");
    }

    #[test]
    fn a_warp_waits_for_its_registers_and_its_pipe() {
        assert_cycles(&["BSSY B0, `(.L_x_1)", "BSYNC B0"], 2.0);
        // The second waits for the pipe, which takes two cycles a warp.
        assert_cycles(&["IADD3 R1, R2, R3, RZ", "IADD3 R4, R2, R3, RZ"], 3.0);
        // The second waits for R1.
        assert_cycles(&["IADD3 R1, R2, R3, RZ", "IMAD R4, R1, R3, RZ"], 6.0);
        // The wide one holds the pipe for four cycles.
        assert_cycles(&["IMAD.WIDE.U32 R6, R2, R3, RZ", "IMAD R4, R2, R3, RZ"], 5.0);
    }

    #[test]
    fn loads_overlap_until_one_is_used() {
        let loads = ["LDG.E R1, desc[UR4][R8.64]", "LDG.E R2, desc[UR4][R10.64]"];
        assert_cycles(&loads, 2.0);
        assert_cycles(&[loads[0], loads[1], "IADD3 R3, R1, R2, RZ"], 1.0 + 270.0 + 1.0);
        // The address of the second is what the first loads.
        let chained = "LDG.E R2, desc[UR4][R1.64]";
        assert_cycles(&[loads[0], chained, "IADD3 R3, R2, RZ, RZ"], 270.0 + 270.0 + 1.0);
    }
}
