//! All-reduce and reduce-scatter.

use super::{CALL, Executor, SetGroup, Work};
use crate::core::signature::{SetId, TensorSpec};
use crate::error::OpsError;
use crate::shell::buffer::{OutputTensor, RawTensor};
use crate::shell::numeric::{Scratch, convert, scale, wire_of};
use phalanx_collective::Reduction;
use phalanx_types::DType;

/// How the tensors of a batch are combined.
#[derive(Debug, Clone, Copy)]
struct Arithmetic {
    wire: DType,
    reduction: Reduction,
    prescale: f64,
    postscale: f64,
}

fn arithmetic(work: &Work, dtype: DType, reduction: Reduction) -> Result<Arithmetic, OpsError> {
    let unsupported = || OpsError::Unsupported { name: work.name.clone(), reduction, dtype };
    let (wire, reduction) = wire_of(dtype, work.signature.wire, reduction).ok_or_else(unsupported)?;
    let (prescale, postscale) = (work.signature.prescale, work.signature.postscale);
    Ok(Arithmetic { wire, reduction, prescale, postscale })
}

fn elements(spec: &TensorSpec) -> usize {
    spec.elements().unwrap_or(0)
}

impl Executor {
    /// Combines the tensors of a batch: one where it stands, several packed together.
    pub(super) fn all_reduce(
        &mut self,
        set: SetId,
        reduction: Reduction,
        works: &mut [Work],
    ) -> Result<(), OpsError> {
        let specs = || works.iter().flat_map(|work| &work.signature.tensors);
        let Some(dtype) = specs().next().map(|spec| spec.dtype) else { return Ok(()) };
        let alike = specs().all(|spec| spec.dtype == dtype);
        if alike && specs().nth(1).is_some() && reduction != Reduction::Adasum {
            return self.all_reduce_packed(set, dtype, reduction, works);
        }
        for work in works {
            for index in 0..work.signature.tensors.len() {
                let spec = work.signature.tensors[index].clone();
                let how = arithmetic(work, spec.dtype, reduction)?;
                let tensor = work.tensors.as_mut().and_then(|tensors| tensors.get_mut(index));
                let packed = &mut self.packed;
                let group = self.sets.get_mut(&set).ok_or(OpsError::NotInSet { set: set.0 })?;
                reduce_one(group, packed, &spec, tensor, how)?;
            }
        }
        Ok(())
    }

    fn all_reduce_packed(
        &mut self,
        set: SetId,
        dtype: DType,
        reduction: Reduction,
        works: &mut [Work],
    ) -> Result<(), OpsError> {
        let Some(first) = works.first() else { return Ok(()) };
        let how = arithmetic(first, dtype, reduction)?;
        let count: usize = works.iter().flat_map(|work| &work.signature.tensors).map(elements).sum();
        let bytes = count * how.wire.size();
        let Self { sets, bucket, packed, .. } = self;
        let group = &mut sets.get_mut(&set).ok_or(OpsError::NotInSet { set: set.0 })?.group;
        let bucket = bucket.as_mut().filter(|bucket| set == SetId::WORLD && bucket.bytes() >= bytes);
        match bucket {
            Some(bucket) => {
                pack(works, dtype, how, &mut bucket.slice_mut::<u8>()?[..bytes]);
                group.all_reduce_buffer(bucket, 0..bytes, how.wire, how.reduction, CALL)?;
                unpack(works, dtype, how, &bucket.slice::<u8>()?[..bytes]);
            }
            None => {
                let packed = packed.bytes(bytes);
                pack(works, dtype, how, packed);
                group.all_reduce(packed, how.wire, how.reduction, CALL)?;
                unpack(works, dtype, how, packed);
            }
        }
        Ok(())
    }

