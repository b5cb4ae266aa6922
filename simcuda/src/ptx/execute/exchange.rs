//! What the members of a warp exchange, when all have met.
//!
//! PTX ISA: `shfl.sync`, `vote.sync`, `match.sync`, `bar.warp.sync`. Members that have exited take
//! no part; reading from one is a fault.

use super::super::error::Cause;
use super::super::instruction::{Exchange, Operand, Register, ShuffleMode, VoteMode};
use super::super::warp::{Fault, LANES, Lanes, Warp, lanes};
use super::Machine;

impl Warp {
    /// Exchanges between the lanes of a mask.
    pub(in super::super) fn exchange(
        &mut self,
        exchange: &Exchange,
        mask: u32,
        machine: &Machine<'_>,
    ) -> Result<(), Fault> {
        match *exchange {
            Exchange::Wait => Ok(()),
            Exchange::Shuffle { mode, target, is_in_range, value, lane, clamp } => {
                let values = self.fetch(value, mask, machine)?;
                let amounts = self.fetch(lane, mask, machine)?;
                let clamps = self.fetch(clamp, mask, machine)?;
                let mut shuffled = [0; LANES as usize];
                let mut in_range = [0; LANES as usize];
                for lane in lanes(mask) {
                    let found = source_lane(mode, lane as u64, amounts[lane], clamps[lane]);
                    let source = usize::try_from(found.unwrap_or(lane as u64)).unwrap_or(lane);
                    if mask & (1 << source) == 0 {
                        let source_lane = u32::try_from(source).unwrap_or(LANES);
                        return Err(Fault {
                            lane,
                            cause: Cause::ShuffleFromAbsent { source_lane },
                        });
                    }
                    shuffled[lane] = values[source];
                    in_range[lane] = found.is_some().into();
                }
                self.write(target, mask, &shuffled);
                if let Some(is_in_range) = is_in_range {
                    self.write(is_in_range, mask, &in_range);
                }
                Ok(())
            }
            Exchange::Vote { mode, target, predicate, negated } => {
                let values = self.fetch(predicate, mask, machine)?;
                let votes = lanes(mask).filter(|lane| (values[*lane] != 0) != negated);
                let votes = votes.fold(0, |votes, lane| votes | 1_u32 << lane);
                let answer = match mode {
                    VoteMode::All => u32::from(votes == mask),
                    VoteMode::Any => u32::from(votes != 0),
                    VoteMode::Uniform => u32::from(votes == mask || votes == 0),
                    VoteMode::Ballot => votes,
                };
                self.write(target, mask, &[answer.into(); LANES as usize]);
                Ok(())
            }
            Exchange::MatchAny { target, value } => self.match_any(target, value, mask, machine),
            Exchange::MatchAll { target, is_same, value } => {
                let values = self.fetch(value.source, mask, machine)?;
                let first = values[mask.trailing_zeros() as usize];
                let all = lanes(mask).all(|lane| values[lane] == first);
                let answer = if all { mask } else { 0 };
                self.write(target, mask, &[answer.into(); LANES as usize]);
                if let Some(is_same) = is_same {
                    self.write(is_same, mask, &[all.into(); LANES as usize]);
                }
                Ok(())
            }
        }
    }

    fn match_any(
        &mut self,
        target: Register,
        value: Operand,
        mask: u32,
        machine: &Machine<'_>,
    ) -> Result<(), Fault> {
        let values: Lanes = self.fetch(value.source, mask, machine)?;
        let mut matches = [0; LANES as usize];
        for lane in lanes(mask) {
            let same = lanes(mask).filter(|other| values[*other] == values[lane]);
            matches[lane] = same.fold(0, |mask, other| mask | 1 << other);
        }
        self.write(target, mask, &matches);
        Ok(())
    }
}

/// Returns the lane that a shuffle reads from; `None` if it is out of the lane's segment, so that
/// the lane reads from itself.
///
/// `clamp` holds the end of a segment in bits 0 to 4, and in bits 8 to 12 which bits of a lane's
/// number name its segment.
fn source_lane(mode: ShuffleMode, lane: u64, amount: u64, clamp: u64) -> Option<u64> {
    let (amount, segment_bits) = (amount & 31, clamp >> 8 & 31);
    let segment = lane & segment_bits;
    let last = segment | clamp & 31 & !segment_bits;
    let source = match mode {
        // Here the clamp is the first lane, not the last.
        ShuffleMode::Up => return lane.checked_sub(amount).filter(|source| *source >= last),
        ShuffleMode::Down => lane + amount,
        ShuffleMode::Butterfly => lane ^ amount,
        ShuffleMode::Index => segment | amount & !segment_bits,
    };
    (source <= last).then_some(source)
}
