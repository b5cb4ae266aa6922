//! The CPU device's copies and sums: what fragments cost against one contiguous range.
//!
//! Each case runs next to its references in every round, and the medians of the rounds' ratios are
//! printed, in CPU time of the thread: rates differ from minute to minute on a shared machine,
//! ratios much less.
//!
//! - gather and scatter of shuffled fragments, against the same fragments in order (the same loop
//!   over one contiguous range) and against one fragment as long as the range;
//! - the sum, against the fastest plain read of one core.
//!
//! `cargo bench --bench cpu_device --features testing`

mod support;

use kvtide::device::cpu::kernels::{Level, Sum};
use kvtide::mem::{Slab, SlotMemory};
use kvtide::units::{ByteCount, SlotIndex};
use nix::time::{ClockId, clock_gettime};
use std::cell::RefCell;
use std::hint::black_box;
use std::sync::Arc;
use support::{fill, shuffle};

/// Payload of each of the three ranges: far more than any cache.
const RANGE_BYTES: usize = 256 << 20;

/// Fragment lengths, in bytes.
const FRAGMENTS: [usize; 4] = [2 << 10, 16 << 10, 64 << 10, 2 << 20];

/// Rounds of each case; odd, so that there is a median.
const ROUNDS: usize = 9;

fn main() {
    let slab = Slab::allocate(3, ByteCount::new(RANGE_BYTES as u64 + 4096)).expect("memory");
    println!("{:?} pages, {ROUNDS} rounds, medians, GB/s of payload", slab.page_kind());
    let [source, shuffled, contiguous] = [0, 1, 2].map(|slot| range(&slab, slot));
    let mut source = source.write().expect("unused");
    let mut shuffled = shuffled.write().expect("unused");
    let mut contiguous = contiguous.write().expect("unused");
    fill(source.payload());
    let source = source.payload();
    let (shuffled, contiguous) = (shuffled.payload(), contiguous.payload());
    for level in Level::available() {
        println!("\n{level:?}");
        report_sum(level, source);
        for fragment in FRAGMENTS {
            for sum in [Sum::None, Sum::Words] {
                report_gather(level, sum, fragment, source, shuffled, contiguous);
            }
            report_scatter(level, fragment, source, shuffled, contiguous);
        }
    }
}

fn range(slab: &Arc<Slab>, slot: u32) -> SlotMemory {
    slab.slot(SlotIndex::new(slot), slab.slot_bytes())
}

fn report_sum(level: Level, source: &[u8]) {
    let medians = compare([
        &mut || {
            black_box(level.sum(source, 0));
        },
        &mut || {
            black_box(read(source));
        },
    ]);
    let [rate, read] = medians.rates;
    println!(
        "  sum                     {rate:6.2}   plain read {read:6.2} {:.3}",
        medians.ratios[1]
    );
}

/// Reads every word in the plainest way, in four strands.
fn read(bytes: &[u8]) -> u64 {
    let mut strands = [0_u64; 8];
    for line in bytes.as_chunks::<64>().0 {
        for (strand, word) in strands.iter_mut().zip(line.as_chunks::<8>().0) {
            *strand ^= u64::from_le_bytes(*word);
        }
    }
    strands.iter().fold(0, |all, strand| all ^ strand)
}

fn report_gather(
    level: Level,
    sum: Sum,
    fragment: usize,
    source: &[u8],
    target: &mut [u8],
    contiguous: &mut [u8],
) {
    let in_order: Vec<&[u8]> = source.chunks_exact(fragment).collect();
    let mut shuffled = in_order.clone();
    shuffle(&mut shuffled);
    let other = &RefCell::new(contiguous);
    let medians = compare([
        &mut || {
            black_box(level.gather(sum, target, 0, shuffled.iter().copied()));
        },
        &mut || {
            black_box(level.gather(sum, &mut other.borrow_mut(), 0, in_order.iter().copied()));
        },
        &mut || {
            black_box(level.gather(sum, &mut other.borrow_mut(), 0, [source].into_iter()));
        },
    ]);
    let what = if sum == Sum::None { "gather      " } else { "gather + sum" };
    print(what, fragment, &medians);
}

fn report_scatter(
    level: Level,
    fragment: usize,
    source: &[u8],
    target: &mut [u8],
    contiguous: &mut [u8],
) {
    let mut places: Vec<&mut [u8]> = target.chunks_exact_mut(fragment).collect();
    shuffle(&mut places);
    let other = &RefCell::new(contiguous);
    let medians = compare([
        &mut || {
            let places = places.iter_mut().map(|place| &mut **place);
            level.scatter(source.chunks_exact(fragment).zip(places));
        },
        &mut || {
            let mut other = other.borrow_mut();
            level.scatter(source.chunks_exact(fragment).zip(other.chunks_exact_mut(fragment)));
        },
        &mut || level.copy(&mut other.borrow_mut(), source),
    ]);
    print("scatter     ", fragment, &medians);
}

fn print(what: &str, fragment: usize, medians: &Medians<3>) {
    let kibibytes = fragment >> 10;
    let [rate, in_order, one] = medians.rates;
    let [_, to_in_order, to_one] = medians.ratios;
    println!(
        "  {what} {kibibytes:5} KiB  {rate:6.2}   in order {in_order:6.2} {to_in_order:.3}   \
         one range {one:6.2} {to_one:.3}"
    );
}

/// Medians over the rounds: rates in GB/s, and the first one's rate divided by each.
struct Medians<const CASES: usize> {
    rates: [f64; CASES],
    ratios: [f64; CASES],
}

/// Times all cases, one after the other in every round.
fn compare<const CASES: usize>(mut cases: [&mut dyn FnMut(); CASES]) -> Medians<CASES> {
    for case in &mut cases {
        case();
    }
    let rounds: Vec<[f64; CASES]> =
        (0..ROUNDS).map(|_| cases.each_mut().map(|case| rate(case))).collect();
    let median = |value: &dyn Fn(&[f64; CASES]) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values[ROUNDS / 2]
    };
    Medians {
        rates: std::array::from_fn(|case| median(&|round| round[case])),
        ratios: std::array::from_fn(|case| median(&|round| round[0] / round[case])),
    }
}

/// Runs `work` once over a range and returns its rate in GB/s of this thread's CPU time.
fn rate(work: &mut dyn FnMut()) -> f64 {
    let start = cpu_seconds();
    work();
    let seconds = cpu_seconds() - start;
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let bytes = RANGE_BYTES as f64;
    bytes / seconds / 1e9
}

#[expect(clippy::cast_precision_loss, reason = "a run is short")]
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock");
    time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9
}
