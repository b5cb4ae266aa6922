//! The bounds of one kernel on one machine, as rates of payload, and which is the tightest.

use super::fragment::{Row, packed_bytes, sector_surplus};
use super::hardware::{
    BUSY_LATENCY_NS, CLOCK_GHZ, L1_BYTES, L2_BYTES, LINE_BYTES, MEMORY_EFFICIENCY, MEMORY_GBPS,
    MULTIPROCESSORS, REGISTER_GRANULE, REGISTERS, SCHEDULERS, THREAD_BLOCKS, WARPS,
};
use super::pipe::Mix;
use super::span::{SpanCode, TRIPS};
use super::warp::Memory;
use crate::shape::listing::Kernel;
use kvtide_kernels::abi::{
    LaunchGeometry, SPAN_WORDS, THREADS_PER_BLOCK, WARP_LANES, WORD_BYTES, WORDS_IN_FLIGHT,
};

/// Payload of a span, in bytes.
pub(super) const SPAN_BYTES: u32 = SPAN_WORDS * WORD_BYTES;

/// One side of a kernel's copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Nothing is moved.
    None,
    /// The payload: contiguous.
    Packed,
    /// The engine's blocks: fragments.
    Fragments,
}

/// What a kernel does, which its listing does not say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Profile {
    pub(super) kernel: &'static str,
    pub(super) loads: Side,
    pub(super) stores: Side,
    /// Bytes of the ids that it reads for each fragment.
    id_bytes: u32,
}

const fn profile(kernel: &'static str, loads: Side, stores: Side, id_bytes: u32) -> Profile {
    Profile { kernel, loads, stores, id_bytes }
}

/// Every kernel with a hot loop, in the order of the rules.
pub(super) const PROFILES: [Profile; 8] = [
    profile("kvtide_checksum", Side::Packed, Side::None, 0),
    profile("kvtide_copy_16", Side::Fragments, Side::Fragments, 8),
    profile("kvtide_copy_4", Side::Fragments, Side::Fragments, 8),
    profile("kvtide_fill", Side::None, Side::Packed, 0),
    profile("kvtide_gather_16", Side::Fragments, Side::Packed, 4),
    profile("kvtide_gather_4", Side::Fragments, Side::Packed, 4),
    profile("kvtide_scatter_16", Side::Packed, Side::Fragments, 4),
    profile("kvtide_scatter_4", Side::Packed, Side::Fragments, 4),
];

/// A kernel with all that its bounds follow from.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) profile: Profile,
    pub(super) trip: Mix,
    /// What a span issues besides its trips.
    pub(super) rest: Mix,
    /// Warps that a multiprocessor holds.
    pub(super) resident_warps: f64,
    /// Bytes that the loads of one warp have in flight.
    pub(super) warp_bytes_in_flight: f64,
    /// Cycles of a span for a warp alone, with memory idle and busy.
    pub(super) lone_cycles: [f64; 2],
    load_count: f64,
    store_count: f64,
}

/// What may limit a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    Memory,
    Issue,
    Alu,
    Multiply,
    L1,
    L2,
    Latency,
}

impl Limit {
    /// All of them, with their names for the table.
    pub(super) const ALL: [(Self, &str); 7] = [
        (Self::Memory, "memory"),
        (Self::Issue, "issue"),
        (Self::Alu, "ALU"),
        (Self::Multiply, "FMA pipe"),
        (Self::L1, "L1"),
        (Self::L2, "L2 port"),
        (Self::Latency, "latency"),
    ];

    /// Returns its name.
    pub(super) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(limit, _)| *limit == self).map_or("", |(_, name)| name)
    }
}

/// How much of the machine a launch takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    multiprocessors: f64,
    warps_each: f64,
    memory: Memory,
}

impl Share {
    /// A persistent grid that fills the machine with the kernel.
    pub(super) fn whole(subject: &Subject) -> Self {
        Self {
            multiprocessors: MULTIPROCESSORS.value,
            warps_each: subject.resident_warps,
            memory: Memory::Busy,
        }
    }

    /// So many thread blocks, at most one a multiprocessor, where they find room first.
    pub(super) fn capped(thread_blocks: u32, memory: Memory) -> Self {
        let warps_each = f64::from(LaunchGeometry::WARPS_PER_THREAD_BLOCK);
        Self { multiprocessors: f64::from(thread_blocks), warps_each, memory }
    }
}

/// Rates of payload in GB/s, in the order of [`Limit::ALL`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds([f64; Limit::ALL.len()]);

