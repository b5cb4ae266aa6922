//! What the machine code of each kernel must look like.
//!
//! Loads in flight are what the kernels' speed hangs on, and the assembler is free to move them. So
//! each kernel must have an innermost loop with exactly its share of loads and stores, all loads
//! before the first store. That loop is the hot one; the loop over what is left of a span, which
//! ptxas may unroll to as many stores, is in another order and so does not pass for it.

use super::assembler::{Assembly, Resources};
use super::listing::{Access, Instruction, Kernel, parse};
use std::ops::Range;

/// The most registers a kernel may take: 32 warps a multiprocessor.
const REGISTERS_MAX: u32 = 64;

/// What is asked of one kernel.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) kernel: &'static str,
    /// Its hot loop; none where a launch is bound by latency.
    hot_loop: Option<HotLoop>,
    /// What a lane has in flight, for the table.
    pub(super) in_flight: &'static str,
}

/// The accesses of a hot loop.
#[derive(Debug)]
struct HotLoop {
    /// Loads of 128 bits.
    wide_count: usize,
    /// Other loads: ids, pairs of ids, quarters of words.
    narrow_count: usize,
    /// Stores.
    store_count: usize,
    /// Whether the narrow loads, of ids, must all precede the wide ones.
    ids_first: bool,
}

const FOUR_WORDS: &str = "4 of 16 bytes";
const SIXTEEN_QUARTERS: &str = "16 of 4 bytes";

/// One rule a kernel.
pub(super) const RULES: [Rule; 9] = [
    rule("kvtide_checksum", Some(hot_loop([4, 0, 0])), FOUR_WORDS),
    rule("kvtide_copy_16", Some(ids_first([4, 4, 4])), FOUR_WORDS),
    rule("kvtide_copy_4", Some(hot_loop([0, 20, 16])), SIXTEEN_QUARTERS),
    rule("kvtide_fill", Some(hot_loop([0, 0, 4])), "none"),
    rule("kvtide_gather_16", Some(ids_first([4, 4, 4])), FOUR_WORDS),
    rule("kvtide_gather_4", Some(hot_loop([0, 20, 4])), SIXTEEN_QUARTERS),
    rule("kvtide_judge", None, "2 of 8 bytes"),
    rule("kvtide_scatter_16", Some(hot_loop([4, 4, 4])), FOUR_WORDS),
    rule("kvtide_scatter_4", Some(hot_loop([4, 4, 16])), FOUR_WORDS),
];

const fn rule(kernel: &'static str, hot_loop: Option<HotLoop>, in_flight: &'static str) -> Rule {
    Rule { kernel, hot_loop, in_flight }
}

/// Asks for so many wide loads, narrow loads and stores.
const fn hot_loop([wide_count, narrow_count, store_count]: [usize; 3]) -> HotLoop {
    HotLoop { wide_count, narrow_count, store_count, ids_first: false }
}

/// As [`hot_loop`], the narrow loads before the wide ones.
const fn ids_first([wide_count, narrow_count, store_count]: [usize; 3]) -> HotLoop {
    HotLoop { wide_count, narrow_count, store_count, ids_first: true }
}

/// What the table says of a kernel on one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Measured {
    pub(super) registers: u32,
    pub(super) instruction_count: usize,
    /// None where no hot loop is asked for.
    pub(super) hot_loop_instruction_count: Option<usize>,
}

/// Returns what each kernel measures, in the order of the rules, or all breaches.
pub(super) fn check(assembly: &Assembly) -> Result<Vec<Measured>, Vec<String>> {
    let kernels = parse(&assembly.listing);
    let mut measured = Vec::new();
    let mut breaches = Vec::new();
    let surplus = assembly.resources.keys().filter(|name| !is_ruled(name));
    breaches.extend(surplus.map(|name| format!("{name} has no rule")));
    for rule in RULES {
        let (resources, kernel) = (assembly.resources.get(rule.kernel), kernels.get(rule.kernel));
        let outcome = match (resources, kernel) {
            (Some(resources), Some(kernel)) => check_kernel(&rule, *resources, kernel),
            _ => Err("is missing".to_owned()),
        };
        match outcome {
            Ok(counts) => measured.push(counts),
            Err(why) => breaches.push(format!("{} {why}", rule.kernel)),
        }
    }
    if breaches.is_empty() { Ok(measured) } else { Err(breaches) }
}

