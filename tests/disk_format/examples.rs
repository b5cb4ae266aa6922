//! One page of each kind, as `docs/disk-format.md` shows it and `tests/fixtures/store` keeps it.

use kvtide::fingerprint::{Codec, StoreId};
use kvtide::key::Key;
use kvtide::layout::engines::{LatentCache, LayerBase};
use kvtide::layout::{Attention, ElementType, Layout, Paging};
use kvtide::store::format::{
    Header, HeaderIdentity, HeaderStamp, Page, SnapshotEntry, SnapshotHeader, SnapshotPage,
    Superblock,
};
use kvtide::store::{ChunkShape, Entry, Epoch, Generation, StoreUuid};
use kvtide::units::{BlockCount, ByteCount, GroupIndex, SlotIndex, TenantId, TokenCount};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

/// Sealed sums of the example header's parts.
pub(crate) const PART_SUMS: [u64; 2] = [0x1111_2222_3333_4444, 0x5555_6666_7777_8888];

pub(crate) fn uuid() -> StoreUuid {
    StoreUuid::from_bytes(*b"\xa0\xa1\xa2\xa3\xa4\xa5\xa6\xa7\xa8\xa9\xaa\xab\xac\xad\xae\xaf")
}

pub(crate) fn epoch() -> Epoch {
    Epoch::new(3).expect("a small number")
}

pub(crate) fn generation(counter: u64) -> Generation {
    Generation::new(epoch(), counter).expect("a small number")
}

fn key(first: u8) -> Key {
    Key::from_bytes(std::array::from_fn(|byte| first + u8::try_from(byte).expect("below 16")))
}

/// The first group of two layers of latent rows: 8 blocks of 64 tokens a chunk, a part a layer.
pub(crate) fn shape() -> ChunkShape {
    let paging = Paging {
        block_tokens: TokenCount::new(64),
        blocks_per_chunk: BlockCount::new(8),
        block_count: BlockCount::new(100),
        attention: Attention::Full,
    };
    let row = ByteCount::new(1152);
    let cache = LatentCache { paging, element_type: ElementType::Bf16, row };
    let layers = [0, 1].map(|layer| LayerBase { layer, base_address: u64::from(layer + 1) << 32 });
    let layout = Layout::builder().group(cache.rows(&layers)).build().expect("a layout");
    ChunkShape::of_group(&layout.groups()[0], Codec::Raw)
}

pub(crate) fn identity() -> HeaderIdentity {
    HeaderIdentity {
        key: key(0x10),
        parent: Some(key(0x30)),
        group: GroupIndex::new(0),
        codec: Codec::Raw,
        depth: 2,
        blocks: BlockCount::new(8),
        tokens: TokenCount::new(512),
        payload: shape().payload(BlockCount::new(8)),
        part_count: 2,
        tenant: TenantId::new(7),
        expires_s: 1_800_000_000,
        recompute_us: 250_000,
    }
}

pub(crate) fn stamp() -> HeaderStamp {
    HeaderStamp {
        store_uuid: uuid(),
        generation: generation(9),
        written_s: 1_790_000_000,
        slot: SlotIndex::new(5),
    }
}

/// A header page, filled in the three steps in which a host slot's is.
pub(crate) fn header_page() -> Page {
    let mut page = [0; 4096];
    for (place, sum) in page[1024..].as_chunks_mut::<8>().0.iter_mut().zip(PART_SUMS) {
        *place = sum.to_le_bytes();
    }
    page[..1024].copy_from_slice(&identity().encode().expect("an identity"));
    let start = page.first_chunk().expect("a page is longer");
    let end = stamp().encode(start).expect("a stamp");
    page[HeaderStamp::OFFSET_BYTES..].copy_from_slice(&end);
    page
}

pub(crate) fn superblock() -> Superblock {
    Superblock {
        sequence: 12,
        epoch: epoch(),
        is_clean: true,
        min_generation: Generation::new(epoch(), 1).expect("a small number"),
        slot_count: 100,
        store_uuid: uuid(),
        store_id: StoreId::from_bytes(key(0x50).to_bytes()),
        shape: shape(),
    }
}

