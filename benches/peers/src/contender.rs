//! Who is compared with whom, and what each is to reach.
//!
//! Called by `bench.rs` and `report.rs`.

use crate::foyer_lap;
use crate::memory::{Pages, Reach};
use crate::raw_block;
use crate::subject::Variant;

/// A way to move slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contender {
    /// Through kvtide's `Disk`.
    Kvtide(Variant),
    /// By fio.
    Fio(Pages, Reach),
    /// By foyer's disk engine.
    Foyer(foyer_lap::Engine),
    /// By LMCache's raw block I/O.
    RawBlock(raw_block::Engine),
    /// To a file each.
    Files(Pages),
}

/// kvtide with sums, on 2 MiB pages: what is compared unless something else is said.
const SUMMED: Contender = kvtide(true, Pages::Huge, Reach::Wide);

/// The same in as little memory as fio's.
const NARROW: Contender = kvtide(true, Pages::Huge, Reach::Narrow);

/// kvtide without sums.
const PLAIN: Contender = kvtide(false, Pages::Huge, Reach::Wide);

/// kvtide without sums, on 4 KiB pages.
const PLAIN_SMALL: Contender = kvtide(false, Pages::Small, Reach::Wide);

const fn kvtide(has_sums: bool, pages: Pages, reach: Reach) -> Contender {
    Contender::Kvtide(Variant { has_sums, pages, reach })
}

/// fio with as many operations under way as everyone.
const FIO: Contender = Contender::Fio(Pages::Huge, Reach::Narrow);

/// A comparison.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    /// What is measured.
    pub(crate) subject: Contender,
    /// What it is measured against.
    pub(crate) peer: Contender,
    /// The least ratio of rates that is wanted of puts; none where only the figure is wanted.
    pub(crate) put_goal: Option<f64>,
    /// The same of gets.
    pub(crate) get_goal: Option<f64>,
}

impl Pair {
    const fn new(subject: Contender, peer: Contender, goals: [Option<f64>; 2]) -> Self {
        Self { subject, peer, put_goal: goals[0], get_goal: goals[1] }
    }
}

/// Every comparison.
pub(crate) const PAIRS: [Pair; 12] = [
    Pair::new(SUMMED, FIO, [Some(0.97), Some(0.97)]),
    Pair::new(NARROW, FIO, [Some(0.97), Some(0.97)]),
    Pair::new(SUMMED, Contender::Fio(Pages::Huge, Reach::Wide), [Some(0.97), Some(0.97)]),
    Pair::new(PLAIN, FIO, [None, None]),
    Pair::new(PLAIN, Contender::Fio(Pages::Small, Reach::Narrow), [None, None]),
    Pair::new(PLAIN, PLAIN_SMALL, [None, Some(1.5)]),
    Pair::new(SUMMED, Contender::Foyer(foyer_lap::Engine::Psync), [Some(1.6), Some(1.5)]),
    Pair::new(SUMMED, Contender::Foyer(foyer_lap::Engine::Uring), [Some(1.6), Some(1.5)]),
    Pair::new(SUMMED, Contender::RawBlock(raw_block::Engine::Posix), [None, None]),
    Pair::new(SUMMED, Contender::RawBlock(raw_block::Engine::Uring), [None, None]),
    Pair::new(SUMMED, Contender::Files(Pages::Huge), [None, None]),
    Pair::new(SUMMED, Contender::Files(Pages::Small), [None, None]),
];

impl Contender {
    /// Names it in tables and on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Kvtide(variant) => variant.name(),
            Self::Fio(Pages::Huge, Reach::Narrow) => "fio",
            Self::Fio(Pages::Huge, Reach::Wide) => "fio-wide",
            Self::Fio(Pages::Small, Reach::Narrow) => "fio-4k",
            Self::Fio(Pages::Small, Reach::Wide) => "fio-4k-wide",
            Self::Foyer(foyer_lap::Engine::Psync) => "foyer-psync",
            Self::Foyer(foyer_lap::Engine::Uring) => "foyer-uring",
            Self::RawBlock(raw_block::Engine::Uring) => "raw-block-uring",
            Self::RawBlock(raw_block::Engine::Posix) => "raw-block-posix",
            Self::Files(Pages::Huge) => "files",
            Self::Files(Pages::Small) => "files-4k",
        }
    }
}
