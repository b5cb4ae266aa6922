//! Properties of layouts, their packing and their digest input, against naive models.

use super::engines::{KeyValueBase, KeyValueCache, LatentCache, LayerBase};
use super::*;
use crate::units::{BlockCount, BlockId, ByteCount, TokenCount};
use proptest::prelude::*;
use std::collections::BTreeSet;

const GROUP: GroupIndex = GroupIndex::new(0);
const KEY: PlaneName = PlaneName { layer: 0, content: PlaneContent::Key };

/// A valid group to spoil one field of.
fn paging() -> Paging {
    Paging {
        block_tokens: TokenCount::new(16),
        blocks_per_chunk: BlockCount::new(4),
        block_count: BlockCount::new(100),
        attention: Attention::Full,
    }
}

fn key_plane() -> Plane {
    Plane {
        layer: 0,
        content: PlaneContent::Key,
        base_address: 4096,
        block_stride: ByteCount::new(256),
        fragment: ByteCount::new(132),
    }
}

fn group_of(paging: Paging, planes: impl IntoIterator<Item = Plane>) -> GroupBuilder {
    let group = GroupBuilder::new(paging, ElementType::Bf16, InnerOrder::TokensHeads);
    planes.into_iter().fold(group, GroupBuilder::plane)
}

fn build(group: GroupBuilder) -> Result<Group, LayoutError> {
    let layout = Layout::builder().group(group).build()?;
    Ok(layout.groups()[0].clone())
}

fn refusal(paging: Paging, planes: impl IntoIterator<Item = Plane>) -> LayoutError {
    build(group_of(paging, planes)).expect_err("the layout must be refused")
}

fn at_group(field: LayoutField) -> LayoutError {
    let place = Place { group: GROUP, plane: None };
    LayoutError::Zero { place, field }
}

/// Stacks planes of these (layer, content, fragment) at addresses apart, each with a gap between
/// blocks, so that only packing is under test.
fn apart(blocks: u32, planes: &[(u32, PlaneContent, u64)]) -> Vec<Plane> {
    let mut base_address = 1 << 20;
    planes
        .iter()
        .map(|&(layer, content, fragment)| {
            let plane = Plane {
                layer,
                content,
                base_address,
                block_stride: ByteCount::new(fragment + 8),
                fragment: ByteCount::new(fragment),
            };
            base_address += (fragment + 8) * u64::from(blocks);
            plane
        })
        .collect()
}

fn any_content() -> impl Strategy<Value = PlaneContent> {
    prop_oneof![
        Just(PlaneContent::Key),
        Just(PlaneContent::Value),
        Just(PlaneContent::KeyValue),
        Just(PlaneContent::Latent),
        (0..3_u16).prop_map(PlaneContent::Other),
    ]
}

