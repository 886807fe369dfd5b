//! Ranks that issue operations in their own orders.

use crate::harness::*;
use phalanx_ops::{
    DType, Difference, OpFailure, OpKind, OpSignature, OpsError, OpsOptions, Reduction, SetId, TensorSpec,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::sync::Barrier;
use std::time::Duration;

const OPERATIONS: usize = 24;

/// What the operation of a number is: the same on all ranks, by the seed.
fn signature(seed: u64, number: usize) -> OpSignature {
    let mut dice = Pcg64Mcg::seed_from_u64(seed * 1000 + number as u64);
    let dtype = [DType::F32, DType::F64, DType::I32, DType::U8, DType::F16][dice.random_range(0..5)];
    let elements = [0, 1, 17, 1000, 40_000][dice.random_range(0..5)];
    let reduction = [Reduction::Sum, Reduction::Max][dice.random_range(0..2)];
    if dice.random_range(0..6) == 0 {
        let root = u32::from(dice.random_range(0..2_u8) == 0 && seed > 0);
        return OpSignature::new(OpKind::Broadcast { root }, TensorSpec::new(dtype, [elements]));
    }
    reduce(reduction, dtype, &[elements])
}

#[test]
fn any_order_of_any_rank_gives_the_right_results() {
    for seed in 0..6 {
        for ranks in 2..=4 {
            run(ranks, |ops| {
                let all: Vec<u32> = (0..ranks).collect();
                let mut dice = Pcg64Mcg::seed_from_u64(seed * 77 + u64::from(ops.rank()));
                for pass in 0..4 {
                    let mut order: Vec<usize> = (0..OPERATIONS).collect();
                    for index in (1..order.len()).rev() {
                        order.swap(index, dice.random_range(0..=index));
                    }
                    let mut buffers: Vec<Vec<u8>> = Vec::new();
                    for number in 0..OPERATIONS {
                        let spec = &signature(seed, number).tensors[0];
                        buffers.push(values(spec.dtype, ops.rank(), spec.elements().unwrap()));
                    }
                    let handles: Vec<_> = order
                        .iter()
                        .map(|number| {
                            let name = format!("op{number}");
                            submit(&ops, &name, signature(seed, *number), &mut buffers[*number]).unwrap()
                        })
                        .collect();
                    for handle in handles {
                        handle.wait(Some(DEADLINE)).unwrap();
                    }
                    for (number, bytes) in buffers.iter().enumerate() {
                        let signature = signature(seed, number);
                        let spec = &signature.tensors[0];
                        let count = spec.elements().unwrap();
                        let wanted = match signature.kind {
                            OpKind::Broadcast { root } => values(spec.dtype, root, count),
                            OpKind::AllReduce { reduction } => combined(spec.dtype, reduction, &all, count),
                            _ => unreachable!(),
                        };
                        assert_eq!(*bytes, wanted, "seed {seed}, pass {pass}, operation {number}");
                    }
                }
            });
        }
    }
}

#[test]
fn blocking_calls_in_different_orders_on_threads_do_not_block_each_other() {
    run(2, |ops| {
        std::thread::scope(|scope| {
            for name in if ops.rank() == 0 { ["a", "b", "c"] } else { ["c", "a", "b"] } {
                let ops = &ops;
                scope.spawn(move || {
                    for _ in 0..50 {
                        let mut bytes = values(DType::F32, ops.rank(), 100);
                        ops.run_on(name, reduce(Reduction::Sum, DType::F32, &[100]), &mut bytes).unwrap();
                        assert_eq!(bytes, combined(DType::F32, Reduction::Sum, &[0, 1], 100));
                    }
                });
            }
        });
    });
}

#[test]
fn a_mismatch_is_an_error_on_all_ranks_and_work_goes_on() {
    run(3, |ops| {
        let elements = if ops.rank() == 1 { 3 } else { 2 };
        let mut bytes = vec![0; 4 * elements];
        let signature = reduce(Reduction::Sum, DType::F32, &[elements as u64]);
        let error = ops.run_on("w", signature, &mut bytes).unwrap_err();
        let OpsError::Failed(OpFailure::Mismatch { name, difference, .. }) = error else {
            panic!("{error:?}")
        };
        assert_eq!((name.as_str(), difference), ("w", Difference::Shape));
        let mut bytes = values(DType::F32, ops.rank(), 4);
        ops.run_on("w", reduce(Reduction::Sum, DType::F32, &[4]), &mut bytes).unwrap();
        assert_eq!(bytes, combined(DType::F32, Reduction::Sum, &[0, 1, 2], 4));
    });
}

#[test]
fn a_name_under_way_is_not_taken_twice() {
    run(2, |ops| {
        let (mut first, mut second) = ([0; 4], [0; 4]);
        let signature = || reduce(Reduction::Sum, DType::F32, &[1]);
        if ops.rank() == 0 {
            let first = submit(&ops, "a", signature(), &mut first).unwrap();
            let second = submit(&ops, "a", signature(), &mut second).unwrap();
            assert!(matches!(second.wait(Some(DEADLINE)), Err(OpsError::Duplicate { .. })));
            ops.barrier("go", SetId::WORLD).unwrap();
            first.wait(Some(DEADLINE)).unwrap();
        } else {
            ops.barrier("go", SetId::WORLD).unwrap();
            ops.run_on("a", signature(), &mut first).unwrap();
        }
    });
}

#[test]
fn an_operation_that_a_rank_never_issues_is_reported_and_fails() {
    let short = Duration::from_millis(100);
    let limits = OpsOptions { stall_report: short, stall_limit: Some(short * 5), ..options() };
    let (failed, end) = (Barrier::new(3), Barrier::new(3));
    run_with(3, &limits, |ops| {
        // The rank that comes too late gets the error, too.
        if ops.rank() == 1 {
            failed.wait();
        }
        let error = ops.run_on("lonely", reduce(Reduction::Sum, DType::F32, &[1]), &mut [0; 4]).unwrap_err();
        let OpsError::Failed(OpFailure::Stalled { name, missing, waited }) = error else {
            panic!("{error:?}")
        };
        assert_eq!((name.as_str(), missing), ("lonely", vec![1]));
        assert!(waited >= short * 5);
        if ops.rank() != 1 {
            failed.wait();
        }
        let stalls = ops.take_stalls();
        assert!(stalls.iter().any(|stall| stall.name == "lonely" && stall.missing == [1]));
        end.wait();
    });
}

#[test]
fn a_rank_without_data_joins_the_others() {
    run(3, |ops| {
        // Rank r has 2 r + 1 batches.
        for batch in 0..=2 * ops.rank() {
            let mut bytes = encode(DType::F32, [1.0; 3]);
            ops.run_on("g", reduce(Reduction::Sum, DType::F32, &[3]), &mut bytes).unwrap();
            let active = f64::from((0..3_u32).filter(|rank| batch <= 2 * rank).count() as u32);
            assert_eq!(bytes, encode(DType::F32, [active; 3]));
        }
        let outcome = ops.join().unwrap().wait(Some(DEADLINE)).unwrap();
        assert_eq!(outcome.last_joined, Some(2));
        // Afterwards all take part again.
        let mut bytes = values(DType::F32, ops.rank(), 3);
        ops.run_on("g", reduce(Reduction::Sum, DType::F32, &[3]), &mut bytes).unwrap();
        assert_eq!(bytes, combined(DType::F32, Reduction::Sum, &[0, 1, 2], 3));
    });
}

#[test]
fn the_bucket_size_is_tuned_and_logged() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("tuning.csv");
    let tuning =
        OpsOptions { bucket_bytes: 4 << 20, autotune: true, tuning_log: Some(log.clone()), ..options() };
    run_with(2, &tuning, |ops| {
        let signature = || reduce(Reduction::Sum, DType::F32, &[50_000]);
        let mut buffers: Vec<Vec<u8>> = (0..8).map(|_| values(DType::F32, ops.rank(), 50_000)).collect();
        let mut done = [0_u8];
        while done[0] == 0 {
            let handles: Vec<_> = buffers
                .iter_mut()
                .enumerate()
                .map(|(index, bytes)| submit(&ops, &format!("g{index}"), signature(), bytes).unwrap())
                .collect();
            handles.iter().for_each(|handle| drop(handle.wait(Some(DEADLINE)).unwrap()));
            done[0] = u8::from(ops.tuned().iter().any(|sample| sample.chosen));
            let kind = OpKind::Broadcast { root: 0 };
            let done_spec = OpSignature::new(kind, TensorSpec::new(DType::U8, [1]));
            ops.run_on("done", done_spec, &mut done).unwrap();
        }
    });
    let lines: Vec<String> = std::fs::read_to_string(log).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(lines[0], "bucket_bytes,bytes_per_sec,chosen");
    assert_eq!(lines.len(), 4);
    assert_eq!(lines.iter().filter(|line| line.ends_with(",true")).count(), 1);
}

#[test]
fn a_timeline_names_operations_and_what_they_did() {
    let dir = tempfile::tempdir().unwrap();
    run(2, |ops| {
        let path = dir.path().join(format!("trace{}.json", ops.rank()));
        ops.start_timeline(&path).unwrap();
        let mut bytes = values(DType::F32, ops.rank(), 10);
        ops.run_on("grad", reduce(Reduction::Sum, DType::F32, &[10]), &mut bytes).unwrap();
        ops.stop_timeline().unwrap();
        let events: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let events = events.as_array().unwrap();
        let tracks: Vec<&str> = events.iter().map(|event| event["tid"].as_str().unwrap()).collect();
        assert_eq!(tracks, ["wait", "all-reduce"]);
        assert!(events.iter().all(|event| event["name"] == "grad" && event["pid"] == ops.rank()));
        assert!(ops.start_timeline(&dir.path().join("no/such/directory")).is_err());
    });
}
