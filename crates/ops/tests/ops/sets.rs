//! Sets of ranks, and groups without shared memory.

use crate::harness::*;
use phalanx_ops::{
    DType, OpFailure, OpKind, OpSignature, OpsError, OpsOptions, Reduction, SetId, TensorSpec,
};

#[test]
fn sets_compute_on_their_own() {
    run(4, |ops| {
        let even = ops.add_set(&[2, 0]).unwrap();
        let odd = ops.add_set(&[1, 3]).unwrap();
        assert_eq!((even, odd), (SetId(1), SetId(2)));
        let (own, other, members) =
            if ops.rank().is_multiple_of(2) { (even, odd, [0, 2]) } else { (odd, even, [1, 3]) };
        for _ in 0..20 {
            let mut bytes = values(DType::F32, ops.rank(), 50);
            ops.run_on("s", reduce(Reduction::Sum, DType::F32, &[50]).on(own), &mut bytes).unwrap();
            assert_eq!(bytes, combined(DType::F32, Reduction::Sum, &members, 50));
        }
        let mut bytes = values(DType::F32, ops.rank(), 5);
        let kind = OpKind::Broadcast { root: members[1] };
        let signature = OpSignature::new(kind, TensorSpec::new(DType::F32, [5])).on(own);
        ops.run_on("b", signature, &mut bytes).unwrap();
        assert_eq!(bytes, values(DType::F32, members[1], 5));
        let error = ops.run_on("o", reduce(Reduction::Sum, DType::F32, &[50]).on(other), &mut [0; 200]);
        assert!(matches!(error, Err(OpsError::Failed(OpFailure::NoSet { .. }))));
        ops.barrier("before", SetId::WORLD).unwrap();
        ops.remove_set(even).unwrap();
        let error = ops.remove_set(even);
        assert!(matches!(error, Err(OpsError::Failed(OpFailure::NoSet { .. }))));
        assert!(ops.add_set(&[7]).is_err());
        assert_eq!(ops.add_set(&[0, 1, 2, 3]).unwrap(), SetId(3));
    });
}

#[test]
fn without_shared_memory_streams_carry_everything() {
    let apart = OpsOptions { share: false, ..options() };
    run_with(3, &apart, |ops| {
        assert_eq!((ops.local_size(), ops.cross_size()), (3, 1));
        let pair = ops.add_set(&[1, 2]).unwrap();
        for pass in 0..30 {
            let mut bytes = values(DType::F32, ops.rank(), 100 * pass);
            let name = format!("g{}", pass % 3);
            ops.run_on(&name, reduce(Reduction::Sum, DType::F32, &[100 * pass as u64]), &mut bytes).unwrap();
            assert_eq!(bytes, combined(DType::F32, Reduction::Sum, &[0, 1, 2], 100 * pass));
            if ops.rank() > 0 {
                let mut bytes = values(DType::F32, ops.rank(), 7);
                ops.run_on("pair", reduce(Reduction::Sum, DType::F32, &[7]).on(pair), &mut bytes).unwrap();
                assert_eq!(bytes, combined(DType::F32, Reduction::Sum, &[1, 2], 7));
            }
        }
        // Without rank 0 there is no order.
        ops.barrier("end", SetId::WORLD).unwrap();
    });
}
