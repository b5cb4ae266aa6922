//! The table of worked examples in `docs/packing.md`, computed anew.

use kvtide::layout::engines::{KeyValueBase, KeyValueCache, LatentCache, LayerBase};
use kvtide::layout::{Attention, ElementType, GroupBuilder, Layout, Packing, Paging};
use kvtide::units::{BlockCount, ByteCount, TokenCount};
use std::path::Path;

/// The table's header: its columns, as `row` prints them.
const HEADER: &str =
    "| cache | planes | blocks | fragment | stride | parts | payload | slot | padding |";

fn paging(block_tokens: u32, blocks_per_chunk: u32) -> Paging {
    Paging {
        block_tokens: TokenCount::new(block_tokens),
        blocks_per_chunk: BlockCount::new(blocks_per_chunk),
        block_count: BlockCount::new(1024),
        attention: Attention::Full,
    }
}

/// Layers whose planes are 1 TiB apart.
fn layers(count: u32) -> Vec<LayerBase> {
    (0..count).map(|layer| LayerBase { layer, base_address: u64::from(layer + 1) << 40 }).collect()
}

fn llama_3_8b(paging: Paging) -> KeyValueCache {
    KeyValueCache { paging, element_type: ElementType::Bf16, kv_heads: 8, head_dim: 128 }
}

fn latent(paging: Paging, element_type: ElementType, row: u64) -> GroupBuilder {
    let row = ByteCount::new(row);
    LatentCache { paging, element_type, row }.rows(&layers(61))
}

/// Each example: its name in the table, its group, and the blocks of its chunk.
fn examples() -> Vec<(&'static str, GroupBuilder, u32)> {
    let apart: Vec<_> = layers(32)
        .iter()
        .map(|base| KeyValueBase {
            layer: base.layer,
            key_address: base.base_address,
            value_address: base.base_address + (1 << 39),
        })
        .collect();
    let small = paging(16, 16);
    let scaled = || latent(small, ElementType::U8, 656);
    vec![
        ("Llama-3-8B, K and V apart", llama_3_8b(small).separate(&apart), 16),
        ("Llama-3-8B, fused in heads", llama_3_8b(paging(128, 2)).fused_in_heads(&layers(32)), 2),
        ("Llama-3-8B, cross-layer", llama_3_8b(small).cross_layer(layers(1)[0], 32), 16),
        ("DeepSeek-V3, bf16 rows", latent(small, ElementType::Bf16, 576 * 2), 16),
        ("DeepSeek-V3, FP8 rows with scales", scaled(), 16),
        ("DeepSeek-V3, FP8 rows with scales, tail", scaled(), 3),
        ("rows of 132 bytes, one token a block", latent(paging(1, 256), ElementType::U8, 132), 256),
    ]
}

/// Computes one row of the table.
fn row(name: &str, group: GroupBuilder, blocks: u32) -> String {
    let layout = Layout::builder().group(group).build().expect("an example");
    let group = &layout.groups()[0];
    let packing = Packing::new(group, BlockCount::new(blocks)).expect("blocks of the example");
    let figures = [
        group.planes().len() as u64,
        u64::from(packing.blocks().get()),
        group.planes()[0].fragment.get(),
        packing.fragment_stride(0).get(),
        packing.parts().len() as u64,
        packing.payload().get(),
        packing.slot().get(),
        packing.padding().get(),
    ]
    .map(with_separators);
    format!("| {name} | {} |", figures.join(" | "))
}

/// Prints an integer with a comma before every three digits.
fn with_separators(value: u64) -> String {
    let digits = value.to_string();
    let mut printed = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            printed.push(',');
        }
        printed.push(digit);
    }
    printed
}

#[test]
fn every_number_of_the_table_is_what_the_code_computes() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/packing.md");
    let page = std::fs::read_to_string(page).expect("the page is in the repository");
    let stated: Vec<&str> = page
        .lines()
        .skip_while(|line| *line != HEADER)
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .collect();
    let computed: Vec<String> =
        examples().into_iter().map(|(name, group, blocks)| row(name, group, blocks)).collect();
    assert_eq!(
        stated.join("\n"),
        computed.join("\n"),
        "replace the table's rows by the right ones"
    );
}
