//! Results of `kvtide check`: what is damaged, by kind, what was done, and what is there.

use super::text::grouped;
use crate::check::{Damage, Instance, Kind, Scope, StoreCheck};
use crate::check_slots::Checked;
use crate::error::{CliError, by_process};
use crate::store_args::CheckArguments;
use kvtide::units::SlotIndex;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

#[derive(Serialize)]
struct JsonReport<'checks> {
    kvtide_version: &'static str,
    directory: String,
    payload: bool,
    repair: bool,
    damaged_store_count: usize,
    stores: Vec<JsonStore<'checks>>,
}

#[derive(Serialize)]
struct JsonStore<'check> {
    directory: &'check str,
    instance: u32,
    store_id: String,
    result: &'static str,
    reason: Option<String>,
    process: Option<u32>,
    slots: Option<JsonSlots>,
    damage: Vec<JsonDamage<'check>>,
    repairs: &'check [String],
    repair_failure: Option<&'check str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chunks: Option<Vec<JsonChunk>>,
}

#[derive(Serialize)]
struct JsonSlots {
    slot_count: u32,
    resident_chunk_count: usize,
    expired_count: u64,
    older_count: u32,
    cleared_count: u32,
    payload_bytes: u64,
}

#[derive(Serialize)]
struct JsonDamage<'check> {
    kind: &'static str,
    count: u64,
    first: Vec<JsonInstance<'check>>,
}

#[derive(Serialize)]
struct JsonInstance<'check> {
    slot: Option<u32>,
    key: Option<String>,
    what: &'check str,
}

#[derive(Serialize)]
struct JsonChunk {
    key: String,
    slot: u32,
}

/// Returns the checks as one JSON document; `kvtide check --help` documents its fields.
pub(crate) fn json(arguments: &CheckArguments, checks: &[StoreCheck]) -> Result<String, CliError> {
    let report = JsonReport {
        kvtide_version: env!("CARGO_PKG_VERSION"),
        directory: arguments.directory.display().to_string(),
        payload: arguments.payload,
        repair: arguments.repair,
        damaged_store_count: checks.iter().filter(|check| !check.findings.is_empty()).count(),
        stores: checks.iter().map(|check| json_store(check, arguments.list)).collect(),
    };
    Ok(serde_json::to_string_pretty(&report)? + "\n")
}

fn json_store(check: &StoreCheck, with_chunks: bool) -> JsonStore<'_> {
    let process = match check.scope {
        Scope::InUse { process } => process,
        _ => None,
    };
    let json_chunks = |checked: &Checked| {
        let chunks = checked.resident.iter();
        chunks.map(|(key, slot)| JsonChunk { key: key.to_string(), slot: slot.get() }).collect()
    };
    let chunks = check.checked.as_ref().map_or_else(Vec::new, json_chunks);
    JsonStore {
        directory: &check.name,
        instance: check.found.instance,
        store_id: check.found.store_id.to_string(),
        result: check.result(),
        reason: check.reason(),
        process,
        slots: check.checked.as_ref().map(json_slots),
        damage: check.findings.0.iter().map(json_damage).collect(),
        repairs: &check.mending.done,
        repair_failure: check.mending.failure.as_deref(),
        chunks: with_chunks.then_some(chunks),
    }
}

fn json_slots(checked: &Checked) -> JsonSlots {
    JsonSlots {
        slot_count: checked.slot_count,
        resident_chunk_count: checked.resident.len(),
        expired_count: checked.expired_count,
        older_count: checked.older_count,
        cleared_count: checked.cleared_count,
        payload_bytes: checked.payload.get(),
    }
}

fn json_damage<'check>((kind, damage): (&Kind, &'check Damage)) -> JsonDamage<'check> {
    let first = damage.first.iter().map(|Instance { slot, key, what }| JsonInstance {
        slot: slot.map(SlotIndex::get),
        key: key.map(|key| key.to_string()),
        what,
    });
    JsonDamage { kind: kind.name(), count: damage.count, first: first.collect() }
}

/// Returns the checks for people, a paragraph a store.
pub(crate) fn text(directory: &Path, checks: &[StoreCheck]) -> String {
    let mut text = String::new();
    for check in checks {
        paragraph(&mut text, check);
    }
    let resident = checks.iter().filter_map(|check| check.checked.as_ref());
    let resident = resident.map(|checked| checked.resident.len() as u64).sum();
    let (stores, chunks) = (checks.len(), grouped(resident));
    let noun = if stores == 1 { "store" } else { "stores" };
    let chunk_noun = if resident == 1 { "chunk" } else { "chunks" };
    let name = directory.display();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{name}: {stores} {noun}, {chunks} resident {chunk_noun}");
    text
}

fn paragraph(text: &mut String, check: &StoreCheck) {
    let result = check.result().replace('_', " ");
    let details = check.checked.as_ref().map(in_words).or_else(|| check.reason());
    let details = details.map(|details| format!(", {details}")).unwrap_or_default();
    let _ = writeln!(text, "{}: {result}{details}", check.name);
    for (kind, damage) in &check.findings.0 {
        let _ = writeln!(text, "  {}: {} found", kind.name(), grouped(damage.count));
        for instance in &damage.first {
            let _ = writeln!(text, "    {}", instance.in_words());
        }
        if damage.count > damage.first.len() as u64 {
            let _ = writeln!(text, "    ...");
        }
    }
    for done in &check.mending.done {
        let _ = writeln!(text, "  repaired: {done}");
    }
    if let Some(failure) = &check.mending.failure {
        let _ = writeln!(text, "  not repaired: {failure}");
    }
}

fn in_words(checked: &Checked) -> String {
    let (resident, slots) = (checked.resident.len() as u64, checked.slot_count.into());
    let mut text =
        format!("{} of {} slots hold resident chunks", grouped(resident), grouped(slots));
    let others = [
        (checked.expired_count, "expired"),
        (checked.older_count.into(), "older"),
        (checked.cleared_count.into(), "cleared"),
    ];
    for (count, name) in others.into_iter().filter(|(count, _)| *count > 0) {
        let _ = write!(text, ", {} {name}", grouped(count));
    }
    if checked.payload.get() > 0 {
        let _ = write!(text, ", {} of payload compared", checked.payload);
    }
    text
}

impl Instance {
    fn in_words(&self) -> String {
        let slot = self.slot.map(|slot| format!("slot {slot}"));
        let key = self.key.map(|key| format!("chunk {key}"));
        let place: Vec<String> = slot.into_iter().chain(key).collect();
        if place.is_empty() {
            return self.what.clone();
        }
        format!("{}: {}", place.join(", "), self.what)
    }
}

impl StoreCheck {
    fn result(&self) -> &'static str {
        match self.scope {
            _ if !self.findings.is_empty() => "damaged",
            Scope::Whole => "sound",
            Scope::InUse { .. } => "in_use",
            Scope::Unfinished => "unfinished",
            Scope::OtherVersion(_) => "other_version",
        }
    }

    /// Says what was not checked, and why.
    fn reason(&self) -> Option<String> {
        match &self.scope {
            Scope::Whole => None,
            Scope::InUse { process } => {
                let by = by_process(*process);
                Some(format!("only its superblock was checked, because it is in use{by}"))
            }
            Scope::Unfinished => Some("nothing is in it; the next open makes it anew".to_owned()),
            Scope::OtherVersion(reason) => Some(reason.clone()),
        }
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Superblock => "superblock",
            Self::Foreign => "foreign",
            Self::Index => "index",
            Self::Length => "length",
            Self::Header => "header",
            Self::Payload => "payload",
            Self::Unreadable => "unreadable",
        }
    }
}
