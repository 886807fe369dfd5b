//! Every kind of call, on one host and on several.

use crate::harness::{
    NUMBERS, REDUCTIONS, SORTS, TOPOLOGIES, combined, given, groups, pattern, rough, run, run_groups,
};
use bytemuck::{cast_slice, cast_slice_mut};
use phalanx_collective::{Algorithm, Kind, Reduction};
use phalanx_types::DType;

#[test]
fn all_reduces_every_type_in_every_way() {
    for topology in TOPOLOGIES {
        run(topology, |group| {
            let (rank, ranks) = (group.rank(), group.ranks());
            let mut buffer = group.buffer(70_000).unwrap();
            for dtype in NUMBERS {
                for reduction in REDUCTIONS {
                    for (start, count) in [(0, 0), (3, 1), (5, 701)] {
                        let wanted = combined(dtype, reduction, ranks, start..start + count);
                        let before = given(dtype, rank, start + count + 2);
                        let range = start * dtype.size()..(start + count) * dtype.size();

                        let mut data = before[range.clone()].to_vec();
                        group.all_reduce(&mut data, dtype, reduction, "private").unwrap();
                        assert!(data == wanted, "{topology} {dtype:?} {reduction} {count}");

                        buffer.slice_mut::<u8>().unwrap()[..before.len()].copy_from_slice(&before);
                        group
                            .all_reduce_buffer(&mut buffer, range.clone(), dtype, reduction, "buffer")
                            .unwrap();
                        let after = &buffer.slice::<u8>().unwrap()[..before.len()];
                        assert_eq!(after[..range.start], before[..range.start]);
                        assert!(after[range.clone()] == wanted, "{topology} {dtype:?} {reduction} {count}");
                        assert_eq!(after[range.end..], before[range.end..]);
                    }
                }
            }
        });
    }
}

#[test]
fn little_is_summed_within_hosts_and_then_in_the_order_of_hosts() {
    const COUNT: usize = 50;
    for topology in TOPOLOGIES {
        let mut hosts = topology.bytes().collect::<Vec<_>>();
        hosts.sort_unstable();
        hosts.dedup();
        let sum = |index: usize| {
            let of_host = |host: &u8| {
                let ranks = (0..topology.len()).filter(|rank| topology.as_bytes()[*rank] == *host);
                ranks.map(|rank| rough(rank, index)).reduce(|sum, value| sum + value).unwrap()
            };
            hosts.iter().map(of_host).reduce(|sum, value| sum + value).unwrap()
        };
        let wanted: Vec<f32> = (0..COUNT).map(sum).collect();
        run(topology, |group| {
            let mut values: Vec<f32> = (0..COUNT).map(|index| rough(group.rank(), index)).collect();
            group.all_reduce(cast_slice_mut(&mut values), DType::F32, Reduction::Sum, "rough").unwrap();
            assert_eq!(cast_slice::<f32, u32>(&values), cast_slice::<f32, u32>(&wanted), "{topology}");
        });
    }
}

#[test]
fn much_has_the_same_bits_everywhere() {
    const COUNT: usize = 200_003;
    for topology in ["aa", "abc", "ababac"] {
        let results = run(topology, |group| {
            let mut values: Vec<f32> = (0..COUNT).map(|index| rough(group.rank(), index)).collect();
            let mut buffer = group.buffer(4 * COUNT).unwrap();
            buffer.slice_mut::<f32>().unwrap().copy_from_slice(&values);
            group.all_reduce(cast_slice_mut(&mut values), DType::F32, Reduction::Average, "much").unwrap();
            let whole = 0..4 * COUNT;
            group.all_reduce_buffer(&mut buffer, whole, DType::F32, Reduction::Average, "much").unwrap();
            assert!(buffer.slice::<f32>().unwrap() == values);
            values
        });
        assert!(results.iter().all(|result| *result == results[0]), "{topology}");
        for (index, got) in results[0].iter().enumerate().step_by(997) {
            let ranks = topology.len();
            let wanted = (0..ranks).map(|rank| f64::from(rough(rank, index))).sum::<f64>() / ranks as f64;
            assert!((f64::from(*got) - wanted).abs() < 1e-6, "{got} {wanted}");
        }
    }
}

#[test]
fn memory_need_not_be_aligned() {
    for topology in TOPOLOGIES {
        run(topology, |group| {
            let mut data = [0; 4 * 9 + 1];
            data[1..].copy_from_slice(&given(DType::F32, group.rank(), 9));
            group.all_reduce(&mut data[1..], DType::F32, Reduction::Sum, "odd").unwrap();
            assert_eq!(data[1..], combined(DType::F32, Reduction::Sum, group.ranks(), 0..9));
        });
    }
}

