//! Results of `kvtide gc`: what went, or would go, and what is left.

use super::text::age;
use crate::error::{CliError, by_process};
use crate::store_args::GcArguments;
use crate::stores::{name, now_s};
use kvtide::store::{FoundStore, HeldStore, Reclaimed};
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

#[derive(Serialize)]
struct JsonReport {
    kvtide_version: &'static str,
    directory: String,
    dry_run: bool,
    size_bytes: u64,
    left_bytes: u64,
    is_reached: bool,
    removed: Vec<JsonStore>,
    in_use: Vec<JsonHeld>,
}

#[derive(Serialize)]
struct JsonStore {
    directory: String,
    instance: u32,
    store_id: String,
    bytes: u64,
    written_s: u64,
}

#[derive(Serialize)]
struct JsonHeld {
    #[serde(flatten)]
    store: JsonStore,
    process: Option<u32>,
}

/// Returns the collection as one JSON document; `kvtide gc --help` documents its fields.
pub(crate) fn json(
    arguments: &GcArguments,
    root: &Path,
    collected: &Reclaimed,
) -> Result<String, CliError> {
    let held = |held: &HeldStore| JsonHeld {
        store: json_store(root, &held.store),
        process: held.holder.process,
    };
    let report = JsonReport {
        kvtide_version: env!("CARGO_PKG_VERSION"),
        directory: arguments.directory.display().to_string(),
        dry_run: arguments.dry_run,
        size_bytes: arguments.size.get(),
        left_bytes: collected.left.get(),
        is_reached: collected.left <= arguments.size,
        removed: collected.stores.iter().map(|store| json_store(root, store)).collect(),
        in_use: collected.held.iter().map(held).collect(),
    };
    Ok(serde_json::to_string_pretty(&report)? + "\n")
}

fn json_store(root: &Path, store: &FoundStore) -> JsonStore {
    JsonStore {
        directory: name(store, root),
        instance: store.instance,
        store_id: store.store_id.to_string(),
        bytes: store.bytes.get(),
        written_s: store.modified_s,
    }
}

/// Returns the collection for people.
pub(crate) fn text(arguments: &GcArguments, root: &Path, collected: &Reclaimed) -> String {
    let mut text = String::new();
    let removed = if arguments.dry_run { "would remove" } else { "removed" };
    let now_s = now_s();
    for store in &collected.stores {
        let (name, bytes) = (name(store, root), store.bytes);
        let age = age(now_s.saturating_sub(store.modified_s));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{removed} {name}: {bytes}, written {age} ago");
    }
    for HeldStore { store, holder } in &collected.held {
        let (name, bytes) = (name(store, root), store.bytes);
        let by = by_process(holder.process);
        let _ = writeln!(text, "kept {name}: {bytes}, in use{by}");
    }
    let count = collected.stores.len();
    let noun = if count == 1 { "store" } else { "stores" };
    let (left, size) = (collected.left, arguments.size);
    let _ = writeln!(text, "{removed} {count} {noun}; {left} left, {size} allowed");
    text
}