pub(crate) fn snapshot_header() -> SnapshotHeader {
    SnapshotHeader { store_uuid: uuid(), epoch: epoch(), slot_count: 100, entry_count: 4 }
}

pub(crate) fn snapshot_entries() -> Vec<SnapshotEntry> {
    let entry = Entry {
        slot: SlotIndex::new(5),
        key: key(0x10),
        parent: Some(key(0x30)),
        generation: generation(9),
        tenant: TenantId::new(7),
        depth: 2,
        blocks: BlockCount::new(8),
        expires_s: 1_800_000_000,
    };
    let root = Entry {
        slot: SlotIndex::new(1),
        key: key(0x30),
        parent: None,
        generation: generation(4),
        depth: 1,
        expires_s: 0,
        ..entry
    };
    vec![
        SnapshotEntry::Remains {
            slot: SlotIndex::new(2),
            generation: generation(3),
            key_tag: 0x4342_4140,
            tenant_tag: 7,
        },
        SnapshotEntry::Unknown { slot: SlotIndex::new(3) },
        SnapshotEntry::Chunk(entry),
        SnapshotEntry::Chunk(root),
    ]
}

pub(crate) fn snapshot_page() -> SnapshotPage {
    SnapshotPage { store_uuid: uuid(), epoch: epoch(), number: 1 }
}

/// Every example page by the name of its fixture.
pub(crate) fn pages() -> Vec<(&'static str, Page)> {
    let superblock = superblock().encode().expect("a superblock");
    let header = snapshot_header().encode().expect("a snapshot header");
    let entries = snapshot_page().encode(&snapshot_entries()).expect("a page of entries");
    vec![
        ("slot_header", header_page()),
        ("superblock", superblock),
        ("snapshot_header", header),
        ("snapshot_page", entries),
    ]
}

/// Prints a page's rows of 16 bytes, rows of zeros left out.
pub(crate) fn dump(page: &Page) -> String {
    let mut text = String::new();
    for (offset, row) in (0..).step_by(16).zip(page.as_chunks::<16>().0) {
        if row.iter().any(|&byte| byte != 0) {
            write!(text, "{offset:04}").expect("a String takes all");
            for byte in row {
                write!(text, " {byte:02x}").expect("a String takes all");
            }
            text.push('\n');
        }
    }
    text
}

/// Reads back what [`dump`] printed.
fn parse(text: &str) -> Page {
    let mut page = [0; 4096];
    for line in text.lines() {
        let (offset, bytes) = line.split_once(' ').expect("an offset, then bytes");
        let offset: usize = offset.parse().expect("a decimal offset");
        for (place, byte) in page[offset..].iter_mut().zip(bytes.split(' ')) {
            *place = u8::from_str_radix(byte, 16).expect("a hexadecimal byte");
        }
    }
    page
}

pub(crate) fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn fixture(name: &str) -> Page {
    let path = repository().join(format!("tests/fixtures/store/{name}.hex"));
    parse(&fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

#[test]
fn golden_pages_are_what_this_build_writes() {
    for (name, page) in pages() {
        assert_eq!(dump(&fixture(name)), dump(&page), "{name}");
    }
}

#[test]
fn golden_pages_read_back_as_what_was_written() {
    let header = Header::decode(&fixture("slot_header")).expect("a header");
    assert_eq!(header, Header { identity: identity(), stamp: stamp() });
    let sums: Vec<u64> = Header::part_sums(&fixture("slot_header"), 2).collect();
    assert_eq!(sums, PART_SUMS);
    assert_eq!(Superblock::decode(&fixture("superblock")), Ok(superblock()));
    assert_eq!(SnapshotHeader::decode(&fixture("snapshot_header")), Ok(snapshot_header()));
    let mut entries = Vec::new();
    snapshot_page().decode(&fixture("snapshot_page"), 4, &mut entries).expect("a page of entries");
    assert_eq!(entries, snapshot_entries());
}
