//! What moved by hop: operations, bytes, busy time and latency since the pager was opened.
//!
//! The device and disk threads note when an operation is handed over and when its end is taken in.
//! So a latency holds what a chunk waits for: the queue, the hop itself, and the notice.
//! A hop is *busy* while at least one operation of it is under way; bytes by busy time is the
//! hop's rate.
//!
//! Invariants: nothing is allocated after the start; an operation that did not do its work counts
//! as failed, and for no bytes and no latency.
//!
//! Called by both threads; read by [`Pager::hops`](super::Pager::hops). The emulated engine
//! records its own latencies with [`LatencyRecorder`].

use crate::core::{DiskHop, Hop};
use crate::units::ByteCount;
use hdrhistogram::Histogram;
use std::time::{Duration, Instant};

/// A hop of any kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnyHop {
    Device(Hop),
    Disk(DiskHop),
}

impl From<Hop> for AnyHop {
    fn from(hop: Hop) -> Self {
        Self::Device(hop)
    }
}

impl From<DiskHop> for AnyHop {
    fn from(hop: DiskHop) -> Self {
        Self::Disk(hop)
    }
}

/// Hops that a pager makes, in the order of a chunk's way out and in.
pub(crate) const HOPS: [AnyHop; 6] = [
    AnyHop::Device(Hop::Pack),
    AnyHop::Device(Hop::OutLink),
    AnyHop::Disk(DiskHop::Write),
    AnyHop::Disk(DiskHop::Read),
    AnyHop::Device(Hop::InLink),
    AnyHop::Device(Hop::Unpack),
];

/// Longest latency told apart: an hour, far above every timeout.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// Decimal digits to which a latency is kept: within one percent.
const LATENCY_DIGITS: u8 = 2;

/// How long something took, over many times: quantiles within one percent, rounded up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// How many were measured; all else is 0 when none was.
    pub count: u64,
    /// Half of them took no longer.
    pub p50: Duration,
    /// 99 % of them took no longer.
    pub p99: Duration,
    /// 99.9 % of them took no longer.
    pub p999: Duration,
    /// The longest.
    pub max: Duration,
}

/// What one hop moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HopTotals {
    /// Operations that did their work; one a chunk. What was cleared meanwhile counts nowhere.
    pub operations: u64,
    /// Operations that the device or drive failed, that did not match their checksum, or that were
    /// given up with the device.
    pub failed_operations: u64,
    /// Bytes that the hop moved: fragments for a pack or unpack, whole slot images over a link and
    /// to or from disk.
    pub bytes: ByteCount,
    /// Time during which at least one operation was under way, counted when the last of them ends.
    pub busy: Duration,
    /// From handing an operation to the device or disk to taking in its end.
    pub latency: Latency,
}

impl HopTotals {
    /// Returns bytes by seconds of busy time; 0 when nothing moved.
    #[expect(clippy::cast_precision_loss, reason = "for people; bytes below 2^53 are exact")]
    pub fn bytes_per_second(&self) -> f64 {
        let seconds = self.busy.as_secs_f64();
        if seconds > 0.0 { self.bytes.get() as f64 / seconds } else { 0.0 }
    }
}

/// What every hop of a pager moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hops {
    /// From the engine's blocks to staging.
    pub pack: HopTotals,
    /// From staging to the host tier.
    pub out_link: HopTotals,
    /// From the host tier to disk.
    pub write: HopTotals,
    /// From disk to the host tier.
    pub read: HopTotals,
    /// From the host tier to staging.
    pub in_link: HopTotals,
    /// From staging to the engine's blocks.
    pub unpack: HopTotals,
}

impl Hops {
    /// Returns one hop's totals.
    pub const fn get(&self, hop: Hop) -> &HopTotals {
        match hop {
            Hop::Pack => &self.pack,
            Hop::OutLink => &self.out_link,
            Hop::InLink => &self.in_link,
            Hop::Unpack => &self.unpack,
        }
    }

    /// Returns one disk hop's totals.
    pub const fn get_disk(&self, hop: DiskHop) -> &HopTotals {
        match hop {
            DiskHop::Write => &self.write,
            DiskHop::Read => &self.read,
        }
    }
}

/// Collects latencies.
#[derive(Clone, Debug)]
pub(crate) struct LatencyRecorder {
    histogram: Histogram<u64>,
}

impl LatencyRecorder {
    pub(crate) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, LATENCY_DIGITS);
        Self { histogram: histogram.expect("1 ns to an hour at two digits are good bounds") }
    }

    /// Takes in one latency; one of over an hour counts as an hour.
    pub(crate) fn record(&mut self, latency: Duration) {
        self.histogram.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Takes in what another recorder collected.
    #[cfg(feature = "replay")]
    pub(crate) fn merge(&mut self, other: &Self) {
        let merged = self.histogram.add(&other.histogram);
        merged.expect("all recorders have the same bounds");
    }

    pub(crate) fn summary(&self) -> Latency {
        let at = |quantile| Duration::from_nanos(self.histogram.value_at_quantile(quantile));
        if self.histogram.is_empty() {
            return Latency::default();
        }
        Latency {
            count: self.histogram.len(),
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: Duration::from_nanos(self.histogram.max()),
        }
    }
}

/// One hop's account.
#[derive(Debug)]
struct HopMeter {
    under_way: u32,
    busy_since: Instant,
    totals: HopTotals,
    latency: LatencyRecorder,
}

