//! The calls of a group.

use super::buffer::{GroupBuffer, Memory};
use super::{Group, Reach};
use crate::core::numbers;
use crate::core::schedule::Seat;
use crate::core::traffic::ring_bytes;
use crate::core::words::{Kind, Reduction};
use crate::error::CollectiveError;
use crate::shell::shared::Gathered;
use phalanx_types::DType;
use std::ops::Range;

impl Group {
    /// Combines `data` over all ranks; every rank gets the result in `data`.
    ///
    /// # Errors
    /// The group is over, ranks make different calls, or the bytes are not whole elements of a type that supports the
    /// reduction. This holds for all calls. Each of these errors ends the group.
    pub fn all_reduce(
        &mut self,
        data: &mut [u8],
        dtype: DType,
        reduction: Reduction,
        name: &str,
    ) -> Result<(), CollectiveError> {
        self.guard(|group| {
            check_reduction(Kind::AllReduce, data.len(), dtype, reduction)?;
            if reduction == Reduction::Adasum {
                return group.adasum(data, dtype, name);
            }
            match (&mut group.shared, group.reach) {
                (_, Reach::Alone) => Ok(()),
                (Some(shared), Reach::Host) => {
                    shared.all_reduce(data, dtype, reduction, name)?;
                    group.count(Kind::AllReduce, data.len());
                    Ok(())
                }
                _ => {
                    let called = group.called(Kind::AllReduce, Some(reduction), dtype, data.len(), name);
                    group.all_reduce_hosts(&called, data, dtype, reduction)
                }
            }
        })
    }

    /// Combines a range of bytes of a buffer over all ranks; every rank gets the result. A buffer that ranks share is
    /// combined in place.
    ///
    /// # Errors
    /// As [`Group::all_reduce`], or the buffer belongs to another group.
    pub fn all_reduce_buffer(
        &mut self,
        buffer: &mut GroupBuffer,
        range: Range<usize>,
        dtype: DType,
        reduction: Reduction,
        name: &str,
    ) -> Result<(), CollectiveError> {
        self.guard(|group| {
            check_reduction(Kind::AllReduce, range.len(), dtype, reduction)?;
            if reduction == Reduction::Adasum {
                return group.adasum(buffer.range_mut(range)?, dtype, name);
            }
            match (&mut group.shared, group.reach, &mut buffer.memory) {
                (_, Reach::Alone, _) => buffer.range_mut(range).map(|_| ()),
                (Some(shared), Reach::Host, Memory::Shared(buffer)) => {
                    let bytes = range.len();
                    shared.all_reduce_shared(buffer, range, dtype, reduction, name)?;
                    group.count(Kind::AllReduce, bytes);
                    Ok(())
                }
                (Some(_), Reach::Host, Memory::Own(_)) => {
                    group.all_reduce(buffer.range_mut(range)?, dtype, reduction, name)
                }
                _ => {
                    let called = group.called(Kind::AllReduce, Some(reduction), dtype, range.len(), name);
                    group.all_reduce_buffer_hosts(&called, buffer, range, dtype, reduction)
                }
            }
        })
    }

    /// Combines several tensors over all ranks, in one exchange.
    ///
    /// # Errors
    /// As [`Group::all_reduce`].
    pub fn all_reduce_grouped(
        &mut self,
        tensors: &mut [&mut [f32]],
        reduction: Reduction,
        name: &str,
    ) -> Result<(), CollectiveError> {
        let mut fused = std::mem::take(&mut self.fused);
        fused.clear();
        for tensor in tensors.iter() {
            fused.extend_from_slice(tensor);
        }
        let result = self.all_reduce(bytemuck::cast_slice_mut(&mut fused), DType::F32, reduction, name);
        if result.is_ok() {
            let mut rest = fused.as_slice();
            for tensor in tensors {
                let (own, more) = rest.split_at(tensor.len());
                tensor.copy_from_slice(own);
                rest = more;
            }
        }
        self.fused = fused;
        result
    }

    /// Combines `data` over all ranks into the root's `data`; that of the other ranks is unchanged.
    ///
    /// # Errors
    /// As [`Group::all_reduce`], or there is no such root.
    pub fn reduce(
        &mut self,
        root: usize,
        data: &mut [u8],
        dtype: DType,
        reduction: Reduction,
        name: &str,
    ) -> Result<(), CollectiveError> {
        self.guard(|group| {
            let kind = Kind::Reduce { root: group.check_root(root)? };
            check_reduction(kind, data.len(), dtype, reduction)?;
            if reduction == Reduction::Adasum {
                let mut work = data.to_vec();
                group.adasum(&mut work, dtype, name)?;
                if group.rank == root {
                    data.copy_from_slice(&work);
                }
                return Ok(());
            }
            match (&mut group.shared, group.reach) {
                (_, Reach::Alone) => Ok(()),
                (Some(shared), Reach::Host) => {
                    shared.reduce(root, data, dtype, reduction, name)?;
                    group.count(kind, data.len());
                    Ok(())
                }
                _ => {
                    let called = group.called(kind, Some(reduction), dtype, data.len(), name);
                    group.reduce_hosts(&called, root, data, dtype, reduction)
                }
            }
        })
    }

