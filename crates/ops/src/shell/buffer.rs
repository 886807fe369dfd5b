//! Memory of the caller that operations read and write.
#![expect(unsafe_code, reason = "the caller's memory is known by its address")]

use crate::core::signature::{OpSignature, TensorSpec};

/// Memory of one tensor that the caller lends for the time of an operation.
///
/// Another language owns the memory, so that no lifetime of Rust can guard it: the caller of the constructor vouches for it.
#[derive(Debug, Clone, Copy)]
pub struct RawTensor {
    input: *const u8,
    output: *mut u8,
    bytes: usize,
    output_bytes: usize,
}

// SAFETY: only one thread at a time uses the addresses, and `new` makes its caller vouch for the memory until then.
unsafe impl Send for RawTensor {}

impl RawTensor {
    /// Memory that is read at `input` and written at `output`; both may be the same.
    ///
    /// # Safety
    /// Until the operation has ended (its handle says so, or `Ops` is dropped) `bytes` bytes from `input` must stay
    /// readable and unchanged by others, and `bytes` bytes from `output` writable and untouched by others. `output`
    /// must be the same as `input` or not overlap with it. `output` may be null for kinds whose result is returned.
    pub unsafe fn new(input: *const u8, output: *mut u8, bytes: usize) -> Self {
        let output_bytes = if output.is_null() { 0 } else { bytes };
        Self { input, output, bytes, output_bytes }
    }

    /// Memory that is read and written.
    ///
    /// # Safety
    /// As [`RawTensor::new`].
    pub unsafe fn in_place(data: *mut u8, bytes: usize) -> Self {
        // SAFETY: the caller vouches for it.
        unsafe { Self::new(data, data, bytes) }
    }

    /// No memory, of a tensor without elements.
    pub fn empty() -> Self {
        Self { input: std::ptr::null(), output: std::ptr::null_mut(), bytes: 0, output_bytes: 0 }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn has_output(&self) -> bool {
        self.output_bytes == self.bytes
    }

    pub(super) fn is_in_place(&self) -> bool {
        std::ptr::eq(self.input, self.output)
    }

    pub(super) fn input(&self) -> &[u8] {
        if self.bytes == 0 {
            return &[];
        }
        // SAFETY: the constructor's caller vouched for it, and nothing writes there while the slice lives: slices of
        // one tensor are taken by one thread, one after the other.
        unsafe { std::slice::from_raw_parts(self.input, self.bytes) }
    }

    pub(super) fn output(&mut self) -> &mut [u8] {
        if self.output_bytes == 0 {
            return &mut [];
        }
        // SAFETY: as in `input`.
        unsafe { std::slice::from_raw_parts_mut(self.output, self.output_bytes) }
    }
}

/// One operation of a rank.
#[derive(Debug)]
pub struct Operation {
    /// By which the operations of ranks are matched.
    pub name: String,
    /// What is computed.
    pub signature: OpSignature,
    /// The memory of its tensors, in order.
    pub tensors: Vec<RawTensor>,
    /// For an all-to-all: how many rows go to each rank of the set. Without it, equally many.
    pub splits: Option<Vec<u64>>,
}

impl Operation {
    /// An operation without splits.
    pub fn new(name: impl Into<String>, signature: OpSignature, tensors: Vec<RawTensor>) -> Self {
        Self { name: name.into(), signature, tensors, splits: None }
    }
}

/// A tensor that an operation made.
#[derive(Debug, Clone, PartialEq)]
pub struct OutputTensor {
    /// Its type and shape.
    pub spec: TensorSpec,
    /// Its values, in the machine's own order of bytes.
    pub bytes: Vec<u8>,
    /// How many rows came from each rank of the set.
    pub rows: Vec<u64>,
}
