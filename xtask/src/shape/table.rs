//! The table in `docs/kernels.md`: what each kernel measures on each target.

use super::rules::{Measured, RULES};
use std::fmt::Write as _;

/// What stands around the table in the document.
const START: &str = "<!-- written by `cargo xtask ptx-shape --write` -->\n";
const END: &str = "<!-- end -->\n";

/// Returns the table: the version of ptxas, then a row a kernel.
///
/// `measured` has an item a target, each with a kernel an item, in the order of the rules.
pub(super) fn render(version: &str, measured: &[(&str, Vec<Measured>)]) -> String {
    let targets: Vec<&str> = measured.iter().map(|(target, _)| *target).collect();
    let mut text = format!(
        "{}| kernel | loads in flight a lane | {} |\n|---|---|{}\n",
        version_line(version),
        targets.join(" | "),
        "---|".repeat(targets.len())
    );
    for (number, rule) in RULES.iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = write!(text, "| `{}` | {} |", rule.kernel, rule.in_flight);
        for (_, kernels) in measured {
            let Measured { registers, instruction_count, hot_loop_instruction_count } =
                kernels[number];
            let hot_loop =
                hot_loop_instruction_count.map_or("-".to_owned(), |count| count.to_string());
            let _ = write!(text, " {registers} / {instruction_count} / {hot_loop} |");
        }
        text.push('\n');
    }
    text
}

/// Returns the line that says which ptxas was used.
fn version_line(version: &str) -> String {
    format!("By ptxas {version}: registers / instructions / instructions of the hot loop.\n\n")
}

/// Returns the document with `table` in place of the one it has.
pub(super) fn replace(document: &str, table: &str) -> Result<String, String> {
    let (before, after) = split(document)?;
    Ok(format!("{before}{START}{table}{END}{after}"))
}

/// Returns whether the document's table is of this version of ptxas.
pub(super) fn is_of_version(document: &str, version: &str) -> bool {
    document.contains(&version_line(version))
}

/// Splits the document at its table.
fn split(document: &str) -> Result<(&str, &str), String> {
    let missing = || format!("docs/kernels.md lacks the lines {START}and {END}");
    let (before, rest) = document.split_once(START).ok_or_else(missing)?;
    let (_, after) = rest.split_once(END).ok_or_else(missing)?;
    Ok((before, after))
}

#[cfg(test)]
mod tests {
    use super::{END, Measured, RULES, START, is_of_version, render, replace};

    #[test]
    fn the_table_takes_the_place_of_the_old_one() {
        let one = Measured {
            registers: 48,
            instruction_count: 700,
            hot_loop_instruction_count: Some(184),
        };
        let table = render("V13.5.37", &[("sm_80", vec![one; RULES.len()])]);
        assert!(table.contains("| `kvtide_gather_16` | 4 of 16 bytes | 48 / 700 / 184 |\n"));
        let document = format!("# Kernels\n{START}old\n{END}The rest.\n");
        let replaced = replace(&document, &table).expect("the marks are there");
        assert_eq!(replaced, format!("# Kernels\n{START}{table}{END}The rest.\n"));
        assert!(is_of_version(&replaced, "V13.5.37") && !is_of_version(&replaced, "V13.6.1"));
        assert!(replace("no marks", &table).is_err());
    }
}
