//! The checks that launches share, field by field.

use super::arguments::EngineAlign;
use super::descriptor::{ChunkDescriptor, PlaneDescriptor};
use super::error::{LaunchError, LaunchField};
use super::launch::DeviceTable;
use super::{PART_COUNT_MAX, WORD_BYTES};
use crate::divisor::Divisor;

/// Checks a table's address and returns how many descriptors it holds.
pub(super) fn check_table<T>(
    table: &DeviceTable<'_, T>,
    field: LaunchField,
) -> Result<u32, LaunchError> {
    let count = check_count(field, table.items.len() as u64)?;
    check_multiple(LaunchField::TableAddress, table.address, align_of::<T>() as u64)?;
    Ok(count)
}

/// Checks a chunk's counts, on which every kernel over chunks relies.
pub(super) fn check_chunk(chunk: usize, descriptor: &ChunkDescriptor) -> Result<(), LaunchError> {
    check_count(LaunchField::BlockCount { chunk }, u64::from(descriptor.block_count))?;
    check_count(LaunchField::ChunkPartCount { chunk }, u64::from(descriptor.part_count))?;
    if descriptor.part_count as usize > PART_COUNT_MAX {
        return Err(LaunchError::TooLarge {
            field: LaunchField::ChunkPartCount { chunk },
            value: u64::from(descriptor.part_count),
            limit: PART_COUNT_MAX as u64,
        });
    }
    Ok(())
}

/// Checks where a chunk's payload and parts are, for the kernels that touch them.
pub(super) fn check_payload(chunk: usize, descriptor: &ChunkDescriptor) -> Result<(), LaunchError> {
    check_multiple(LaunchField::Parts { chunk }, descriptor.parts, 4)?;
    // May be 0: payload byte 0 need not lie in memory.
    let (value, align) = (descriptor.payload, u64::from(WORD_BYTES));
    if !value.is_multiple_of(align) {
        let field = LaunchField::Payload { chunk };
        return Err(LaunchError::Misaligned { field, value, align });
    }
    Ok(())
}

/// Finds the alignment that planes of one fragment size have in common.
pub(super) fn engine_align(
    planes: &[PlaneDescriptor],
    fragment_bytes: u32,
) -> Result<EngineAlign, LaunchError> {
    let mut all_bits = u64::from(fragment_bytes);
    for (plane, descriptor) in planes.iter().enumerate() {
        let align = EngineAlign::LEAST_BYTES;
        check_multiple(LaunchField::BaseAddress { plane }, descriptor.base_address, align)?;
        check_multiple(LaunchField::BlockStride { plane }, descriptor.block_stride, align)?;
        all_bits |= descriptor.base_address | descriptor.block_stride;
    }
    let by_words = all_bits.is_multiple_of(u64::from(WORD_BYTES));
    Ok(if by_words { EngineAlign::Sixteen } else { EngineAlign::Four })
}

/// Checks that a count is 1 to 2^31 - 1.
pub(super) fn check_count(field: LaunchField, value: u64) -> Result<u32, LaunchError> {
    let limit = Divisor::DIVIDEND_END - 1;
    match u32::try_from(value) {
        Ok(0) => Err(LaunchError::Zero { field }),
        Ok(count) if count <= limit => Ok(count),
        _ => Err(LaunchError::TooLarge { field, value, limit: u64::from(limit) }),
    }
}

/// Checks an upper bound, given as one past it.
pub(super) fn check_below(field: LaunchField, value: u32, end: u32) -> Result<(), LaunchError> {
    if value < end {
        return Ok(());
    }
    let limit = u64::from(end.saturating_sub(1));
    Err(LaunchError::TooLarge { field, value: u64::from(value), limit })
}

/// Checks that an address or size is stated and a multiple of `align` bytes.
pub(super) fn check_multiple(
    field: LaunchField,
    value: u64,
    align: u64,
) -> Result<(), LaunchError> {
    if value == 0 {
        return Err(LaunchError::Zero { field });
    }
    if !value.is_multiple_of(align) {
        return Err(LaunchError::Misaligned { field, value, align });
    }
    Ok(())
}
