//! What the kernels must do, written down byte by byte.

use crate::memory::{read_u32, read_u64};
use crate::scene::{Chunk, Scene};
use kvtide_kernels::abi::{BLOCK_ID_SKIP, VERDICT_BAD, VERDICT_GOOD};
use kvtide_kernels::checksum::sum;

/// Packs every fragment of the scene's parts, rounded up to 16 with zeros.
pub(crate) fn pack(scene: &Scene, bytes: &mut [u8]) {
    for chunk in &scene.chunks {
        for plane in scene.planes.iter().filter(|plane| scene.parts.contains(&plane.part)) {
            for (ordinal, &id) in chunk.ids.iter().enumerate() {
                let packed = chunk.packed_fragment(plane, ordinal);
                bytes[packed.clone()].fill(0);
                bytes.copy_within(plane.block(id), packed.start);
            }
        }
    }
}

/// Returns the sum of a part's bytes as they lie in memory.
pub(crate) fn part_sum(chunk: &Chunk, part: usize, bytes: &[u8]) -> u64 {
    let summed = &bytes[chunk.summed(part)];
    let words: Vec<u64> = summed
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("8")))
        .collect();
    sum(&words, chunk.parts[part].offset as u64 / 8)
}

/// Adds the sums of the scene's parts to those in memory.
pub(crate) fn add_sums(scene: &Scene, bytes: &mut [u8]) {
    for chunk in &scene.chunks {
        for part in scene.parts.clone() {
            let at = chunk.sums + part * 8;
            let total = read_u64(bytes, at).wrapping_add(part_sum(chunk, part, bytes));
            bytes[at..at + 8].copy_from_slice(&total.to_le_bytes());
        }
    }
}

/// Writes the verdicts over the scene's parts.
pub(crate) fn judge(scene: &Scene, bytes: &mut [u8]) {
    for chunk in &scene.chunks {
        for part in scene.parts.clone() {
            let sealed = read_u64(bytes, chunk.sums + part * 8).wrapping_add(chunk.key_low);
            let is_good = sealed == read_u64(bytes, chunk.stored_sums + part * 8);
            let verdict = if is_good { VERDICT_GOOD } else { VERDICT_BAD };
            let at = chunk.verdicts + part * 4;
            bytes[at..at + 4].copy_from_slice(&verdict.to_le_bytes());
            let good_parts = read_u64(bytes, chunk.good_parts).wrapping_add(u64::from(is_good));
            bytes[chunk.good_parts..chunk.good_parts + 8]
                .copy_from_slice(&good_parts.to_le_bytes());
        }
    }
}

/// Unpacks every fragment of the scene's good parts whose block is not to be skipped.
pub(crate) fn unpack(scene: &Scene, bytes: &mut [u8]) {
    for chunk in &scene.chunks {
        for plane in scene.planes.iter().filter(|plane| scene.parts.contains(&plane.part)) {
            if read_u32(bytes, chunk.verdicts + plane.part * 4) != VERDICT_GOOD {
                continue;
            }
            for (ordinal, &id) in chunk.ids.iter().enumerate() {
                if id != BLOCK_ID_SKIP {
                    let start = chunk.packed_fragment(plane, ordinal).start;
                    bytes.copy_within(start..start + plane.fragment, plane.block(id).start);
                }
            }
        }
    }
}