    /// Combines a tensor; this rank gets its rows.
    pub(super) fn reduce_scatter(
        &mut self,
        work: &mut Work,
        index: usize,
        reduction: Reduction,
    ) -> Result<OutputTensor, OpsError> {
        let spec = work.signature.tensors[index].clone();
        let how = arithmetic(work, spec.dtype, reduction)?;
        let Self { sets, packed, received, rank, .. } = self;
        let set = work.signature.set;
        let group = sets.get_mut(&set).ok_or(OpsError::NotInSet { set: set.0 })?;
        let ranks = group.members.len();
        let own = group.members.iter().position(|member| member == rank).unwrap_or(0);
        let rows =
            |rank: usize| spec.rows() as usize / ranks + usize::from(rank < spec.rows() as usize % ranks);
        let row_elements = spec.row_bytes() / spec.dtype.size();
        let row = row_elements * how.wire.size();
        let part = rows(0) * row;
        let all = packed.zeros(part * ranks);
        let mut values = work
            .tensors
            .as_ref()
            .and_then(|tensors| tensors.get(index))
            .map_or(Vec::new(), |t| t.input().to_vec());
        scale(spec.dtype, &mut values, how.prescale);
        let mut start = 0;
        for rank in 0..ranks {
            let length = rows(rank) * spec.row_bytes();
            if let Some(from) = values.get(start..start + length) {
                convert(spec.dtype, from, how.wire, &mut all[rank * part..][..rows(rank) * row]);
            }
            start += length;
        }
        let mine = received.bytes(part);
        if part > 0 {
            group.group.reduce_scatter(all, mine, how.wire, how.reduction, CALL)?;
        }
        let mut bytes = vec![0; rows(own) * spec.row_bytes()];
        convert(how.wire, &mine[..rows(own) * row], spec.dtype, &mut bytes);
        scale(spec.dtype, &mut bytes, how.postscale);
        let mut shape = spec.shape.clone();
        match shape.first_mut() {
            Some(first) => *first = rows(own) as u64,
            None => shape.push(rows(own) as u64),
        }
        let rows = (0..ranks).map(|rank| rows(rank) as u64).collect();
        Ok(OutputTensor { spec: TensorSpec { dtype: spec.dtype, shape }, bytes, rows })
    }
}

/// Combines one tensor where it stands, if its type allows that.
fn reduce_one(
    group: &mut SetGroup,
    packed: &mut Scratch,
    spec: &TensorSpec,
    tensor: Option<&mut RawTensor>,
    how: Arithmetic,
) -> Result<(), OpsError> {
    let bytes = elements(spec) * how.wire.size();
    if bytes == 0 {
        return Ok(());
    }
    let Some(tensor) = tensor else {
        // This rank has joined.
        group.group.all_reduce(packed.zeros(bytes), how.wire, how.reduction, CALL)?;
        return Ok(());
    };
    stage(spec.dtype, tensor, how.prescale);
    if how.wire == spec.dtype {
        group.group.all_reduce(tensor.output(), how.wire, how.reduction, CALL)?;
    } else {
        let packed = packed.bytes(bytes);
        convert(spec.dtype, tensor.output(), how.wire, packed);
        group.group.all_reduce(packed, how.wire, how.reduction, CALL)?;
        convert(how.wire, packed, spec.dtype, tensor.output());
    }
    scale(spec.dtype, tensor.output(), how.postscale);
    Ok(())
}

/// Puts the values, times a factor, where the result will stand.
fn stage(dtype: DType, tensor: &mut RawTensor, factor: f64) {
    if !tensor.is_in_place() {
        let from = *tensor;
        tensor.output().copy_from_slice(from.input());
    }
    scale(dtype, tensor.output(), factor);
}

/// Copies all tensors of a batch one after the other; zeros for a rank that has joined.
fn pack(works: &mut [Work], dtype: DType, how: Arithmetic, packed: &mut [u8]) {
    let mut rest = packed;
    for work in works {
        for (index, spec) in work.signature.tensors.iter().enumerate() {
            let (own, more) = rest.split_at_mut(elements(spec) * how.wire.size());
            rest = more;
            let Some(tensor) = work.tensors.as_mut().and_then(|tensors| tensors.get_mut(index)) else {
                own.fill(0);
                continue;
            };
            if how.wire == dtype {
                own.copy_from_slice(tensor.input());
                scale(dtype, own, how.prescale);
            } else if how.prescale == 1.0 {
                convert(dtype, tensor.input(), how.wire, own);
            } else {
                stage(dtype, tensor, how.prescale);
                convert(dtype, tensor.output(), how.wire, own);
            }
        }
    }
}

fn unpack(works: &mut [Work], dtype: DType, how: Arithmetic, packed: &[u8]) {
    let mut rest = packed;
    for work in works {
        for (index, spec) in work.signature.tensors.iter().enumerate() {
            let (own, more) = rest.split_at(elements(spec) * how.wire.size());
            rest = more;
            if let Some(tensor) = work.tensors.as_mut().and_then(|tensors| tensors.get_mut(index)) {
                convert(how.wire, own, dtype, tensor.output());
                scale(dtype, tensor.output(), how.postscale);
            }
        }
    }
}
