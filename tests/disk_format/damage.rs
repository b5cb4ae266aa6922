//! Every field of every page, set to what it cannot be: the typed error that it must give.

use super::examples::{
    header_page, snapshot_entries, snapshot_header, snapshot_page, superblock, uuid,
};
use kvtide::store::format::{
    FormatError, FormatField, Header, Page, SnapshotHeader, Structure, Superblock,
};
use kvtide_kernels::checksum;
use std::fmt::Debug;
use std::ops::Range;

/// A kind of page: an example, its fields, and how it is decoded.
pub(crate) struct Kind {
    pub(crate) structure: Structure,
    pub(crate) page: Page,
    pub(crate) fields: Vec<Field>,
    /// Fields that repeat: bytes that are not reserved, though no field of the list has them.
    pub(crate) array: Range<usize>,
    pub(crate) decode: fn(&Page) -> Result<Box<dyn Debug>, FormatError>,
}

/// A field of a page, and what it cannot be.
pub(crate) struct Field {
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
    pub(crate) name: &'static str,
    /// Values that are refused, with the error; none for a field that may be anything.
    wrong: Vec<(u128, FormatError)>,
}

fn field(offset: usize, bytes: usize, name: &'static str, wrong: &[(u128, FormatError)]) -> Field {
    Field { offset, bytes, name, wrong: wrong.to_vec() }
}

#[expect(clippy::cast_possible_truncation, reason = "errors show the low half")]
fn value(field: FormatField, value: u128) -> (u128, FormatError) {
    (value, FormatError::Value { field, value: value as u64 })
}

fn magic(structure: Structure) -> (u128, FormatError) {
    (0x3031, FormatError::Magic { structure, found: 0x3031 })
}

fn version(structure: Structure) -> (u128, FormatError) {
    (2, FormatError::Version { structure, found: 2 })
}

fn slot_header() -> Kind {
    use FormatField as F;
    let structure = Structure::SlotHeader;
    let parent = u128::from_le_bytes(*header_page()[32..].first_chunk().expect("16 bytes"));
    Kind {
        structure,
        page: header_page(),
        fields: vec![
            field(0, 8, "magic", &[magic(structure)]),
            field(8, 4, "version", &[version(structure)]),
            // Without its flag, the parent must not be there.
            field(12, 4, "flags", &[value(F::Flags, 3), (0, value(F::Parent, parent).1)]),
            field(16, 16, "key", &[]),
            field(32, 16, "parent", &[]),
            field(
                48,
                8,
                "payload_bytes",
                &[0, 4095, 4097, 1 << 30, u64::MAX.into()].map(|n| value(F::PayloadBytes, n)),
            ),
            field(56, 8, "tenant", &[]),
            field(64, 8, "recompute_us", &[]),
            field(72, 4, "expires_s", &[]),
            field(76, 4, "depth", &[]),
            field(80, 4, "tokens", &[value(F::Tokens, 0)]),
            field(84, 2, "group", &[8, 256, 65_535].map(|n| value(F::Group, n))),
            field(86, 2, "blocks", &[value(F::Blocks, 0)]),
            field(88, 2, "codec", &[1, 65_535].map(|n| value(F::Codec, n))),
            // One part less, and its sum is a reserved byte.
            field(
                90,
                2,
                "part_count",
                &[
                    (0, FormatError::Reserved { structure, offset: 1024 }),
                    (1, FormatError::Reserved { structure, offset: 1032 }),
                    value(F::PartCount, 257),
                    value(F::PartCount, 65_535),
                ],
            ),
            field(4032, 16, "store_uuid", &[value(F::StoreUuid, 0)]),
            field(4048, 8, "generation", &[0, (1 << 40) - 1].map(|n| value(F::Generation, n))),
            field(4056, 8, "written_s", &[]),
            field(4064, 4, "slot", &[]),
            field(4088, 8, "sum", &[]),
        ],
        array: 1024..1024 + 2 * 8,
        decode: |page| Ok(Box::new(Header::decode(page)?)),
    }
}

