//! What several benches need: noise and shuffles by fixed seeds, the same in every run.

const MULTIPLIER: u64 = 0x5851_f42d_4c95_7f2d;

/// Fills bytes with noise; those after the last whole word are left alone.
pub(crate) fn fill(bytes: &mut [u8]) {
    let mut state = 1_u64;
    for word in bytes.as_chunks_mut::<8>().0 {
        state = state.wrapping_mul(MULTIPLIER).wrapping_add(1);
        *word = state.to_le_bytes();
    }
}

/// Shuffles (Fisher and Yates).
pub(crate) fn shuffle<T>(items: &mut [T]) {
    let mut state = 7_u64;
    for last in (1..items.len()).rev() {
        state = state.wrapping_mul(MULTIPLIER).wrapping_add(0x1405_7b7e_f767_814f);
        let at = (state >> 33) % (last as u64 + 1);
        items.swap(last, usize::try_from(at).expect("below a length"));
    }
}
