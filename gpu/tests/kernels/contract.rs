//! The launch contract: what a kernel could not honour is refused, by name.

use kvtide_kernels::abi::{
    BLOCK_ID_SKIP, ChecksumArguments, ChunkDescriptor, CopyArguments, CopyPair, DeviceTable,
    EngineAlign, FillArguments, FillRange, GatherArguments, JudgeArguments, LaunchError,
    LaunchField, LaunchGeometry, PlaneDescriptor, ScatterArguments, SpanGrid,
};
use kvtide_kernels::arch::Word;
use std::num::NonZeroU32;

const PLANE: PlaneDescriptor =
    PlaneDescriptor { base_address: 0x1000, block_stride: 0x800, part: 1, words_before: 3 };

const CHUNK: ChunkDescriptor = ChunkDescriptor {
    payload: 0x10_0000,
    block_ids: 0x20_0004,
    parts: 0x20_1004,
    sums: 0x20_2008,
    verdicts: 0x20_3004,
    stored_sums: 0x20_4008,
    good_parts: 0x20_5008,
    key_low: 7,
    block_count: 16,
    part_count: 2,
};

fn table<T>(items: &[T]) -> DeviceTable<'_, T> {
    DeviceTable { address: 0x1008, items }
}

fn gather(
    plane: PlaneDescriptor,
    chunk: ChunkDescriptor,
    fragment_bytes: u32,
) -> Result<GatherArguments, LaunchError> {
    GatherArguments::new(table(&[PLANE, plane]), table(&[CHUNK, chunk]), fragment_bytes)
}

fn zero<T>(field: LaunchField) -> Result<T, LaunchError> {
    Err(LaunchError::Zero { field })
}

fn too_large<T>(field: LaunchField, value: u64, limit: u64) -> Result<T, LaunchError> {
    Err(LaunchError::TooLarge { field, value, limit })
}

fn misaligned<T>(field: LaunchField, value: u64, align: u64) -> Result<T, LaunchError> {
    Err(LaunchError::Misaligned { field, value, align })
}

#[test]
fn a_launch_counts_the_spans_of_its_largest_chunk() {
    let tail = ChunkDescriptor { block_count: 1, ..CHUNK };
    let arguments = gather(PLANE, tail, 2048).expect("good");
    // 16 fragments of 128 words are two spans, for each of 2 planes and 2 chunks.
    assert_eq!(arguments.grid().span_count(), 8);
    let arguments = gather(PLANE, tail, 2052).expect("good");
    assert_eq!(arguments.grid().span_count(), 12);
}

#[test]
fn one_odd_plane_or_size_takes_the_launch_to_the_4_byte_way() {
    let align = |plane, bytes| gather(plane, CHUNK, bytes).expect("good").engine_align();
    assert_eq!(align(PLANE, 656), EngineAlign::Sixteen);
    assert_eq!(align(PLANE, 132), EngineAlign::Four);
    assert_eq!(align(PlaneDescriptor { base_address: 0x1008, ..PLANE }, 656), EngineAlign::Four);
    assert_eq!(align(PlaneDescriptor { block_stride: 0x804, ..PLANE }, 656), EngineAlign::Four);
    let scatter = ScatterArguments::new(table(&[PLANE]), table(&[CHUNK]), 132).expect("good");
    assert_eq!(scatter.engine_align(), EngineAlign::Four);
}

#[test]
fn planes_and_sizes_that_no_way_can_touch_are_refused() {
    let base = LaunchField::BaseAddress { plane: 1 };
    let odd = PlaneDescriptor { base_address: 0x1002, ..PLANE };
    assert_eq!(gather(odd, CHUNK, 64), misaligned(base, 0x1002, 4));
    assert_eq!(gather(PlaneDescriptor { base_address: 0, ..PLANE }, CHUNK, 64), zero(base));
    let stride = LaunchField::BlockStride { plane: 1 };
    let odd = PlaneDescriptor { block_stride: 0x801, ..PLANE };
    assert_eq!(gather(odd, CHUNK, 64), misaligned(stride, 0x801, 4));
    assert_eq!(gather(PLANE, CHUNK, 0), zero(LaunchField::FragmentBytes));
    assert_eq!(gather(PLANE, CHUNK, 66), misaligned(LaunchField::FragmentBytes, 66, 4));
    let beyond = PlaneDescriptor { part: 2, ..PLANE };
    assert_eq!(gather(beyond, CHUNK, 64), too_large(LaunchField::PlanePart { plane: 1 }, 2, 1));
}

