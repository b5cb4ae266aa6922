//! Arbitrary bytes as a slot's header page: refused, or encoded again to the same bytes.
#![no_main]

#[path = "support/page.rs"]
mod page;

use kvtide::store::format::{Header, HeaderIdentity, HeaderStamp};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let page = page::page(bytes);
    let Ok(header) = Header::decode(&page) else {
        return;
    };
    let identity = header.identity.encode().expect("what was decoded can be encoded");
    assert_eq!(identity, page[..HeaderIdentity::BYTES]);
    let start = page.first_chunk().expect("a page is longer");
    let stamp = header.stamp.encode(start).expect("what was decoded can be encoded");
    assert_eq!(stamp, page[HeaderStamp::OFFSET_BYTES..]);
    let part_count = header.identity.part_count;
    assert_eq!(Header::part_sums(&page, part_count).count(), usize::from(part_count));
});
