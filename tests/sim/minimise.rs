//! Makes a failing run as short as it can: the fewer steps, the sooner somebody sees why.

use crate::system::Run;

/// Runs that the search may take.
const TRY_COUNT_MAX: u32 = 3_000;

/// Drops steps from a run for as long as it `fails` without them.
pub(crate) fn minimise(run: &Run, fails: impl Fn(&Run) -> bool) -> Run {
    let mut shortest = run.clone();
    let mut tries_left = TRY_COUNT_MAX;
    let mut length = run.steps.len();
    while length > 0 {
        let mut first = 0;
        let mut has_dropped = false;
        while first < shortest.steps.len() {
            if tries_left == 0 {
                return shortest;
            }
            tries_left -= 1;
            let end = shortest.steps.len().min(first + length);
            let mut shorter = shortest.clone();
            drop(shorter.steps.drain(first..end));
            if fails(&shorter) {
                shortest = shorter;
                has_dropped = true;
            } else {
                first = end;
            }
        }
        if !has_dropped || length > 1 {
            length /= 2;
        }
    }
    shortest
}
