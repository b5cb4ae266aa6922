//! What a warp runs for one whole span of 16 KiB: the way into the hot loop, its trips, the way
//! back to the next span.
//!
//! The ways are the shortest ones through the listing, which is what a whole span takes: no words
//! are left for the loop over the rest. In kernels that sum, the way back goes by the reduction.

use super::pipe::Mix;
use super::warp::{Memory, Place, Warp};
use crate::shape::listing::{Access, Instruction, Kernel};
use crate::shape::rules::hot_loop_of;
use kvtide_kernels::abi::{SPAN_WORDS, TILE_WORDS};
use std::ops::Range;

/// Trips through the hot loop in a whole span.
pub(super) const TRIPS: u32 = SPAN_WORDS / TILE_WORDS;

/// The machine code of one span.
#[derive(Debug)]
pub(super) struct SpanCode<'code> {
    before: Vec<&'code Instruction>,
    /// One trip through the hot loop; empty in a kernel that has none.
    trip: Vec<&'code Instruction>,
    after: Vec<&'code Instruction>,
    /// Of the loads of a trip that are not wide, the first so many load ids or pairs.
    id_loads: u32,
}

impl<'code> SpanCode<'code> {
    /// Finds the span's code in a kernel.
    ///
    /// # Errors
    ///
    /// When the listing has not the shape that this file's doc says.
    pub(super) fn find(name: &str, kernel: &'code Kernel, id_loads: u32) -> Result<Self, String> {
        let all = kernel.instructions();
        let pick = |path: Vec<usize>| path.into_iter().map(|at| &all[at]).collect::<Vec<_>>();
        let path = |from, to| {
            kernel
                .shortest_path(from, to)
                .map(pick)
                .ok_or_else(|| format!("{name}: no way from instruction {from} to {to}"))
        };
        let hot = hot_loop_of(name, kernel);
        let spans = span_loop(kernel, hot.as_ref())
            .ok_or_else(|| format!("{name} has no loop over spans"))?;
        let end = hot.as_ref().map_or(spans.start, |hot| hot.end);
        let before = hot.as_ref().map_or(Ok(Vec::new()), |hot| path(spans.start, hot.start))?;
        let trip = hot.map_or(Vec::new(), |hot| all[hot].iter().collect());
        let is_reduction = |at: &usize| all[*at].operation() == "REDG";
        let after = match spans.clone().find(is_reduction) {
            Some(reduction) => [path(end, reduction)?, path(reduction, spans.start)?].concat(),
            None => path(end, spans.start)?,
        };
        Ok(Self { before, trip, after, id_loads })
    }

    /// Returns what one trip through the hot loop issues.
    ///
    /// # Errors
    ///
    /// As [`Mix::of`].
    pub(super) fn trip_mix(&self) -> Result<Mix, String> {
        Mix::of(self.trip.iter().copied())
    }

    /// Returns what a span issues besides its trips.
    ///
    /// # Errors
    ///
    /// As [`Mix::of`].
    pub(super) fn rest_mix(&self) -> Result<Mix, String> {
        Mix::of(self.before.iter().chain(&self.after).copied())
    }

    /// Returns the loads of a trip that move the payload's words.
    pub(super) fn word_loads(&self) -> u32 {
        let is_word = |access| matches!(access, Access::Wide | Access::Narrow);
        self.count(is_word) - self.id_loads
    }

    /// Returns the stores of a trip.
    pub(super) fn stores(&self) -> u32 {
        self.count(|access| access == Access::Store)
    }

    fn count(&self, is_counted: impl Fn(Access) -> bool) -> u32 {
        self.trip.iter().map(|instruction| u32::from(is_counted(instruction.access()))).sum()
    }

    /// Returns the bytes that the word loads of a trip bring to a lane.
    pub(super) fn lane_bytes_in_flight(&self) -> u32 {
        let bytes = |access| match access {
            Access::Wide => 16,
            Access::Narrow => 4,
            _ => 0,
        };
        let loads = (0..self.trip.len()).filter(|at| self.place(*at) == Place::Memory);
        loads.map(|at| bytes(self.trip[at].access())).sum()
    }

