//! One check a kernel: runs it on a scene, applies the reference to a copy of all bytes, compares.
//!
//! Properties run them on random scenes; other tests run them on chosen ones, or on PTX that was
//! altered and so must fail.

use crate::machine::Machine;
use crate::memory::{Memory, Random, Reservations, Wrong, read_u64, same};
use crate::reference::{add_sums, judge as judge_bytes, pack, unpack};
use crate::scene::{Scene, part_descriptors};
use kvtide_kernels::abi::{
    CopyArguments, CopyPair, DeviceTable, FillArguments, FillRange, VERDICT_BAD, VERDICT_GOOD,
    VERDICT_NONE,
};
use kvtide_kernels::arch::Word;

/// Runs all of them. Scatter comes late, since it leaves chunks with blocks to skip.
pub(crate) fn all(scene: &mut Scene) -> Result<(), Wrong> {
    for check in [gather, fill, checksum, judge, scatter, copy] {
        check(scene)?;
    }
    Ok(())
}

/// Gather packs and adds the sums.
pub(crate) fn gather(scene: &mut Scene) -> Result<(), Wrong> {
    // Sums start at random: gather adds to what is there.
    let mut expected = scene.memory.bytes();
    scene.gather()?;
    pack(scene, &mut expected);
    add_sums(scene, &mut expected);
    same(&scene.memory.bytes(), &expected)
}

/// Fill makes the page padding zeros, so that a payload holds nothing of what staging held.
pub(crate) fn fill(scene: &mut Scene) -> Result<(), Wrong> {
    let ranges = padding_ranges(scene);
    if ranges.is_empty() {
        return Ok(());
    }
    let arguments = fill_arguments(&mut scene.memory, scene.table_at, &ranges, Word::default());
    let mut expected = scene.memory.bytes();
    scene.launch(&arguments, &[])?;
    scene.gather()?;
    pack(scene, &mut expected);
    add_sums(scene, &mut expected);
    for chunk in &scene.chunks {
        for part in scene.parts.clone() {
            expected[chunk.padding(part)].fill(0);
        }
    }
    same(&scene.memory.bytes(), &expected)
}

/// Fill writes ranges of any length with any pattern.
pub(crate) fn fill_ranges(
    machine: Machine,
    word_counts: &[usize],
    pattern: Word,
    warp_count: u32,
    seed: u64,
) -> Result<(), Wrong> {
    let mut random = Random::new(seed);
    let mut reservations = Reservations::default();
    let starts: Vec<usize> =
        word_counts.iter().map(|count| reservations.reserve(count * 16, 16)).collect();
    let table = reservations.reserve(starts.len() * 16, 8);
    let mut memory = reservations.build(machine, &mut random);
    let mut ranges = Vec::new();
    for (&start, &count) in starts.iter().zip(word_counts) {
        let address = memory.address(start);
        let word_count = u32::try_from(count).expect("small");
        ranges.push(FillRange { address, word_count, reserved: 0 });
    }
    let arguments = fill_arguments(&mut memory, table, &ranges, pattern);
    let mut expected = memory.bytes();
    memory.launch(&arguments, &starts, warp_count, &mut random)?;
    for (&start, &count) in starts.iter().zip(word_counts) {
        let pattern = [pattern.low.to_le_bytes(), pattern.high.to_le_bytes()].concat();
        expected[start..start + count * 16].copy_from_slice(&pattern.repeat(count));
    }
    same(&memory.bytes(), &expected)
}

/// Checksum adds the sum of each part.
pub(crate) fn checksum(scene: &mut Scene) -> Result<(), Wrong> {
    let mut expected = scene.memory.bytes();
    scene.checksum()?;
    add_sums(scene, &mut expected);
    same(&scene.memory.bytes(), &expected)
}

