//! The tables in `docs/kernels.md` and `docs/roofline.md`: their places, and what each kernel
//! measures on each target.

use super::rules::{Measured, RULES};
use std::fmt::Write as _;

/// Where in the document tables stand: between a line and the next [`END`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// The document, from the repository's root.
    pub(super) document: &'static str,
    /// The line before the tables.
    start: &'static str,
}

/// The table of counts.
pub(super) const COUNTS: Place = Place {
    document: "docs/kernels.md",
    start: "<!-- written by `cargo xtask ptx-shape --write` -->\n",
};

/// The tables of the roofline.
pub(super) const ROOFLINE: Place = Place {
    document: "docs/roofline.md",
    start: "<!-- written by `cargo xtask ptx-shape --write` -->\n",
};

/// What stands after a table.
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

impl Place {
    /// Returns the lines of a document that has no table here yet.
    #[cfg(test)]
    pub(super) fn empty(self) -> String {
        let Self { start, .. } = self;
        format!("{start}{END}")
    }

    /// Returns the document with `tables` in place of those that it has here.
    pub(super) fn fill(self, document: &str, tables: &str) -> Result<String, String> {
        let Self { document: name, start } = self;
        let missing = || format!("{name} lacks the lines {start}and {END}");
        let (before, rest) = document.split_once(start).ok_or_else(missing)?;
        let (_, after) = rest.split_once(END).ok_or_else(missing)?;
        Ok(format!("{before}{start}{tables}{END}{after}"))
    }
}

/// Returns whether the document's table is of this version of ptxas.
pub(super) fn is_of_version(document: &str, version: &str) -> bool {
    document.contains(&format!("ptxas {version}"))
}

#[cfg(test)]
mod tests {
    use super::{COUNTS, END, Measured, RULES, is_of_version, render};

    #[test]
    fn the_table_takes_the_place_of_the_old_one() {
        let one = Measured {
            registers: 48,
            instruction_count: 700,
            hot_loop_instruction_count: Some(184),
        };
        let table = render("V13.5.37", &[("sm_80", vec![one; RULES.len()])]);
        assert!(table.contains("| `kvtide_gather_16` | 4 of 16 bytes | 48 / 700 / 184 |\n"));
        let start = COUNTS.start;
        let kept = "The rest.\n";
        let document = format!("# Kernels\n{start}old\n{END}{kept}");
        let replaced = COUNTS.fill(&document, &table).expect("the marks are there");
        assert_eq!(replaced, format!("# Kernels\n{start}{table}{END}{kept}"));
        assert!(is_of_version(&replaced, "V13.5.37") && !is_of_version(&replaced, "V13.6.1"));
        assert!(COUNTS.fill("no marks", &table).is_err());
    }
}
