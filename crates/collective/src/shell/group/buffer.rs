//! Memory for tensors that a group reduces.

use super::{Group, system};
use crate::error::CollectiveError;
use crate::shell::shared::SharedBuffer;
use bytemuck::Pod;
use std::collections::TryReserveError;
use std::ops::Range;

/// Alignment of private memory: a cache line.
const ALIGNMENT: usize = 64;

/// Memory of a tensor, placed where collectives of its group are fastest. One thread may fill it while another makes
/// calls with other buffers of the group.
#[derive(Debug)]
pub struct GroupBuffer {
    pub(super) memory: Memory,
}

#[derive(Debug)]
pub(super) enum Memory {
    Shared(SharedBuffer),
    Own(Words),
}

impl GroupBuffer {
    pub fn bytes(&self) -> usize {
        match &self.memory {
            Memory::Shared(buffer) => buffer.bytes(),
            Memory::Own(words) => words.bytes,
        }
    }

    /// Its elements.
    ///
    /// # Errors
    /// A call with this buffer has failed, or it does not hold whole elements.
    pub fn slice<T: Pod>(&self) -> Result<&[T], CollectiveError> {
        match &self.memory {
            Memory::Shared(buffer) => buffer.slice(),
            Memory::Own(words) => bytemuck::try_cast_slice(words.get())
                .map_err(|error| system("take a buffer as a slice", error)),
        }
    }

    /// Its elements, to change.
    ///
    /// # Errors
    /// As [`GroupBuffer::slice`].
    pub fn slice_mut<T: Pod>(&mut self) -> Result<&mut [T], CollectiveError> {
        match &mut self.memory {
            Memory::Shared(buffer) => buffer.slice_mut(),
            Memory::Own(words) => bytemuck::try_cast_slice_mut(words.get_mut())
                .map_err(|error| system("take a buffer as a slice", error)),
        }
    }

    /// Some of its bytes.
    pub(super) fn range_mut(&mut self, range: Range<usize>) -> Result<&mut [u8], CollectiveError> {
        let got = self.bytes();
        let wanted = range.start.max(range.end);
        let problem = CollectiveError::Length { what: "a range of a buffer", wanted, got };
        self.slice_mut::<u8>()?.get_mut(range).ok_or(problem)
    }
}

impl Group {
    /// Makes a zeroed buffer: in shared memory if other ranks of this host can map it, otherwise in private memory with
    /// every page touched. All ranks must make the same buffers in the same order.
    ///
    /// # Errors
    /// There is not enough room left.
    pub fn buffer(&mut self, bytes: usize) -> Result<GroupBuffer, CollectiveError> {
        let memory = match &mut self.shared {
            Some(shared) => Memory::Shared(shared.buffer(bytes)?),
            None => Memory::Own(Words::zeros(bytes)),
        };
        Ok(GroupBuffer { memory })
    }
}

/// Bytes that are aligned for elements of every type.
#[derive(Debug)]
pub(super) struct Words {
    words: Vec<u64>,
    /// The first word that is used.
    start: usize,
    bytes: usize,
}

impl Words {
    pub(super) fn zeros(bytes: usize) -> Self {
        Self::from_words(vec![0; Self::room(bytes)], bytes)
    }

    /// Allocates a length that came from a peer: fails instead of aborting the process.
    pub(super) fn try_zeros(bytes: usize) -> Result<Self, TryReserveError> {
        let mut words = Vec::new();
        words.try_reserve_exact(Self::room(bytes))?;
        words.resize(Self::room(bytes), 0);
        Ok(Self::from_words(words, bytes))
    }

    /// The words needed to reach the alignment.
    fn room(bytes: usize) -> usize {
        (bytes.div_ceil(size_of::<u64>())).saturating_add(ALIGNMENT / size_of::<u64>())
    }

    fn from_words(mut words: Vec<u64>, bytes: usize) -> Self {
        let more = ALIGNMENT / size_of::<u64>();
        let start = words.as_ptr().align_offset(ALIGNMENT).min(more);
        // Otherwise the first call would wait for the kernel to find every page.
        std::hint::black_box(&mut words).fill(0);
        Self { words, start, bytes }
    }

    pub(super) fn copy_of(bytes: &[u8]) -> Self {
        let mut words = Self::zeros(bytes.len());
        words.get_mut().copy_from_slice(bytes);
        words
    }

    pub(super) fn get(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words[self.start..])[..self.bytes]
    }

    pub(super) fn get_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words[self.start..])[..self.bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_is_aligned_and_whole() {
        for bytes in [0, 1, 7, 8, 63, 64, 65, 10_001] {
            let mut words = Words::copy_of(&vec![3; bytes]);
            assert_eq!(words.get(), vec![3; bytes]);
            assert_eq!(words.get().as_ptr().addr() % ALIGNMENT, 0);
            words.get_mut().fill(4);
            assert_eq!(words.get(), vec![4; bytes]);
        }
        let buffer = GroupBuffer { memory: Memory::Own(Words::zeros(10)) };
        assert!(buffer.slice::<f32>().is_err());
        assert_eq!(buffer.slice::<u16>().unwrap(), [0; 5]);
    }
}
