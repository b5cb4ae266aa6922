//! `docs/disk-format.md`, held against the encoder: offsets, lengths, names and dumps.

use super::damage::kinds;
use super::examples::{dump, pages, repository};
use std::fs;

fn document() -> String {
    fs::read_to_string(repository().join("docs/disk-format.md")).expect("the document is there")
}

/// Returns the text between a heading and the next of its level or above.
fn section<'text>(text: &'text str, heading: &str) -> &'text str {
    let start = text.find(&format!("\n## {heading}\n")).expect(heading) + 1;
    let rest = &text[start..];
    &rest[..rest[3..].find("\n## ").map_or(rest.len(), |end| end + 3)]
}

#[test]
fn the_tables_give_every_field_where_it_lies() {
    let text = document();
    for kind in kinds() {
        let section = section(&text, &heading(&kind.structure.to_string()));
        for field in &kind.fields {
            // Entries of a snapshot are tabulated by their own offsets: that of the third begins
            // at byte 128.
            let is_entry = field.offset < 192 && kind.structure.to_string() == "snapshot page";
            let name = field.name.rsplit(' ').next().expect("a name");
            let offset = if is_entry { field.offset % 64 } else { field.offset };
            let row = format!("| {offset} | {} | `{name}` |", field.bytes);
            assert!(section.contains(&row), "{}: no row {row}", kind.structure);
        }
    }
}

#[test]
fn the_dumps_are_those_of_the_examples() {
    let text = document();
    for (name, page) in pages() {
        let section = section(&text, &heading(&name.replace('_', " ")));
        let block = format!("```text\n{}```\n", dump(&page));
        assert!(section.contains(&block), "{name}: its dump should be\n{block}");
    }
}

/// Returns a page's heading: its name, with a capital.
fn heading(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
