//! Machine code as `nvdisasm -c` prints it: kernels, instructions and innermost loops.
//!
//! A loop is what lies between a label and a later branch to it; innermost are those that hold no
//! other.

use std::collections::BTreeMap;

/// What an instruction is to the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// A load of 128 bits from global memory.
    Wide,
    /// Any other load from global memory.
    Narrow,
    /// A store to global memory.
    Store,
    /// A load from or a store to local memory.
    Local,
    /// Anything else.
    None,
}

/// One instruction, without its predicate.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    /// Such as `LDG.E.NA.128`.
    opcode: String,
    /// The rest of the line.
    operands: String,
}

impl Instruction {
    /// Reads what stands between the address and the semicolon.
    fn parse(text: &str) -> Self {
        let text = text.trim();
        let text = match text.split_once(' ') {
            Some((predicate, rest)) if predicate.starts_with('@') => rest.trim_start(),
            _ => text,
        };
        let (opcode, operands) = text.split_once(' ').unwrap_or((text, ""));
        Self { opcode: opcode.to_owned(), operands: operands.to_owned() }
    }

    /// Returns what the instruction does to memory.
    pub(super) fn access(&self) -> Access {
        let mut parts = self.opcode.split('.');
        match parts.next().unwrap_or("") {
            "LDG" | "LD" if parts.any(|part| part == "128") => Access::Wide,
            "LDG" | "LD" => Access::Narrow,
            "STG" | "ST" => Access::Store,
            "LDL" | "STL" => Access::Local,
            _ => Access::None,
        }
    }

    /// Returns the numbers of the registers that a wide load fills.
    pub(super) fn filled_registers(&self) -> std::ops::Range<u32> {
        let first = self.registers().next().unwrap_or(0);
        first..first + 4
    }

    /// Returns the numbers of the registers that the instruction names.
    pub(super) fn registers(&self) -> impl Iterator<Item = u32> {
        let words = self.operands.split(|character: char| !character.is_ascii_alphanumeric());
        words.filter_map(|word| word.strip_prefix('R')?.parse().ok())
    }

    /// Returns the label that the instruction may go to.
    fn branch_target(&self) -> Option<&str> {
        let is_branch = self.opcode.split('.').next() == Some("BRA");
        let target = self.operands.split(['(', ')']).find(|word| word.starts_with(".L_x_"));
        target.filter(|_| is_branch)
    }
}

/// The machine code of one kernel.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Kernel {
    instructions: Vec<Instruction>,
    /// Index of the instruction that each label precedes.
    labels: BTreeMap<String, usize>,
}

impl Kernel {
    /// Returns all instructions, and the padding after them.
    pub(super) fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// Returns how many instructions do something.
    pub(super) fn instruction_count(&self) -> usize {
        self.instructions.iter().filter(|instruction| instruction.opcode != "NOP").count()
    }

    /// Returns the instructions of every innermost loop.
    pub(super) fn innermost_loops(&self) -> Vec<&[Instruction]> {
        let spans: Vec<(usize, usize)> = self
            .instructions
            .iter()
            .enumerate()
            .filter_map(|(end, instruction)| {
                let start = *self.labels.get(instruction.branch_target()?)?;
                // The branch to itself after a kernel's end only stops the instruction fetch.
                (start < end).then_some((start, end))
            })
            .collect();
        let holds_another = |(start, end): (usize, usize)| {
            let inside = |other: &&(usize, usize)| start <= other.0 && other.1 <= end;
            spans.iter().filter(inside).count() > 1
        };
        spans
            .iter()
            .filter(|span| !holds_another(**span))
            .map(|(start, end)| &self.instructions[*start..=*end])
            .collect()
    }
}

/// Reads a listing, by kernel.
pub(super) fn parse(listing: &str) -> BTreeMap<String, Kernel> {
    let mut kernels: BTreeMap<String, Kernel> = BTreeMap::new();
    let mut current = None;
    for line in listing.lines() {
        if line.starts_with("//-") {
            current = None;
        } else if let Some(name) = line.strip_prefix(".text.") {
            current = Some(kernels.entry(name.trim_end_matches(':').to_owned()).or_default());
        } else if let Some(kernel) = &mut current {
            if line.starts_with(".L_x_") {
                let label = line.trim_end_matches(':').to_owned();
                kernel.labels.insert(label, kernel.instructions.len());
            } else if let Some((text, _)) =
                line.trim_start().strip_prefix("/*").and_then(|rest| rest.rsplit_once(';'))
                && let Some((_, text)) = text.split_once("*/")
            {
                kernel.instructions.push(Instruction::parse(text));
            }
        }
    }
    kernels
}

#[cfg(test)]
mod tests {
    use super::{Access, parse};

    const LISTING: &str = "
//--------------------- .text.kvtide_copy_16       --------------------------
	.section	.text.kvtide_copy_16,\"ax\",@progbits
kvtide_copy_16:
.text.kvtide_copy_16:
        /*0000*/                   S2R R0, SR_CTAID.X ;
.L_x_1:
        /*0010*/                   LDG.E R3, desc[UR4][R2.64] ;
.L_x_2:
        /*0020*/                   LDG.E.NA.128 R8, desc[UR4][R2.64+0x200] ;
        /*0030*/              @!P0 STG.E.128 [R4.64], R8 ;
        /*0040*/               @P1 BRA `(.L_x_2) ;
        /*0050*/               @P2 BRA `(.L_x_1) ;
        /*0060*/                   EXIT ;
.L_x_3:
        /*0070*/                   BRA `(.L_x_3);
        /*0080*/                   NOP;
.L_x_9:
//--------------------- .text.kvtide_fill       --------------------------
.text.kvtide_fill:
        /*0000*/                   EXIT ;
";

    #[test]
    fn kernels_and_their_innermost_loops_are_found() {
        let kernels = parse(LISTING);
        assert_eq!(kernels.keys().collect::<Vec<_>>(), ["kvtide_copy_16", "kvtide_fill"]);
        let copy = &kernels["kvtide_copy_16"];
        assert_eq!(copy.instruction_count(), 8);
        let loops = copy.innermost_loops();
        assert_eq!(loops.len(), 1);
        let accesses: Vec<Access> = loops[0].iter().map(super::Instruction::access).collect();
        assert_eq!(accesses, [Access::Wide, Access::Store, Access::None]);
        assert_eq!(loops[0][0].filled_registers(), 8..12);
        assert_eq!(loops[0][1].registers().collect::<Vec<_>>(), [4, 8]);
    }
}
