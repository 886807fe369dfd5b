//! Reductions over several hosts.

use super::Group;
use super::buffer::{GroupBuffer, Memory, Words};
use super::tiers::{Called, Within};
use crate::core::hosts::part_of;
use crate::core::schedule::{self, Area, Arithmetic};
use crate::core::words::{Kind, Reduction};
use crate::error::CollectiveError;
use phalanx_types::DType;
use std::ops::Range;

/// Parts of a reduce-scatter between hosts are multiples of this many elements.
const UNIT: usize = 16;

impl Group {
    pub(super) fn all_reduce_hosts(
        &mut self,
        called: &Called,
        data: &mut [u8],
        dtype: DType,
        reduction: Reduction,
    ) -> Result<(), CollectiveError> {
        if data.as_ptr().align_offset(dtype.size()) != 0 {
            let mut aligned = Words::copy_of(data);
            self.all_reduce_hosts(called, aligned.get_mut(), dtype, reduction)?;
            data.copy_from_slice(aligned.get());
            return Ok(());
        }
        self.reduce_within(called, data, dtype, within(reduction))?;
        self.all_reduce_leaders(called, data, dtype, reduction)?;
        self.broadcast_within(called, 0, data)
    }

    /// As [`Group::all_reduce_hosts`]; a buffer that ranks share is combined in place.
    pub(super) fn all_reduce_buffer_hosts(
        &mut self,
        called: &Called,
        buffer: &mut GroupBuffer,
        range: Range<usize>,
        dtype: DType,
        reduction: Reduction,
    ) -> Result<(), CollectiveError> {
        let Memory::Shared(shared_buffer) = &mut buffer.memory else {
            return self.all_reduce_hosts(called, buffer.range_mut(range)?, dtype, reduction);
        };
        let bytes = range.len();
        let reduced = self.attempt(called, Kind::AllReduce, bytes, |shared, mark| {
            shared.all_reduce_shared(shared_buffer, range.clone(), dtype, within(reduction), mark)
        })?;
        let data = buffer.range_mut(range)?;
        if let Within::Joined(_) = reduced {
            // Joined ranks have no part of the buffer to contribute.
            self.reduce_within(called, data, dtype, within(reduction))?;
        }
        self.all_reduce_leaders(called, data, dtype, reduction)?;
        self.broadcast_within(called, 0, data)
    }

    fn all_reduce_leaders(
        &mut self,
        called: &Called,
        data: &mut [u8],
        dtype: DType,
        reduction: Reduction,
    ) -> Result<(), CollectiveError> {
        if !self.leads() {
            return Ok(());
        }
        let algorithm = self.algorithm_between(Kind::AllReduce, data.len());
        let count = data.len() / dtype.size();
        let program = schedule::all_reduce(algorithm, self.seat(), count, Area::Output);
        self.between(called, program, self.arithmetic(dtype, reduction), &[], data)
    }

    pub(super) fn reduce_hosts(
        &mut self,
        called: &Called,
        root: usize,
        data: &mut [u8],
        dtype: DType,
        reduction: Reduction,
    ) -> Result<(), CollectiveError> {
        let (root_host, root_place) = self.hosts.seat(root);
        let seat = self.seat();
        let mut work = Words::copy_of(data);
        self.reduce_within(called, work.get_mut(), dtype, within(reduction))?;
        if self.leads() {
            let kind = Kind::Reduce { root: root_host as u32 };
            let algorithm = self.algorithm_between(kind, data.len());
            let own = if seat.rank == root_host { Area::Output } else { Area::Input };
            let program = schedule::reduce(algorithm, seat, root_host, data.len() / dtype.size(), own);
            let arithmetic = self.arithmetic(dtype, reduction);
            if own == Area::Output {
                self.between(called, program, arithmetic, &[], work.get_mut())?;
            } else {
                self.between(called, program, arithmetic, work.get(), &mut [])?;
            }
        }
        if root_place > 0 && seat.rank == root_host {
            let mine = if self.leads() { work.get() } else { &[] };
            if let Some(result) = self.gather_within(called, root_place, mine)? {
                data.copy_from_slice(result.part(0).unwrap_or_default());
            }
        } else if self.rank == root {
            data.copy_from_slice(work.get());
        }
        Ok(())
    }

    pub(super) fn reduce_scatter_hosts(
        &mut self,
        called: &Called,
        all: &[u8],
        mine: &mut [u8],
        dtype: DType,
        reduction: Reduction,
    ) -> Result<(), CollectiveError> {
        let (part, size) = (mine.len(), dtype.size());
        // The parts of each host, padded to the longest host, so that all hosts have equal lengths.
        let most = self.hosts.sizes().max().unwrap_or(1);
        let chunk = (most * part).next_multiple_of(UNIT * size);
        let seat = self.seat();
        let mut work = Words::zeros(chunk * seat.ranks);
        for (host, chunk) in work.get_mut().chunks_mut(chunk.max(1)).enumerate() {
            for (place, rank) in self.hosts.members(host).iter().enumerate() {
                chunk[part_of(part, place)].copy_from_slice(&all[part_of(part, *rank)]);
            }
        }
        self.reduce_within(called, work.get_mut(), dtype, within(reduction))?;
        let mut result = Words::zeros(chunk);
        if self.leads() {
            let program = schedule::reduce_scatter(seat, work.get().len() / size);
            let arithmetic = self.arithmetic(dtype, reduction);
            self.between(called, program, arithmetic, work.get(), result.get_mut())?;
        }
        let parts = &result.get()[..part * self.place().ranks];
        self.scatter_within(called, Some(parts), mine)
    }

    fn arithmetic(&self, dtype: DType, reduction: Reduction) -> Arithmetic {
        Arithmetic { dtype, reduction, ranks: self.ranks }
    }
}

/// The reduction within hosts: an average is divided only once, at the end.
fn within(reduction: Reduction) -> Reduction {
    if reduction == Reduction::Average { Reduction::Sum } else { reduction }
}