/// Judge writes the verdicts, most of them good.
pub(crate) fn judge(scene: &mut Scene) -> Result<(), Wrong> {
    let bytes = scene.memory.bytes();
    for chunk in scene.chunks.clone() {
        for part in 0..chunk.parts.len() {
            if scene.random.below(3) > 0 {
                let sum = read_u64(&bytes, chunk.sums + part * 8);
                let sealed = sum.wrapping_add(chunk.key_low);
                scene.memory.write_u64s(chunk.stored_sums + part * 8, &[sealed]);
            }
        }
    }
    let mut expected = scene.memory.bytes();
    scene.judge()?;
    judge_bytes(scene, &mut expected);
    same(&scene.memory.bytes(), &expected)
}

/// Scatter writes the blocks of good parts, but not those to skip.
pub(crate) fn scatter(scene: &mut Scene) -> Result<(), Wrong> {
    scene.skip_some_blocks();
    for chunk in scene.chunks.clone() {
        for part in 0..chunk.parts.len() {
            let words = [VERDICT_GOOD, VERDICT_GOOD, VERDICT_NONE, VERDICT_BAD, u32::MAX];
            let verdict = words[scene.random.below(words.len())];
            scene.memory.write_u32s(chunk.verdicts + part * 4, &[verdict]);
        }
    }
    let mut expected = scene.memory.bytes();
    scene.scatter()?;
    unpack(scene, &mut expected);
    same(&scene.memory.bytes(), &expected)
}

/// Copy moves whole fragments, in a pool of two blocks at least.
pub(crate) fn copy(scene: &mut Scene) -> Result<(), Wrong> {
    let pairs = pairs(scene);
    let on_device = |pair: &CopyPair| CopyPair {
        source: scene.device_id(pair.source),
        target: scene.device_id(pair.target),
    };
    let device_pairs: Vec<CopyPair> = pairs.iter().map(on_device).collect();
    let words = device_pairs.iter().flat_map(|pair| [pair.source, pair.target]);
    let words: Vec<u32> = words.collect();
    scene.memory.write_u32s(scene.table_at, &words);
    let mut expected = scene.memory.bytes();
    for launch in scene.launches() {
        let planes = scene.plane_descriptors(&launch);
        let table = scene.table(launch.table, &planes);
        let pair_table = scene.table(scene.table_at, &device_pairs);
        let size = u32::try_from(launch.planes[0].fragment).expect("small");
        let arguments = CopyArguments::new(table, pair_table, size);
        scene.launch(&arguments.expect("a good launch"), &[])?;
        for plane in &launch.planes {
            for pair in &pairs {
                let target = plane.block(pair.target).start;
                expected.copy_within(plane.block(pair.source), target);
            }
        }
    }
    same(&scene.memory.bytes(), &expected)
}

/// Pairs of random blocks: a source may be in several pairs, a target in one.
fn pairs(scene: &mut Scene) -> Vec<CopyPair> {
    let mut ids: Vec<u32> = (0..u32::try_from(scene.pool).expect("small")).collect();
    scene.random.shuffle(&mut ids);
    let targets = ids.split_off(ids.len().div_ceil(2));
    let source = |target| CopyPair { source: ids[scene.random.below(ids.len())], target };
    targets.into_iter().map(source).collect()
}

/// The page padding of the scene's parts.
fn padding_ranges(scene: &mut Scene) -> Vec<FillRange> {
    let payloads = scene.chunk_descriptors().into_iter().map(|chunk| chunk.payload);
    let mut ranges = Vec::new();
    for (payload, chunk) in payloads.zip(&scene.chunks) {
        let parts = &part_descriptors(chunk)[scene.parts.clone()];
        ranges.extend(parts.iter().filter_map(|part| FillRange::padding_after(payload, part)));
    }
    ranges
}

/// Writes the ranges to memory at `table`, and returns the arguments of a fill.
fn fill_arguments(
    memory: &mut Memory,
    table: usize,
    ranges: &[FillRange],
    pattern: Word,
) -> FillArguments {
    let words: Vec<u64> =
        ranges.iter().flat_map(|range| [range.address, u64::from(range.word_count)]).collect();
    memory.write_u64s(table, &words);
    let ranges = DeviceTable { address: memory.address(table), items: ranges };
    FillArguments::new(ranges, pattern).expect("a good launch")
}
