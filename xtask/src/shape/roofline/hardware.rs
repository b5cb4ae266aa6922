//! What an H200 is taken to be: every hardware number of the roofline, and where it is from.
//!
//! A prediction is worth what its premises are, so each says whether a document states it, whether
//! it was read or remembered, or whether it is assumed. The document's table is written from here.

use std::fmt;

/// How well a figure is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Basis {
    /// Its source says so; that, or a page that quotes it, was read for this purpose.
    Read,
    /// Its source says so as far as memory serves: look it up before it decides anything.
    Remembered,
    /// A guess from what the source says of a relative.
    Assumed,
}

impl fmt::Display for Basis {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Read => "read",
            Self::Remembered => "remembered",
            Self::Assumed => "assumed",
        })
    }
}

/// One number of the machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figure {
    /// What it is, with its unit.
    pub(super) what: &'static str,
    pub(super) value: f64,
    pub(super) basis: Basis,
    /// The document, or what the guess rests on.
    pub(super) source: &'static str,
}

const fn figure(what: &'static str, value: f64, basis: Basis, source: &'static str) -> Figure {
    Figure { what, value, basis, source }
}

use Basis::{Assumed, Read, Remembered};

const THROUGHPUT_TABLE: &str = "\
    CUDA C++ Best Practices Guide, Throughput of Native Arithmetic Instructions (earlier in the \
    Programming Guide, 8.4.1): the columns of 7.x and 8.0 were read; 9.0 is remembered alike";

const LIMITS_TABLE: &str = "Hopper Tuning Guide, 1.4.1.1, Occupancy";

const ACCESS_RULES: &str = "CUDA C++ Best Practices Guide, Coalesced Access to Global Memory";

pub(super) const MULTIPROCESSORS: Figure = figure(
    "multiprocessors",
    132.0,
    Read,
    "OpenCL-Benchmark of a GH200, which has the same die (github.com/mredenti/PowerCapping)",
);

pub(super) const CLOCK_GHZ: Figure = figure(
    "clock, GHz",
    1.98,
    Assumed,
    "the same: 132 at 1,980 MHz. Under matrix load H100s fall to 1.78 and less, and all bounds but \
     memory's with them",
);

pub(super) const MEMORY_GBPS: Figure =
    figure("device memory, GB/s", 4800.0, Read, "H200 data sheet: 4.8 TB/s");

pub(super) const MEMORY_EFFICIENCY: Figure = figure(
    "share of it that plain copies reach",
    0.9,
    Assumed,
    "that benchmark: 3,615 GB/s read and 3,705 written of the GH200's 4,000",
);

pub(super) const IDLE_LATENCY_NS: Figure = figure(
    "latency of a load from device memory that is idle, ns",
    300.0,
    Remembered,
    "arXiv 2402.13499: about 480 cycles of an H100 PCIe at 1.755 GHz, which is 273",
);

pub(super) const BUSY_LATENCY_NS: Figure = figure(
    "the same where others keep memory busy, ns",
    700.0,
    Assumed,
    "2.3 times as much; 4.8 TB/s then need 25 KiB in flight a multiprocessor",
);

pub(super) const L2_LATENCY_CYCLES: Figure = figure(
    "latency of a load that hits L2, cycles",
    270.0,
    Remembered,
    "arXiv 2402.13499: about 260 on an H100 PCIe. All ids are taken to come from there, though \
     most of a span's come from L1",
);

pub(super) const ARITHMETIC_LATENCY_CYCLES: Figure = figure(
    "from an arithmetic instruction to one that uses its result, cycles",
    5.0,
    Assumed,
    "4 for most since Volta (arXiv 1804.06826), 5 for IMAD.WIDE",
);

pub(super) const OTHER_LATENCY_CYCLES: Figure = figure(
    "the same for shuffles, constants and the uniform datapath, cycles",
    25.0,
    Assumed,
    "shuffles take 23 on Volta (arXiv 1804.06826)",
);