    /// Every rank gets one part of the combination of `all`, which holds a part for every rank.
    ///
    /// # Errors
    /// As [`Group::all_reduce`], or the parts are not equally long.
    pub fn reduce_scatter(
        &mut self,
        all: &[u8],
        mine: &mut [u8],
        dtype: DType,
        reduction: Reduction,
        name: &str,
    ) -> Result<(), CollectiveError> {
        self.guard(|group| {
            let kind = Kind::ReduceScatter;
            check_reduction(kind, mine.len(), dtype, reduction)?;
            group.check_parts(kind, all.len(), mine.len())?;
            if reduction == Reduction::Adasum {
                let mut work = all.to_vec();
                group.adasum(&mut work, dtype, name)?;
                mine.copy_from_slice(&work[mine.len() * group.rank..][..mine.len()]);
                return Ok(());
            }
            match (&mut group.shared, group.reach) {
                (_, Reach::Alone) => mine.copy_from_slice(all),
                (Some(shared), Reach::Host) => {
                    shared.reduce_scatter(all, mine, dtype, reduction, name)?;
                    group.count(kind, all.len());
                }
                _ => {
                    let called = group.called(kind, Some(reduction), dtype, mine.len(), name);
                    group.reduce_scatter_hosts(&called, all, mine, dtype, reduction)?;
                }
            }
            Ok(())
        })
    }

    /// Every rank gets the root's values.
    ///
    /// # Errors
    /// As [`Group::all_reduce`], or there is no such root.
    pub fn broadcast(
        &mut self,
        root: usize,
        data: &mut [u8],
        dtype: DType,
        name: &str,
    ) -> Result<(), CollectiveError> {
        self.guard(|group| {
            let kind = Kind::Broadcast { root: group.check_root(root)? };
            check_whole(data.len(), dtype)?;
            match (&mut group.shared, group.reach) {
                (_, Reach::Alone) => Ok(()),
                (Some(shared), Reach::Host) => {
                    shared.broadcast(root, data, dtype, name)?;
                    group.count(kind, data.len());
                    Ok(())
                }
                _ => {
                    let called = group.called(kind, None, dtype, data.len(), name);
                    group.broadcast_hosts(&called, root, data)
                }
            }
        })
    }

    /// Every rank gets the values of all ranks; ranks may contribute different amounts.
    ///
    /// # Errors
    /// As [`Group::all_reduce`].
    pub fn all_gather(&mut self, mine: &[u8], dtype: DType, name: &str) -> Result<Gathered, CollectiveError> {
        self.guard(|group| {
            check_whole(mine.len(), dtype)?;
            match (&mut group.shared, group.reach) {
                (_, Reach::Alone) => Ok(Gathered { bytes: mine.to_vec(), ends: vec![mine.len()] }),
                (Some(shared), Reach::Host) => {
                    let gathered = shared.all_gather(mine, dtype, name)?;
                    group.count(Kind::AllGather, mine.len());
                    Ok(gathered)
                }
                _ => {
                    let called = group.called(Kind::AllGather, None, dtype, 0, name);
                    group.all_gather_hosts(&called, mine)
                }
            }
        })
    }

    /// The root gets the values of all ranks, the others nothing; ranks may contribute different amounts.
    ///
    /// # Errors
    /// As [`Group::all_reduce`], or there is no such root.
    pub fn gather(
        &mut self,
        root: usize,
        mine: &[u8],
        dtype: DType,
        name: &str,
    ) -> Result<Option<Gathered>, CollectiveError> {
        self.guard(|group| {
            let kind = Kind::Gather { root: group.check_root(root)? };
            check_whole(mine.len(), dtype)?;
            match (&mut group.shared, group.reach) {
                (_, Reach::Alone) => Ok(Some(Gathered { bytes: mine.to_vec(), ends: vec![mine.len()] })),
                (Some(shared), Reach::Host) => {
                    let gathered = shared.gather(root, mine, dtype, name)?;
                    group.count(kind, mine.len());
                    Ok(gathered)
                }
                _ => {
                    let called = group.called(kind, None, dtype, 0, name);
                    group.gather_hosts(&called, root, mine)
                }
            }
        })
    }

