//! Ranks run out of values at different times.

use super::{EPOCH, each, mesh, signature, whole};
use crate::core::schedule::{Area, Arithmetic, Program, Seat, all_reduce, broadcast};
use crate::core::words::{Algorithm, Kind, Reduction, Signature};
use crate::error::CollectiveError;
use crate::shell::links::{Call, Links};
use bytemuck::cast_slice_mut;
use phalanx_types::DType;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

const ALGORITHMS: [Algorithm; 3] = [Algorithm::Direct, Algorithm::HalvingDoubling, Algorithm::Ring];

/// One call that all ranks make that have values left.
struct Planned {
    count: usize,
    algorithm: Algorithm,
    average: bool,
}

fn follow(seat: Seat) -> impl Fn(&Signature, Algorithm) -> Program {
    move |signature, algorithm| all_reduce(algorithm, seat, signature.count as usize, Area::Output)
}

/// Makes the calls of one rank, then joins. Gives the number of the next call.
fn carry_out(seat: Seat, links: &mut Links, mut sequence: u64, steps: &[usize], plan: &[Planned]) -> u64 {
    let Seat { rank, ranks } = seat;
    for (call, planned) in plan.iter().enumerate().take(steps[rank]) {
        let reduction = if planned.average { Reduction::Average } else { Reduction::Sum };
        let signature =
            Signature { sequence, reduction: Some(reduction), ..signature(Kind::AllReduce, planned.count) };
        let program = all_reduce(planned.algorithm, seat, planned.count, Area::Output);
        let mut data = whole(rank, planned.count);
        let arithmetic = Arithmetic { dtype: DType::F32, reduction, ranks };
        let output = cast_slice_mut(&mut data);
        links.run(Call { signature: &signature, program: &program, arithmetic, input: &[], output }).unwrap();
        let mut expected = vec![0.0; planned.count];
        for other in (0..ranks).filter(|other| steps[*other] > call) {
            expected.iter_mut().zip(whole(other, planned.count)).for_each(|(sum, value)| *sum += value);
        }
        if planned.average {
            expected.iter_mut().for_each(|sum| *sum /= ranks as f32);
        }
        assert!(data == expected, "call {call} of rank {rank}");
        sequence += 1;
    }
    let (last, next) = links.join(sequence, ranks, follow(seat)).unwrap();
    assert_eq!(Some(last), (0..ranks).max_by_key(|rank| (steps[*rank], *rank)));
    next
}

#[test]
fn ranks_join_at_any_time() {
    for seed in 0..30 {
        let mut random = Pcg64::seed_from_u64(seed);
        let ranks = random.random_range(1..=5_usize);
        let rounds: Vec<(Vec<usize>, Vec<Planned>)> = (0..3)
            .map(|_| {
                let steps = (0..ranks).map(|_| random.random_range(0..5_usize)).collect();
                let plan = (0..5).map(|_| Planned {
                    count: [0, 1, 100, 5_000, 150_001][random.random_range(0..5_usize)],
                    algorithm: ALGORITHMS[random.random_range(0..3_usize)],
                    average: random.random(),
                });
                let plan = plan.collect();
                (steps, plan)
            })
            .collect();
        let mut links = mesh(ranks);
        let ends = each(&mut links, |seat, links| {
            rounds.iter().fold(9, |next, (steps, plan)| carry_out(seat, links, next, steps, plan))
        });
        let calls: usize = rounds.iter().map(|(steps, _)| 1 + steps.iter().max().unwrap()).sum();
        assert_eq!(ends, vec![9 + calls as u64; ranks]);
    }
}

#[test]
fn what_takes_no_zeros_ends_the_group() {
    let mut links = mesh(3);
    let ends = each(&mut links, |seat, links| {
        if seat.rank == 2 {
            return links.join(1, 3, follow(seat)).map(drop);
        }
        let program = broadcast(Algorithm::Direct, seat, 0, 4);
        let arithmetic = Arithmetic { dtype: DType::F32, reduction: Reduction::Sum, ranks: 3 };
        let signature = signature(Kind::Broadcast { root: 0 }, 4);
        let output = &mut [0; 16];
        links.run(Call { signature: &signature, program: &program, arithmetic, input: &[], output })?;
        // Whoever had nothing to do with rank 2 hears of it in the next call.
        links.join(2, 3, follow(seat)).map(drop)
    });
    let Err(CollectiveError::Mismatch { own_rank: 2, rank: 0, ours, theirs }) = &ends[2] else {
        panic!("rank 2 got {:?}", ends[2]);
    };
    assert_eq!((ours.kind, theirs.kind), (Kind::Join, Kind::Broadcast { root: 0 }));
    for end in &ends[..2] {
        assert!(matches!(end, Err(CollectiveError::Aborted { epoch: EPOCH, .. })), "{end:?}");
    }
}

#[test]
fn a_rank_that_is_lost_or_aborts_ends_a_join() {
    let mut links = mesh(3);
    links[1].aborter().abort("enough".to_owned());
    links.remove(2);
    let ends = each(&mut links, |seat, links| links.join(0, 3, follow(Seat { ranks: 3, ..seat })));
    assert_eq!(ends[1], Err(CollectiveError::Aborted { epoch: EPOCH, reason: "enough".to_owned() }));
    assert!(matches!(&ends[0], Err(CollectiveError::Aborted { epoch: EPOCH, .. })), "{:?}", ends[0]);
    assert!(links[0].join(0, 3, follow(Seat { rank: 0, ranks: 3 })).is_err());
}