/// A valid group: 1 to 400 planes of odd sizes, at times more than 256 large layers.
fn any_group() -> impl Strategy<Value = Group> {
    let names = proptest::collection::btree_set((0..400_u32, any_content()), 1..400);
    let fragment_words_max = prop_oneof![Just(8_u64), Just(1 << 10), Just(1 << 14)];
    (names, fragment_words_max, 1..48_u32, any::<u64>()).prop_map(
        |(names, fragment_words_max, blocks_per_chunk, seed)| {
            let fragment = |at: usize| {
                let mixed = (seed ^ at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
                4 * (1 + mixed % fragment_words_max)
            };
            let planes: Vec<_> = (names.iter().enumerate())
                .map(|(at, &(layer, content))| (layer, content, fragment(at)))
                .collect();
            let fragments: u64 = planes.iter().map(|plane| plane.2 + 16).sum();
            let fits = (SLOT_BYTES_MAX - (2 << 20)) / fragments;
            let fits = u32::try_from(fits).expect("a quotient of 2^30");
            let paging = Paging {
                blocks_per_chunk: BlockCount::new(blocks_per_chunk.min(fits)),
                ..paging()
            };
            build(group_of(paging, apart(100, &planes))).expect("a valid group")
        },
    )
}

fn stride(plane: &Plane) -> u64 {
    plane.fragment.get().div_ceil(16) * 16
}

proptest! {
    #[test]
    fn packing_equals_laying_the_bytes_one_by_one(group in any_group(), blocks in 1..48_u32) {
        let blocks = blocks.min(group.blocks_per_chunk().get());
        let packing = Packing::new(&group, BlockCount::new(blocks)).expect("blocks in range");
        let (mut cursor, mut padding) = (0_u64, 0_u64);
        let mut pad_to = |cursor: &mut u64, align: u64| {
            while !cursor.is_multiple_of(align) {
                *cursor += 1;
                padding += 1;
            }
        };
        for part in packing.parts() {
            prop_assert_eq!(part.offset().get(), cursor);
            prop_assert_eq!(cursor % 4096, 0);
            for plane in part.planes() {
                prop_assert_eq!(packing.plane_offset(plane).get(), cursor);
                for block in 0..blocks {
                    prop_assert_eq!(packing.fragment_offset(plane, block).get(), cursor);
                    cursor += group.planes()[plane].fragment.get();
                    pad_to(&mut cursor, 16);
                }
            }
            prop_assert_eq!(part.summed().get(), cursor - part.offset().get());
            pad_to(&mut cursor, 4096);
            prop_assert_eq!(part.length().get(), cursor - part.offset().get());
        }
        prop_assert_eq!(packing.payload().get(), cursor);
        prop_assert_eq!(packing.padding().get(), padding);
        prop_assert_eq!(packing.slot().get(), cursor + 4096);
        let fragments: u64 = group.planes().iter().map(|plane| plane.fragment.get()).sum();
        prop_assert_eq!(fragments * u64::from(blocks) + padding, cursor);
    }

    #[test]
    fn parts_are_the_fewest_whole_layers_that_reach_the_target(group in any_group()) {
        let blocks = group.blocks_per_chunk();
        let packing = Packing::new(&group, blocks).expect("a whole chunk");
        let bytes = |planes: &[Plane]| -> u64 {
            planes.iter().map(stride).sum::<u64>() * u64::from(blocks.get())
        };
        let target = bytes(group.planes()).div_ceil(256).max(512 << 10);
        prop_assert!(packing.parts().len() <= 256);
        let mut next_plane = 0;
        for (at, part) in packing.parts().iter().enumerate() {
            let planes = &group.planes()[part.planes()];
            prop_assert_eq!(part.planes().start, next_plane);
            next_plane = part.planes().end;
            let last_layer = planes.last().expect("a part has planes").layer;
            prop_assert_eq!(part.layers(), planes[0].layer..=last_layer);
            if let Some(next) = group.planes().get(next_plane) {
                prop_assert!(next.layer > last_layer, "layer {} is split", last_layer);
            }
            let without_last: Vec<_> =
                planes.iter().copied().filter(|plane| plane.layer != last_layer).collect();
            prop_assert!(bytes(&without_last) < target);
            prop_assert!(at + 1 == packing.parts().len() || part.summed().get() >= target);
        }
        prop_assert_eq!(next_plane, group.planes().len());
    }

    #[test]
    fn a_tail_has_the_parts_of_the_whole_chunk_and_fits_its_slot(group in any_group()) {
        let whole = Packing::new(&group, group.blocks_per_chunk()).expect("a whole chunk");
        let mut slot = ByteCount::new(0);
        for blocks in 1..=group.blocks_per_chunk().get() {
            let tail = Packing::new(&group, BlockCount::new(blocks)).expect("a tail");
            let of =
                |packing: &Packing| packing.parts().iter().map(Part::planes).collect::<Vec<_>>();
            prop_assert_eq!(of(&tail), of(&whole));
            prop_assert!(slot <= tail.slot());
            slot = tail.slot();
        }
        prop_assert_eq!(slot, whole.slot());
    }

    #[test]
    fn planes_are_sorted_however_they_were_stated(group in any_group(), seed in any::<u64>()) {
        let mut planes = group.planes().to_vec();
        let rotation = usize::try_from(seed % planes.len() as u64).expect("below a length");
        planes.rotate_left(rotation);
        planes.reverse();
        let restated = Paging { blocks_per_chunk: group.blocks_per_chunk(), ..paging() };
        prop_assert_eq!(build(group_of(restated, planes)), Ok(group.clone()));
        prop_assert!(group.planes().is_sorted_by_key(Plane::name));
    }
}

/// Addresses of every byte of a plane.
fn bytes_of(plane: &Plane, block_count: u32) -> BTreeSet<u64> {
    (0..u64::from(block_count))
        .flat_map(|block| {
            let start = plane.base_address + block * plane.block_stride.get();
            start..start + plane.fragment.get()
        })
        .collect()
}

/// A small plane near address 4096.
fn any_small_plane() -> impl Strategy<Value = Plane> {
    (0..60_u64, 1..12_u64, 0..12_u64).prop_map(|(base, fragment, gap)| Plane {
        layer: 0,
        content: PlaneContent::Key,
        base_address: 4096 + 4 * base,
        block_stride: ByteCount::new(4 * (fragment + gap)),
        fragment: ByteCount::new(4 * fragment),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn planes_of_one_stride_are_refused_exactly_if_they_share_a_byte(
        first in any_small_plane(),
        second in any_small_plane(),
        block_count in 1..8_u32,
    ) {
        let block_stride = first.block_stride.max(second.block_stride);
        let first = Plane { block_stride, ..first };
        let second = Plane { block_stride, content: PlaneContent::Value, ..second };
        let paging = Paging { block_count: BlockCount::new(block_count), ..paging() };
        let shares = !bytes_of(&first, block_count).is_disjoint(&bytes_of(&second, block_count));
        let built = build(group_of(paging, [first, second]));
        prop_assert_eq!(matches!(built, Err(LayoutError::PlanesOverlap { .. })), shares);
        prop_assert_eq!(built.is_err(), shares);
    }

    #[test]
    fn planes_of_two_strides_are_refused_exactly_if_their_ranges_meet(
        first in any_small_plane(),
        second in any_small_plane(),
        block_count in 1..8_u32,
    ) {
        prop_assume!(first.block_stride != second.block_stride);
        let second = Plane { content: PlaneContent::Value, ..second };
        let paging = Paging { block_count: BlockCount::new(block_count), ..paging() };
        let (one, two) = (bytes_of(&first, block_count), bytes_of(&second, block_count));
        let meet = one.first() <= two.last() && two.first() <= one.last();
        let built = build(group_of(paging, [first, second]));
        prop_assert_eq!(matches!(built, Err(LayoutError::StridesDiffer { .. })), meet);
        prop_assert_eq!(built.is_err(), meet);
        prop_assert!(built.is_err() || one.is_disjoint(&two));
    }
}

#[test]
fn overlap_is_exact_at_the_top_of_the_address_space() {
    let top = u64::MAX - 3;
    let last = |fragment: u64| Plane {
        base_address: top - 400,
        block_stride: ByteCount::new(100),
        fragment: ByteCount::new(fragment),
        ..key_plane()
    };
    let paging = Paging { block_count: BlockCount::new(5), ..paging() };
    assert!(matches!(
        refusal(paging, [last(4)]),
        LayoutError::AddressOverflow { block_count, .. } if block_count.get() == 5
    ));
    let below = Plane { base_address: top - 500, ..last(100) };
    let interleaved = Plane { base_address: top - 504, content: PlaneContent::Value, ..last(8) };
    assert!(build(group_of(paging, [below])).is_ok());
    assert!(matches!(
        refusal(paging, [below, interleaved]),
        LayoutError::PlanesOverlap { place, other }
            if place.plane == Some(interleaved.name()) && other == below.name()
    ));
}

#[test]
fn every_zero_field_is_named() {
    let zeros = [
        (LayoutField::BlockTokens, Paging { block_tokens: TokenCount::new(0), ..paging() }),
        (LayoutField::BlocksPerChunk, Paging { blocks_per_chunk: BlockCount::new(0), ..paging() }),
        (LayoutField::BlockCount, Paging { block_count: BlockCount::new(0), ..paging() }),
        (
            LayoutField::WindowTokens,
            Paging { attention: Attention::Window { tokens: TokenCount::new(0) }, ..paging() },
        ),
    ];
    for (field, paging) in zeros {
        assert_eq!(refusal(paging, [key_plane()]), at_group(field));
    }
    let unnamed = group_of(paging(), [key_plane()]).inner_order(InnerOrder::Other("".into()));
    assert_eq!(build(unnamed), Err(at_group(LayoutField::InnerOrder)));
    assert_eq!(refusal(paging(), []), LayoutError::NoPlanes { group: GROUP });
}

/// Sets one field of the key plane.
fn key_plane_with(field: LayoutField, value: u64) -> Plane {
    let mut plane = key_plane();
    match field {
        LayoutField::BaseAddress => plane.base_address = value,
        LayoutField::BlockStride => plane.block_stride = ByteCount::new(value),
        _ => plane.fragment = ByteCount::new(value),
    }
    plane
}

#[test]
fn zero_or_misaligned_planes_are_refused_by_field_and_value() {
    let place = Place { group: GROUP, plane: Some(KEY) };
    for field in [LayoutField::BaseAddress, LayoutField::BlockStride, LayoutField::Fragment] {
        assert_eq!(
            refusal(paging(), [key_plane_with(field, 0)]),
            LayoutError::Zero { place, field }
        );
        for value in [257, 258, 259] {
            assert_eq!(
                refusal(paging(), [key_plane_with(field, value)]),
                LayoutError::Misaligned { place, field, value }
            );
        }
    }
    assert!(matches!(
        refusal(paging(), [key_plane_with(LayoutField::BlockStride, 128)]),
        LayoutError::StrideBelowFragment { block_stride, fragment, .. }
            if (block_stride.get(), fragment.get()) == (128, 132)
    ));
}

#[test]
fn values_above_a_limit_are_refused_with_the_limit() {
    let over = |paging: Paging| match refusal(paging, [key_plane()]) {
        LayoutError::TooLarge { field, value, limit, .. } => (field, value, limit),
        other => panic!("another refusal: {other}"),
    };
    let blocks_per_chunk = |blocks| Paging {
        blocks_per_chunk: BlockCount::new(blocks),
        block_tokens: TokenCount::new(1),
        ..paging()
    };
    assert_eq!(over(blocks_per_chunk(65_536)), (LayoutField::BlocksPerChunk, 65_536, 65_535));
    assert!(
        build(group_of(blocks_per_chunk(65_535), [key_plane_with(LayoutField::Fragment, 4)]))
            .is_ok()
    );
    assert_eq!(
        over(Paging { block_count: BlockCount::new(u32::MAX), ..paging() }),
        (LayoutField::BlockCount, 0xffff_ffff, 0xffff_fffe)
    );
    assert_eq!(
        over(Paging { block_tokens: TokenCount::new(1 << 30), ..paging() }),
        (LayoutField::ChunkTokens, 1 << 32, 0xffff_ffff)
    );
    let count = u32::try_from(PLANE_COUNT_MAX + 1).expect("a small constant");
    let many: Vec<_> = (0..count).map(|layer| (layer, PlaneContent::Key, 4)).collect();
    assert!(matches!(
        refusal(paging(), apart(100, &many)),
        LayoutError::TooLarge { field: LayoutField::PlaneCount, value: 4097, limit: 4096, .. }
    ));
}

#[test]
fn slots_up_to_one_gib_are_taken_and_no_larger_ones() {
    let fragment = (1 << 30) - 4096;
    let whole = |fragment: u64, blocks_per_chunk| {
        let paging = Paging { blocks_per_chunk: BlockCount::new(blocks_per_chunk), ..paging() };
        build(group_of(paging, apart(100, &[(0, PlaneContent::Latent, fragment)])))
    };
    let group = whole(fragment, 1).expect("exactly 1 GiB");
    let packing = Packing::new(&group, BlockCount::new(1)).expect("one block");
    assert_eq!(packing.slot().get(), SLOT_BYTES_MAX);
    for (fragment, blocks) in [(fragment + 4, 1), (1 << 30, 65_535), (fragment / 4 + 4, 4)] {
        assert!(matches!(
            whole(fragment, blocks),
            Err(LayoutError::TooLarge { field: LayoutField::Slot, limit: SLOT_BYTES_MAX, .. })
        ));
    }
    assert!(matches!(
        whole((1 << 30) + 4, 1),
        Err(LayoutError::TooLarge { field: LayoutField::Fragment, .. })
    ));
}

#[test]
fn more_than_256_large_layers_are_merged_into_256_parts_at_most() {
    for (layers, parts, planes_of_first) in [(256, 256, 1), (257, 129, 2), (600, 200, 3)] {
        let planes: Vec<_> =
            (0..layers).map(|layer| (layer, PlaneContent::Latent, 256 << 10)).collect();
        let group = build(group_of(paging(), apart(100, &planes))).expect("a valid group");
        let packing = Packing::new(&group, group.blocks_per_chunk()).expect("a whole chunk");
        assert_eq!(packing.parts().len(), parts);
        assert_eq!(packing.parts()[0].planes(), 0..planes_of_first);
    }
}

#[test]
fn chunks_of_no_or_too_many_blocks_are_refused() {
    let group = build(group_of(paging(), [key_plane()])).expect("a valid group");
    for blocks in [0, 5, u32::MAX].map(BlockCount::new) {
        assert_eq!(
            Packing::new(&group, blocks),
            Err(LayoutError::ChunkBlocks {
                group: GROUP,
                blocks,
                blocks_per_chunk: BlockCount::new(4)
            })
        );
    }
}

#[test]
#[should_panic(expected = "block 2 of a chunk of 2 blocks")]
fn a_fragment_past_the_chunk_is_a_panic() {
    let group = build(group_of(paging(), [key_plane()])).expect("a valid group");
    let packing = Packing::new(&group, BlockCount::new(2)).expect("a tail");
    let _ = packing.fragment_offset(0, 2);
}

#[test]
fn block_ids_are_taken_below_the_count_only() {
    let group = build(group_of(paging(), [key_plane()])).expect("a valid group");
    for block_id in [0, 99].map(BlockId::new) {
        assert_eq!(group.check_block_id(block_id), Ok(()));
    }
    for block_id in [BlockId::new(100), BlockId::SKIP] {
        assert_eq!(
            group.check_block_id(block_id),
            Err(LayoutError::BlockIdOutOfRange {
                group: GROUP,
                block_id,
                block_count: BlockCount::new(100)
            })
        );
    }
}

#[test]
fn layouts_have_one_to_eight_groups_that_know_their_index() {
    let layout = |count: usize| {
        let group = || group_of(paging(), [key_plane()]);
        (0..count).fold(Layout::builder(), |builder, _| builder.group(group())).build()
    };
    for group_count in [0, 9, 300] {
        assert_eq!(layout(group_count), Err(LayoutError::GroupCount { group_count }));
    }
    // All eight share the same addresses, as groups of one pool do.
    let eight = layout(8).expect("eight groups");
    for (index, group) in eight.groups().iter().enumerate() {
        assert_eq!(usize::from(group.index().get()), index);
    }
}

#[test]
fn ranks_outside_their_split_are_refused() {
    let whole = Shard::default();
    let refused = |shard: Shard| {
        Layout::builder()
            .shard(shard)
            .group(group_of(paging(), [key_plane()]))
            .build()
            .expect_err("the shard must be refused")
    };
    for (rank, ranks) in [(0, 0), (1, 1), (8, 4)] {
        let tensor = Shard { tensor_rank: rank, tensor_ranks: ranks, ..whole };
        let pipeline = Shard { pipeline_rank: rank, pipeline_ranks: ranks, ..whole };
        for (shard, field) in
            [(tensor, LayoutField::TensorRank), (pipeline, LayoutField::PipelineRank)]
        {
            assert_eq!(refused(shard), LayoutError::RankOutOfRange { field, rank, ranks });
        }
    }
}

#[test]
fn errors_tell_a_person_where_what_and_what_to_do() {
    let printed = |paging, planes: &[Plane]| refusal(paging, planes.iter().copied()).to_string();
    assert_eq!(
        printed(paging(), &[key_plane(), key_plane()]),
        "group 0, key of layer 0: stated twice; a layer holds each content once in a group"
    );
    assert_eq!(
        printed(paging(), &[key_plane_with(LayoutField::Fragment, 130)]),
        "group 0, key of layer 0: fragment is 130; make it a multiple of 4 bytes"
    );
    let value = Plane { content: PlaneContent::Value, base_address: 4096 + 128, ..key_plane() };
    assert_eq!(
        printed(paging(), &[key_plane(), value]),
        "group 0, key of layer 0: fragments overlap those of value of layer 0; check \
         base_address and block_stride"
    );
    let huge = Paging { block_tokens: TokenCount::new(1 << 30), ..paging() };
    assert_eq!(
        printed(huge, &[key_plane()]),
        "group 0: chunk_tokens is 4294967296; the limit is 4294967295, so lower blocks_per_chunk"
    );
}

/// Every record of the encoding that a caller can change, changed.
fn relevant_changes(paging: Paging, planes: &[Plane]) -> Vec<GroupBuilder> {
    let with = |change: &dyn Fn(&mut Paging)| {
        let mut paging = paging;
        change(&mut paging);
        group_of(paging, planes.iter().copied())
    };
    let with_plane = |change: &dyn Fn(&mut Plane)| {
        let mut planes = planes.to_vec();
        change(planes.last_mut().expect("a group has planes"));
        group_of(paging, planes)
    };
    let window = |tokens| Attention::Window { tokens: TokenCount::new(tokens) };
    let typed = |element_type| {
        planes.iter().fold(
            GroupBuilder::new(paging, element_type, InnerOrder::TokensHeads),
            |group, plane| group.plane(*plane),
        )
    };
    let ordered = |order| group_of(paging, planes.iter().copied()).inner_order(order);
    vec![
        with(&|paging| paging.block_tokens = TokenCount::new(17)),
        with(&|paging| paging.blocks_per_chunk = BlockCount::new(49)),
        with(&|paging| paging.attention = window(1)),
        with(&|paging| paging.attention = window(2)),
        typed(ElementType::F16),
        typed(ElementType::U8),
        ordered(InnerOrder::HeadsTokens),
        ordered(InnerOrder::Other("tokens_heads".into())),
        ordered(InnerOrder::Other("tokens".into())),
        with_plane(&|plane| plane.layer += 1000),
        with_plane(&|plane| plane.content = PlaneContent::Other(9)),
        with_plane(&|plane| plane.content = PlaneContent::Other(99)),
        with_plane(&|plane| plane.fragment = ByteCount::new(plane.fragment.get() + 4)),
        group_of(paging, planes.iter().copied()).plane(Plane {
            layer: 5000,
            base_address: 1 << 60,
            ..planes[0]
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_relevant_change_changes_the_digest_input(group in any_group()) {
        let paging = Paging { blocks_per_chunk: group.blocks_per_chunk(), ..paging() };
        let mut seen = BTreeSet::from([group.digest_input()]);
        for changed in relevant_changes(paging, group.planes()) {
            let changed = build(changed).expect("still a valid group");
            prop_assert!(seen.insert(changed.digest_input()), "same input: {:?}", changed);
        }
        let whole = Shard { tensor_ranks: 2, pipeline_ranks: 2, ..Shard::default() };
        for shard in [
            whole,
            Shard { tensor_rank: 1, ..whole },
            Shard { pipeline_rank: 1, ..whole },
            Shard { tensor_ranks: 4, ..whole },
            Shard { pipeline_ranks: 4, ..whole },
        ] {
            let same = || group_of(paging, group.planes().iter().copied());
            let layout = Layout::builder().shard(shard).group(same()).group(same()).build();
            for group in layout.expect("two valid groups").groups() {
                prop_assert!(seen.insert(group.digest_input()), "same input: {:?}", group);
            }
        }
    }

    #[test]
    fn where_the_blocks_lie_does_not_change_the_digest_input(
        group in any_group(),
        block_count in 1..1000_u32,
        shift in 1..1000_u64,
    ) {
        let paging = Paging {
            blocks_per_chunk: group.blocks_per_chunk(),
            block_count: BlockCount::new(block_count),
            ..paging()
        };
        let mut base_address = shift * 4;
        let planes = group.planes().iter().map(|plane| {
            let block_stride = ByteCount::new(plane.fragment.get() + shift * 4);
            let moved = Plane { base_address, block_stride, ..*plane };
            base_address += block_stride.get() * u64::from(block_count);
            moved
        });
        let moved = build(group_of(paging, planes)).expect("still a valid group");
        prop_assert_eq!(moved.digest_input(), group.digest_input());
    }
}

#[test]
fn the_digest_input_never_changes_within_a_version() {
    let paging =
        Paging { attention: Attention::Window { tokens: TokenCount::new(1024) }, ..paging() };
    let plane = Plane { layer: 3, content: PlaneContent::Other(7), ..key_plane() };
    let group = build(group_of(paging, [plane])).expect("a valid group");
    let record = |tag: u8, bytes: &[u8]| {
        let length = u8::try_from(bytes.len()).expect("short records");
        [&[tag, length, 0, 0, 0, 0, 0, 0, 0], bytes].concat()
    };
    let expected = [
        record(0, &[1, 0]),
        record(1, &[0]),
        record(2, &[16, 0, 0, 0]),
        record(3, &[4, 0, 0, 0]),
        record(4, &[0, 4, 0, 0]),
        record(5, b"bf16"),
        record(6, b"tokens_heads"),
        record(7, &[0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]),
        record(8, b"\x03\0\0\0\x84\0\0\0\0\0\0\0other:7"),
    ]
    .concat();
    assert_eq!(group.digest_input(), expected);
}

#[test]
fn printed_names_in_the_digest_input_are_all_different() {
    let orders = [
        InnerOrder::TokensHeads,
        InnerOrder::HeadsTokens,
        InnerOrder::KvTokensHeads,
        InnerOrder::KvHeadsTokens,
        InnerOrder::TokensHeadsKv,
        InnerOrder::HeadsTokensKv,
        InnerOrder::Latent,
        InnerOrder::LayersTokensHeadsKv,
        InnerOrder::LayersHeadsTokensKv,
        InnerOrder::HeadsLayersTokensKv,
        InnerOrder::Other("latent".into()),
    ];
    let names: BTreeSet<_> = orders.iter().map(ToString::to_string).collect();
    assert_eq!(names.len(), orders.len());
    let types = [
        (ElementType::Bf16, "bf16", 2),
        (ElementType::F16, "f16", 2),
        (ElementType::F32, "f32", 4),
        (ElementType::F8E4m3, "f8_e4m3", 1),
        (ElementType::F8E5m2, "f8_e5m2", 1),
        (ElementType::I8, "i8", 1),
        (ElementType::U8, "u8", 1),
    ];
    for (element_type, name, bytes) in types {
        assert_eq!(element_type.to_string(), name);
        assert_eq!(element_type.bytes(), ByteCount::new(bytes));
    }
}

const CACHE: KeyValueCache = KeyValueCache {
    paging: Paging {
        block_tokens: TokenCount::new(16),
        blocks_per_chunk: BlockCount::new(4),
        block_count: BlockCount::new(10),
        attention: Attention::Full,
    },
    element_type: ElementType::Bf16,
    kv_heads: 2,
    head_dim: 64,
};
/// Bytes of K of one block of `CACHE`.
const KEY_BYTES: u64 = 16 * 2 * 64 * 2;

fn bases() -> [LayerBase; 2] {
    [LayerBase { layer: 4, base_address: 1 << 30 }, LayerBase { layer: 7, base_address: 1 << 31 }]
}

/// (layer, content, base address, block stride and fragment) of every plane.
fn planes_of(group: GroupBuilder) -> Vec<(u32, PlaneContent, u64, u64)> {
    let group = build(group).expect("a valid group");
    let dense = |plane: &Plane| {
        assert_eq!(plane.block_stride, plane.fragment);
        (plane.layer, plane.content, plane.base_address, plane.fragment.get())
    };
    group.planes().iter().map(dense).collect()
}

#[test]
fn known_caches_have_the_planes_of_their_shapes() {
    use PlaneContent::{CrossLayer, Key, KeyValue, Latent, Value};
    let split = bases().map(|base| KeyValueBase {
        layer: base.layer,
        key_address: base.base_address,
        value_address: base.base_address << 4,
    });
    assert_eq!(
        planes_of(CACHE.separate(&split)),
        [
            (4, Key, 1 << 30, KEY_BYTES),
            (4, Value, 1 << 34, KEY_BYTES),
            (7, Key, 1 << 31, KEY_BYTES),
            (7, Value, 1 << 35, KEY_BYTES),
        ]
    );
    assert_eq!(
        planes_of(CACHE.stacked(&bases())),
        [
            (4, Key, 1 << 30, KEY_BYTES),
            (4, Value, (1 << 30) + 10 * KEY_BYTES, KEY_BYTES),
            (7, Key, 1 << 31, KEY_BYTES),
            (7, Value, (1 << 31) + 10 * KEY_BYTES, KEY_BYTES),
        ]
    );
    for fused in [CACHE.fused_in_heads(&bases()), CACHE.fused_in_blocks(&bases())] {
        assert_eq!(
            planes_of(fused),
            [(4, KeyValue, 1 << 30, 2 * KEY_BYTES), (7, KeyValue, 1 << 31, 2 * KEY_BYTES),]
        );
    }
    assert_eq!(
        planes_of(CACHE.cross_layer(bases()[0], 2)),
        [(4, CrossLayer, 1 << 30, 4 * KEY_BYTES)]
    );
    let latent = LatentCache {
        paging: CACHE.paging,
        element_type: ElementType::Bf16,
        row: ByteCount::new(1152),
    };
    assert_eq!(
        planes_of(latent.rows(&bases())),
        [(4, Latent, 1 << 30, 16 * 1152), (7, Latent, 1 << 31, 16 * 1152),]
    );
}

#[test]
fn caches_of_equal_size_and_other_inner_order_differ_in_digest_input() {
    let groups = [
        CACHE.fused_in_heads(&bases()),
        CACHE.fused_in_blocks(&bases()),
        CACHE.fused_in_blocks(&bases()).inner_order(InnerOrder::KvHeadsTokens),
    ];
    let inputs: BTreeSet<_> =
        groups.map(|group| build(group).expect("a valid group").digest_input()).into();
    assert_eq!(inputs.len(), 3);
}

#[test]
fn caches_too_large_for_64_bits_are_refused_not_wrapped() {
    let huge = KeyValueCache { kv_heads: u32::MAX, head_dim: u32::MAX, ..CACHE };
    for group in [
        huge.stacked(&bases()),
        huge.fused_in_heads(&bases()),
        huge.cross_layer(bases()[0], u32::MAX),
    ] {
        assert!(matches!(
            build(group),
            Err(LayoutError::TooLarge { field: LayoutField::Fragment, .. })
        ));
    }
    let high = LayerBase { layer: 0, base_address: u64::MAX - 4095 };
    assert!(matches!(build(CACHE.stacked(&[high])), Err(LayoutError::AddressOverflow { .. })));
}