impl Bounds {
    /// Returns the rates.
    pub(super) const fn rates(&self) -> [f64; Limit::ALL.len()] {
        self.0
    }

    /// Returns the tightest bound and what it is.
    pub(super) fn tightest(&self) -> (f64, Limit) {
        let rates = self.0.into_iter().zip(Limit::ALL.map(|(limit, _)| limit));
        rates.fold((f64::INFINITY, Limit::Memory), |tightest, bound| {
            if bound.0 < tightest.0 { bound } else { tightest }
        })
    }
}

impl Subject {
    /// Reads a kernel of a listing.
    ///
    /// # Errors
    ///
    /// When its span is not found, or an instruction is not known.
    pub(super) fn read(profile: Profile, kernel: &Kernel, registers: u32) -> Result<Self, String> {
        let id_loads = if profile.id_bytes == 0 { 0 } else { WORDS_IN_FLIGHT };
        let in_kernel = |error: String| format!("{}: {error}", profile.kernel);
        let span = SpanCode::find(profile.kernel, kernel, id_loads)?;
        let lone_cycles = |memory| span.lone_cycles(memory).map_err(in_kernel);
        Ok(Self {
            profile,
            trip: span.trip_mix().map_err(in_kernel)?,
            rest: span.rest_mix().map_err(in_kernel)?,
            resident_warps: resident_warps(registers),
            warp_bytes_in_flight: f64::from(span.lane_bytes_in_flight() * WARP_LANES),
            lone_cycles: [lone_cycles(Memory::Idle)?, lone_cycles(Memory::Busy)?],
            load_count: f64::from(span.word_loads()),
            store_count: f64::from(span.stores()),
        })
    }

    /// Returns the bytes of device memory that a span reads and writes.
    pub(super) fn span_traffic(&self, fragment_bytes: u32) -> [f64; 2] {
        let payload = f64::from(SPAN_BYTES);
        #[expect(clippy::cast_precision_loss, reason = "a fragment is far below 2^53 bytes")]
        let fragment_count = payload / packed_bytes(fragment_bytes) as f64;
        let of = |side| match side {
            Side::None => 0.0,
            Side::Packed => payload,
            Side::Fragments => payload * sector_surplus(fragment_bytes),
        };
        let ids = f64::from(self.profile.id_bytes) * fragment_count;
        [of(self.profile.loads) + ids, of(self.profile.stores)]
    }

    /// Returns the bounds of a launch, with fragments of so many bytes.
    pub(super) fn bounds(&self, fragment_bytes: u32, share: Share) -> Bounds {
        let payload = f64::from(SPAN_BYTES);
        let trips = f64::from(TRIPS);
        let cycles_rate = |cycles: f64| {
            if cycles > 0.0 {
                payload * CLOCK_GHZ.value * share.multiprocessors / cycles
            } else {
                f64::INFINITY
            }
        };
        let quarters = SCHEDULERS.value;
        let issued = f64::from(self.trip.total() * TRIPS + self.rest.total());
        let alu = self.trip.alu_cycles() * trips + self.rest.alu_cycles();
        let multiply = self.trip.multiply_cycles() * trips + self.rest.multiply_cycles();
        let [l1, l2] = self.cache_cycles(fragment_bytes);
        let [idle, busy] = self.lone_cycles;
        let lone = if share.memory == Memory::Idle { idle } else { busy };
        let memory = MEMORY_GBPS.value * MEMORY_EFFICIENCY.value * payload
            / self.span_traffic(fragment_bytes).iter().sum::<f64>();
        Bounds([
            memory,
            cycles_rate(issued / quarters),
            cycles_rate(alu / quarters),
            cycles_rate(multiply / quarters),
            cycles_rate(l1),
            cycles_rate(l2),
            cycles_rate(lone / share.warps_each),
        ])
    }

    /// Returns the bytes that the loads of one multiprocessor must have in flight for a rate of
    /// payload (Little's law).
    pub(super) fn needed_in_flight(&self, gbps: f64) -> f64 {
        let loads = f64::from(u32::from(self.profile.loads != Side::None));
        gbps * loads * BUSY_LATENCY_NS.value / MULTIPROCESSORS.value
    }