/// Returns whether there is a rule for the kernel.
fn is_ruled(kernel: &str) -> bool {
    RULES.iter().any(|rule| rule.kernel == kernel)
}

/// Checks one kernel for one target.
fn check_kernel(rule: &Rule, resources: Resources, kernel: &Kernel) -> Result<Measured, String> {
    let Resources { registers, stack_bytes, spill_bytes } = resources;
    if registers == 0 || registers > REGISTERS_MAX {
        return Err(format!("takes {registers} registers, of {REGISTERS_MAX}"));
    }
    let touches_local = |instruction: &Instruction| instruction.access() == Access::Local;
    if stack_bytes + spill_bytes > 0 || kernel.instructions().iter().any(touches_local) {
        return Err(format!("has a stack of {stack_bytes} bytes, spills {spill_bytes}"));
    }
    let mut hot_loop_instruction_count = None;
    if let Some(hot_loop) = &rule.hot_loop {
        let Some(body) = hot_loop.find(kernel) else {
            let loops = kernel.innermost_loops().into_iter();
            let orders: Vec<String> =
                loops.map(|body| order(&kernel.instructions()[body])).collect();
            return Err(format!("has no hot loop among: {}", orders.join(" ")));
        };
        hot_loop_instruction_count = Some(body.len());
    }
    let instruction_count = kernel.instruction_count();
    Ok(Measured { registers, instruction_count, hot_loop_instruction_count })
}

/// Returns where the hot loop of the kernel of this name is; none where none is asked for.
pub(super) fn hot_loop_of(name: &str, kernel: &Kernel) -> Option<Range<usize>> {
    RULES.iter().find(|rule| rule.kernel == name)?.hot_loop.as_ref()?.find(kernel)
}

impl HotLoop {
    /// Returns where the hot loop that the rule asks for is.
    fn find(&self, kernel: &Kernel) -> Option<Range<usize>> {
        let mut loops = kernel.innermost_loops().into_iter();
        loops.find(|body| self.admits(&kernel.instructions()[body.clone()]))
    }

    /// Returns whether a loop is the hot loop that the rule asks for.
    fn admits(&self, body: &[Instruction]) -> bool {
        let order = order(body);
        let count = |letter: char| order.matches(letter).count();
        let counts = [count('L'), count('l'), count('S')];
        let loads_end = order.rfind(['L', 'l']).map_or(0, |last| last + 1);
        let stores_start = order.find('S').unwrap_or(order.len());
        let ids_end = order.rfind('l').map_or(0, |last| last + 1);
        let words_start = order.find('L').unwrap_or(order.len());
        counts == [self.wide_count, self.narrow_count, self.store_count]
            && loads_end <= stores_start
            && (!self.ids_first || ids_end <= words_start)
            && loads_precede_uses(body)
    }
}

/// Returns the order of loads and stores: `L` 128 bits, `l` a narrower load, `S` a store.
fn order(body: &[Instruction]) -> String {
    let letter = |instruction: &Instruction| match instruction.access() {
        Access::Wide => Some('L'),
        Access::Narrow => Some('l'),
        Access::Store => Some('S'),
        Access::Local | Access::None => None,
    };
    body.iter().filter_map(letter).collect()
}

