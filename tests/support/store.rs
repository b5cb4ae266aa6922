//! The store of several test programs: its slots hold two blocks of 16 tokens of 32 bytes, a
//! payload of one page.
//!
//! Shared by the tests `store` of the library and of the program, and by the fuzz target
//! `store_recovery`.

use kvtide::fingerprint::Codec;
use kvtide::layout::engines::{LatentCache, LayerBase};
use kvtide::layout::{Attention, ElementType, Layout, Paging};
use kvtide::store::ChunkShape;
use kvtide::units::{BlockCount, ByteCount, TokenCount};

pub(crate) fn shape() -> ChunkShape {
    let paging = Paging {
        block_tokens: TokenCount::new(16),
        blocks_per_chunk: BlockCount::new(2),
        block_count: BlockCount::new(100),
        attention: Attention::Full,
    };
    let cache = LatentCache { paging, element_type: ElementType::U8, row: ByteCount::new(32) };
    let layers = [LayerBase { layer: 0, base_address: 4096 }];
    let layout = Layout::builder().group(cache.rows(&layers)).build().expect("a layout");
    ChunkShape::of_group(&layout.groups()[0], Codec::Raw)
}
