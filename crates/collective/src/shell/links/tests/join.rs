//! Ranks run out of values at different times.

use super::{EPOCH, each, mesh, signature, whole};
use crate::core::joined::joining;
use crate::core::schedule::{Area, Arithmetic, Program, Seat, all_reduce, broadcast, gather};
use crate::core::words::{Algorithm, Kind, Reduction, Signature};
use crate::error::CollectiveError;
use crate::shell::links::{Call, Joining, Links, frame};
use bytemuck::cast_slice_mut;
use phalanx_types::DType;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::io::Write;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const ALGORITHMS: [Algorithm; 3] = [Algorithm::Direct, Algorithm::HalvingDoubling, Algorithm::Ring];

/// One call that all ranks with values left make.
struct Planned {
    count: usize,
    algorithm: Algorithm,
    average: bool,
}

fn follow(seat: Seat) -> impl Fn(&Signature, Algorithm) -> Program {
    move |signature, algorithm| all_reduce(algorithm, seat, signature.count as usize, Area::Output)
}

/// Makes the calls of one rank, then joins. Returns the number of the next call.
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
    let (last, next) = links.join(Joining { sequence, ranks, last: rank }, follow(seat)).unwrap();
    assert_eq!(Some(last), (0..ranks).max_by_key(|rank| (steps[*rank], *rank)));
    next
}

#[test]
fn ranks_join_at_any_time() {
    for seed in 0..20 {
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
            return links.join(Joining { sequence: 1, ranks: 3, last: 2 }, follow(seat)).map(drop);
        }
        let program = broadcast(Algorithm::Direct, seat, 0, 4);
        let arithmetic = Arithmetic { dtype: DType::F32, reduction: Reduction::Sum, ranks: 3 };
        let signature = signature(Kind::Broadcast { root: 0 }, 4);
        let output = &mut [0; 16];
        links.run(Call { signature: &signature, program: &program, arithmetic, input: &[], output })?;
        // A rank that did not exchange anything with rank 2 learns of it in the next call.
        links.join(Joining { sequence: 2, ranks: 3, last: seat.rank }, follow(seat)).map(drop)
    });
    assert!(ends.iter().any(|end| matches!(end, Err(CollectiveError::Mismatch { .. }))), "{ends:?}");
    for (rank, end) in ends.iter().enumerate() {
        let text = end.as_ref().unwrap_err().to_string();
        assert!(text.contains("broadcast") && text.contains("join") && text.contains("rank 2"), "{text}");
        if let Err(CollectiveError::Mismatch { own_rank, rank: other, ours, theirs }) = end {
            assert!(*own_rank == rank && (rank == 2) != (*other == 2));
            let kinds = [Kind::Broadcast { root: 0 }, Kind::Join];
            let kinds = if rank == 2 { [kinds[1], kinds[0]] } else { kinds };
            assert_eq!([ours.kind, theirs.kind], kinds);
        }
    }
}

/// The root of a gather sends nothing: only the root can detect it.
#[test]
fn who_waits_for_a_rank_that_has_joined_fails() {
    let mut links = mesh(2);
    let ends = each(&mut links, |seat, links| {
        if seat.rank == 1 {
            return links.join(Joining { sequence: 1, ranks: 2, last: 1 }, follow(seat)).map(drop);
        }
        let signature = signature(Kind::Gather { root: 0 }, 0);
        let arithmetic = Arithmetic { dtype: DType::U8, reduction: Reduction::Sum, ranks: 2 };
        let (program, output) = (gather(seat, 0, &[1, 1]), &mut [0; 2]);
        links.run(Call { signature: &signature, program: &program, arithmetic, input: &[7], output })
    });
    let Err(CollectiveError::Mismatch { own_rank: 0, rank: 1, ours, theirs }) = &ends[0] else {
        panic!("rank 0 got {:?}", ends[0]);
    };
    assert_eq!((ours.kind, theirs.kind), (Kind::Gather { root: 0 }, Kind::Join));
    assert!(matches!(&ends[1], Err(CollectiveError::Aborted { epoch: EPOCH, .. })), "{:?}", ends[1]);
}

/// Rank 2 is past a call that rank 1 has not seen; rank 1 waits until it sees it.
#[test]
fn who_is_a_call_ahead_is_waited_for() {
    let ahead = Signature { reduction: Some(Reduction::Sum), sequence: 2, ..signature(Kind::AllReduce, 0) };
    for said in [Signature { count: 2, ..joining(2) }, ahead] {
        let mut links = mesh(3);
        let mut own = links.remove(1);
        let (waiting, waits) = mpsc::channel();
        let on_wait = move |_, _| {
            let _heard = waiting.send(());
        };
        own.on_wait(Duration::from_millis(1), Box::new(on_wait));
        let say = |place: usize, bytes: &[u8]| {
            let mut stream = &links[place].links[1].as_ref().unwrap().stream;
            stream.write_all(bytes).unwrap();
        };
        for (place, signature) in [joining(1), said].into_iter().enumerate() {
            say(place, &frame::CallFrame { epoch: EPOCH, algorithm: Algorithm::Direct, signature }.encode());
        }
        let end = thread::scope(|scope| {
            let joins = scope.spawn(move || {
                own.join(Joining { sequence: 1, ranks: 3, last: 1 }, follow(Seat { rank: 1, ranks: 3 }))
            });
            // If it returned, it did not wait.
            if waits.recv().is_ok() {
                say(0, &frame::abort("enough"));
            }
            joins.join().unwrap()
        });
        assert_eq!(end, Err(CollectiveError::Aborted { epoch: EPOCH, reason: "enough".to_owned() }));
    }
}

#[test]
fn a_rank_that_is_lost_or_aborts_ends_a_join() {
    let first = |rank| Joining { sequence: 0, ranks: 3, last: rank };
    let mut links = mesh(3);
    links[1].aborter().abort("enough".to_owned());
    links.remove(2);
    let ends =
        each(&mut links, |seat, links| links.join(first(seat.rank), follow(Seat { ranks: 3, ..seat })));
    assert_eq!(ends[1], Err(CollectiveError::Aborted { epoch: EPOCH, reason: "enough".to_owned() }));
    assert!(matches!(&ends[0], Err(CollectiveError::Aborted { epoch: EPOCH, .. })), "{:?}", ends[0]);
    assert!(links[0].join(first(0), follow(Seat { rank: 0, ranks: 3 })).is_err());
}
