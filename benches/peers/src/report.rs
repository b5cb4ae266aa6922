//! Medians of ratios, as tables for a person or as JSON.
//!
//! A rate counts slots by all their bytes, header pages included, for every contender: so a ratio
//! of rates is one of slots a second. Ratios are those of one pair's laps, which ran one right
//! after the other; their median is not the ratio of the medians.
//!
//! Called by `main.rs`.

use crate::bench::{Comparison, PairLap};
use crate::machine::Machine;
use crate::work::{Cost, Lap, Workload};
use kvtide::units::ByteCount;
use serde::Serialize;

/// Everything that a run found.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) rounds: u32,
    pub(crate) sizes: Vec<SizeReport>,
}

/// What was found for one slot size.
#[derive(Debug, Serialize)]
pub(crate) struct SizeReport {
    slot_bytes: usize,
    slot_count: u32,
    depth: u32,
    /// What each contender ran on, or why it did not.
    pub(crate) notes: Vec<String>,
    rows: Vec<Row>,
}

/// One comparison.
#[derive(Debug, Serialize)]
struct Row {
    subject: &'static str,
    peer: &'static str,
    put: Side,
    get: Side,
    laps: Vec<PairLap>,
}

/// One direction of a comparison.
#[derive(Debug, Serialize)]
struct Side {
    goal: Option<f64>,
    /// The subject's rate divided by the peer's: median, least and greatest.
    ratio: [f64; 3],
    /// Medians, in GB/s: the subject's and the peer's.
    rates: [f64; 2],
    /// Medians, in CPU seconds a GB.
    cpu: [f64; 2],
    /// The ratio on files just made.
    first_ratio: f64,
    /// Rates on files just made.
    first_rates: [f64; 2],
}

impl SizeReport {
    /// Sums up the comparisons of one slot size.
    pub(crate) fn new(workload: &Workload, notes: Vec<String>, all: &[Comparison]) -> Self {
        let rows = all.iter().map(|comparison| Row::new(workload, comparison)).collect();
        let Workload { slot_bytes, slot_count, depth, .. } = *workload;
        Self { slot_bytes, slot_count, depth, notes, rows }
    }

    /// Prints one table of medians and one of first laps.
    pub(crate) fn print(&self) {
        let slot = ByteCount::new(self.slot_bytes as u64);
        println!("\n## Slots of {slot}, {} of them, depth {}\n", self.slot_count, self.depth);
        for note in &self.notes {
            println!("- {note}");
        }
        print!("\n| kvtide / peer | put | goal | get | goal | GB/s put | GB/s get ");
        println!("| CPU-s/GB put | CPU-s/GB get |");
        println!("|---|---|---|---|---|---|---|---|---|");
        for Row { subject, peer, put, get, .. } in &self.rows {
            println!(
                "| {subject} / {peer} | {} | {} | {} | {} |",
                put.ratio_cells(),
                get.ratio_cells(),
                [pair(put.rates), pair(get.rates)].join(" | "),
                [pair(put.cpu), pair(get.cpu)].join(" | ")
            );
        }
        println!("\n| first lap, kvtide / peer | put | get | GB/s put | GB/s get |");
        println!("|---|---|---|---|---|");
        for Row { subject, peer, put, get, .. } in &self.rows {
            println!(
                "| {subject} / {peer} | {:.2} | {:.2} | {} | {} |",
                put.first_ratio,
                get.first_ratio,
                pair(put.first_rates),
                pair(get.first_rates)
            );
        }
    }
}

impl Row {
    fn new(workload: &Workload, comparison: &Comparison) -> Self {
        let Comparison { pair, first, later } = comparison;
        let side = |goal, cost: fn(&Lap) -> Cost| Side::new(workload, goal, first, later, cost);
        Self {
            subject: pair.subject.name(),
            peer: pair.peer.name(),
            put: side(pair.put_goal, |lap| lap.put),
            get: side(pair.get_goal, |lap| lap.get),
            laps: later.clone(),
        }
    }
}

impl Side {
    fn new(
        workload: &Workload,
        goal: Option<f64>,
        first: &PairLap,
        later: &[PairLap],
        cost: fn(&Lap) -> Cost,
    ) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let gigabytes = workload.total_bytes() as f64 / 1e9;
        let rate = |lap: &Lap| gigabytes / cost(lap).seconds;
        let ratio = |[subject, peer]: &PairLap| rate(subject) / rate(peer);
        let medians = |value: &dyn Fn(&Lap) -> f64| {
            [0, 1].map(|who: usize| median(later.iter().map(|pair| value(&pair[who])).collect())[0])
        };
        Self {
            goal,
            ratio: median(later.iter().map(ratio).collect()),
            rates: medians(&rate),
            cpu: medians(&|lap| cost(lap).cpu_seconds / gigabytes),
            first_ratio: ratio(first),
            first_rates: [rate(&first[0]), rate(&first[1])],
        }
    }

    /// Returns the ratio with its range, and whether it is what was wanted.
    fn ratio_cells(&self) -> String {
        let [median, least, greatest] = self.ratio;
        let goal = match self.goal {
            None => String::new(),
            Some(goal) if median >= goal => format!("{goal:.2}, met"),
            Some(goal) => format!("{goal:.2}, not met"),
        };
        format!("{median:.3} ({least:.2} to {greatest:.2}) | {goal}")
    }
}

fn pair([subject, peer]: [f64; 2]) -> String {
    format!("{subject:.3} / {peer:.3}")
}

/// Returns the median, the least and the greatest of at least one value.
fn median(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [values[values.len() / 2], values[0], values[values.len() - 1]]
}

#[cfg(test)]
mod tests {
    use super::{Side, median};
    use crate::work::{Cost, Lap, Workload};

    #[test]
    fn a_median_is_the_middle_one_of_an_odd_number() {
        assert_eq!(format!("{:?}", median(vec![3.0, 1.0, 2.0])), "[2.0, 1.0, 3.0]");
    }

    #[test]
    fn the_median_is_taken_of_each_round_s_ratio() {
        let workload = Workload { slot_bytes: 1 << 20, slot_count: 1000, place_count: 8, depth: 8 };
        let lap = |seconds| {
            let cost = Cost { seconds, cpu_seconds: 0.0 };
            Lap { put: cost, get: cost }
        };
        // The machine is three times as slow in the second round, for both.
        let rounds = [[1.0, 2.0], [3.0, 6.0], [1.0, 1.0]].map(|pair| pair.map(lap));
        let side = Side::new(&workload, Some(1.5), &rounds[2], &rounds, |lap| lap.get);
        assert_eq!(format!("{:?}", side.ratio), "[2.0, 1.0, 2.0]");
        assert!((side.first_ratio - 1.0).abs() < f64::EPSILON);
        assert!(side.ratio_cells().ends_with("1.50, met"));
    }
}
