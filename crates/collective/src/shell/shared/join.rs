//! Joining in shared memory: ranks that have no more values.
//!
//! A joined rank stages zeros before it knows the call of the others, then reads their call and takes part in it. No
//! rank touches the buffers of a joined rank: zeros are used in their place.

use super::calls::{self, SharedCall};
use super::group::SharedGroup;
use super::reduce_shared::SMALL;
use super::segment::{HEADER_BYTES, system};
use crate::core::words::{Kind, Reduction, Signature};
use crate::error::CollectiveError;
use phalanx_types::DType;
use std::sync::atomic::Ordering;

/// The call of the ranks that have not joined.
struct Followed {
    rank: usize,
    hash: u64,
    signature: Signature,
    /// Its offset in shared memory; 0 if it uses private memory.
    place: u64,
}

impl SharedGroup {
    /// Declares that this rank has no more values. Until all ranks have joined it takes part with zeros in the sums and
    /// averages of the others; an average is still over all ranks.
    ///
    /// Returns the rank that joined last. Among ranks that joined between the same two calls it is the highest.
    ///
    /// # Errors
    /// The group is over, or the other ranks make different calls or one that zeros cannot take part in. Then their
    /// calls fail too, and this call may be repeated.
    pub fn join(&mut self) -> Result<usize, CollectiveError> {
        self.join_each(|_| {})
    }

    /// The same; `on_call` gets the bytes of every call that this rank has taken part in.
    pub(crate) fn join_each(&mut self, mut on_call: impl FnMut(usize)) -> Result<usize, CollectiveError> {
        let mut zeros = vec![0_u64; self.block_bytes() / 8];
        let zeros: &mut [u8] = bytemuck::cast_slice_mut(&mut zeros);
        // The length field announces when this rank joined.
        let count = self.sequence() as usize;
        let call =
            SharedCall { kind: Kind::Join, reduction: None, dtype: DType::U8, count, name: "", place: 0 };
        loop {
            self.stage(0, zeros);
            let (sequence, _, place) = self.announce(&call, 0)?;
            let mut last = (0, 0);
            let mut followed: Option<Followed> = None;
            self.joined.clear();
            self.joined.resize(self.ranks, true);
            for rank in 0..self.ranks {
                let header = self.members.segments[rank].header();
                let signature = self.read_call(rank, place)?;
                if signature.kind == Kind::Join {
                    last = last.max((signature.count, rank));
                    continue;
                }
                self.joined[rank] = false;
                let hash = header.progress.hash[place].load(Ordering::Relaxed);
                match &followed {
                    Some(first) if first.hash != hash => return Err(first.differs(rank, signature)),
                    Some(_) => {}
                    None => {
                        let place = calls::read_place(&header.calls[place]);
                        followed = Some(Followed { rank, hash, signature, place });
                    }
                }
            }
            let Some(followed) = followed else { return Ok(last.1) };
            if !followed.signature.takes_zeros() {
                let ours = Box::new(call.signature(sequence));
                let Followed { rank, signature, .. } = followed;
                return Err(CollectiveError::Mismatch {
                    own_rank: self.rank,
                    rank,
                    ours,
                    theirs: Box::new(signature),
                });
            }
            on_call(self.follow(&followed, zeros)?);
        }
    }

    /// Takes part in a call that the others have agreed on, after its first step. Returns its bytes.
    fn follow(&mut self, followed: &Followed, zeros: &mut [u8]) -> Result<usize, CollectiveError> {
        let Signature { dtype, reduction, count, name, .. } = &followed.signature;
        let (dtype, reduction) = (*dtype, reduction.unwrap_or(Reduction::Sum));
        let bytes = usize::try_from(*count).ok().and_then(|count| count.checked_mul(dtype.size()));
        let (Some(length), Ok(offset)) = (bytes, usize::try_from(followed.place)) else {
            return Err(self.give_up(system("join", "a call is longer than memory")));
        };
        if length <= SMALL {
            // The other ranks combine what this rank has staged.
            return Ok(length);
        }
        if offset == 0 {
            let call = SharedCall::all_reduce(length, dtype, reduction, name);
            let most = zeros.len().min(length);
            self.reduce_blocks(&mut zeros[..most], length, &call, false)?;
            return Ok(length);
        }
        let room = self.members.segments[self.rank].bytes();
        let fits = offset.checked_add(length).is_some_and(|end| end <= room);
        if !fits || offset < HEADER_BYTES || !offset.is_multiple_of(dtype.size()) {
            return Err(self.give_up(system("join", "a call is outside of the memory for buffers")));
        }
        self.reduce_parts(offset, length, dtype, reduction);
        self.step()?;
        Ok(length)
    }
}

impl Followed {
    fn differs(&self, rank: usize, theirs: Signature) -> CollectiveError {
        CollectiveError::Mismatch {
            own_rank: self.rank,
            rank,
            ours: Box::new(self.signature.clone()),
            theirs: Box::new(theirs),
        }
    }
}
