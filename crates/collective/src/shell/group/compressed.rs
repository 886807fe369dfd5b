//! Compressed all-reduce.

use super::{Group, system};
use crate::core::compress::{self, Compression, DecodeError};
use crate::core::hosts::part_of;
use crate::core::parts::part;
use crate::core::words::Reduction;
use crate::error::CollectiveError;
use phalanx_types::DType;

/// The compression error of one tensor so far, sent with the next values. Allocated on first use. A tensor of another
/// length, or a group of other ranks, starts again with zeros.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Feedback {
    /// Error of this rank's values.
    values: Vec<f32>,
    /// Error of the part of the sum that this rank computes.
    sum: Vec<f32>,
}

impl Group {
    /// Sums `values` over all ranks. Transfers are compressed; every rank gets the same bits.
    ///
    /// Each rank gets from all ranks their values of its part, sums them in rank order, and sends the sum to all ranks.
    /// With `topk` every rank sends its greatest values to every other rank instead.
    ///
    /// # Errors
    /// As [`Group::all_reduce`]. The feedback must not be used after an error.
    pub fn all_reduce_compressed(
        &mut self,
        values: &mut [f32],
        compression: Compression,
        feedback: &mut Feedback,
        name: &str,
    ) -> Result<(), CollectiveError> {
        if compression == Compression::None || self.ranks == 1 {
            let bytes = bytemuck::cast_slice_mut(values);
            return self.all_reduce(bytes, DType::F32, Reduction::Sum, name);
        }
        // Makes ranks that compress differently detect it.
        let name = format!("{name} by {compression}");
        self.guard(|group| {
            feedback.fit(values.len(), part(values.len(), group.ranks, group.rank).len());
            if let Compression::TopK { .. } = compression {
                group.sum_greatest(values, compression, feedback, &name)
            } else {
                group.sum_parts(values, compression, feedback, &name)
            }
        })
    }

    fn sum_greatest(
        &mut self,
        values: &mut [f32],
        compression: Compression,
        feedback: &mut Feedback,
        name: &str,
    ) -> Result<(), CollectiveError> {
        if u32::try_from(values.len()).is_err() {
            let (wanted, got) = (u32::MAX as usize, values.len());
            return Err(CollectiveError::Length { what: "topk, at most,", wanted, got });
        }
        let mut own = Vec::new();
        compress::encode(compression, values, Some(&mut feedback.values), &mut own);
        let all = self.all_gather(&own, DType::U8, name)?;
        values.fill(0.0);
        for rank in 0..self.ranks {
            let bytes = all.part(rank).unwrap_or_default();
            compress::decode_add(compression, bytes, values).map_err(|error| wrong(rank, &error))?;
        }
        Ok(())
    }

    fn sum_parts(
        &mut self,
        values: &mut [f32],
        compression: Compression,
        feedback: &mut Feedback,
        name: &str,
    ) -> Result<(), CollectiveError> {
        let (ranks, elements) = (self.ranks, values.len());
        let place = |rank: usize| part(elements, ranks, rank);
        let bytes = |rank: usize| compress::encoded_len(compression, place(rank).len());
        // The first part is the longest; zeros follow the others.
        let longest = bytes(0);
        let mut send = Vec::with_capacity(longest * ranks);
        for rank in 0..ranks {
            let (values, feedback) = (&values[place(rank)], &mut feedback.values[place(rank)]);
            compress::encode(compression, values, Some(feedback), &mut send);
            send.resize(longest * (rank + 1), 0);
        }
        let mut parts = vec![0; send.len()];
        self.all_to_all(&send, &mut parts, DType::U8, name)?;
        let mut sum = vec![0.0; place(self.rank).len()];
        for rank in 0..ranks {
            let bytes = &parts[part_of(longest, rank)][..bytes(self.rank)];
            compress::decode_add(compression, bytes, &mut sum).map_err(|error| wrong(rank, &error))?;
        }
        let mut own = Vec::with_capacity(longest);
        compress::encode(compression, &sum, Some(&mut feedback.sum), &mut own);
        let all = self.all_gather(&own, DType::U8, name)?;
        for rank in 0..ranks {
            let bytes = all.part(rank).unwrap_or_default();
            let decoded = compress::decode(compression, bytes, &mut values[place(rank)]);
            decoded.map_err(|error| wrong(rank, &error))?;
        }
        Ok(())
    }
}

impl Feedback {
    fn fit(&mut self, values: usize, sum: usize) {
        if self.values.len() != values || self.sum.len() != sum {
            *self = Self { values: vec![0.0; values], sum: vec![0.0; sum] };
        }
    }
}

fn wrong(rank: usize, error: &DecodeError) -> CollectiveError {
    system("decode a compressed tensor", format!("rank {rank} sent what is none: {error}"))
}
