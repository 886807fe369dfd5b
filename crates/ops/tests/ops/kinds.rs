//! Every kind, type and shape.

use crate::harness::*;
use phalanx_ops::{
    DType, OpKind, OpSignature, Operation, OpsError, RawTensor, Reduction, SetId, TensorSpec, WireFormat,
};

const TYPES: [DType; 10] = [
    DType::U8,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::F16,
    DType::Bf16,
    DType::F32,
    DType::F64,
    DType::Bool,
];
const REDUCTIONS: [Reduction; 5] =
    [Reduction::Sum, Reduction::Average, Reduction::Min, Reduction::Max, Reduction::Product];
const SHAPES: [&[u64]; 5] = [&[], &[0], &[1], &[3, 5], &[4097]];

fn count(shape: &[u64]) -> usize {
    shape.iter().product::<u64>() as usize
}

#[test]
fn every_type_and_shape_is_reduced() {
    for ranks in 1..=4 {
        run(ranks, |ops| {
            let all: Vec<u32> = (0..ranks).collect();
            for dtype in TYPES {
                for reduction in REDUCTIONS {
                    if dtype == DType::Bool && reduction == Reduction::Average {
                        continue;
                    }
                    for shape in SHAPES {
                        let name = format!("{dtype:?} {reduction} {shape:?}");
                        let mut bytes = values(dtype, ops.rank(), count(shape));
                        ops.run_on(&name, reduce(reduction, dtype, shape), &mut bytes).unwrap();
                        assert_eq!(bytes, combined(dtype, reduction, &all, count(shape)), "{name}");
                    }
                }
            }
        });
    }
}

#[test]
fn what_cannot_be_reduced_is_refused_at_once() {
    run(1, |ops| {
        let error = ops.run_on("a", reduce(Reduction::Average, DType::Bool, &[1]), &mut [0]).unwrap_err();
        assert!(matches!(error, OpsError::Unsupported { dtype: DType::Bool, .. }));
        let error = ops.run_on("a", reduce(Reduction::Sum, DType::F32, &[2]), &mut [0; 4]).unwrap_err();
        assert!(matches!(error, OpsError::Length { wanted: 8, got: 4, .. }));
        let broadcast = OpSignature::new(OpKind::Broadcast { root: 1 }, TensorSpec::new(DType::U8, [1]));
        assert!(matches!(ops.run_on("a", broadcast, &mut [0]), Err(OpsError::NoRank { rank: 1, size: 1 })));
    });
}

#[test]
fn factors_apply_before_and_after() {
    run(2, |ops| {
        let signature = reduce(Reduction::Sum, DType::F32, &[2]).scaled(0.5, 4.0);
        let mut bytes = encode(DType::F32, [1.0, f64::from(ops.rank())]);
        ops.run_on("a", signature, &mut bytes).unwrap();
        assert_eq!(bytes, encode(DType::F32, [4.0, 2.0]));
    });
}

#[test]
fn sixteen_bits_travel() {
    run(3, |ops| {
        let signature = reduce(Reduction::Average, DType::F32, &[1000]).wired(WireFormat::F16);
        let mut bytes = encode(DType::F32, (0..1000).map(|index| f64::from(index) / 7.0));
        ops.run_on("a", signature, &mut bytes).unwrap();
        for (index, chunk) in bytes.as_chunks::<4>().0.iter().enumerate() {
            let (value, wanted) = (f32::from_ne_bytes(*chunk), index as f32 / 7.0);
            assert!((value - wanted).abs() <= wanted * 2e-3, "{value} for {wanted}");
        }
        // Integers stay whole.
        let mut bytes = encode(DType::I32, [70_001.0]);
        let signature = reduce(Reduction::Max, DType::I32, &[1]).wired(WireFormat::F16);
        ops.run_on("b", signature, &mut bytes).unwrap();
        assert_eq!(bytes, encode(DType::I32, [70_001.0]));
    });
}

#[test]
fn adasum_adds_what_is_orthogonal_and_averages_what_is_parallel() {
    run(2, |ops| {
        let mut bytes = encode(DType::F32, if ops.rank() == 0 { [2.0, 0.0] } else { [0.0, 3.0] });
        ops.run_on("a", reduce(Reduction::Adasum, DType::F32, &[2]), &mut bytes).unwrap();
        assert_eq!(bytes, encode(DType::F32, [2.0, 3.0]));
        let mut bytes = encode(DType::F32, [2.0, 4.0]);
        ops.run_on("b", reduce(Reduction::Adasum, DType::F32, &[2]), &mut bytes).unwrap();
        assert_eq!(bytes, encode(DType::F32, [2.0, 4.0]));
    });
}

#[test]
fn rows_are_gathered_however_many_a_rank_has() {
    for ranks in 1..=4 {
        run(ranks, |ops| {
            for dtype in TYPES {
                let rows = u64::from(ops.rank() % 3);
                let mut bytes = values(dtype, ops.rank(), rows as usize * 2);
                let signature = OpSignature::new(OpKind::AllGather, TensorSpec::new(dtype, [rows, 2]));
                let outcome = ops.run_on(&format!("{dtype:?}"), signature, &mut bytes).unwrap();
                let output = &outcome.outputs[0];
                let all: Vec<u64> = (0..ranks).map(|rank| u64::from(rank % 3)).collect();
                assert_eq!(output.rows, all);
                assert_eq!(output.spec.shape, [all.iter().sum::<u64>(), 2]);
                let wanted: Vec<u8> =
                    (0..ranks).flat_map(|rank| values(dtype, rank, (rank % 3) as usize * 2)).collect();
                assert_eq!(output.bytes, wanted);
            }
            // Rows without elements are counted, too.
            let rows = u64::from(ops.rank()) + 1;
            let signature = OpSignature::new(OpKind::AllGather, TensorSpec::new(DType::F32, [rows, 0]));
            let outcome = ops.run(Operation::new("none", signature, vec![RawTensor::empty()])).unwrap();
            assert_eq!(outcome.outputs[0].rows, (1..=u64::from(ranks)).collect::<Vec<_>>());
        });
    }
}

