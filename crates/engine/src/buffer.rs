//! Memory aligned to cache lines: wide loads that cross lines cost twice.

/// Elements a cache line holds.
const LINE: usize = 16;

/// A buffer of `f32` that grows and never shrinks.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    data: Vec<f32>,
    skip: usize,
    len: usize,
}

impl Buffer {
    pub(crate) fn new(len: usize) -> Self {
        let mut buffer = Self::default();
        buffer.grow(len);
        buffer
    }

    /// Makes room for at least `len` elements; the contents are arbitrary afterwards.
    pub(crate) fn grow(&mut self, len: usize) {
        if self.len >= len {
            return;
        }
        self.data = vec![0.0; len + LINE];
        self.skip = self.data.as_ptr().align_offset(64).min(LINE);
        self.len = len;
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn as_slice(&self) -> &[f32] {
        &self.data[self.skip..self.skip + self.len]
    }

    pub(crate) fn as_mut(&mut self) -> &mut [f32] {
        let end = self.skip + self.len;
        &mut self.data[self.skip..end]
    }
}
