//! `cargo xtask ptx-shape`: assembles the committed PTX and looks at the machine code.
//!
//! The rules hold for every target, and each run proves that they can fail: the same kernels with
//! loads that the assembler may move, without launch bounds, and with a store after each load must
//! be refused. Counts, and the roofline that follows from them, are compared with the tables in
//! `docs/kernels.md` and `docs/roofline.md`. Called by people and by `.ci/run`.

mod assembler;
mod listing;
mod roofline;
mod rules;
mod table;
mod variants;

use assembler::Assembler;
use rules::Measured;
use std::path::Path;

/// From the oldest that is promised to the newest that ptxas knows of the families in use.
const TARGETS: [&str; 5] = ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"];

/// The kernels that a store after each load spoils.
const COPYING: [&str; 3] = ["kvtide_copy_16", "kvtide_gather_16", "kvtide_scatter_16"];

/// Checks the shape of all kernels and compares the table, or writes it; returns what was checked.
pub(crate) fn run(root: &Path, write: bool) -> Result<String, String> {
    let assembler = Assembler::find(root)?;
    let version = assembler.version()?;
    let work = root.join("target/shape");
    let ptx = kvtide_kernels::ptx::TEXT;
    let measured = check_kernels(&assembler, ptx, &work)?;
    let refused = prove_rules(&assembler, ptx, &work)?;
    let roofline = roofline::render(&version, &assembler.assemble(ptx, roofline::TARGET, &work)?)?;
    let counts =
        compare(root, &version, table::COUNTS, &table::render(&version, &measured), write)?;
    let roofline = compare(root, &version, table::ROOFLINE, &roofline, write)?;
    Ok(format!(
        "by ptxas {version} for {}:\n\
         - no spill, no stack, at most 64 registers, loads in flight as the rules ask\n\
         - the rules can fail; refused: {refused}\n\
         - {counts}\n\
         - {roofline}",
        TARGETS.join(", ")
    ))
}

/// Checks the kernels for every target.
fn check_kernels(
    assembler: &Assembler,
    ptx: &str,
    work: &Path,
) -> Result<Vec<(&'static str, Vec<Measured>)>, String> {
    let mut measured = Vec::new();
    let mut breaches = Vec::new();
    for (target, outcome) in check_targets(assembler, ptx, work)? {
        match outcome {
            Ok(kernels) => measured.push((target, kernels)),
            Err(of_target) => {
                breaches.extend(of_target.into_iter().map(|breach| format!("{target}: {breach}")));
            }
        }
    }
    if breaches.is_empty() { Ok(measured) } else { Err(breaches.join("\n")) }
}

/// Checks that the rules refuse worse kernels; returns which were refused where.
fn prove_rules(assembler: &Assembler, ptx: &str, work: &Path) -> Result<String, String> {
    let mut proofs = Vec::new();
    for (what, variant) in [
        ("read-only loads", variants::with_read_only_loads(ptx)?),
        ("no launch bounds", variants::without_launch_bounds(ptx)?),
    ] {
        let outcomes = check_targets(assembler, &variant, &work.join(what))?;
        let refused: Vec<&str> = outcomes
            .into_iter()
            .filter_map(|(target, outcome)| outcome.is_err().then_some(target))
            .collect();
        if refused.is_empty() {
            return Err(format!("the rules pass kernels with {what} on every target"));
        }
        proofs.push(format!("{what} ({})", refused.join(", ")));
    }
    let what = "a store after each load";
    let variant = variants::with_stores_after_each_load(ptx)?;
    for (target, outcome) in check_targets(assembler, &variant, &work.join(what))? {
        let breaches = outcome.err().unwrap_or_default();
        for kernel in COPYING {
            if !breaches.iter().any(|breach| breach.starts_with(&format!("{kernel} has no hot"))) {
                return Err(format!("{target}: the rules pass {kernel} with {what}"));
            }
        }
    }
    proofs.push(format!("{what} (all)"));
    Ok(proofs.join(", "))
}

/// What the rules say of one target: measures, or breaches.
type Outcome = (&'static str, Result<Vec<Measured>, Vec<String>>);

/// Assembles `ptx` for every target and applies the rules.
fn check_targets(assembler: &Assembler, ptx: &str, work: &Path) -> Result<Vec<Outcome>, String> {
    let check = |target: &'static str| {
        assembler.assemble(ptx, target, work).map(|assembly| (target, rules::check(&assembly)))
    };
    TARGETS.into_iter().map(check).collect()
}

/// Compares tables with those in their document, or writes them; returns which it was.
fn compare(
    root: &Path,
    version: &str,
    place: table::Place,
    tables: &str,
    write: bool,
) -> Result<String, String> {
    let (name, file) = (place.document, root.join(place.document));
    let file_error = |error: std::io::Error| format!("{}: {error}", file.display());
    let document = std::fs::read_to_string(&file).map_err(file_error)?;
    let replaced = place.fill(&document, tables)?;
    if replaced == document {
        return Ok(format!("the tables are those of {name}"));
    }
    if write {
        std::fs::write(&file, replaced).map_err(file_error)?;
        return Ok(format!("wrote the tables to {name}"));
    }
    if !table::is_of_version(&document, version) {
        return Ok(format!("tables not compared: {name} has those of another ptxas"));
    }
    Err(format!(
        "the tables differ from those in {name}; look at them, then run \
         `cargo xtask ptx-shape --write`"
    ))
}

#[cfg(test)]
mod tests {
    use super::{compare, table};
    use std::fs;

    #[test]
    fn a_stale_table_is_an_error_unless_it_is_of_another_ptxas() {
        let root = std::env::temp_dir().join(format!("kvtide-shape-{}", std::process::id()));
        let place = table::ROOFLINE;
        fs::create_dir_all(root.join("docs")).expect("a folder");
        fs::write(root.join(place.document), place.empty()).expect("a file");
        let compare = |version, roofline, write| compare(&root, version, place, roofline, write);
        let written = compare("V13.5.37", "By ptxas V13.5.37: fast\n", true);
        let same = compare("V13.5.37", "By ptxas V13.5.37: fast\n", false);
        let stale = compare("V13.5.37", "slow\n", false);
        let other = compare("V13.6.1", "slow\n", false);
        fs::remove_dir_all(&root).expect("the folder");
        assert!(written.is_ok_and(|done| done.starts_with("wrote")));
        assert!(same.is_ok_and(|done| done.contains("are those of")));
        assert!(stale.is_err_and(|why| why.contains("--write")));
        assert!(other.is_ok_and(|done| done.contains("another ptxas")));
    }
}