#[test]
fn every_rank_can_be_the_root() {
    run(3, |ops| {
        for root in 0..3 {
            let mut bytes = values(DType::I16, ops.rank(), 1000);
            let kind = OpKind::Broadcast { root };
            let signature = OpSignature::new(kind, TensorSpec::new(DType::I16, [1000]));
            ops.run_on(&format!("b{root}"), signature, &mut bytes).unwrap();
            assert_eq!(bytes, values(DType::I16, root, 1000));
        }
    });
}

#[test]
fn rows_go_to_every_rank_by_splits() {
    for ranks in 1..=4_u32 {
        run(ranks, |ops| {
            // Rank r sends r + t rows to rank t, all with the value 10 r + t.
            let rank = ops.rank();
            let splits: Vec<u64> = (0..ranks).map(|to| u64::from(rank + to)).collect();
            let sent = |from: u32, to: u32| vec![(10 * from + to) as u8; 2 * (from + to) as usize];
            let mut bytes: Vec<u8> = (0..ranks).flat_map(|to| sent(rank, to)).collect();
            let rows = splits.iter().sum();
            let signature = OpSignature::new(OpKind::AllToAll, TensorSpec::new(DType::U8, [rows, 2]));
            let mut operation = Operation::new("a", signature, vec![lend(&mut bytes)]);
            operation.splits = Some(splits);
            let outcome = ops.run(operation).unwrap();
            let output = &outcome.outputs[0];
            assert_eq!(output.rows, (0..ranks).map(|from| u64::from(from + rank)).collect::<Vec<_>>());
            assert_eq!(output.bytes, (0..ranks).flat_map(|from| sent(from, rank)).collect::<Vec<u8>>());
        });
    }
}

#[test]
fn splits_that_do_not_fit_are_refused() {
    run(2, |ops| {
        let spec = TensorSpec::new(DType::U8, [3]);
        let signature = OpSignature::new(OpKind::AllToAll, spec);
        let try_splits = |splits: Option<Vec<u64>>| {
            let mut bytes = [0; 3];
            let mut operation = Operation::new("a", signature.clone(), vec![lend(&mut bytes)]);
            operation.splits = splits;
            ops.run(operation)
        };
        for splits in [None, Some(vec![1, 1]), Some(vec![3]), Some(vec![1, 1, 1])] {
            assert!(matches!(try_splits(splits), Err(OpsError::Length { .. })));
        }
        ops.barrier("end", SetId::WORLD).unwrap();
    });
}

#[test]
fn rows_are_reduced_and_scattered() {
    for ranks in 1..=4_u32 {
        run(ranks, |ops| {
            for (dtype, reduction) in
                [(DType::F32, Reduction::Sum), (DType::I8, Reduction::Max), (DType::F64, Reduction::Average)]
            {
                for rows in [0, 1, 5, 8_usize] {
                    let mut bytes = values(dtype, ops.rank(), rows * 3);
                    let kind = OpKind::ReduceScatter { reduction };
                    let signature = OpSignature::new(kind, TensorSpec::new(dtype, [rows as u64, 3]));
                    let outcome = ops.run_on(&format!("{dtype:?} {rows}"), signature, &mut bytes).unwrap();
                    let all: Vec<u32> = (0..ranks).collect();
                    let whole = combined(dtype, reduction, &all, rows * 3);
                    let (ranks, rank) = (ranks as usize, ops.rank() as usize);
                    let own = |rank: usize| rows / ranks + usize::from(rank < rows % ranks);
                    let start: usize = (0..rank).map(own).sum();
                    let row = 3 * dtype.size();
                    let output = &outcome.outputs[0];
                    assert_eq!(output.bytes, whole[start * row..(start + own(rank)) * row]);
                    assert_eq!(output.spec.shape, [own(rank) as u64, 3]);
                }
            }
        });
    }
}

#[test]
fn a_group_of_tensors_is_one_operation() {
    run(3, |ops| {
        let specs = vec![
            TensorSpec::new(DType::F32, [10]),
            TensorSpec::new(DType::F32, []),
            TensorSpec::new(DType::F32, [700]),
        ];
        let mut all: Vec<Vec<u8>> =
            specs.iter().map(|spec| values(DType::F32, ops.rank(), spec.elements().unwrap())).collect();
        let tensors = all.iter_mut().map(|bytes| lend(bytes)).collect();
        let signature = OpSignature::of(OpKind::AllReduce { reduction: Reduction::Sum }, specs);
        ops.run(Operation::new("g", signature, tensors)).unwrap();
        for bytes in all {
            assert_eq!(bytes, combined(DType::F32, Reduction::Sum, &[0, 1, 2], bytes.len() / 4));
        }
        // Of different types, one after the other.
        let specs = vec![TensorSpec::new(DType::F32, [2]), TensorSpec::new(DType::I64, [2])];
        let (mut floats, mut ints) = (values(DType::F32, ops.rank(), 2), values(DType::I64, ops.rank(), 2));
        let signature = OpSignature::of(OpKind::AllReduce { reduction: Reduction::Max }, specs);
        ops.run(Operation::new("h", signature, vec![lend(&mut floats), lend(&mut ints)])).unwrap();
        assert_eq!(floats, combined(DType::F32, Reduction::Max, &[0, 1, 2], 2));
        assert_eq!(ints, combined(DType::I64, Reduction::Max, &[0, 1, 2], 2));
    });
}
