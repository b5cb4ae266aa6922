//! That the comparison can fail: PTX with one line altered is found out, by a fault or by a byte.

use crate::checks;
use crate::chosen::{of_width, shapes};
use crate::judge::judge_many;
use crate::machine::Machine;
use crate::memory::Wrong;
use crate::scene::{Scene, Shape};
use kvtide_kernels::abi::KERNELS;
use kvtide_kernels::arch::Word;
use kvtide_kernels::ptx;
use kvtide_simcuda::ptx::Module;
use std::sync::Arc;

/// Returns scenes that between them have what a kernel can be wrong about.
fn all_shapes() -> Vec<Shape> {
    let widths = [(16, 103), (24, 103), (48, 7), (132, 103), (656, 7), (16_384, 7), (36_868, 7)];
    let chosen = widths.iter().flat_map(|(width, block_count)| {
        [1, 3, 16].map(|warp_count| of_width(*width, vec![*block_count, 1, 30], warp_count))
    });
    chosen.chain(shapes(24)).collect()
}

/// Runs the checks of a kernel, up to the first that fails.
fn first_wrong(kernel: &str, text: &str, shapes: &[Shape]) -> Option<Wrong> {
    let machine = Machine::Ptx(Arc::new(Module::parse(text).expect("it is PTX still")));
    let check = match kernel {
        "kvtide_fill" => {
            let pattern = Word { low: 7, high: 9 };
            let fill = |warp_count| {
                let word_counts = [130, 2500, 1024, 3, 1130, 240];
                checks::fill_ranges(machine.clone(), &word_counts, pattern, warp_count, 1)
            };
            return [1, 5, 16].into_iter().find_map(|warp_count| fill(warp_count).err());
        }
        "kvtide_checksum" => checks::checksum,
        "kvtide_judge" => {
            let judge = |warp_count| judge_many(machine.clone(), 3, 200, 3..170, warp_count, 1);
            return [1, 5, 24].into_iter().find_map(|warp_count| judge(warp_count).err());
        }
        "kvtide_gather_16" | "kvtide_gather_4" => checks::gather,
        "kvtide_scatter_16" | "kvtide_scatter_4" => checks::scatter,
        _ => checks::copy,
    };
    shapes.iter().find_map(|shape| check(&mut Scene::new(shape, machine.clone())).err())
}

/// Returns a kernel's text and that of its sibling for the other alignment, as one module.
fn module_text(kernel: &str) -> (String, Vec<&'static str>) {
    let (header, entries) = ptx::TEXT.split_once(".visible .entry ").expect("there are entries");
    let family = kernel.trim_end_matches("_16").trim_end_matches("_4");
    let is_own = |entry: &&str| entry.starts_with(&format!("{kernel}("));
    let entries = entries.split(".visible .entry ");
    let (own, others): (Vec<&str>, Vec<&str>) = entries.partition(is_own);
    let siblings = others.into_iter().filter(|entry| entry.starts_with(family));
    let others: String = siblings.flat_map(|entry| [".visible .entry ", entry]).collect();
    (format!("{header}{others}.visible .entry "), own[0].lines().collect())
}

/// Returns `line` with the address of its access 16 bytes further on.
fn misplaced(line: &str) -> Option<String> {
    let (before, rest) = line.split_once('[')?;
    let (address, after) = rest.split_once(']')?;
    let (base, offset) = address.split_once('+').unwrap_or((address, "0"));
    let offset: u32 = offset.parse().expect("rustc writes decimal offsets");
    Some(format!("{before}[{base}+{}]{after}", offset + 16))
}

/// Returns what a line is altered to: an access is dropped or misplaced, a 64-bit sum, of which
/// addresses are made, becomes a difference.
///
/// Judge's sums stay: it counts good parts in 64 bits, of which the upper half is always 0.
fn alterations(kernel: &str, line: &str) -> Vec<String> {
    let accesses = ["ld.global", "st.global", "red.global", "shfl.sync"];
    if accesses.iter().any(|access| line.contains(access)) {
        return [Some(String::new()), misplaced(line)].into_iter().flatten().collect();
    }
    let is_sum = line.contains("add.s64") && kernel != "kvtide_judge";
    if is_sum { vec![line.replace("add.s64", "sub.s64")] } else { Vec::new() }
}

#[test]
fn every_access_or_sum_that_is_altered_is_found_out() {
    let shapes = all_shapes();
    let mut unseen = Vec::new();
    for kernel in KERNELS {
        let (others, lines) = module_text(kernel.name);
        let first_wrong = |lines: &[&str]| {
            first_wrong(kernel.name, &format!("{others}{}", lines.join("\n")), &shapes)
        };
        assert!(first_wrong(&lines).is_none(), "{} as it is", kernel.name);
        for (index, line) in lines.iter().enumerate() {
            for altered in alterations(kernel.name, line) {
                let mut lines = lines.clone();
                lines[index] = &altered;
                if first_wrong(&lines).is_none() {
                    unseen.push(format!("{}: {line} as {altered}", kernel.name));
                }
            }
        }
    }
    assert_eq!(unseen, Vec::<String>::new());
}
