//! Sums gradients over all replicas on a thread of its own, while the model still computes.
//!
//! ```text
//!   backward: gradient of parameter 7 is final ──► copied into its bucket ──► last of the bucket? ──┐
//!                                                                                                  v
//!   update: takes the sums   ◄──────────── bucket comes back ◄──────────── thread: all_reduce_shared
//! ```
//! Buckets lie in memory that all replicas of the host share; whoever holds one may use it, so a bucket travels.

use phalanx_collective::{Aborter, Buckets, CollectiveError, Filling, Reduction, SharedBuffer, SharedGroup};
use phalanx_types::DType;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// Buckets of gradients that are on their way around the replicas.
#[derive(Debug)]
pub struct Exchange {
    buckets: Buckets,
    filling: Filling,
    /// Those that are here; the others are with the thread.
    here: Vec<Option<SharedBuffer>>,
    away: usize,
    out: Option<Sender<(usize, SharedBuffer)>>,
    back: Receiver<(usize, SharedBuffer, Result<(), CollectiveError>)>,
    aborter: Aborter,
    thread: Option<JoinHandle<()>>,
}

impl Exchange {
    /// Bytes of shared memory that buckets need.
    pub fn room(buckets: &Buckets) -> usize {
        // Each begins at a page.
        (0..buckets.count()).map(|i| (buckets.length(i) * 4).next_multiple_of(4096) + 4096).sum()
    }

    /// Makes the buckets in the memory of a group, and starts the thread.
    ///
    /// # Errors
    /// The group has no room for them, or there is no thread to be had.
    pub fn new(mut group: SharedGroup, buckets: Buckets) -> Result<Self, CollectiveError> {
        let make = |i: usize| {
            let mut buffer = group.buffer(buckets.length(i) * 4)?;
            buffer.slice_mut::<f32>()?.fill(0.0);
            Ok(Some(buffer))
        };
        let here = (0..buckets.count()).map(make).collect::<Result<Vec<_>, CollectiveError>>()?;
        let (out, orders) = channel::<(usize, SharedBuffer)>();
        let (results, back) = channel();
        let aborter = group.aborter();
        let run = move || {
            for (bucket, mut buffer) in orders {
                let (name, range) = (format!("bucket {bucket}"), 0..buffer.bytes());
                let result = group.all_reduce_shared(&mut buffer, range, DType::F32, Reduction::Sum, &name);
                if results.send((bucket, buffer, result)).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("exchange".to_owned()).spawn(run);
        let problem = |error: std::io::Error| CollectiveError::System {
            what: "start a thread",
            problem: error.to_string(),
        };
        let thread = Some(thread.map_err(problem)?);
        let filling = Filling::new(&buckets);
        Ok(Self { buckets, filling, here, away: 0, out: Some(out), back, aborter, thread })
    }

    /// Takes a gradient that is final here. The last one of a bucket sends it on its way.
    ///
    /// # Errors
    /// The group is over.
    pub fn give(&mut self, parameter: usize, gradient: &[f32]) -> Result<(), CollectiveError> {
        let (bucket, range) = (self.buckets.bucket(parameter), self.buckets.range(parameter));
        if let Some(buffer) = &mut self.here[bucket] {
            buffer.slice_mut::<f32>()?[range].copy_from_slice(gradient);
        }
        let Some(full) = self.filling.on_ready(parameter) else { return Ok(()) };
        if let (Some(buffer), Some(out)) = (self.here[full].take(), &self.out)
            && out.send((full, buffer)).is_ok()
        {
            self.away += 1;
        }
        Ok(())
    }

    /// Waits until every bucket is summed and back.
    ///
    /// # Errors
    /// The group is over; the sums must not be used.
    pub fn wait(&mut self) -> Result<(), CollectiveError> {
        let mut ended = Ok(());
        while self.away > 0 {
            // The thread ends only when it is told to, or with a panic of its own.
            let Ok((bucket, buffer, result)) = self.back.recv() else {
                let problem = "the thread has ended".to_owned();
                return Err(CollectiveError::System { what: "exchange gradients", problem });
            };
            self.here[bucket] = Some(buffer);
            self.away -= 1;
            if ended.is_ok() {
                ended = result;
            }
        }
        self.filling.reset();
        ended
    }

    /// The sum of a parameter's gradients over all replicas.
    ///
    /// # Errors
    /// The exchange has failed, or has not been waited for.
    pub fn sum(&self, parameter: usize) -> Result<&[f32], CollectiveError> {
        let (bucket, range) = (self.buckets.bucket(parameter), self.buckets.range(parameter));
        match &self.here[bucket] {
            Some(buffer) => Ok(&buffer.slice::<f32>()?[range]),
            None => Err(CollectiveError::System {
                what: "use a gradient",
                problem: "its bucket is still on its way".to_owned(),
            }),
        }
    }

    pub fn aborter(&self) -> Aborter {
        self.aborter.clone()
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // The thread ends when nobody can order anything any more; whoever still waits for others is let go.
        self.out = None;
        if self.away > 0 {
            self.aborter.abort("a replica has left in the middle of a step".to_owned());
        }
        if let Some(thread) = self.thread.take() {
            // Its panic was reported on its own thread.
            let _ended = thread.join();
        }
    }
}
