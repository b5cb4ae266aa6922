//! Which part of a multiprocessor an instruction occupies, and for how long.

use super::hardware::{ALU_LANES, MULTIPLY_LANES, SCHEDULERS, WIDE_LANES};
use crate::shape::listing::Instruction;
use kvtide_kernels::abi::WARP_LANES;

/// What executes an instruction of `sm_90`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pipe {
    /// Loads, stores and reductions in memory.
    Memory,
    /// Integer add, compare, select, logic, shift.
    Alu,
    /// Integer multiply-add and what ptxas makes of it (moves, adds), in the FMA pipe.
    Multiply,
    /// Multiply-add to 64 bits, in the FMA pipe too.
    Wide,
    /// The datapath of what all lanes share.
    Uniform,
    /// Branches and convergence barriers.
    Control,
    /// Shuffles, constants and special registers: rare in the kernels.
    Other,
}

impl Pipe {
    /// All of them, with their names for the table.
    pub(super) const ALL: [(Self, &str); 7] = [
        (Self::Memory, "LSU"),
        (Self::Alu, "ALU"),
        (Self::Multiply, "IMAD"),
        (Self::Wide, "IMAD.WIDE"),
        (Self::Uniform, "uniform"),
        (Self::Control, "control"),
        (Self::Other, "other"),
    ];

    /// Returns what executes an instruction.
    ///
    /// # Errors
    ///
    /// For one that is not known, since a count without it would be too low: give it a pipe.
    pub(super) fn of(instruction: &Instruction) -> Result<Self, String> {
        Ok(match instruction.operation() {
            "LDG" | "STG" | "RED" | "REDG" => Self::Memory,
            "IADD3" | "VIADD" | "VIADDMNMX" | "VIMNMX" | "LOP3" | "SHF" | "SEL" | "ISETP"
            | "LEA" | "PLOP3" | "MOV" => Self::Alu,
            "IMAD" if instruction.has_modifier("WIDE") => Self::Wide,
            "IMAD" | "HFMA2" => Self::Multiply,
            "UIADD3" | "UIMAD" | "ULEA" | "ULOP3" | "UMOV" | "USHF" | "UISETP" => Self::Uniform,
            "BRA" | "BSSY" | "BSYNC" | "EXIT" => Self::Control,
            "SHFL" | "S2R" | "S2UR" | "CS2R" | "LDC" | "ULDC" => Self::Other,
            _ => {
                return Err(format!(
                    "no pipe is known for {}; give it one in xtask/src/shape/roofline/pipe.rs",
                    instruction.opcode()
                ));
            }
        })
    }

    /// Returns for how many cycles a warp instruction occupies its quarter's share of the pipe;
    /// none where that is not modelled.
    pub(super) fn cycles(self) -> f64 {
        let lanes = match self {
            Self::Alu => ALU_LANES,
            Self::Multiply => MULTIPLY_LANES,
            Self::Wide => WIDE_LANES,
            Self::Memory | Self::Uniform | Self::Control | Self::Other => return 0.0,
        };
        f64::from(WARP_LANES) * SCHEDULERS.value / lanes.value
    }
}

/// How many instructions occupy each pipe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mix([u32; Pipe::ALL.len()]);

impl Mix {
    /// Counts instructions.
    ///
    /// # Errors
    ///
    /// As [`Pipe::of`].
    pub(super) fn of<'code>(
        instructions: impl IntoIterator<Item = &'code Instruction>,
    ) -> Result<Self, String> {
        let mut mix = Self::default();
        for instruction in instructions {
            let pipe = Pipe::of(instruction)?;
            for (count, (of, _)) in mix.0.iter_mut().zip(Pipe::ALL) {
                *count += u32::from(of == pipe);
            }
        }
        Ok(mix)
    }

    /// Returns the counts, in the order of [`Pipe::ALL`].
    pub(super) const fn counts(&self) -> [u32; Pipe::ALL.len()] {
        self.0
    }

    /// Returns the number of all instructions.
    pub(super) fn total(&self) -> u32 {
        self.0.iter().sum()
    }

    /// Returns the cycles of a quarter's ALU.
    pub(super) fn alu_cycles(&self) -> f64 {
        self.cycles_in(&[Pipe::Alu])
    }

    /// Returns the cycles of a quarter's FMA pipe.
    pub(super) fn multiply_cycles(&self) -> f64 {
        self.cycles_in(&[Pipe::Multiply, Pipe::Wide])
    }

    fn cycles_in(&self, pipes: &[Pipe]) -> f64 {
        let counts = Pipe::ALL.into_iter().zip(self.0);
        let of_pipes = counts.filter(|((pipe, _), _)| pipes.contains(pipe));
        of_pipes.map(|((pipe, _), count)| f64::from(count) * pipe.cycles()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::{Mix, Pipe};
    use crate::shape::listing::Instruction;

    fn instructions(texts: &[&str]) -> Vec<Instruction> {
        texts.iter().map(|text| Instruction::parse(text)).collect()
    }

    #[test]
    fn instructions_are_counted_by_pipe() {
        let code = instructions(&[
            "LDG.E.NA.128 R16, desc[UR8][R16.64]",
            "@!P0 STG.E.128 desc[UR8][R42.64+0x200], R16",
            "IMAD.WIDE.U32 R42, R45, -0x16b07d6, R12",
            "IMAD.IADD R13, R41, 0x1, R43",
            "IMAD R13, R13, 0x6659fd93, RZ",
            "LOP3.LUT R44, R13.reuse, R42, RZ, 0x3c, !PT",
            "USHF.L.U64.HI UR4, UR10, 0x7, URZ",
            "@!P0 BRA `(.L_x_51)",
            "SHFL.BFLY PT, R4, R9, 0x10, 0x1f",
        ]);
        let mix = Mix::of(&code).expect("known instructions");
        assert_eq!(mix.counts(), [2, 1, 2, 1, 1, 1, 1]);
        assert_eq!(mix.total(), 9);
        // 16 lanes a quarter: 2 cycles a warp; 8 lanes for the wide one: 4.
        assert!((mix.alu_cycles() - 2.0).abs() < 1e-9);
        assert!((mix.multiply_cycles() - 8.0).abs() < 1e-9);
    }

    #[test]
    fn an_unknown_instruction_is_an_error_that_names_it() {
        let error = Mix::of(&instructions(&["DADD R2, R4, R6"])).expect_err("no pipe");
        assert!(error.contains("DADD"), "{error}");
        assert_eq!(Pipe::of(&instructions(&["MOV R1, R2"])[0]), Ok(Pipe::Alu));
    }
}
