//! Disagreement, lost peers and aborts: all ranks fail, at once and for the same reason.

use super::super::{Links, frame};
use super::{EPOCH, Task, each, mesh, whole};
use crate::core::schedule::{Area, Program, Seat, Step, all_reduce, barrier, gather};
use crate::core::words::{Algorithm, Kind};
use crate::error::CollectiveError;
use bytemuck::cast_slice_mut;
use std::io::{Read, Write};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

fn reason(result: &Result<(), CollectiveError>) -> &str {
    match result {
        Err(CollectiveError::Aborted { epoch: EPOCH, reason }) => reason,
        other => panic!("not aborted: {other:?}"),
    }
}

#[test]
fn different_calls_fail_everywhere() {
    for ranks in 2..=5 {
        let mut links = mesh(ranks);
        let results = each(&mut links, |seat, links| {
            let kind = if seat.rank == 1 { Kind::AllGather } else { Kind::AllReduce };
            let task = Task::new(kind, all_reduce(Algorithm::Ring, seat, 100_000, Area::Output));
            let first = task.run(links, &[], cast_slice_mut(&mut whole(seat.rank, 100_000)));
            let second = task.run(links, &[], cast_slice_mut(&mut whole(seat.rank, 100_000)));
            (first, second)
        });
        for (rank, (first, second)) in results.iter().enumerate() {
            match first {
                Err(CollectiveError::Mismatch { own_rank, rank: other, ours, theirs }) => {
                    assert_eq!(*own_rank, rank);
                    assert!(rank == 1 || *other == 1);
                    assert_ne!(ours, theirs);
                }
                first => {
                    let reason = reason(first);
                    assert!(reason.contains("all-gather") && reason.contains("all-reduce"), "{reason}");
                }
            }
            let text = first.clone().unwrap_err().to_string();
            assert!(text.ends_with(reason(second)), "{text} and then {second:?}");
        }
    }
}

#[test]
fn different_algorithms_fail_everywhere() {
    let results = each(&mut mesh(3), |seat, links| {
        let algorithm = if seat.rank == 1 { Algorithm::Direct } else { Algorithm::Ring };
        let task = Task::new(Kind::AllReduce, all_reduce(algorithm, seat, 100, Area::Output));
        task.run(links, &[], cast_slice_mut(&mut whole(seat.rank, 100)))
    });
    assert!(results.iter().all(|result| reason(result).contains("by direct")), "{results:?}");
}

/// One rank takes a part of what a 16 MiB all-reduce sends it, and is lost.
#[test]
fn a_lost_rank_fails_the_others() {
    const N: usize = 4 << 20;
    for ranks in [2, 4] {
        for algorithm in [Algorithm::Ring, Algorithm::HalvingDoubling, Algorithm::Direct] {
            let mut links = mesh(ranks);
            let lost = links.pop().unwrap();
            let results = thread::scope(|scope| {
                scope.spawn(move || {
                    let mut before = &lost.links[ranks - 2].as_ref().unwrap().stream;
                    before.set_nonblocking(false).unwrap();
                    before.read_exact(&mut vec![0; 1 << 20]).unwrap();
                });
                each_of(&mut links, ranks, |seat, links| {
                    let task = Task::new(Kind::AllReduce, all_reduce(algorithm, seat, N, Area::Output));
                    task.run(links, &[], cast_slice_mut(&mut whole(seat.rank, N)))
                })
            });
            let lost = format!("rank {} is gone", ranks - 1);
            assert!(results.iter().all(|result| reason(result).contains(&lost)), "{results:?}");
        }
    }
}

/// As [`each`], for the first of `ranks` ranks.
fn each_of<T: Send>(
    links: &mut [Links],
    ranks: usize,
    work: impl Fn(Seat, &mut Links) -> T + Sync,
) -> Vec<T> {
    each(links, |seat, links| work(Seat { rank: seat.rank, ranks }, links))
}

/// All ranks but the last wait in a barrier that the last never enters; one of them is aborted while it waits.
#[test]
fn an_abort_wakes_those_who_wait() {
    for ranks in 2..=5 {
        let mut links = mesh(ranks);
        let (waiting, waits) = mpsc::channel();
        let aborter = links[0].aborter();
        links[0].on_wait(
            Duration::from_millis(1),
            Box::new(move |rank, waited| {
                // The receiver is gone once the abort is under way.
                let _ = waiting.send((rank, waited));
            }),
        );
        let mut last = links.pop().unwrap();
        let results = thread::scope(|scope| {
            scope.spawn(move || {
                let (rank, waited) = waits.recv().unwrap();
                assert!(rank > 0 && rank < ranks && waited >= Duration::from_millis(1));
                aborter.abort("the user left".into());
                aborter.abort("too late".into());
            });
            each_of(&mut links, ranks, |seat, links| {
                Task::new(Kind::Barrier, barrier(seat)).run(links, &[], &mut [])
            })
        });
        assert!(results.iter().all(|result| reason(result) == "the user left"), "{results:?}");
        // The other ranks arrived at the first barrier, but not at the second.
        let results = each(std::slice::from_mut(&mut last), |_, links| {
            let task = Task::new(Kind::Barrier, barrier(Seat { rank: ranks - 1, ranks }));
            let first = task.run(links, &[], &mut []);
            first.and_then(|()| task.run(links, &[], &mut []))
        });
        assert_eq!(reason(&results[0]), "the user left");
    }
}