#[test]
fn chunks_that_a_transfer_cannot_touch_are_refused() {
    let refused = |chunk| gather(PLANE, chunk, 64);
    let odd = ChunkDescriptor { payload: 0x10_0008, ..CHUNK };
    assert_eq!(refused(odd), misaligned(LaunchField::Payload { chunk: 1 }, 0x10_0008, 16));
    let odd = ChunkDescriptor { block_ids: 2, ..CHUNK };
    assert_eq!(refused(odd), misaligned(LaunchField::BlockIds { chunk: 1 }, 2, 4));
    let odd = ChunkDescriptor { parts: 2, ..CHUNK };
    assert_eq!(refused(odd), misaligned(LaunchField::Parts { chunk: 1 }, 2, 4));
    let odd = ChunkDescriptor { sums: 4, ..CHUNK };
    assert_eq!(refused(odd), misaligned(LaunchField::Sums { chunk: 1 }, 4, 8));
    let empty = ChunkDescriptor { block_count: 0, ..CHUNK };
    assert_eq!(refused(empty), zero(LaunchField::BlockCount { chunk: 1 }));
    let empty = ChunkDescriptor { part_count: 0, ..CHUNK };
    assert_eq!(refused(empty), zero(LaunchField::ChunkPartCount { chunk: 1 }));
    let many = ChunkDescriptor { part_count: 257, ..CHUNK };
    assert_eq!(refused(many), too_large(LaunchField::ChunkPartCount { chunk: 1 }, 257, 256));
    let short = ChunkDescriptor { part_count: 1, ..CHUNK };
    assert_eq!(refused(short), too_large(LaunchField::PlanePart { plane: 0 }, 1, 0));
    let odd = [ChunkDescriptor { verdicts: 2, ..CHUNK }];
    assert_eq!(
        ScatterArguments::new(table(&[PLANE]), table(&odd), 64),
        misaligned(LaunchField::Verdicts { chunk: 0 }, 2, 4)
    );
}

#[test]
fn counts_that_cannot_be_divided_are_refused() {
    let many = ChunkDescriptor { block_count: 1 << 25, ..CHUNK };
    let limit = (1 << 31) - 1;
    assert_eq!(gather(PLANE, many, 1024), too_large(LaunchField::PlaneWords, 1 << 31, limit));
    let most = ChunkDescriptor { block_count: (1 << 25) - 1, ..CHUNK };
    assert!(gather(PLANE, most, 1024).is_ok());
    let planes = vec![PLANE; 1024];
    assert_eq!(
        GatherArguments::new(table(&planes), table(&[most]), 1024),
        too_large(LaunchField::SpanCount, 1 << 31, limit)
    );
    assert!(GatherArguments::new(table(&planes[1..]), table(&[most]), 1024).is_ok());
}

#[test]
fn tables_that_are_empty_or_misplaced_are_refused() {
    assert_eq!(
        GatherArguments::new(table(&[]), table(&[CHUNK]), 64),
        zero(LaunchField::PlaneCount)
    );
    assert_eq!(
        GatherArguments::new(table(&[PLANE]), table(&[]), 64),
        zero(LaunchField::ChunkCount)
    );
    let odd = DeviceTable { address: 0x1004, items: &[CHUNK] };
    let refused = misaligned(LaunchField::TableAddress, 0x1004, 8);
    assert_eq!(GatherArguments::new(table(&[PLANE]), odd, 64), refused);
}