pub(super) const SCHEDULERS: Figure = figure(
    "warp instructions issued a cycle and multiprocessor",
    4.0,
    Remembered,
    "H100 Tensor Core GPU Architecture (white paper): four quarters, one each",
);

pub(super) const ALU_LANES: Figure = figure(
    "ALU lanes a multiprocessor: integer add, compare, logic, shift",
    64.0,
    Remembered,
    THROUGHPUT_TABLE,
);

pub(super) const MULTIPLY_LANES: Figure = figure(
    "lanes of the FMA pipe for 32-bit integer multiply-add (IMAD)",
    64.0,
    Read,
    "that table; and that benchmark: 32.97 TIOP/s, which is 63 a cycle",
);

pub(super) const WIDE_LANES: Figure = figure(
    "the same for 32 x 32 + 64 bits (IMAD.WIDE)",
    32.0,
    Assumed,
    "half of IMAD's; no document states it",
);

pub(super) const L1_BYTES: Figure = figure(
    "bytes between registers and L1 a cycle and multiprocessor",
    128.0,
    Remembered,
    "H100 white paper; one line of 128 bytes a cycle",
);

pub(super) const L2_BYTES: Figure = figure(
    "bytes between a multiprocessor and L2 a cycle, each way",
    64.0,
    Assumed,
    "A100 white paper: 5,120 bytes a cycle for 80 read ports",
);

pub(super) const LINE_BYTES: Figure =
    figure("bytes of a line of L1", 128.0, Remembered, ACCESS_RULES);

pub(super) const SECTOR_BYTES: Figure =
    figure("bytes of a sector, the least that memory moves", 32.0, Remembered, ACCESS_RULES);

pub(super) const REGISTERS: Figure =
    figure("registers a multiprocessor", 65_536.0, Read, LIMITS_TABLE);

pub(super) const REGISTER_GRANULE: Figure = figure(
    "registers a thread are allocated by",
    8.0,
    Remembered,
    "Nsight Compute, Occupancy Calculator: 256 a warp",
);

pub(super) const WARPS: Figure = figure("warps a multiprocessor", 64.0, Read, LIMITS_TABLE);

pub(super) const THREAD_BLOCKS: Figure =
    figure("thread blocks a multiprocessor", 32.0, Read, LIMITS_TABLE);

pub(super) const LINK_GBPS: [Figure; 3] = [
    figure(
        "PCIe 5 x16 as seen, GB/s one way",
        50.0,
        Read,
        "vLLM blog of 2026-01-08, figure 3: 48 to 50.7 on an H100",
    ),
    figure("PCIe 5 x16 raw, GB/s one way", 63.0, Read, "32 GT/s x 16 lanes x 128/130"),
    figure(
        "NVLink-C2C, GB/s one way",
        450.0,
        Remembered,
        "Grace Hopper white paper: 900 GB/s both ways",
    ),
];

/// All figures, in the order of the table.
pub(super) fn all() -> Vec<Figure> {
    let machine = [
        MULTIPROCESSORS,
        CLOCK_GHZ,
        MEMORY_GBPS,
        MEMORY_EFFICIENCY,
        IDLE_LATENCY_NS,
        BUSY_LATENCY_NS,
        L2_LATENCY_CYCLES,
        ARITHMETIC_LATENCY_CYCLES,
        OTHER_LATENCY_CYCLES,
        SCHEDULERS,
        ALU_LANES,
        MULTIPLY_LANES,
        WIDE_LANES,
        L1_BYTES,
        L2_BYTES,
        LINE_BYTES,
        SECTOR_BYTES,
        REGISTERS,
        REGISTER_GRANULE,
        WARPS,
        THREAD_BLOCKS,
    ];
    machine.into_iter().chain(LINK_GBPS).collect()
}

/// Returns the payload rate of a copy inside device memory, which reads and writes each byte.
pub(super) fn device_copy_gbps() -> f64 {
    MEMORY_GBPS.value * MEMORY_EFFICIENCY.value / 2.0
}