#[test]
fn reduces_to_the_root_only() {
    for topology in TOPOLOGIES {
        run(topology, |group| {
            let (rank, ranks) = (group.rank(), group.ranks());
            for root in 0..ranks {
                for (dtype, reduction, count) in [
                    (DType::I32, Reduction::Max, 0),
                    (DType::F64, Reduction::Average, 17),
                    (DType::Bf16, Reduction::Sum, 1001),
                ] {
                    let before = given(dtype, rank, count);
                    let mut data = before.clone();
                    group.reduce(root, &mut data, dtype, reduction, "loss").unwrap();
                    let wanted = combined(dtype, reduction, ranks, 0..count);
                    assert!(data == if rank == root { wanted } else { before }, "{topology} {root} {count}");
                }
            }
        });
    }
}

#[test]
fn reduces_and_scatters() {
    for topology in TOPOLOGIES {
        run(topology, |group| {
            let (rank, ranks) = (group.rank(), group.ranks());
            for (dtype, reduction) in [
                (DType::F32, Reduction::Sum),
                (DType::F16, Reduction::Average),
                (DType::U8, Reduction::Product),
                (DType::I64, Reduction::Min),
            ] {
                for part in [0, 1, 19, 48, 301] {
                    let all = given(dtype, rank, part * ranks);
                    let mut mine = vec![0; part * dtype.size()];
                    group.reduce_scatter(&all, &mut mine, dtype, reduction, "shards").unwrap();
                    let wanted = combined(dtype, reduction, ranks, rank * part..(rank + 1) * part);
                    assert!(mine == wanted, "{topology} {dtype:?} {part}");
                }
            }
        });
    }
}

#[test]
fn moves_values() {
    for topology in TOPOLOGIES {
        run(topology, |group| {
            let (rank, ranks) = (group.rank(), group.ranks());
            for length in [0, 1, 1003] {
                for root in 0..ranks {
                    let mut data = if rank == root { pattern(root, 0, length) } else { vec![0; length] };
                    group.broadcast(root, &mut data, DType::Bool, "weights").unwrap();
                    assert!(data == pattern(root, 0, length), "{topology} {root}");

                    let all: Vec<u8> = (0..ranks).flat_map(|to| pattern(root, to, length)).collect();
                    let mut mine = vec![0; length];
                    let from = (rank == root).then_some(all.as_slice());
                    group.scatter(root, from, &mut mine, DType::I8, "parts").unwrap();
                    assert!(mine == pattern(root, rank, length), "{topology} {root}");

                    // Every rank contributes a different amount, one of them nothing.
                    let mine = pattern(rank, 0, length * rank);
                    let gathered = group.gather(root, &mine, DType::U8, "rows").unwrap();
                    assert_eq!(gathered.is_some(), rank == root);
                    let everywhere = group.all_gather(&mine, DType::U8, "rows").unwrap();
                    for gathered in gathered.into_iter().chain([everywhere]) {
                        for from in 0..ranks {
                            assert!(gathered.part(from).unwrap() == pattern(from, 0, length * from));
                        }
                        assert_eq!(gathered.part(ranks), None);
                    }
                }
                let send: Vec<u8> = (0..ranks).flat_map(|to| pattern(rank, to, length)).collect();
                let mut receive = vec![0; send.len()];
                group.all_to_all(&send, &mut receive, DType::U8, "tokens").unwrap();
                let wanted: Vec<u8> = (0..ranks).flat_map(|from| pattern(from, rank, length)).collect();
                assert!(receive == wanted, "{topology}");
            }
            group.barrier("end").unwrap();
            // A rank that is done leaves while others are still busy.
            let gathered = group.gather(ranks - 1, &pattern(rank, 0, 9_000), DType::U8, "last").unwrap();
            assert_eq!(gathered.map(|all| all.bytes.len()), (rank == ranks - 1).then_some(9_000 * ranks));
        });
    }
}

#[test]
fn no_rank_passes_a_barrier_before_all_have_arrived() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    for topology in TOPOLOGIES {
        let come = AtomicUsize::new(0);
        run(topology, |group| {
            for round in 1..=5 {
                come.fetch_add(1, Ordering::SeqCst);
                group.barrier("meet").unwrap();
                assert!(come.load(Ordering::SeqCst) >= round * group.ranks());
                group.barrier("part").unwrap();
            }
        });
    }
}