/// The account of every hop.
#[derive(Debug)]
pub(super) struct HopMeters {
    meters: [HopMeter; HOPS.len()],
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HopEnd {
    /// It moved this much.
    Moved(ByteCount),
    /// It did not do its work.
    Failed,
    /// What it was to move was cleared in the meantime: it counts neither way.
    Dropped,
}

impl HopMeters {
    /// Makes the account of a pager that was opened at `now`.
    pub(super) fn new(now: Instant) -> Self {
        let meter = |_| HopMeter {
            under_way: 0,
            busy_since: now,
            totals: HopTotals::default(),
            latency: LatencyRecorder::new(),
        };
        Self { meters: HOPS.map(meter) }
    }

    /// Notes that an operation of `hop` was handed to the device or disk.
    pub(super) fn begin(&mut self, hop: AnyHop, now: Instant) {
        let meter = self.meter(hop);
        if meter.under_way == 0 {
            meter.busy_since = now;
        }
        meter.under_way += 1;
    }

    /// Notes that an operation ended.
    pub(super) fn end(&mut self, hop: AnyHop, started: Instant, now: Instant, end: HopEnd) {
        let meter = self.meter(hop);
        let totals = &mut meter.totals;
        match end {
            HopEnd::Moved(bytes) => {
                totals.operations += 1;
                totals.bytes = ByteCount::new(totals.bytes.get() + bytes.get());
                meter.latency.record(now.saturating_duration_since(started));
            }
            HopEnd::Failed => totals.failed_operations += 1,
            HopEnd::Dropped => {}
        }
        meter.under_way =
            meter.under_way.checked_sub(1).expect("only an operation that began can end");
        if meter.under_way == 0 {
            totals.busy += now.saturating_duration_since(meter.busy_since);
        }
    }

    /// Returns the totals so far.
    pub(super) fn totals(&self) -> Hops {
        let [pack, out_link, write, read, in_link, unpack] = self
            .meters
            .each_ref()
            .map(|meter| HopTotals { latency: meter.latency.summary(), ..meter.totals });
        Hops { pack, out_link, write, read, in_link, unpack }
    }

    fn meter(&mut self, hop: AnyHop) -> &mut HopMeter {
        let at = HOPS.iter().position(|known| *known == hop);
        &mut self.meters[at.expect("every hop is in the list")]
    }
}

#[cfg(test)]
mod tests {
    use super::{
        AnyHop, ByteCount, Duration, HOPS, Hop, HopEnd, HopMeters, HopTotals, Instant, Latency,
    };

    #[test]
    fn a_hop_is_busy_while_any_operation_is_under_way_and_idle_between() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut meters = HopMeters::new(start);
        meters.begin(Hop::Pack.into(), at(0));
        meters.begin(Hop::Pack.into(), at(2));
        meters.end(Hop::Pack.into(), at(0), at(5), HopEnd::Moved(1000.into()));
        meters.end(Hop::Pack.into(), at(2), at(6), HopEnd::Moved(500.into()));
        meters.begin(Hop::Pack.into(), at(100));
        meters.end(Hop::Pack.into(), at(100), at(104), HopEnd::Failed);
        meters.begin(Hop::Pack.into(), at(200));
        meters.end(Hop::Pack.into(), at(200), at(201), HopEnd::Dropped);
        let totals = meters.totals().pack;
        assert_eq!(totals.busy, Duration::from_millis(6 + 4 + 1));
        assert_eq!((totals.operations, totals.failed_operations), (2, 1));
        assert_eq!(totals.bytes, ByteCount::new(1500));
        assert!((totals.bytes_per_second() - 1500.0 / 0.011).abs() < 1.0);
        assert_eq!(meters.totals().out_link, HopTotals::default());
    }

    #[test]
    fn each_hop_has_an_account_of_its_own() {
        let now = Instant::now();
        let mut meters = HopMeters::new(now);
        for (hop, count) in HOPS.into_iter().zip(1..) {
            meters.begin(hop, now);
            meters.end(hop, now, now, HopEnd::Moved(count.into()));
        }
        for (hop, count) in HOPS.into_iter().zip(1..) {
            let totals = meters.totals();
            let totals = match hop {
                AnyHop::Device(hop) => totals.get(hop),
                AnyHop::Disk(hop) => totals.get_disk(hop),
            };
            assert_eq!(totals.bytes, ByteCount::new(count));
        }
    }

    #[test]
    fn quantiles_are_within_one_percent_and_nothing_measured_is_zero() {
        let start = Instant::now();
        let mut meters = HopMeters::new(start);
        for microseconds in 1..=10_000 {
            meters.begin(Hop::InLink.into(), start);
            let now = start + Duration::from_micros(microseconds);
            meters.end(Hop::InLink.into(), start, now, HopEnd::Moved(0.into()));
        }
        let latency = meters.totals().in_link.latency;
        assert_eq!(latency.count, 10_000);
        for (found, expected) in
            [(latency.p50, 5_000.0), (latency.p99, 9_900.0), (latency.p999, 9_990.0)]
        {
            let microseconds = found.as_secs_f64() * 1e6;
            assert!((microseconds / expected - 1.0).abs() < 0.01, "{microseconds} {expected}");
        }
        assert_eq!(meters.totals().pack.latency, Latency::default());
    }
}
