//! Adasum over a group. It needs dot products of whole vectors, which are divided among the ranks.

use super::buffer::Words;
use super::{Group, system};
use crate::core::adasum::{blend, dots, pairs};
use crate::core::hosts::part_of;
use crate::core::parts::part;
use crate::error::CollectiveError;
use phalanx_types::DType;

impl Group {
    /// Combines `data` over all ranks. Each rank gets its part of every vector and combines these parts in pairs; all
    /// ranks sum the dot products of the parts in the same order.
    pub(super) fn adasum(
        &mut self,
        data: &mut [u8],
        dtype: DType,
        name: &str,
    ) -> Result<(), CollectiveError> {
        if self.ranks == 1 {
            return Ok(());
        }
        let (ranks, size) = (self.ranks, dtype.size());
        let elements = data.len() / size;
        let place = |rank: usize| {
            let elements = part(elements, ranks, rank);
            elements.start * size..elements.end * size
        };
        // The first part is the longest; zeros after the others change no dot product.
        let longest = place(0).len();
        let (mut send, mut parts) = (Words::zeros(longest * ranks), Words::zeros(longest * ranks));
        for rank in 0..ranks {
            let place = place(rank);
            send.get_mut()[longest * rank..][..place.len()].copy_from_slice(&data[place]);
        }
        self.all_to_all(send.get(), parts.get_mut(), dtype, name)?;
        for level in pairs(ranks) {
            let products = |(first, second): &(usize, usize)| {
                dots(dtype, &parts.get()[part_of(longest, *first)], &parts.get()[part_of(longest, *second)])
            };
            let own: Vec<f64> = level.iter().flat_map(products).collect();
            let sums = self.add_up(&own, name)?;
            for ((first, second), sums) in level.into_iter().zip(sums.as_chunks().0) {
                let (before, after) = parts.get_mut().split_at_mut(longest * second);
                blend(dtype, &mut before[part_of(longest, first)], &after[..longest], *sums);
            }
        }
        let mine = &parts.get()[..place(self.rank).len()];
        let result = self.all_gather(mine, dtype, name)?;
        if result.bytes.len() != data.len() {
            return Err(system("combine by adasum", "a rank gave a part of another length"));
        }
        data.copy_from_slice(&result.bytes);
        Ok(())
    }

    /// Sums numbers in rank order.
    fn add_up(&mut self, own: &[f64], name: &str) -> Result<Vec<f64>, CollectiveError> {
        let all = self.all_gather(bytemuck::cast_slice(own), DType::F64, name)?;
        let mut sums = vec![0.0; own.len()];
        for (index, value) in all.bytes.as_chunks().0.iter().enumerate() {
            sums[index % own.len()] += f64::from_ne_bytes(*value);
        }
        Ok(sums)
    }
}
