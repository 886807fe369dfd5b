//! Which ready operations are computed as one.

use super::signature::{OpKind, OpSignature, SetId, WireFormat};
use phalanx_collective::Reduction;
use phalanx_types::DType;

/// What operations must have in common to be computed as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FusionKey {
    set: SetId,
    dtype: DType,
    reduction: Reduction,
    prescale: u64,
    postscale: u64,
    wire: WireFormat,
}

impl FusionKey {
    /// The key of an operation; `None` if it is always computed alone.
    pub(crate) fn of(signature: &OpSignature) -> Option<Self> {
        let OpKind::AllReduce { reduction } = signature.kind else { return None };
        // Adasum weighs whole tensors, so that a concatenation has another result.
        if reduction == Reduction::Adasum {
            return None;
        }
        let dtype = signature.tensors.first()?.dtype;
        let alike = signature.tensors.iter().all(|tensor| tensor.dtype == dtype);
        alike.then_some(Self {
            set: signature.set,
            dtype,
            reduction,
            prescale: signature.prescale.to_bits(),
            postscale: signature.postscale.to_bits(),
            wire: signature.wire,
        })
    }
}

/// Takes the first ready operation and those that fit with it, in their order. Gives their places in `ready`.
pub(crate) fn next_batch<'a>(
    ready: impl Iterator<Item = &'a OpSignature>,
    bucket_bytes: usize,
) -> Vec<usize> {
    let mut batch = Vec::new();
    let mut first_key = None;
    let mut total = 0_usize;
    for (place, signature) in ready.enumerate() {
        let key = FusionKey::of(signature);
        if batch.is_empty() {
            (first_key, total) = (key, signature.bytes());
            batch.push(place);
            if key.is_none() || total >= bucket_bytes {
                break;
            }
        } else if key == first_key && total.saturating_add(signature.bytes()) <= bucket_bytes {
            total += signature.bytes();
            batch.push(place);
        }
    }
    batch
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::signature::TensorSpec;

    fn sum(dtype: DType, elements: u64) -> OpSignature {
        OpSignature::new(OpKind::AllReduce { reduction: Reduction::Sum }, TensorSpec::new(dtype, [elements]))
    }

    #[test]
    fn only_equal_operations_fuse_up_to_the_limit() {
        let ready = [
            sum(DType::F32, 10),
            sum(DType::F64, 10),
            sum(DType::F32, 20),
            sum(DType::F32, 100),
            sum(DType::F32, 5).scaled(2.0, 1.0),
            sum(DType::F32, 1),
            sum(DType::F32, 2).on(SetId(1)),
        ];
        assert_eq!(next_batch(ready.iter(), 200), [0, 2, 5]);
        assert_eq!(next_batch(ready.iter(), 40), [0]);
        assert_eq!(next_batch(ready.iter(), 1 << 20), [0, 2, 3, 5]);
        assert_eq!(next_batch(ready[1..].iter(), 1 << 20), [0]);
        assert!(next_batch([].iter(), 1).is_empty());
    }

    #[test]
    fn what_weighs_whole_tensors_stays_alone() {
        let mut adasum = sum(DType::F32, 4);
        adasum.kind = OpKind::AllReduce { reduction: Reduction::Adasum };
        assert_eq!(next_batch([adasum.clone(), adasum].iter(), 1 << 20), [0]);
        let gather = OpSignature::new(OpKind::AllGather, TensorSpec::new(DType::F32, [4]));
        assert_eq!(next_batch([gather.clone(), gather].iter(), 1 << 20), [0]);
    }
}
