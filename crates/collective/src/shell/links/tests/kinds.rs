//! All kinds and algorithms.

use super::{Task, each, mesh, sum, whole};
use crate::core::parts::part;
use crate::core::schedule::{
    Area, all_gather, all_reduce, all_to_all, barrier, broadcast, gather, reduce, reduce_scatter, scatter,
};
use crate::core::words::{Algorithm, Kind, Reduction};
use bytemuck::{cast_slice, cast_slice_mut};
use phalanx_types::DType;

const ALGORITHMS: [Algorithm; 3] = [Algorithm::Direct, Algorithm::HalvingDoubling, Algorithm::Ring];
const SIZES: [usize; 4] = [0, 17, 1000, 300_001];

#[test]
fn all_reduce_over_sockets() {
    for ranks in 2..=5 {
        let mut links = mesh(ranks);
        for n in SIZES {
            for algorithm in ALGORITHMS {
                for own in [Area::Input, Area::Output] {
                    let results = each(&mut links, |seat, links| {
                        let task = Task::new(Kind::AllReduce, all_reduce(algorithm, seat, n, own));
                        let mine = whole(seat.rank, n);
                        let (input, mut output) = match own {
                            Area::Output => (Vec::new(), mine),
                            _ => (mine, vec![0.0; n]),
                        };
                        task.run(links, cast_slice(&input), cast_slice_mut(&mut output)).unwrap();
                        output
                    });
                    let expected = sum(ranks, n);
                    assert!(results.iter().all(|result| *result == expected), "{algorithm:?} {n} × {ranks}");
                }
            }
        }
    }
}

#[test]
fn every_type_is_averaged() {
    fn check<T: bytemuck::Pod + PartialEq + Send + Sync>(dtype: DType, give: T, expected: T) {
        let mut links = mesh(3);
        for algorithm in ALGORITHMS {
            let results = each(&mut links, |seat, links| {
                let program = all_reduce(algorithm, seat, 100_003, Area::Output);
                let task =
                    Task { dtype, reduction: Reduction::Average, ..Task::new(Kind::AllReduce, program) };
                let mut output = vec![give; 100_003];
                task.run(links, &[], cast_slice_mut(&mut output)).unwrap();
                output
            });
            assert!(results.iter().flatten().all(|value| *value == expected), "{dtype:?} {algorithm:?}");
        }
    }
    check(DType::F32, 1.5f32, 1.5);
    check(DType::F64, 1.5f64, 1.5);
    check(DType::F16, half::f16::from_f32(2.0), half::f16::from_f32(2.0));
    check(DType::Bf16, half::bf16::from_f32(2.0), half::bf16::from_f32(2.0));
    check(DType::I32, -7i32, -7);
    check(DType::I64, -7i64, -7);
    check(DType::U8, 7u8, 7);
}

#[test]
fn reduce_and_broadcast_over_sockets() {
    for ranks in 2..=5 {
        let mut links = mesh(ranks);
        let root = ranks / 2;
        for n in SIZES {
            for algorithm in ALGORITHMS {
                let results = each(&mut links, |seat, links| {
                    let kind = Kind::Reduce { root: root as u32 };
                    let task = Task::new(kind, reduce(algorithm, seat, root, n, Area::Input));
                    let mut output = vec![0.0f32; n];
                    task.run(links, cast_slice(&whole(seat.rank, n)), cast_slice_mut(&mut output)).unwrap();
                    let kind = Kind::Broadcast { root: root as u32 };
                    let task = Task::new(kind, broadcast(algorithm, seat, root, n));
                    task.run(links, &[], cast_slice_mut(&mut output)).unwrap();
                    output
                });
                let expected = sum(ranks, n);
                assert!(results.iter().all(|result| *result == expected), "{algorithm:?} {n} × {ranks}");
            }
        }
    }
}

#[test]
fn reduce_scatter_and_all_gather_over_sockets() {
    for ranks in 2..=5 {
        let mut links = mesh(ranks);
        for n in SIZES {
            for algorithm in [Algorithm::Direct, Algorithm::Ring] {
                let results = each(&mut links, |seat, links| {
                    let counts: Vec<_> = (0..ranks).map(|rank| part(n, ranks, rank).len()).collect();
                    let mut mine = vec![0.0f32; counts[seat.rank]];
                    let task = Task::new(Kind::ReduceScatter, reduce_scatter(seat, n));
                    task.run(links, cast_slice(&whole(seat.rank, n)), cast_slice_mut(&mut mine)).unwrap();
                    let task = Task::new(Kind::AllGather, all_gather(algorithm, seat, &counts, Area::Input));
                    let mut output = vec![0.0f32; n];
                    task.run(links, cast_slice(&mine), cast_slice_mut(&mut output)).unwrap();
                    output
                });
                let expected = sum(ranks, n);
                assert!(results.iter().all(|result| *result == expected), "{algorithm:?} {n} × {ranks}");
            }
        }
    }
}

#[test]
fn gather_scatter_and_all_to_all_over_sockets() {
    for ranks in 2..=5 {
        let mut links = mesh(ranks);
        let counts: Vec<_> = (0..ranks).map(|rank| rank * 70_001).collect();
        let total: usize = counts.iter().sum();
        let results = each(&mut links, |seat, links| {
            let n = counts[seat.rank];
            let mine = whole(seat.rank, n);
            let mut all = vec![0.0f32; if seat.rank == 0 { total } else { 0 }];
            let task = Task::new(Kind::Gather { root: 0 }, gather(seat, 0, &counts));
            task.run(links, cast_slice(&mine), cast_slice_mut(&mut all)).unwrap();
            let mut back = vec![0.0f32; n];
            let task = Task::new(Kind::Scatter { root: 0 }, scatter(seat, 0, &counts));
            task.run(links, cast_slice(&all), cast_slice_mut(&mut back)).unwrap();
            assert_eq!(back, mine);
            let (give, get) = (vec![n; ranks], counts.clone());
            let task = Task::new(Kind::AllToAll, all_to_all(seat, &give, &get));
            let mut got = vec![0.0f32; total];
            task.run(links, cast_slice(&mine.repeat(ranks)), cast_slice_mut(&mut got)).unwrap();
            let task = Task::new(Kind::Barrier, barrier(seat));
            task.run(links, &[], &mut []).unwrap();
            got
        });
        let expected: Vec<_> = (0..ranks).flat_map(|rank| whole(rank, counts[rank])).collect();
        assert!(results.iter().all(|result| *result == expected), "{ranks}");
    }
}