#[test]
fn an_abort_between_calls_reaches_the_others() {
    let mut links = mesh(2);
    let gone = links.pop().unwrap();
    gone.aborter().abort("stopped".into());
    drop(gone);
    let results = each_of(&mut links, 2, |seat, links| {
        Task::new(Kind::Barrier, barrier(seat)).run(links, &[], &mut [])
    });
    assert_eq!(reason(&results[0]), "stopped");
}

/// Rank 1 waits for rank 2, which never comes. Meanwhile rank 0 has sent more than a link reads ahead, and aborts.
#[test]
fn an_abort_behind_what_came_early_is_heard() {
    const N: usize = 10_000;
    let mut links = mesh(3);
    let late = links.pop().unwrap();
    let (waiting, waits) = mpsc::channel();
    links[1].on_wait(
        Duration::from_millis(1),
        Box::new(move |rank, _| {
            let _heard = waiting.send(rank);
        }),
    );
    let waits = std::sync::Mutex::new(waits);
    let results = each_of(&mut links, 3, |seat, links| {
        let program = if seat.rank == 0 { gather(seat, 1, &[N, N, N]) } else { from_rank_2_first(seat, N) };
        let task = Task::new(Kind::Gather { root: 1 }, program);
        let result = task.run(links, &vec![0; 4 * N], &mut vec![0; 12 * N]);
        if seat.rank == 0 {
            result.unwrap();
            assert_eq!(waits.lock().unwrap().recv().unwrap(), 2);
            links.aborter().abort("enough".into());
            return Task::new(Kind::Barrier, barrier(seat)).run(links, &[], &mut []);
        }
        result
    });
    assert!(results.iter().all(|result| reason(result) == "enough"), "{results:?}");
    drop(late);
}

/// As the root of a gather, except that it takes rank 2's elements first.
fn from_rank_2_first(seat: Seat, n: usize) -> Program {
    let mut program = gather(seat, seat.rank, &[n; 3]);
    program.steps.sort_by_key(|step| !matches!(step, Step::Receive { from: 2, .. }));
    program
}

/// A rank that has done its part may leave while the others are still busy.
#[test]
fn leaving_after_the_last_call_is_no_failure() {
    for ranks in 2..=5 {
        for algorithm in [Algorithm::Direct, Algorithm::HalvingDoubling, Algorithm::Ring] {
            let links = std::sync::Mutex::new(mesh(ranks).into_iter().map(Some).collect::<Vec<_>>());
            thread::scope(|scope| {
                for rank in 0..ranks {
                    let mut own = links.lock().unwrap()[rank].take().unwrap();
                    scope.spawn(move || {
                        let seat = Seat { rank, ranks };
                        let program = all_reduce(algorithm, seat, 200_000, Area::Output);
                        let mut values = whole(rank, 200_000);
                        let task = Task::new(Kind::AllReduce, program);
                        task.run(&mut own, &[], cast_slice_mut(&mut values)).unwrap();
                        assert_eq!(values, super::sum(ranks, 200_000));
                    });
                }
            });
        }
    }
}

/// Whatever a peer sends, the call ends with an error and without a panic.
#[test]
fn a_peer_s_bytes_do_no_harm() {
    let call = frame::CallFrame {
        epoch: EPOCH,
        algorithm: Algorithm::Ring,
        signature: super::signature(Kind::AllReduce, 0),
    };
    let more = [call.encode(), frame::data_head(1 << 30).to_vec()].concat();
    let twice = call.encode().repeat(2);
    for bytes in [vec![0xff; 100], vec![1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff], more, twice, Vec::new()] {
        let mut links = mesh(2);
        let peer = links.pop().unwrap();
        let mut stream = peer.links[0].as_ref().unwrap().stream.try_clone().unwrap();
        stream.write_all(&bytes).unwrap();
        drop((peer, stream));
        let results = each_of(&mut links, 2, |seat, links| {
            let task = Task::new(Kind::AllReduce, all_reduce(Algorithm::Ring, seat, 100, Area::Output));
            task.run(links, &[], cast_slice_mut(&mut whole(0, 100)))
        });
        assert!(results[0].is_err());
    }
}
