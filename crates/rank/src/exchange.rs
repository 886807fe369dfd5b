//! Sums gradients over all replicas on a thread of its own, while the model still computes.
//!
//! ```text
//!   backward: gradient of parameter 7 is final ──► copied into its bucket ──► last of the bucket? ──┐
//!                                                                                                  v
//!   update: takes the sums   ◄──────────── bucket comes back ◄──────────── Background: all-reduce
//! ```
//! Buckets lie in memory that all replicas of the host share. The owner of a bucket may use it, so buckets are passed on.
//! Compressed ones are sent from memory of their own.

use phalanx_collective::{
    Background, Buckets, CollectiveError, Compression, Done, Feedback, Filling, Group, GroupAborter,
    GroupBuffer, Handle, Reduction,
};
use phalanx_types::DType;
use std::time::Instant;

/// Buckets of gradients that are on their way around the replicas.
#[derive(Debug)]
pub(super) struct Exchange {
    buckets: Buckets,
    filling: Filling,
    slots: Vec<Slot>,
    background: Background,
    compression: Compression,
    /// What compression has lost of what is exchanged beside the buckets.
    feedback: Feedback,
    /// When the buckets of the last step were exchanged.
    times: Vec<(Instant, Instant)>,
}

/// Where a bucket is.
#[derive(Debug)]
enum Slot {
    Here(GroupBuffer),
    Away(Handle<GroupBuffer>),
    Plain(Vec<f32>, Feedback),
    Compressed(Handle<(Vec<f32>, Feedback)>),
    /// Lost to a failure.
    Nowhere,
}

impl Exchange {
    /// Bytes of shared memory that buckets need.
    pub(super) fn room(buckets: &Buckets) -> usize {
        // Each begins at a page.
        (0..buckets.count()).map(|i| (buckets.length(i) * 4).next_multiple_of(4096) + 4096).sum()
    }

    /// Makes the buckets, and starts the thread.
    ///
    /// # Errors
    /// The group has no room for them, or there is no thread to be had.
    pub(super) fn new(
        mut group: Group,
        buckets: Buckets,
        compression: Compression,
    ) -> Result<Self, CollectiveError> {
        let make = |i: usize| {
            if compression != Compression::None {
                return Ok(Slot::Plain(vec![0.0; buckets.length(i)], Feedback::default()));
            }
            let mut buffer = group.buffer(buckets.length(i) * 4)?;
            buffer.slice_mut::<f32>()?.fill(0.0);
            Ok(Slot::Here(buffer))
        };
        let slots = (0..buckets.count()).map(make).collect::<Result<Vec<_>, CollectiveError>>()?;
        let background = Background::new(group)?;
        let filling = Filling::new(&buckets);
        Ok(Self {
            buckets,
            filling,
            slots,
            background,
            compression,
            feedback: Feedback::default(),
            times: Vec::new(),
        })
    }

    /// Takes a gradient that is final here; it does not count when `counts` is not set. The last one of a bucket
    /// sends it on its way.
    ///
    /// # Errors
    /// The bucket is not here.
    pub(super) fn give(
        &mut self,
        parameter: usize,
        gradient: &[f32],
        counts: bool,
    ) -> Result<(), CollectiveError> {
        let (bucket, range) = (self.buckets.bucket(parameter), self.buckets.range(parameter));
        let place = &mut self.slots[bucket].values_mut()?[range];
        if counts {
            place.copy_from_slice(gradient);
        } else {
            place.fill(0.0);
        }
        if let Some(full) = self.filling.on_ready(parameter) {
            self.send(full);
        }
        Ok(())
    }

    fn send(&mut self, bucket: usize) {
        let name = format!("bucket {bucket}");
        let slot = std::mem::replace(&mut self.slots[bucket], Slot::Nowhere);
        self.slots[bucket] = match slot {
            Slot::Here(buffer) => {
                let range = 0..buffer.bytes();
                Slot::Away(self.background.all_reduce(buffer, range, DType::F32, Reduction::Sum, &name))
            }
            Slot::Plain(values, feedback) => Slot::Compressed(self.background.all_reduce_compressed(
                values,
                self.compression,
                feedback,
                &name,
            )),
            away => away,
        };
    }

    /// Waits until every bucket is summed and back.
    ///
    /// # Errors
    /// The group is over; the sums must not be used.
    pub(super) fn wait(&mut self) -> Result<(), CollectiveError> {
        let mut all = Ok(());
        self.times.clear();
        for slot in &mut self.slots {
            let (back, result, began, ended) = match std::mem::replace(slot, Slot::Nowhere) {
                Slot::Away(handle) => {
                    let Done { subject, result, began, ended } = handle.wait_done();
                    (Slot::Here(subject), result, began, ended)
                }
                Slot::Compressed(handle) => {
                    let Done { subject: (values, feedback), result, began, ended } = handle.wait_done();
                    (Slot::Plain(values, feedback), result, began, ended)
                }
                here => {
                    *slot = here;
                    continue;
                }
            };
            *slot = back;
            self.times.push((began, ended));
            all = all.and(result);
        }
        self.filling.reset();
        all
    }

    /// When the buckets that were waited for were exchanged.
    pub(super) fn times(&self) -> &[(Instant, Instant)] {
        &self.times
    }

    /// The sum of a parameter's gradients over all replicas.
    ///
    /// # Errors
    /// The exchange has not been waited for.
    pub(super) fn sum(&self, parameter: usize) -> Result<&[f32], CollectiveError> {
        let (bucket, range) = (self.buckets.bucket(parameter), self.buckets.range(parameter));
        Ok(&self.slots[bucket].values()?[range])
    }

    /// Begins to add up values over all replicas; `exact` ones are never compressed.
    pub(super) fn begin(&mut self, values: Vec<f32>, name: &str, exact: bool) -> Adding {
        let (how, feedback) = match exact {
            true => (Compression::None, Feedback::default()),
            false => (self.compression, std::mem::take(&mut self.feedback)),
        };
        Adding { handle: self.background.all_reduce_compressed(values, how, feedback, name), exact }
    }

    /// Waits for a sum.
    ///
    /// # Errors
    /// The group is over.
    pub(super) fn end(&mut self, adding: Adding) -> Result<Vec<f32>, CollectiveError> {
        let ((values, feedback), result) = adding.handle.wait();
        if !adding.exact {
            self.feedback = feedback;
        }
        result.map(|()| values)
    }

    /// Bytes that this replica gave to others.
    pub(super) fn sent(&self) -> u64 {
        self.background.sent()
    }

    pub(super) fn aborter(&self) -> GroupAborter {
        self.background.aborter()
    }
}

/// A sum on its way.
#[derive(Debug)]
pub(super) struct Adding {
    handle: Handle<(Vec<f32>, Feedback)>,
    exact: bool,
}

impl Slot {
    fn values(&self) -> Result<&[f32], CollectiveError> {
        match self {
            Slot::Here(buffer) => buffer.slice::<f32>(),
            Slot::Plain(values, _) => Ok(values),
            _ => Err(away()),
        }
    }

    fn values_mut(&mut self) -> Result<&mut [f32], CollectiveError> {
        match self {
            Slot::Here(buffer) => buffer.slice_mut::<f32>(),
            Slot::Plain(values, _) => Ok(values),
            _ => Err(away()),
        }
    }
}

fn away() -> CollectiveError {
    CollectiveError::System { what: "use a gradient", problem: "its bucket is still on its way".to_owned() }
}
