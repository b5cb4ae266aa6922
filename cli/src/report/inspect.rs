//! Results of `kvtide inspect`: what each store is, and what all take up together.

use super::text::{age, grouped};
use crate::error::{CliError, by_process};
use crate::inspect::{Inspected, State};
use kvtide::store::Survey;
use kvtide::store::format::{FORMAT_VERSION, Superblock};
use kvtide::units::ByteCount;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

#[derive(Serialize)]
struct JsonReport<'stores> {
    kvtide_version: &'static str,
    directory: String,
    store_count: usize,
    bytes: u64,
    stores: Vec<JsonStore<'stores>>,
}

#[derive(Serialize)]
struct JsonStore<'store> {
    directory: &'store str,
    instance: u32,
    store_id: String,
    state: &'static str,
    reason: Option<&'store str>,
    process: Option<u32>,
    superblock_damage: Option<String>,
    bytes: u64,
    written_s: u64,
    age_seconds: u64,
    superblock: Option<JsonSuperblock>,
}

#[derive(Serialize)]
struct JsonSuperblock {
    uuid: String,
    format_version: u32,
    epoch: u32,
    generation_floor: String,
    slot_bytes: u64,
    slot_count: u32,
    used_slot_count: Option<u64>,
    group: u8,
    codec: &'static str,
    block_tokens: u32,
    blocks_per_chunk: u32,
    part_count: u16,
}

/// Returns the stores as one JSON document; `kvtide inspect --help` documents its fields.
pub(crate) fn json(
    directory: &Path,
    inspected: &[Inspected],
    now_s: u64,
) -> Result<String, CliError> {
    let report = JsonReport {
        kvtide_version: env!("CARGO_PKG_VERSION"),
        directory: directory.display().to_string(),
        store_count: inspected.len(),
        bytes: total(inspected).get(),
        stores: inspected.iter().map(|store| json_store(store, now_s)).collect(),
    };
    Ok(serde_json::to_string_pretty(&report)? + "\n")
}

fn json_store(store: &Inspected, now_s: u64) -> JsonStore<'_> {
    let Inspected { name, found, state, survey } = store;
    let survey = survey.as_ref();
    JsonStore {
        directory: name,
        instance: found.instance,
        store_id: found.store_id.to_string(),
        state: state.name(),
        reason: state.reason(),
        process: state.process(),
        superblock_damage: survey.and_then(superblock_damage),
        bytes: found.bytes.get(),
        written_s: found.modified_s,
        age_seconds: now_s.saturating_sub(found.modified_s),
        superblock: survey.and_then(json_superblock),
    }
}

fn json_superblock(survey: &Survey) -> Option<JsonSuperblock> {
    let superblock = survey.superblock.current().ok()?;
    let shape = &superblock.shape;
    Some(JsonSuperblock {
        uuid: superblock.store_uuid.to_string(),
        format_version: FORMAT_VERSION,
        epoch: superblock.epoch.get(),
        generation_floor: superblock.min_generation.to_string(),
        slot_bytes: shape.slot().get(),
        slot_count: superblock.slot_count,
        used_slot_count: used_slots(survey),
        group: shape.group().get(),
        codec: shape.codec().name(),
        block_tokens: shape.block_tokens().get(),
        blocks_per_chunk: shape.blocks_per_chunk().get(),
        part_count: shape.part_count(),
    })
}

/// Returns the stores for people, a paragraph each, and their total.
pub(crate) fn text(directory: &Path, inspected: &[Inspected], now_s: u64) -> String {
    let mut text = String::new();
    for store in inspected {
        paragraph(&mut text, store, now_s);
        text.push('\n');
    }
    let (stores, bytes) = (inspected.len(), total(inspected));
    let noun = if stores == 1 { "store" } else { "stores" };
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{}: {stores} {noun}, {bytes} on disk", directory.display());
    text
}

fn paragraph(text: &mut String, store: &Inspected, now_s: u64) {
    let Inspected { name, found, state, survey } = store;
    let age = age(now_s.saturating_sub(found.modified_s));
    let _ = writeln!(text, "{name}: {}", state.in_words());
    let _ = writeln!(text, "  {} on disk, written {age} ago", found.bytes);
    let Some(survey) = survey else { return };
    if let Some(damage) = superblock_damage(survey) {
        let _ = writeln!(text, "  damaged: {damage}; `kvtide check --repair` writes it anew");
    }
    if let Ok(superblock) = survey.superblock.current() {
        describe(text, superblock, used_slots(survey));
    }
}

fn describe(text: &mut String, superblock: &Superblock, used_slots: Option<u64>) {
    let Superblock { epoch, min_generation, slot_count, store_uuid, shape, .. } = superblock;
    let used =
        used_slots.map_or("use unknown".to_owned(), |used| format!("{} used", grouped(used)));
    let slots = grouped((*slot_count).into());
    let _ = writeln!(text, "  {slots} slots of {}, {used}", shape.slot());
    let _ = writeln!(
        text,
        "  group {}, codec {}, chunks of {} blocks of {} tokens, parts {}",
        shape.group(),
        shape.codec().name(),
        shape.blocks_per_chunk(),
        shape.block_tokens(),
        shape.part_count()
    );
    let _ = writeln!(
        text,
        "  uuid {store_uuid}, format {FORMAT_VERSION}, epoch {epoch}, generation floor \
         {min_generation}"
    );
}

fn total(inspected: &[Inspected]) -> ByteCount {
    let bytes = inspected.iter().map(|store| store.found.bytes.get());
    ByteCount::new(bytes.fold(0, u64::saturating_add))
}

fn used_slots(survey: &Survey) -> Option<u64> {
    Some(survey.standing.chunks()?.count() as u64)
}

/// Says what is wrong with one copy of a superblock, while the other counts.
fn superblock_damage(survey: &Survey) -> Option<String> {
    match (&survey.superblock.first, &survey.superblock.second) {
        (Err(error), Ok(_)) => Some(format!("copy 1 of the superblock: {error}")),
        (Ok(_), Err(error)) => Some(format!("copy 2 of the superblock: {error}")),
        _ => None,
    }
}

impl State {
    fn name(&self) -> &'static str {
        match self {
            Self::InUse { .. } => "in_use",
            Self::Clean => "clean",
            Self::ToBeScanned(_) => "to_be_scanned",
            Self::Unfinished => "unfinished",
            Self::Damaged(_) => "damaged",
            Self::Foreign(_) => "foreign",
            Self::OtherVersion(_) => "other_version",
        }
    }

    fn reason(&self) -> Option<&str> {
        match self {
            Self::InUse { .. } | Self::Clean | Self::Unfinished => None,
            Self::ToBeScanned(reason)
            | Self::Damaged(reason)
            | Self::Foreign(reason)
            | Self::OtherVersion(reason) => Some(reason),
        }
    }

    fn process(&self) -> Option<u32> {
        match self {
            Self::InUse { process } => *process,
            _ => None,
        }
    }

    fn in_words(&self) -> String {
        match self {
            Self::InUse { process } => format!("in use{}", by_process(*process)),
            Self::Unfinished => "unfinished, made anew when it is opened".to_owned(),
            _ => {
                let name = self.name().replace('_', " ");
                self.reason().map_or_else(|| name.clone(), |reason| format!("{name}: {reason}"))
            }
        }
    }
}
