//! Machine code as `nvdisasm -c` prints it: kernels, instructions and innermost loops.
//!
//! A loop is what lies between a label and a later branch to it; innermost are those that hold no
//! other.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

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

/// One instruction.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    /// The predicate that it runs under, such as `@!P0`; empty if it always runs.
    guard: String,
    /// Such as `LDG.E.NA.128`.
    opcode: String,
    /// The rest of the line.
    operands: String,
}

impl Instruction {
    /// Reads what stands between the address and the semicolon.
    pub(super) fn parse(text: &str) -> Self {
        let text = text.trim();
        let (guard, text) = match text.split_once(' ') {
            Some((guard, rest)) if guard.starts_with('@') => (guard, rest.trim_start()),
            _ => ("", text),
        };
        let (opcode, operands) = text.split_once(' ').unwrap_or((text, ""));
        Self { guard: guard.into(), opcode: opcode.into(), operands: operands.into() }
    }

    /// Returns the predicate that it runs under, such as `@!P0`; empty if it always runs.
    pub(super) fn guard(&self) -> &str {
        &self.guard
    }

    /// Returns the opcode with its modifiers, such as `LDG.E.NA.128`.
    pub(super) fn opcode(&self) -> &str {
        &self.opcode
    }

    /// Returns what stands after the opcode.
    pub(super) fn operands(&self) -> &str {
        &self.operands
    }

    /// Returns the opcode without its modifiers.
    pub(super) fn operation(&self) -> &str {
        self.opcode.split('.').next().unwrap_or("")
    }

    /// Returns whether the opcode has a modifier.
    pub(super) fn has_modifier(&self, modifier: &str) -> bool {
        self.opcode.split('.').skip(1).any(|part| part == modifier)
    }

    /// Returns what the instruction does to memory.
    pub(super) fn access(&self) -> Access {
        match self.operation() {
            "LDG" | "LD" if self.has_modifier("128") => Access::Wide,
            "LDG" | "LD" => Access::Narrow,
            "STG" | "ST" => Access::Store,
            "LDL" | "STL" => Access::Local,
            _ => Access::None,
        }
    }

    /// Returns the numbers of the registers that a wide load fills.
    pub(super) fn filled_registers(&self) -> Range<u32> {
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
        let is_branch = self.operation() == "BRA";
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

    /// Returns where every innermost loop is.
    pub(super) fn innermost_loops(&self) -> Vec<Range<usize>> {
        let loops = self.loops();
        let holds_another =
            |outer: &&Range<usize>| loops.iter().filter(|inner| holds(outer, inner)).count() > 1;
        loops.iter().filter(|span| !holds_another(span)).cloned().collect()
    }

    /// Returns where the smallest loop around `inner` is.
    pub(super) fn loop_around(&self, inner: &Range<usize>) -> Option<Range<usize>> {
        let around = self.loops().into_iter().filter(|outer| outer != inner && holds(outer, inner));
        around.min_by_key(ExactSizeIterator::len)
    }

    /// Returns where every loop is, from its label to the branch back.
    fn loops(&self) -> Vec<Range<usize>> {
        let found = self.instructions.iter().enumerate().filter_map(|(last, instruction)| {
            let start = *self.labels.get(instruction.branch_target()?)?;
            // The branch to itself after a kernel's end only stops the instruction fetch.
            (start < last).then_some(start..last + 1)
        });
        found.collect()
    }

    /// Returns the fewest instructions that lead from one to another, without the last.
    pub(super) fn shortest_path(&self, from: usize, to: usize) -> Option<Vec<usize>> {
        let mut before = BTreeMap::from([(from, from)]);
        let mut queue = VecDeque::from([from]);
        while let Some(at) = queue.pop_front() {
            if at == to {
                let mut path = Vec::new();
                let mut step = to;
                while step != from {
                    step = before[&step];
                    path.push(step);
                }
                path.reverse();
                return Some(path);
            }
            for next in self.successors(at) {
                before.entry(next).or_insert_with(|| {
                    queue.push_back(next);
                    at
                });
            }
        }
        None
    }

    /// Returns what may run after an instruction, in a warp whose lanes stay together.
    fn successors(&self, at: usize) -> Vec<usize> {
        let instruction = &self.instructions[at];
        let always = instruction.guard.is_empty();
        let target = instruction.branch_target().and_then(|label| self.labels.get(label)).copied();
        match instruction.opcode.as_str() {
            "EXIT" if always => Vec::new(),
            // Taken only by lanes that have parted.
            "BRA.DIV" => vec![at + 1],
            _ => {
                let falls_through = target.is_none() || !always;
                let next = (falls_through && at + 1 < self.instructions.len()).then_some(at + 1);
                target.into_iter().chain(next).collect()
            }
        }
    }
}

/// Returns whether `outer` holds `inner`.
const fn holds(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
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
        let body = &copy.instructions()[loops[0].clone()];
        let accesses: Vec<Access> = body.iter().map(super::Instruction::access).collect();
        assert_eq!(accesses, [Access::Wide, Access::Store, Access::None]);
        assert_eq!(body[0].filled_registers(), 8..12);
        assert_eq!(body[1].registers().collect::<Vec<_>>(), [4, 8]);
        assert_eq!((body[1].guard(), body[1].operation()), ("@!P0", "STG"));
        assert_eq!(copy.loop_around(&loops[0]), Some(1..6));
        assert_eq!(copy.loop_around(&(1..6)), None);
    }

    #[test]
    fn paths_follow_branches() {
        let kernels = parse(LISTING);
        let copy = &kernels["kvtide_copy_16"];
        assert_eq!(copy.shortest_path(0, 2), Some(vec![0, 1]));
        assert_eq!(copy.shortest_path(3, 1), Some(vec![3, 4, 5]), "on, and back");
        assert_eq!(copy.shortest_path(1, 1), Some(vec![]));
        assert_eq!(copy.shortest_path(6, 0), None, "an exit leads nowhere");
        assert_eq!(copy.shortest_path(0, 7), None, "a branch to itself is never reached");
    }
}
