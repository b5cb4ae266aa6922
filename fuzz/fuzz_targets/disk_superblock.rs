//! Arbitrary bytes as a copy of a superblock: refused, or encoded again to the same bytes, with
//! parts that lie inside a slot for every block count.
#![no_main]

#[path = "support/page.rs"]
mod page;

use kvtide::store::SuperblockCopies;
use kvtide::store::format::Superblock;
use kvtide::units::BlockCount;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let page = page::page(bytes);
    let Ok(superblock) = Superblock::decode(&page) else {
        return;
    };
    assert_eq!(superblock.encode().expect("what was decoded can be encoded"), page);
    assert_eq!(SuperblockCopies::decode(&page).current(), Ok(&superblock));

    let shape = &superblock.shape;
    for blocks in [BlockCount::new(1), shape.blocks_per_chunk()] {
        let payload = shape.payload(blocks);
        assert!(4096 + payload.get() <= shape.slot().get());
        let (offset, summed) = shape.parts(blocks).last().expect("at least one part");
        assert!(offset.get() + summed.get() <= payload.get());
    }
});
