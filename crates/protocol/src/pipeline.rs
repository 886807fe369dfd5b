//! In which order a stage computes forwards and backwards.
//!
//! ```text
//!   three stages, four parts of a batch, none to spare       F forward, B backward
//!     stage 0   F0 F1 F2 .. .. B0 F3 B1 .. B2 .. B3
//!     stage 1      F0 F1 .. B0 F2 B1 F3 B2 .. B3
//!     stage 2         F0 B0 F1 B1 F2 B2 F3 B3
//! ```
//! The order follows from the place of the stage alone, never from what arrives first, so a run with the same seed
//! has the same numbers whatever the network does. Backwards come in the order of forwards: gradients are summed as
//! they would be without stages.

/// What a stage does next, with which part of the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    Forward(usize),
    Backward(usize),
}

/// How many forwards a stage does before its first backward when a batch ends before the next begins: as many as keep
/// the stages behind it busy, and `spare` ones, for when one of them takes longer than usual.
pub fn ahead_in_batch(stage: usize, stages: usize, parts: usize, spare: usize) -> usize {
    let behind = stages - stage;
    let ahead = if behind > 1 { behind + spare } else { 1 };
    ahead.min(parts).max(1)
}

/// How many forwards a stage does before its first backward when parts flow without end and `in_flight` of them may be
/// between the first stage and the last: evenly fewer from stage to stage, one at the last.
pub fn ahead_in_flow(stage: usize, stages: usize, in_flight: usize) -> usize {
    let behind = stages - 1 - stage;
    1 + (in_flight.saturating_sub(1) * behind).div_ceil((stages - 1).max(1))
}

/// All moves of a stage over some parts: `ahead` forwards, then a backward and a forward in turn, then the rest.
pub fn moves(ahead: usize, parts: usize) -> impl Iterator<Item = Move> {
    let ahead = ahead.max(1).min(parts);
    let first = (0..ahead).map(Move::Forward);
    let turns = (0..parts).flat_map(move |part| {
        let next = (part + ahead < parts).then_some(Move::Forward(part + ahead));
        std::iter::once(Move::Backward(part)).chain(next)
    });
    first.chain(turns)
}

#[cfg(test)]
mod tests {
    use super::Move::{Backward as B, Forward as F};
    use super::*;

    /// Lets stages go through their moves, each as soon as what it needs is there; the parts that were ever open at a
    /// stage, or nothing when they wait for each other.
    fn play(ahead: &[usize], parts: usize) -> Option<Vec<usize>> {
        let stages = ahead.len();
        let all: Vec<Vec<Move>> = ahead.iter().map(|ahead| moves(*ahead, parts).collect()).collect();
        let (mut at, mut most) = (vec![0; stages], vec![0; stages]);
        let (mut forwards, mut backwards) = (vec![0; stages], vec![0; stages]);
        loop {
            let mut moved = false;
            for stage in 0..stages {
                let can = match all[stage].get(at[stage]) {
                    Some(F(part)) => stage == 0 || forwards[stage - 1] > *part,
                    Some(B(part)) => {
                        let here = forwards[stage] > *part;
                        here && (stage + 1 == stages || backwards[stage + 1] > *part)
                    }
                    None => false,
                };
                if can {
                    match all[stage][at[stage]] {
                        F(_) => forwards[stage] += 1,
                        B(_) => backwards[stage] += 1,
                    }
                    at[stage] += 1;
                    most[stage] = most[stage].max(forwards[stage] - backwards[stage]);
                    moved = true;
                }
            }
            if !moved {
                let done = backwards.iter().all(|done| *done == parts);
                return done.then_some(most);
            }
        }
    }

    #[test]
    fn a_stage_in_the_middle_takes_turns() {
        let moves: Vec<Move> = moves(ahead_in_batch(1, 3, 4, 0), 4).collect();
        assert_eq!(moves, [F(0), F(1), B(0), F(2), B(1), F(3), B(2), B(3)]);
    }

    #[test]
    fn stages_never_wait_for_each_other_in_a_circle_and_hold_no_more_than_they_may() {
        for stages in 1..7 {
            for parts in 1..10 {
                let ahead = |spare| (0..stages).map(move |s| ahead_in_batch(s, stages, parts, spare));
                let least: Vec<usize> = ahead(0).collect();
                assert_eq!(play(&least, parts), Some(least.clone()), "{stages} stages, {parts} parts");
                let more: Vec<usize> = ahead(2).collect();
                let most = play(&more, parts).unwrap();
                assert!(most.iter().zip(&more).all(|(most, ahead)| most <= ahead), "{most:?} {more:?}");
            }
            for in_flight in 1..12 {
                let ahead: Vec<usize> = (0..stages).map(|s| ahead_in_flow(s, stages, in_flight)).collect();
                let most = play(&ahead, 40).unwrap();
                assert!(most.iter().zip(&ahead).all(|(most, ahead)| most <= ahead), "{most:?} {ahead:?}");
                assert!(stages == 1 || ahead[0] == in_flight.max(1));
                assert_eq!(ahead[stages - 1], 1);
            }
        }
    }
}