/// Returns whether no instruction before the last wide load names a register that one has filled.
fn loads_precede_uses(body: &[Instruction]) -> bool {
    let is_wide = |instruction: &Instruction| instruction.access() == Access::Wide;
    let Some(last) = body.iter().rposition(is_wide) else { return true };
    let mut filled = Vec::new();
    for instruction in &body[..=last] {
        if instruction.registers().any(|register| filled.contains(&register)) {
            return false;
        }
        if is_wide(instruction) {
            filled.extend(instruction.filled_registers());
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::{Assembly, RULES, Resources, check, is_ruled};

    /// A kernel with one loop of these instructions.
    fn breaches_of(kernel: &str, registers: u32, body: &[&str]) -> Vec<String> {
        let lines: Vec<String> = body
            .iter()
            .chain(&["@P0 BRA `(.L_x_1)"])
            .map(|text| format!("        /*0000*/                   {text} ;\n"))
            .collect();
        let listing = format!(".text.{kernel}:\n.L_x_1:\n{}", lines.concat());
        let resources = Resources { registers, ..Resources::default() };
        let assembly = Assembly { resources: [(kernel.to_owned(), resources)].into(), listing };
        let breaches = check(&assembly).expect_err("the other kernels are missing");
        breaches.into_iter().filter(|breach| !breach.ends_with("is missing")).collect()
    }

    const IDS: [&str; 4] = ["LDG.E R0, [R2.64]"; 4];
    const LOADS: [&str; 4] = [
        "LDG.E.NA.128 R8, [R2.64]",
        "LDG.E.NA.128 R12, [R2.64]",
        "LDG.E.NA.128 R16, [R2.64]",
        "LDG.E.NA.128 R20, [R2.64]",
    ];
    const STORES: [&str; 4] = ["STG.E.128 [R4.64], R8"; 4];

    #[test]
    fn four_ids_four_words_four_stores_pass() {
        let body = [IDS, LOADS, STORES].concat();
        for kernel in ["kvtide_gather_16", "kvtide_copy_16", "kvtide_scatter_16"] {
            assert_eq!(breaches_of(kernel, 64, &body), Vec::<String>::new());
        }
    }

    #[test]
    fn a_store_between_loads_does_not_pass() {
        let mixed = [&IDS[..], &LOADS[..3], &STORES[..1], &LOADS[3..], &STORES[1..]].concat();
        for kernel in ["kvtide_gather_16", "kvtide_copy_16", "kvtide_scatter_16"] {
            assert_eq!(breaches_of(kernel, 64, &mixed).len(), 1);
        }
    }

    #[test]
    fn an_id_after_a_word_passes_in_scatter_only() {
        let mixed = [&IDS[..3], &LOADS[..1], &IDS[3..], &LOADS[1..], &STORES[..]].concat();
        assert_eq!(breaches_of("kvtide_scatter_16", 64, &mixed).len(), 0);
        assert_eq!(breaches_of("kvtide_gather_16", 64, &mixed).len(), 1);
    }

    #[test]
    fn a_sum_between_loads_does_not_pass() {
        assert_eq!(breaches_of("kvtide_checksum", 64, &LOADS).len(), 0);
        let mixed = [&LOADS[..2], &["IADD3 R30, R13, R31, RZ"], &LOADS[2..]].concat();
        assert_eq!(breaches_of("kvtide_checksum", 64, &mixed).len(), 1);
    }

    #[test]
    fn registers_and_local_memory_are_bounded() {
        assert_eq!(breaches_of("kvtide_checksum", 65, &LOADS).len(), 1);
        let spilt = [&LOADS[..], &["STL [R1], R8"]].concat();
        assert_eq!(breaches_of("kvtide_checksum", 64, &spilt).len(), 1);
    }

    #[test]
    fn every_kernel_has_a_rule() {
        assert_eq!(RULES.len(), kvtide_kernels::abi::KERNELS.len());
        assert!(kvtide_kernels::abi::KERNELS.iter().all(|kernel| is_ruled(kernel.name)));
        assert!(breaches_of("kvtide_new", 1, &[]).contains(&"kvtide_new has no rule".to_owned()));
    }
}