    /// Returns the cycles that a warp alone takes for a span, once it is under way.
    ///
    /// # Errors
    ///
    /// As [`Warp::run`].
    pub(super) fn lone_cycles(&self, memory: Memory) -> Result<f64, String> {
        let mut warp = Warp::new(memory);
        self.run(&mut warp)?;
        let first = warp.cycles();
        self.run(&mut warp)?;
        Ok(warp.cycles() - first)
    }

    fn run(&self, warp: &mut Warp) -> Result<(), String> {
        warp.run(self.before.iter().copied(), |_| Place::L2)?;
        for _ in 0..if self.trip.is_empty() { 0 } else { TRIPS } {
            warp.run(self.trip.iter().copied(), |at| self.place(at))?;
        }
        warp.run(self.after.iter().copied(), |_| Place::L2)
    }

    /// Returns where instruction `at` of a trip, if it is a load, finds its words.
    fn place(&self, at: usize) -> Place {
        let is_narrow = |instruction: &&&Instruction| instruction.access() == Access::Narrow;
        let ids_before = self.trip[..at].iter().filter(is_narrow).count();
        match self.trip[at].access() {
            Access::Wide => Place::Memory,
            Access::Narrow if ids_before >= self.id_loads as usize => Place::Memory,
            _ => Place::L2,
        }
    }
}

/// Returns the loop from span to span: the one around the hot loop, or else the first.
fn span_loop(kernel: &Kernel, hot: Option<&Range<usize>>) -> Option<Range<usize>> {
    match hot {
        Some(hot) => kernel.loop_around(hot),
        None => kernel.innermost_loops().into_iter().next(),
    }
}

#[cfg(test)]
mod tests {
    use super::Memory;
    use super::SpanCode;
    use crate::shape::listing::parse;
    use crate::shape::roofline::fixture::copy_listing;

    #[test]
    fn a_span_is_the_way_in_its_trips_and_the_way_back() {
        let kernels = parse(&copy_listing(""));
        let span = SpanCode::find("kvtide_copy_16", &kernels["kvtide_copy_16"], 4).expect("found");
        assert_eq!(span.trip_mix().expect("known").counts(), [12, 0, 0, 0, 0, 1, 0]);
        // The load before, three branches, an exit: not the loop over what is left.
        assert_eq!(span.rest_mix().expect("known").counts(), [1, 0, 0, 0, 0, 4, 0]);
        assert_eq!((span.word_loads(), span.stores()), (4, 4));
        assert_eq!(span.lane_bytes_in_flight(), 64);
    }

    #[test]
    fn a_reduction_is_part_of_the_span() {
        let reduction =
            "@P5 BRA `(.L_x_5)\nREDG.E.ADD.64.STRONG.GPU desc[UR4][R4.64], R6\n.L_x_5:\n";
        let kernels = parse(&copy_listing(reduction));
        let span = SpanCode::find("kvtide_copy_16", &kernels["kvtide_copy_16"], 4).expect("found");
        assert_eq!(span.rest_mix().expect("known").counts(), [2, 0, 0, 0, 0, 5, 0]);
    }

    #[test]
    fn a_trip_takes_an_id_and_then_a_word() {
        let kernels = parse(&copy_listing(""));
        let span = SpanCode::find("kvtide_copy_16", &kernels["kvtide_copy_16"], 4).expect("found");
        let trip = 270.0 + 700.0 * 1.98;
        let lone = span.lone_cycles(Memory::Busy).expect("known");
        let idle = span.lone_cycles(Memory::Idle).expect("known");
        assert!((lone - idle - 8.0 * 400.0 * 1.98).abs() < 1e-6, "{lone}, {idle}");
        assert!(lone > 8.0 * trip && lone < 8.0 * (trip + 40.0) + 270.0, "{lone}");
    }
}
