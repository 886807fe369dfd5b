//! All-gather, broadcast and all-to-all.

use super::{CALL, Executor, Work};
use crate::core::signature::TensorSpec;
use crate::error::OpsError;
use crate::shell::buffer::OutputTensor;
use phalanx_collective::Gathered;
use phalanx_types::DType;

/// The number of rows that a rank gives, as bytes.
const NUMBER: usize = size_of::<u64>();

impl Executor {
    pub(super) fn broadcast(&mut self, work: &mut Work, index: usize, root: u32) -> Result<(), OpsError> {
        let set = self.set(work.signature.set)?;
        let size = set.members.len() as u32;
        let place = set.members.iter().position(|member| *member == root);
        let place = place.ok_or(OpsError::NoRank { rank: root, size })?;
        let Some(tensor) = work.tensors.as_mut().and_then(|tensors| tensors.get_mut(index)) else {
            return Ok(());
        };
        if !tensor.is_in_place() && set.group.rank() == place {
            let from = *tensor;
            tensor.output().copy_from_slice(from.input());
        }
        if tensor.bytes() > 0 {
            set.group.broadcast(place, tensor.output(), DType::U8, CALL)?;
        }
        Ok(())
    }

    pub(super) fn all_gather(&mut self, work: &mut Work, index: usize) -> Result<OutputTensor, OpsError> {
        let spec = work.signature.tensors[index].clone();
        let tensor = work.tensors.as_ref().and_then(|tensors| tensors.get(index));
        let mine = tensor.map(|tensor| tensor.input()).unwrap_or_default();
        let own_rows = if tensor.is_some() { spec.rows() } else { 0 };
        let set = self.set(work.signature.set)?;
        let ranks = set.members.len();
        let row = spec.row_bytes();
        let (bytes, rows) = if row == 0 {
            let rows = set.group.all_gather(&own_rows.to_ne_bytes(), DType::U8, CALL)?;
            (Vec::new(), numbers(&rows, ranks).into_iter().map(|rows| rows[0]).collect())
        } else {
            let all = set.group.all_gather(mine, DType::U8, CALL)?;
            let rows = |rank| all.part(rank).map_or(0, |part| (part.len() / row) as u64);
            let rows: Vec<u64> = (0..ranks).map(rows).collect();
            (all.bytes, rows)
        };
        Ok(OutputTensor { spec: with_rows(&spec, rows.iter().sum()), bytes, rows })
    }

    pub(super) fn all_to_all(&mut self, work: &mut Work, index: usize) -> Result<OutputTensor, OpsError> {
        let spec = work.signature.tensors[index].clone();
        let Self { sets, packed, received, .. } = self;
        let set = work.signature.set;
        let set = sets.get_mut(&set).ok_or(OpsError::NotInSet { set: set.0 })?;
        let ranks = set.members.len();
        let own = set.group.rank();
        let equal = || vec![spec.rows() / ranks as u64; ranks];
        let splits = work.splits.clone().unwrap_or_else(equal);
        let told: Vec<u8> = splits.iter().flat_map(|rows| rows.to_ne_bytes()).collect();
        let all_splits = numbers(&set.group.all_gather(&told, DType::U8, CALL)?, ranks);
        let row = spec.row_bytes();
        let most = all_splits.iter().flatten().copied().max().unwrap_or(0) as usize;
        let part = most.saturating_mul(row);
        let tensor = work.tensors.as_ref().and_then(|tensors| tensors.get(index));
        let mut mine = tensor.map(|tensor| tensor.input()).unwrap_or_default();
        let send = packed.zeros(part.saturating_mul(ranks));
        for (rank, rows) in splits.iter().enumerate() {
            let (own, rest) = mine.split_at(mine.len().min(*rows as usize * row));
            send[rank * part..][..own.len()].copy_from_slice(own);
            mine = rest;
        }
        let receive = received.zeros(part.saturating_mul(ranks));
        if part > 0 {
            set.group.all_to_all(send, receive, DType::U8, CALL)?;
        }
        let rows: Vec<u64> = all_splits.iter().map(|splits| splits.get(own).copied().unwrap_or(0)).collect();
        let mut bytes = Vec::with_capacity(rows.iter().sum::<u64>() as usize * row);
        for (rank, rows) in rows.iter().enumerate() {
            bytes.extend_from_slice(&receive[rank * part..][..*rows as usize * row]);
        }
        Ok(OutputTensor { spec: with_rows(&spec, rows.iter().sum()), bytes, rows })
    }
}

/// The numbers that every rank gave; each gave at least one.
fn numbers(all: &Gathered, ranks: usize) -> Vec<Vec<u64>> {
    let of = |rank: usize| {
        let bytes = all.part(rank).unwrap_or_default();
        let mut numbers: Vec<u64> =
            bytes.as_chunks::<NUMBER>().0.iter().map(|bytes| u64::from_ne_bytes(*bytes)).collect();
        if numbers.is_empty() {
            numbers.push(0);
        }
        numbers
    };
    (0..ranks).map(of).collect()
}

fn with_rows(spec: &TensorSpec, rows: u64) -> TensorSpec {
    let mut shape = spec.shape.clone();
    match shape.first_mut() {
        Some(first) => *first = rows,
        None => shape.push(rows),
    }
    TensorSpec { dtype: spec.dtype, shape }
}