fn superblock_copy() -> Kind {
    use FormatField as F;
    let structure = Structure::Superblock;
    let slot_bytes = u128::from(superblock().shape.slot().get());
    Kind {
        structure,
        page: superblock().encode().expect("a superblock"),
        fields: vec![
            field(0, 8, "magic", &[magic(structure)]),
            field(8, 4, "version", &[version(structure)]),
            field(12, 4, "flags", &[value(F::Flags, 2)]),
            field(16, 8, "sequence", &[value(F::Sequence, 0)]),
            field(24, 8, "epoch", &[1 << 24, u64::MAX.into()].map(|n| value(F::Epoch, n))),
            field(32, 8, "min_generation", &[value(F::MinGeneration, 5 << 40)]),
            field(40, 8, "slot_bytes", &[0, slot_bytes + 4096].map(|n| value(F::SlotBytes, n))),
            field(48, 16, "store_uuid", &[value(F::StoreUuid, 0)]),
            field(64, 16, "store_id", &[]),
            field(80, 4, "slot_count", &[value(F::SlotCount, 0)]),
            field(84, 4, "block_tokens", &[value(F::BlockTokens, 0)]),
            field(88, 2, "group", &[8, 256].map(|n| value(F::Group, n))),
            field(90, 2, "codec", &[value(F::Codec, 1)]),
            field(
                92,
                2,
                "blocks_per_chunk",
                &[
                    value(F::BlocksPerChunk, 0),
                    // Other blocks make another slot than the page says.
                    (9, value(F::SlotBytes, slot_bytes).1),
                ],
            ),
            field(
                94,
                2,
                "part_count",
                &[(0, FormatError::Reserved { structure, offset: 1025 }), value(F::PartCount, 257)],
            ),
            field(
                1024,
                8,
                "part_block_bytes",
                &[0, 73_729, u64::MAX.into()].map(|n| value(F::PartBlockBytes, n)),
            ),
            field(4088, 8, "sum", &[]),
        ],
        array: 1024..1024 + 2 * 8,
        decode: |page| Ok(Box::new(Superblock::decode(page)?)),
    }
}

fn snapshot_first() -> Kind {
    use FormatField as F;
    let structure = Structure::SnapshotHeader;
    Kind {
        structure,
        page: snapshot_header().encode().expect("a snapshot header"),
        fields: vec![
            field(0, 8, "magic", &[magic(structure)]),
            field(8, 4, "version", &[version(structure)]),
            field(12, 4, "flags", &[value(F::Flags, 1)]),
            field(16, 16, "store_uuid", &[value(F::StoreUuid, 0)]),
            field(32, 8, "epoch", &[value(F::Epoch, 1 << 24)]),
            field(40, 4, "slot_count", &[value(F::SlotCount, 0), (3, value(F::EntryCount, 4).1)]),
            field(44, 4, "entry_count", &[value(F::EntryCount, 101)]),
            field(4088, 8, "sum", &[]),
        ],
        array: 0..0,
        decode: |page| Ok(Box::new(SnapshotHeader::decode(page)?)),
    }
}

/// The third entry is a chunk with a parent, the first what remains of one, the second unknown.
fn snapshot_entry_page() -> Kind {
    use FormatField as F;
    let structure = Structure::SnapshotPage;
    let other_uuid = u128::from_le_bytes(uuid().to_bytes()) ^ 1;
    let parent = u128::from_le_bytes(*snapshot_bytes()[144..].first_chunk().expect("16 bytes"));
    let generations = [0, (1 << 40) - 1].map(|n| value(F::Generation, n));
    let reserved = |offset| (u128::from(u64::MAX), FormatError::Reserved { structure, offset });
    Kind {
        structure,
        page: snapshot_bytes(),
        fields: vec![
            field(0, 16, "remains: key", &[reserved(4)]),
            field(32, 8, "remains: generation", &generations),
            field(40, 8, "remains: tenant", &[reserved(44)]),
            field(126, 2, "unknown: flags", &[value(F::Generation, 0)]),
            field(128, 16, "key", &[]),
            field(144, 16, "parent", &[]),
            field(160, 8, "generation", &generations),
            field(168, 8, "tenant", &[]),
            field(176, 4, "slot", &[]),
            field(180, 4, "depth", &[]),
            field(184, 4, "expires_s", &[]),
            field(188, 2, "blocks", &[value(F::Blocks, 0)]),
            field(
                190,
                2,
                "flags",
                &[value(F::Flags, 3), value(F::Flags, 8), (0, value(F::Parent, parent).1)],
            ),
            field(4032, 16, "store_uuid", &[value(F::StoreUuid, other_uuid)]),
            field(4048, 8, "epoch", &[value(F::Epoch, 2)]),
            field(4056, 8, "page_number", &[value(F::PageNumber, 2)]),
            field(4088, 8, "sum", &[]),
        ],
        array: 0..4 * 64,
        decode: |page| {
            let mut entries = Vec::new();
            snapshot_page().decode(page, 4, &mut entries)?;
            Ok(Box::new(entries))
        },
    }
}