#[test]
fn many_tensors_travel_as_one() {
    for topology in TOPOLOGIES {
        run(topology, |group| {
            let (rank, ranks) = (group.rank() as f32, group.ranks() as f32);
            let (mut a, mut b, mut c) = (vec![1.0; 5], vec![], vec![rank; 1001]);
            let tensors = &mut [a.as_mut_slice(), b.as_mut_slice(), c.as_mut_slice()];
            let before = group.sent();
            group.all_reduce_grouped(tensors, Reduction::Sum, "all").unwrap();
            assert!(a.iter().all(|value| *value == ranks) && b.is_empty());
            assert!(c.iter().all(|value| *value == ranks * (ranks - 1.0) / 2.0));
            assert!(group.sent() > before || group.ranks() == 1);
        });
    }
}

/// Combines in `f64` as defined.
fn adasum(vectors: &[Vec<f64>]) -> Vec<f64> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    if let [only] = vectors {
        return only.clone();
    }
    let (left, right) = vectors.split_at(vectors.len().next_power_of_two() / 2);
    let (a, b) = (adasum(left), adasum(right));
    let (ab, aa, bb) = (dot(&a, &b), dot(&a, &a), dot(&b, &b));
    let factor = |square: f64| if square == 0.0 { 1.0 } else { 1.0 - ab / (2.0 * square) };
    a.iter().zip(&b).map(|(x, y)| factor(aa) * x + factor(bb) * y).collect()
}

#[test]
fn adasum_follows_its_definition() {
    for topology in SORTS {
        let ranks = topology.len();
        for count in [0, 3 * ranks + 1, 40 * ranks] {
            let vectors: Vec<Vec<f64>> = (0..ranks)
                .map(|rank| (0..count).map(|index| f64::from(rough(rank, index))).collect())
                .collect();
            let wanted = adasum(&vectors);
            let near = |got: &[f32], wanted: &[f64]| {
                got.len() == wanted.len()
                    && got.iter().zip(wanted).all(|(got, wanted)| (f64::from(*got) - wanted).abs() < 1e-5)
            };
            let results = run(topology, |group| {
                let rank = group.rank();
                let before: Vec<f32> = (0..count).map(|index| rough(rank, index)).collect();
                let mut all = before.clone();
                group.all_reduce(cast_slice_mut(&mut all), DType::F32, Reduction::Adasum, "x").unwrap();
                assert!(near(&all, &wanted), "{topology} {count}");
                let (mut reduced, root) = (before.clone(), ranks - 1);
                let bytes = cast_slice_mut(&mut reduced);
                group.reduce(root, bytes, DType::F32, Reduction::Adasum, "x").unwrap();
                assert!(reduced == if rank == root { &all } else { &before }.as_slice());
                if count % ranks == 0 {
                    let mut mine = vec![0.0_f32; count / ranks];
                    let (from, into) = (cast_slice(&before), cast_slice_mut(&mut mine));
                    group.reduce_scatter(from, into, DType::F32, Reduction::Adasum, "x").unwrap();
                    assert!(mine == all[rank * mine.len()..][..mine.len()]);
                }
                all
            });
            assert!(results.iter().all(|result| *result == results[0]));
        }
    }
}

#[test]
fn groups_know_how_they_compute() {
    for (topology, hosts, algorithm) in
        [("aaa", 1, Algorithm::Shared), ("abc", 3, Algorithm::Ring), ("ababac", 3, Algorithm::Hierarchical)]
    {
        let groups = groups(topology);
        for (rank, group) in groups.iter().enumerate() {
            assert_eq!((group.rank(), group.ranks(), group.epoch()), (rank, topology.len(), 7));
            assert_eq!(group.hosts(), hosts);
            assert_eq!(group.algorithm(Kind::AllReduce, 64 << 20), algorithm);
        }
    }
}

#[test]
fn what_is_sent_is_counted() {
    for topology in ["aaaa", "abcd"] {
        let sent = run_groups(groups(topology), |group| {
            let mut data = vec![0; 1 << 20];
            group.all_reduce(&mut data, DType::F32, Reduction::Sum, "x").unwrap();
            let reduced = group.sent();
            group.all_to_all(&data.clone(), &mut data, DType::U8, "y").unwrap();
            (reduced, group.sent() - reduced)
        });
        assert_eq!(sent, [(2 * 3 * (1 << 18), 3 * (1 << 18)); 4], "{topology}");
    }
    assert_eq!(run("a", |group| group.barrier("x").map(|()| group.sent())), [Ok(0)]);
}