    /// Returns the cycles of a span in L1 and in the port to L2.
    fn cache_cycles(&self, fragment_bytes: u32) -> [f64; 2] {
        let row = |side| match side {
            Side::None => Row { lines: 0.0, sector_bytes: 0.0 },
            Side::Packed => Row::packed(),
            Side::Fragments => Row::of_fragments(fragment_bytes),
        };
        let (loads, stores) = (row(self.profile.loads), row(self.profile.stores));
        let id_lines = if self.profile.id_bytes == 0 { 0.0 } else { f64::from(WORDS_IN_FLIGHT) };
        let line_cycles = LINE_BYTES.value / L1_BYTES.value;
        let l1 = self.load_count * loads.lines + self.store_count * stores.lines + id_lines;
        // Quarters of a word come from L1 after the first; stores pass through it each.
        let read = f64::from(WORDS_IN_FLIGHT) * loads.sector_bytes;
        let written = self.store_count * stores.sector_bytes;
        let trips = f64::from(TRIPS);
        [l1 * line_cycles * trips, read.max(written) / L2_BYTES.value * trips]
    }
}

/// Returns how many warps of so many registers a thread a multiprocessor holds, by whole thread
/// blocks.
fn resident_warps(registers: u32) -> f64 {
    let granule = REGISTER_GRANULE.value;
    let of_block = (f64::from(registers) / granule).ceil() * granule * f64::from(THREADS_PER_BLOCK);
    let warps_of_block = f64::from(LaunchGeometry::WARPS_PER_THREAD_BLOCK);
    let blocks =
        (REGISTERS.value / of_block).min(WARPS.value / warps_of_block).min(THREAD_BLOCKS.value);
    blocks.floor() * warps_of_block
}

#[cfg(test)]
mod tests {
    use super::{Limit, Memory, PROFILES, Share, Subject, resident_warps};
    use crate::shape::listing::parse;
    use crate::shape::roofline::fixture::copy_listing;

    /// The fixture: 13 instructions a trip and 5 besides a span, no arithmetic.
    fn copy() -> Subject {
        let kernels = parse(&copy_listing(""));
        let profile = PROFILES.into_iter().find(|profile| profile.kernel == "kvtide_copy_16");
        Subject::read(profile.expect("there"), &kernels["kvtide_copy_16"], 48).expect("known")
    }

    fn assert_close(rate: f64, expected: f64) {
        assert!((rate / expected - 1.0).abs() < 1e-6, "{rate}, not {expected}");
    }

    #[test]
    fn whole_thread_blocks_are_resident() {
        let cases = [(18, 64), (40, 48), (41, 40), (48, 40), (49, 32), (64, 32)];
        for (registers, warps) in cases {
            assert_close(resident_warps(registers), f64::from(warps));
        }
    }

    #[test]
    fn each_bound_is_its_own_arithmetic() {
        let copy = copy();
        let bounds = copy.bounds(2048, Share::whole(&copy));
        let [memory, issue, alu, multiply, l1, l2, latency] = bounds.rates();
        // Bytes a cycle of all 132 multiprocessors at 1.98 GHz, for a span of 16 KiB.
        let one_cycle = 16_384.0 * 132.0 * 1.98;
        assert_close(memory, 4800.0 * 0.9 * 16_384.0 / (16_384.0 * 2.0 + 8.0 * 8.0));
        assert_close(issue, one_cycle / ((8.0 * 13.0 + 5.0) / 4.0));
        assert!(alu.is_infinite() && multiply.is_infinite());
        // A trip: eight rows of four lines and four pairs; 2 KiB each way at 64 bytes a cycle.
        assert_close(l1, one_cycle / (8.0 * 36.0));
        assert_close(l2, one_cycle / (8.0 * 2048.0 / 64.0));
        assert_close(latency, one_cycle * 40.0 / copy.lone_cycles[1]);
        assert_eq!(bounds.tightest(), (memory, Limit::Memory));
        assert_close(copy.needed_in_flight(2160.0), 2160.0 * 700.0 / 132.0);
        assert_close(copy.warp_bytes_in_flight, 2048.0);
    }

    #[test]
    fn few_thread_blocks_are_bound_by_latency() {
        let copy = copy();
        let rate = |blocks, memory| copy.bounds(2048, Share::capped(blocks, memory)).tightest();
        let (capped, limit) = rate(16, Memory::Busy);
        assert_eq!(limit, Limit::Latency);
        assert_close(capped, 16_384.0 * 16.0 * 8.0 * 1.98 / copy.lone_cycles[1]);
        assert_close(rate(8, Memory::Busy).0 * 2.0, capped);
        assert!(rate(16, Memory::Idle).0 > 1.4 * capped);
    }
}