#[test]
fn part_ranges_that_a_chunk_does_not_have_are_refused() {
    let chunks = [CHUNK, ChunkDescriptor { part_count: 3, ..CHUNK }];
    let refused = too_large(LaunchField::PartEnd, 3, 2);
    assert_eq!(ChecksumArguments::new(table(&chunks), 0..3, 1), refused);
    assert_eq!(JudgeArguments::new(table(&chunks), 2..2), zero(LaunchField::PartCount));
    assert_eq!(ChecksumArguments::new(table(&chunks), 0..2, 0), zero(LaunchField::PartWords));
    let sums = ChecksumArguments::new(table(&chunks), 0..2, 1025).expect("good");
    assert_eq!(sums.grid().span_count(), 8);
    let verdicts = JudgeArguments::new(table(&chunks), 1..2).expect("good");
    assert_eq!(verdicts.grid().span_count(), 2);
    for (chunk, field) in [
        (ChunkDescriptor { stored_sums: 4, ..CHUNK }, LaunchField::StoredSums { chunk: 0 }),
        (ChunkDescriptor { good_parts: 4, ..CHUNK }, LaunchField::GoodParts { chunk: 0 }),
    ] {
        assert_eq!(JudgeArguments::new(table(&[chunk]), 0..1), misaligned(field, 4, 8));
    }
}

#[test]
fn pairs_and_ranges_that_cannot_be_touched_are_refused() {
    let pair = |source, target| [CopyPair { source, target }];
    let copy = |pairs: &[CopyPair]| CopyArguments::new(table(&[PLANE]), table(pairs), 64);
    let (skip, limit) = (u64::from(BLOCK_ID_SKIP), u64::from(BLOCK_ID_SKIP) - 1);
    let source = too_large(LaunchField::SourceBlock { pair: 0 }, skip, limit);
    assert_eq!(copy(&pair(BLOCK_ID_SKIP, 1)), source);
    let target = too_large(LaunchField::TargetBlock { pair: 0 }, skip, limit);
    assert_eq!(copy(&pair(1, BLOCK_ID_SKIP)), target);
    assert_eq!(copy(&[]), zero(LaunchField::PairCount));
    assert_eq!(copy(&pair(0, 1)).expect("good").grid().span_count(), 1);

    let fill = |address, word_count| {
        let range = FillRange { address, word_count, reserved: 0 };
        FillArguments::new(table(&[range]), Word::default())
    };
    assert_eq!(fill(8, 1), misaligned(LaunchField::RangeAddress { range: 0 }, 8, 16));
    assert_eq!(fill(16, 0), zero(LaunchField::RangeWords { range: 0 }));
    assert_eq!(fill(16, 1025).expect("good").grid().span_count(), 2);
}

#[test]
fn the_grid_is_capped_and_never_larger_than_its_spans_need() {
    let arguments = gather(PLANE, CHUNK, 2048).expect("good");
    let grid: &SpanGrid = arguments.grid();
    let blocks = |most| grid.geometry(NonZeroU32::new(most).expect("not 0"));
    assert_eq!(grid.span_count(), 8);
    assert_eq!(blocks(1000).thread_blocks(), 1);
    assert_eq!(blocks(1000).warp_count(), 8);
    let large = gather(PLANE, CHUNK, 1 << 20).expect("good");
    let capped: LaunchGeometry = large.grid().geometry(NonZeroU32::new(16).expect("not 0"));
    assert_eq!((capped.thread_blocks(), capped.threads_per_block()), (16, 256));
    assert_eq!(capped.warp_count(), 128);
}

#[test]
fn refusals_name_the_field_the_value_and_the_way_out() {
    let odd = PlaneDescriptor { base_address: 0x1002, ..PLANE };
    assert_eq!(
        gather(odd, CHUNK, 64).expect_err("odd").to_string(),
        "base_address of plane 1 is 0x1002; make it a multiple of 4 bytes"
    );
    let many = ChunkDescriptor { part_count: 257, ..CHUNK };
    assert_eq!(
        gather(PLANE, many, 64).expect_err("many").to_string(),
        "part_count of chunk 1 is 257; the limit is 256, so put more planes into a part"
    );
    assert_eq!(
        gather(PLANE, CHUNK, 0).expect_err("zero").to_string(),
        "fragment bytes is 0; state at least 1"
    );
}
