//! A thread that makes a group's calls, while the caller computes.
//!
//! ```text
//!   all_reduce(buffer) ──► orders, in their order ──► thread: group.all_reduce_buffer
//!   Handle::wait ◄──────────────────────────────────── buffer and result
//! ```

use super::compressed::Feedback;
use super::{Group, GroupAborter, GroupBuffer, system};
use crate::core::compress::Compression;
use crate::core::words::Reduction;
use crate::error::CollectiveError;
use phalanx_types::DType;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{SendError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// `None` if there is no group left to carry it out.
type Order = Box<dyn FnOnce(Option<&mut Group>) + Send>;

/// Makes a group's calls on a thread of its own, one after the other.
///
/// Dropping it while calls are queued aborts the group, so that no rank waits for them.
pub struct Background {
    orders: Option<Sender<Order>>,
    counts: Arc<Counts>,
    aborter: GroupAborter,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Counts {
    /// Orders that are not done yet.
    outstanding: AtomicUsize,
    sent: AtomicU64,
}

/// A call under way, and the value it works on.
#[derive(Debug)]
pub struct Handle<T> {
    slot: Arc<ResultSlot<T>>,
}

#[derive(Debug)]
struct ResultSlot<T> {
    done: Mutex<Option<Done<T>>>,
    changed: Condvar,
}

/// A finished call.
#[derive(Debug)]
pub struct Done<T> {
    /// The value it worked on.
    pub subject: T,
    pub result: Result<(), CollectiveError>,
    /// When the thread started it.
    pub began: Instant,
    pub ended: Instant,
}

impl<T> Handle<T> {
    /// Whether [`Handle::wait`] would return at once.
    pub fn is_done(&self) -> bool {
        self.slot.done.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Waits for the call and returns the value it worked on.
    pub fn wait(self) -> (T, Result<(), CollectiveError>) {
        let Done { subject, result, .. } = self.wait_done();
        (subject, result)
    }

    /// As [`Handle::wait`], with the times of the call.
    pub fn wait_done(self) -> Done<T> {
        let mut done = self.slot.done.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(done) = done.take() {
                return done;
            }
            done = self.slot.changed.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Background {
    /// Starts the thread. Buffers must be made before, like everything else that needs the group itself.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn new(mut group: Group) -> Result<Self, CollectiveError> {
        let (orders, waiting) = channel::<Order>();
        let counts = Arc::new(Counts::default());
        counts.sent.store(group.sent(), Ordering::Relaxed);
        let aborter = group.aborter();
        let thread_counts = Arc::clone(&counts);
        let work = move || {
            for order in waiting {
                order(Some(&mut group));
                thread_counts.sent.store(group.sent(), Ordering::Relaxed);
            }
        };
        let thread = std::thread::Builder::new().name("collectives".to_owned()).spawn(work);
        let thread = Some(thread.map_err(|error| system("start a thread", error))?);
        Ok(Self { orders: Some(orders), counts, aborter, thread })
    }

    /// As [`Group::all_reduce_buffer`].
    pub fn all_reduce(
        &self,
        buffer: GroupBuffer,
        range: Range<usize>,
        dtype: DType,
        reduction: Reduction,
        name: &str,
    ) -> Handle<GroupBuffer> {
        let name = name.to_owned();
        self.order(buffer, move |group, buffer| {
            group.all_reduce_buffer(buffer, range, dtype, reduction, &name)
        })
    }

    /// As [`Group::all_reduce_compressed`].
    pub fn all_reduce_compressed(
        &self,
        values: Vec<f32>,
        compression: Compression,
        feedback: Feedback,
        name: &str,
    ) -> Handle<(Vec<f32>, Feedback)> {
        let name = name.to_owned();
        self.order((values, feedback), move |group, (values, feedback)| {
            group.all_reduce_compressed(values, compression, feedback, &name)
        })
    }

    /// As [`Group::broadcast`], of the whole buffer.
    pub fn broadcast(
        &self,
        root: usize,
        buffer: GroupBuffer,
        dtype: DType,
        name: &str,
    ) -> Handle<GroupBuffer> {
        let name = name.to_owned();
        self.order(buffer, move |group, buffer| {
            let data = group.guard(|_| buffer.slice_mut::<u8>())?;
            group.broadcast(root, data, dtype, &name)
        })
    }

    /// As [`Group::sent`], of the calls that are done.
    pub fn sent(&self) -> u64 {
        self.counts.sent.load(Ordering::Relaxed)
    }

    /// A handle that aborts the group from any thread.
    pub fn aborter(&self) -> GroupAborter {
        self.aborter.clone()
    }

    fn order<T: Send + 'static>(
        &self,
        mut subject: T,
        work: impl FnOnce(&mut Group, &mut T) -> Result<(), CollectiveError> + Send + 'static,
    ) -> Handle<T> {
        let slot = Arc::new(ResultSlot { done: Mutex::new(None), changed: Condvar::new() });
        let (there, counts) = (Arc::clone(&slot), Arc::clone(&self.counts));
        let order: Order = Box::new(move |group| {
            let began = Instant::now();
            let result = match group {
                Some(group) => carry_out(group, &mut subject, work),
                None => Err(system("make a call", "the thread has ended")),
            };
            counts.outstanding.fetch_sub(1, Ordering::AcqRel);
            *there.done.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(Done { subject, result, began, ended: Instant::now() });
            there.changed.notify_all();
        });
        self.counts.outstanding.fetch_add(1, Ordering::AcqRel);
        let refused = match &self.orders {
            Some(orders) => orders.send(order).err().map(|SendError(order)| order),
            None => Some(order),
        };
        if let Some(order) = refused {
            order(None);
        }
        Handle { slot }
    }
}

/// A panic aborts the group, not the thread: the value is given back all the same.
fn carry_out<T>(
    group: &mut Group,
    subject: &mut T,
    work: impl FnOnce(&mut Group, &mut T) -> Result<(), CollectiveError>,
) -> Result<(), CollectiveError> {
    let worked = catch_unwind(AssertUnwindSafe(|| work(group, subject)));
    worked.unwrap_or_else(|_| {
        let error = system("make a call", "it panicked");
        group.guard(|_| Err(error))
    })
}

impl Drop for Background {
    fn drop(&mut self) {
        self.orders = None;
        if self.counts.outstanding.load(Ordering::Acquire) > 0 {
            self.aborter.abort("a rank has left in the middle of its calls".to_owned());
        }
        if let Some(thread) = self.thread.take() {
            // Its panic was reported on its own thread.
            let _ended = thread.join();
        }
    }
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Background").field("counts", &self.counts).finish_non_exhaustive()
    }
}