    /// Every rank gets its part of the root's values; `all` matters only on the root and holds a part for every rank.
    ///
    /// # Errors
    /// As [`Group::all_reduce`], or there is no such root, or the parts are not equally long.
    pub fn scatter(
        &mut self,
        root: usize,
        all: Option<&[u8]>,
        mine: &mut [u8],
        dtype: DType,
        name: &str,
    ) -> Result<(), CollectiveError> {
        self.guard(|group| {
            let kind = Kind::Scatter { root: group.check_root(root)? };
            check_whole(mine.len(), dtype)?;
            if group.rank == root {
                group.check_parts(kind, all.map_or(0, <[u8]>::len), mine.len())?;
            }
            match (&mut group.shared, group.reach) {
                (_, Reach::Alone) => mine.copy_from_slice(all.unwrap_or_default()),
                (Some(shared), Reach::Host) => {
                    shared.scatter(root, all, mine, dtype, name)?;
                    group.count(kind, mine.len());
                }
                _ => {
                    let called = group.called(kind, None, dtype, mine.len(), name);
                    group.scatter_hosts(&called, root, all, mine)?;
                }
            }
            Ok(())
        })
    }

    /// Sends part `r` of `send` to rank `r`, and receives as part `r` what rank `r` sends.
    ///
    /// # Errors
    /// As [`Group::all_reduce`], or the parts are not equally long.
    pub fn all_to_all(
        &mut self,
        send: &[u8],
        receive: &mut [u8],
        dtype: DType,
        name: &str,
    ) -> Result<(), CollectiveError> {
        self.guard(|group| {
            let part = send.len() / group.ranks;
            check_whole(part, dtype)?;
            group.check_parts(Kind::AllToAll, send.len(), part)?;
            group.check_parts(Kind::AllToAll, receive.len(), part)?;
            match (&mut group.shared, group.reach) {
                (_, Reach::Alone) => receive.copy_from_slice(send),
                (Some(shared), Reach::Host) => {
                    shared.all_to_all(send, receive, dtype, name)?;
                    group.count(Kind::AllToAll, part);
                }
                _ => {
                    let called = group.called(Kind::AllToAll, None, dtype, part, name);
                    group.all_to_all_hosts(&called, send, receive)?;
                }
            }
            Ok(())
        })
    }

    /// Returns when all ranks have called it.
    ///
    /// # Errors
    /// As [`Group::all_reduce`].
    pub fn barrier(&mut self, name: &str) -> Result<(), CollectiveError> {
        self.guard(|group| match (&mut group.shared, group.reach) {
            (_, Reach::Alone) => Ok(()),
            (Some(shared), Reach::Host) => shared.barrier(name),
            _ => {
                let called = group.called(Kind::Barrier, None, DType::U8, 0, name);
                group.barrier_hosts(&called)
            }
        })
    }

    /// Runs something whose failure ends the group on all ranks: otherwise the others would wait for this rank.
    pub(super) fn guard<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, CollectiveError>,
    ) -> Result<T, CollectiveError> {
        if let Some(error) = self.aborted() {
            return Err(error);
        }
        let result = work(self);
        if let Err(error) = &result {
            self.aborter.abort(match error {
                CollectiveError::Aborted { reason, .. } => reason.clone(),
                CollectiveError::Mismatch { .. } => error.to_string(),
                _ => format!("rank {} gave up: {error}", self.rank),
            });
        }
        result
    }

    /// Counts the bytes that a ring would have sent.
    pub(super) fn count(&mut self, kind: Kind, bytes: usize) {
        self.sent += ring_bytes(kind, Seat { rank: self.rank, ranks: self.ranks }, bytes);
    }

    fn check_root(&self, root: usize) -> Result<u32, CollectiveError> {
        let no_rank = CollectiveError::NoRank { rank: root, ranks: self.ranks };
        u32::try_from(root).ok().filter(|_| root < self.ranks).ok_or(no_rank)
    }

    fn check_parts(&self, kind: Kind, all: usize, part: usize) -> Result<(), CollectiveError> {
        let wanted = part.saturating_mul(self.ranks);
        if all == wanted {
            return Ok(());
        }
        Err(CollectiveError::Length { what: kind.word(), wanted, got: all })
    }
}

fn check_reduction(
    kind: Kind,
    length: usize,
    dtype: DType,
    reduction: Reduction,
) -> Result<(), CollectiveError> {
    if !numbers::supports(dtype, reduction) {
        return Err(CollectiveError::DType { what: kind.word(), dtype });
    }
    check_whole(length, dtype)
}

/// Fails unless the bytes are whole elements.
fn check_whole(length: usize, dtype: DType) -> Result<(), CollectiveError> {
    if length.is_multiple_of(dtype.size()) {
        return Ok(());
    }
    let wanted = length.next_multiple_of(dtype.size());
    Err(CollectiveError::Length { what: "a tensor in bytes", wanted, got: length })
}
