//! Calls on a thread of their own.

use crate::harness::{SORTS, groups};
use phalanx_collective::{Background, CollectiveError, Compression, Feedback, Reduction};
use phalanx_types::DType;
use std::sync::Barrier;

/// Runs a thread for each rank of a group whose calls are made in the background.
fn run<T: Send>(
    topology: &str,
    work: impl Fn(usize, Background, Vec<phalanx_collective::GroupBuffer>) -> T + Sync,
) -> Vec<T> {
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = groups(topology)
            .into_iter()
            .map(|mut group| {
                scope.spawn(move || {
                    let buffers = (0..3).map(|_| group.buffer(4000).unwrap()).collect();
                    work(group.rank(), Background::new(group).unwrap(), buffers)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn orders_are_carried_out_in_order_and_given_back() {
    for topology in SORTS {
        let ranks = topology.len() as f32;
        run(topology, |rank, background, buffers| {
            let mut buffers = buffers.into_iter();
            let mut next = |value: f32| {
                let mut buffer = buffers.next().unwrap();
                buffer.slice_mut::<f32>().unwrap().fill(value);
                buffer
            };
            let sum = background.all_reduce(next(1.0), 0..4000, DType::F32, Reduction::Sum, "sum");
            let part = background.all_reduce(next(2.0), 400..800, DType::F32, Reduction::Sum, "part");
            let root = background.broadcast(0, next(rank as f32), DType::F32, "root");
            let halves = background.all_reduce_compressed(
                vec![0.5; 99],
                Compression::Bf16,
                Feedback::default(),
                "halves",
            );

            let ((halves, _), result) = halves.wait();
            result.unwrap();
            assert_eq!(halves, [0.5 * ranks; 99]);
            // Calls that were ordered before it are done too.
            assert!(sum.is_done() && part.is_done() && root.is_done());
            let (sum, result) = sum.wait();
            result.unwrap();
            assert_eq!(sum.slice::<f32>().unwrap(), [ranks; 1000]);
            let (part, result) = part.wait();
            result.unwrap();
            assert_eq!(part.slice::<f32>().unwrap()[..100], [2.0; 100]);
            assert_eq!(part.slice::<f32>().unwrap()[100..200], [2.0 * ranks; 100]);
            let (root, result) = root.wait();
            result.unwrap();
            assert_eq!(root.slice::<f32>().unwrap(), [0.0; 1000]);
        });
    }
}

/// The last rank leaves with an order that no other rank makes; the others wait for another order of it.
#[test]
fn leaving_with_orders_outstanding_lets_the_others_go() {
    for topology in SORTS {
        let last = topology.len() - 1;
        let ordered = Barrier::new(topology.len());
        let results = run(topology, |rank, background, mut buffers| {
            let buffer = buffers.pop().unwrap();
            if rank == last {
                // The other ranks cannot order theirs before this is dropped, so it stays outstanding.
                let handle = background.all_reduce(buffer, 0..4000, DType::F32, Reduction::Sum, "x");
                drop(background);
                ordered.wait();
                return handle.wait().1;
            }
            ordered.wait();
            // What the last rank has sent before may complete one call.
            let (buffer, first) =
                background.all_reduce(buffer, 0..4000, DType::F32, Reduction::Sum, "x").wait();
            first.and_then(|()| {
                background.all_reduce(buffer, 0..4000, DType::F32, Reduction::Sum, "x").wait().1
            })
        });
        for result in results {
            let Err(CollectiveError::Aborted { reason, .. }) = result else {
                panic!("{topology} {result:?}")
            };
            assert_eq!(reason, "a rank has left in the middle of its calls");
        }
    }
}

#[test]
fn an_abort_ends_all_orders() {
    for topology in SORTS {
        let results = run(topology, |rank, background, buffers| {
            let orders: Vec<_> = buffers
                .into_iter()
                .map(|buffer| background.all_reduce(buffer, 0..4000, DType::F32, Reduction::Sum, "x"))
                .take(if rank == 0 { 0 } else { 3 })
                .collect();
            if rank == 0 {
                background.aborter().abort("enough".to_owned());
            }
            orders.into_iter().map(|order| order.wait().1).collect::<Vec<_>>()
        });
        for result in results.into_iter().flatten() {
            let Err(CollectiveError::Aborted { reason, .. }) = result else {
                panic!("{topology} {result:?}")
            };
            assert_eq!(reason, "enough");
        }
    }
}
