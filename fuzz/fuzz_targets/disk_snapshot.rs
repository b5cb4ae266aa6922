//! Arbitrary bytes as pages of a snapshot: refused, or encoded again to the same bytes, with no
//! more entries than a page holds, whatever the first page claims.
#![no_main]

#[path = "support/page.rs"]
mod page;

use kvtide::store::format::{ENTRIES_PER_PAGE, SnapshotHeader, SnapshotPage};
use kvtide::store::{Epoch, StoreUuid};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let page = page::page(bytes);
    if let Ok(header) = SnapshotHeader::decode(&page) {
        assert_eq!(header.encode().expect("what was decoded can be encoded"), page);
        let last = kvtide::store::format::snapshot_pages(header.entry_count);
        assert!(header.entries_of_page(last) <= ENTRIES_PER_PAGE);
        assert_eq!(header.entries_of_page(last.saturating_add(1)), 0);
    }

    // As the page that it says it is, with as many entries as the first byte says.
    let uuid = *page[4032..].first_chunk().expect("16 bytes");
    let number = u64::from_le_bytes(*page[4048..].first_chunk().expect("8 bytes"));
    let Some(epoch) = u32::try_from(number).ok().and_then(Epoch::new) else {
        return;
    };
    let number = u32::from_le_bytes(*page[4056..].first_chunk().expect("4 bytes"));
    let decoder = SnapshotPage { store_uuid: StoreUuid::from_bytes(uuid), epoch, number };
    let count = usize::from(bytes.first().copied().unwrap_or_default() / 2);
    let mut entries = Vec::new();
    if decoder.decode(&page, count, &mut entries).is_ok() {
        assert_eq!(entries.len(), count.min(ENTRIES_PER_PAGE));
        let encoded = decoder.encode(&entries).expect("what was decoded can be encoded");
        assert_eq!(encoded, page);
    }
    assert!(entries.capacity() <= ENTRIES_PER_PAGE);
});