fn snapshot_bytes() -> Page {
    snapshot_page().encode(&snapshot_entries()).expect("a page of entries")
}

pub(crate) fn kinds() -> Vec<Kind> {
    vec![slot_header(), superblock_copy(), snapshot_first(), snapshot_entry_page()]
}

/// Writes the sum that a page's bytes now have.
fn fix_sum(page: &mut Page) {
    let words: Vec<u64> =
        page[..4088].as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
    page[4088..].copy_from_slice(&checksum::sum(&words, 0).to_le_bytes());
}

fn set(page: &mut Page, field: &Field, value: u128) {
    page[field.offset..][..field.bytes].copy_from_slice(&value.to_le_bytes()[..field.bytes]);
}

fn is_magic(kind: &Kind, offset: usize) -> bool {
    kind.structure != Structure::SnapshotPage && offset < 8
}

#[test]
fn a_wrong_value_under_a_right_sum_is_refused_by_name() {
    for kind in kinds() {
        for field in &kind.fields {
            for &(value, expected) in &field.wrong {
                let mut page = kind.page;
                set(&mut page, field, value);
                fix_sum(&mut page);
                let found = (kind.decode)(&page).err();
                assert_eq!(found, Some(expected), "{} {} = {value}", kind.structure, field.name);
            }
        }
    }
}

#[test]
fn a_wrong_value_under_the_old_sum_is_a_wrong_sum() {
    for kind in kinds() {
        for field in kind.fields.iter().filter(|field| field.name != "magic") {
            for &(value, _) in &field.wrong {
                let mut page = kind.page;
                set(&mut page, field, value);
                let found = (kind.decode)(&page).err();
                let is_sum = |error: &FormatError| {
                    let structure = kind.structure;
                    matches!(*error, FormatError::Sum { structure: of, .. } if of == structure)
                };
                let name = field.name;
                assert!(found.as_ref().is_some_and(is_sum), "{name} = {value}: {found:?}");
            }
        }
    }
}

#[test]
fn every_changed_byte_is_found() {
    for kind in kinds() {
        for offset in 0..kind.page.len() {
            for flip in [1, 0x80, 0xff] {
                let mut page = kind.page;
                page[offset] ^= flip;
                let found = (kind.decode)(&page).err();
                let is_expected = match found {
                    Some(FormatError::Magic { .. }) => is_magic(&kind, offset),
                    Some(FormatError::Sum { .. }) => !is_magic(&kind, offset),
                    _ => false,
                };
                assert!(is_expected, "{} byte {offset}: {found:?}", kind.structure);
            }
        }
    }
}

#[test]
fn every_reserved_byte_must_be_zero() {
    for kind in kinds() {
        let is_used = |offset: usize| {
            let has = |field: &Field| (field.offset..field.offset + field.bytes).contains(&offset);
            kind.fields.iter().any(has) || kind.array.contains(&offset)
        };
        let mut reserved_count = 0;
        for offset in (0..kind.page.len()).filter(|&offset| !is_used(offset)) {
            let mut page = kind.page;
            page[offset] = 1;
            fix_sum(&mut page);
            let expected = FormatError::Reserved { structure: kind.structure, offset };
            assert_eq!((kind.decode)(&page).err(), Some(expected));
            reserved_count += 1;
        }
        assert!(reserved_count > 3000, "{}: {reserved_count}", kind.structure);
    }
}

#[test]
fn a_field_that_may_be_anything_is_read_as_it_lies() {
    for kind in kinds() {
        let whole = format!("{:?}", (kind.decode)(&kind.page).expect("the example is good"));
        for field in
            kind.fields.iter().filter(|field| field.wrong.is_empty() && field.name != "sum")
        {
            let mut page = kind.page;
            set(&mut page, field, u128::MAX);
            fix_sum(&mut page);
            let found = format!("{:?}", (kind.decode)(&page).expect(field.name));
            assert_ne!(found, whole, "{} {}", kind.structure, field.name);
        }
    }
}

#[test]
fn a_page_of_another_kind_is_no_page_of_this() {
    for kind in kinds().iter().filter(|kind| kind.structure != Structure::SnapshotPage) {
        for other in kinds().iter().filter(|other| other.structure != kind.structure) {
            let found = (kind.decode)(&other.page).err();
            assert!(matches!(found, Some(FormatError::Magic { .. })), "{found:?}");
        }
        let blank = (kind.decode)(&[0; 4096]).err();
        let structure = kind.structure;
        assert_eq!(blank, Some(FormatError::Magic { structure, found: 0 }));
    }
}
