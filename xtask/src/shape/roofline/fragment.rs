//! What cutting the engine's side into fragments costs: lines of L1 and sectors of memory.
//!
//! A row is the 512 bytes that a warp moves by one access of 16 bytes a lane. On the packed side it
//! is four lines and sixteen sectors. On the engine's side it falls into as many pieces as it meets
//! fragments, and each piece may start anywhere in a line that the fragment size allows: planes are
//! taken to be dense, so that fragments start at multiples of their size, all phases alike.

use super::hardware::{LINE_BYTES, SECTOR_BYTES};
use kvtide_kernels::abi::{FRAGMENT_ALIGN_BYTES, WARP_LANES, WORD_BYTES};

/// Bytes of a row.
pub(super) const ROW_BYTES: u64 = (WARP_LANES * WORD_BYTES) as u64;

/// What one row touches on average.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Row {
    /// Lines of L1, one a cycle.
    pub(super) lines: f64,
    /// Bytes of the sectors that cross to L2.
    pub(super) sector_bytes: f64,
}

impl Row {
    /// Returns what a row of the packed side touches.
    pub(super) fn packed() -> Self {
        let bytes = f64::from(WARP_LANES * WORD_BYTES);
        Self { lines: bytes / LINE_BYTES.value, sector_bytes: bytes }
    }

    /// Returns what a row of the engine's side touches, with fragments of so many bytes.
    pub(super) fn of_fragments(fragment_bytes: u32) -> Self {
        let lines = units_per_row(fragment_bytes, LINE_BYTES.value);
        let sectors = units_per_row(fragment_bytes, SECTOR_BYTES.value);
        Self { lines, sector_bytes: sectors * SECTOR_BYTES.value }
    }
}

/// Returns the bytes that memory moves for each byte of a fragment packed: its sectors, once.
pub(super) fn sector_surplus(fragment_bytes: u32) -> f64 {
    let sectors = units_touched(0, u64::from(fragment_bytes), fragment_bytes, SECTOR_BYTES.value);
    sectors * SECTOR_BYTES.value / float(packed_bytes(fragment_bytes))
}

/// Returns the bytes that a fragment takes on the packed side.
pub(super) fn packed_bytes(fragment_bytes: u32) -> u64 {
    u64::from(fragment_bytes).next_multiple_of(FRAGMENT_ALIGN_BYTES)
}

/// Averages over rows: after so many of them the fragments start at a row's start again.
fn units_per_row(fragment_bytes: u32, unit_bytes: f64) -> f64 {
    let packed = packed_bytes(fragment_bytes);
    let row_count = packed / greatest_common_divisor(packed, ROW_BYTES);
    let rows = (0..row_count).map(|row| {
        let (start, end) = (row * ROW_BYTES, (row + 1) * ROW_BYTES);
        let fragments = start / packed..=(end - 1) / packed;
        let pieces = fragments.map(|number| {
            let origin = number * packed;
            let from = start.max(origin) - origin;
            let to = (end.min(origin + packed) - origin).min(u64::from(fragment_bytes));
            units_touched(from, to, fragment_bytes, unit_bytes)
        });
        pieces.sum::<f64>()
    });
    rows.sum::<f64>() / float(row_count)
}

/// Returns how many units of memory bytes `from..to` of a fragment touch, averaged over where
/// fragments may start.
fn units_touched(from: u64, to: u64, fragment_bytes: u32, unit_bytes: f64) -> f64 {
    if from >= to {
        return 0.0;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a line or a sector: a small whole number"
    )]
    let unit = unit_bytes as u64;
    let step = greatest_common_divisor(u64::from(fragment_bytes), unit);
    let phases = (0..unit).step_by(usize::try_from(step).unwrap_or(1));
    let touched = phases.clone().map(|phase| (phase + to - 1) / unit - (phase + from) / unit + 1);
    float(touched.sum()) / float(phases.count() as u64)
}

fn greatest_common_divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { greatest_common_divisor(other, one % other) }
}

#[expect(clippy::cast_precision_loss, reason = "small counts")]
const fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::{Row, sector_surplus};

    fn assert_row(fragment_bytes: u32, lines: f64, sector_bytes: f64) {
        let row = Row::of_fragments(fragment_bytes);
        assert!((row.lines - lines).abs() < 1e-9, "{fragment_bytes}: {row:?}");
        assert!((row.sector_bytes - sector_bytes).abs() < 1e-9, "{fragment_bytes}: {row:?}");
    }

    #[test]
    fn fragments_of_whole_lines_cost_no_more_than_the_packed_side() {
        for fragment_bytes in [128, 1152, 2048, 65_536] {
            assert_row(fragment_bytes, 4.0, 512.0);
            assert!((sector_surplus(fragment_bytes) - 1.0).abs() < 1e-9);
        }
        assert_eq!(Row::of_fragments(2048), Row::packed());
    }

    #[test]
    fn shorter_and_odd_fragments_touch_more() {
        // Eight pieces of half a line; of 32 pieces of 16 bytes each is a sector of its own.
        assert_row(64, 8.0, 512.0);
        assert_row(16, 32.0, 1024.0);
        // 656 bytes are 20.5 sectors, so that every fragment touches 21; phases 0 and 16.
        assert!((sector_surplus(656) - 21.0 * 32.0 / 656.0).abs() < 1e-9);
        // 132 bytes from any multiple of 4 touch 5 sectors, or 6 from one phase in 8; 144 packed.
        let sectors = (5.0 * 7.0 + 5.0) / 8.0;
        assert!((sector_surplus(132) - sectors * 32.0 / 144.0).abs() < 1e-9);
    }
}
