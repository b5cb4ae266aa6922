//! The roofline of each kernel on an H200: what a card should measure, from its machine code.
//!
//! | file | what |
//! |---|---|
//! | `hardware.rs` | every number of the machine, with its source |
//! | `pipe.rs` | which part of a multiprocessor an instruction occupies |
//! | `registers.rs`, `warp.rs` | one warp alone: what waits for what |
//! | `span.rs` | the machine code of one span |
//! | `fragment.rs` | what fragments cost in lines and sectors |
//! | `bound.rs` | rates of payload, and the tightest |
//! | `document.rs` | the tables in `docs/roofline.md` |
//!
//! A model of throughputs and latencies: each bound alone, as if all else were free, and the least
//! of them is the prediction. But for payload and ids that caches keep, what it leaves out makes a
//! kernel slower: a card that beats it refutes a premise, one that stays below shows what is
//! missing.

mod bound;
mod document;
#[cfg(test)]
mod fixture;
mod fragment;
mod hardware;
mod pipe;
mod registers;
mod span;
mod warp;

use super::assembler::Assembly;
use super::listing::{Kernel, parse};
use bound::{PROFILES, Subject};
use span::SpanCode;
use std::collections::BTreeMap;

/// The target whose machine code an H200 runs.
pub(super) const TARGET: &str = "sm_90";

/// Returns the tables.
///
/// # Errors
///
/// When a kernel is missing, has no span to be found, or an instruction that no pipe is known for.
pub(super) fn render(version: &str, assembly: &Assembly) -> Result<String, String> {
    let kernels = parse(&assembly.listing);
    let subjects = PROFILES.map(|profile| {
        let kernel = kernel(&kernels, profile.kernel)?;
        let resources = assembly.resources.get(profile.kernel);
        let registers = resources.map(|resources| resources.registers);
        Subject::read(profile, kernel, registers.ok_or("no report of registers")?)
    });
    let subjects: Vec<Subject> = subjects.into_iter().collect::<Result<_, _>>()?;
    let judge = kernel(&kernels, "kvtide_judge")?;
    let judge = SpanCode::find("kvtide_judge", judge, 0)?;
    document::render(version, &subjects, &judge)
}

fn kernel<'all>(
    kernels: &'all BTreeMap<String, Kernel>,
    name: &str,
) -> Result<&'all Kernel, String> {
    kernels.get(name).ok_or_else(|| format!("{name} is missing"))
}

#[cfg(test)]
mod tests {
    use super::render;
    use crate::shape::assembler::Assembly;
    use crate::shape::roofline::fixture::copy_listing;

    #[test]
    fn a_kernel_that_is_missing_is_an_error() {
        let assembly = Assembly { resources: [].into(), listing: copy_listing("") };
        assert_eq!(render("V13.5.37", &assembly), Err("kvtide_checksum is missing".to_owned()));
    }
}
