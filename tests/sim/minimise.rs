//! Makes a failing run as short as it can: the fewer steps, the sooner somebody sees why.

use crate::system::{SETUP_BYTES, STEP_BYTES};

/// Runs that the search may take.
const TRY_COUNT_MAX: u32 = 3_000;

/// Drops steps from a run for as long as it `fails` without them.
pub(crate) fn minimise(bytes: &[u8], fails: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut shortest = bytes.to_vec();
    let mut tries_left = TRY_COUNT_MAX;
    let mut length = (bytes.len() - SETUP_BYTES) / STEP_BYTES;
    while length > 0 {
        let mut first = 0;
        let mut has_dropped = false;
        while SETUP_BYTES + first * STEP_BYTES < shortest.len() {
            if tries_left == 0 {
                return shortest;
            }
            tries_left -= 1;
            let start = SETUP_BYTES + first * STEP_BYTES;
            let end = shortest.len().min(start + length * STEP_BYTES);
            let mut shorter = shortest.clone();
            drop(shorter.drain(start..end));
            if fails(&shorter) {
                shortest = shorter;
                has_dropped = true;
            } else {
                first += length;
            }
        }
        if !has_dropped || length > 1 {
            length /= 2;
        }
    }
    shortest
}
