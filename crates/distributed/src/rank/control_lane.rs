//! The lane of a group for everything small: ballots, statistics, states of new ranks.
//!
//! The computing thread uses it, and so does the model, which sums the statistics of batch norm over all replicas.

use phalanx_collective::{CollectiveError, Gathered, Group, GroupAborter, Reduction};
use phalanx_engine::SumOver;
use phalanx_types::DType;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// All ranks of a group.
#[derive(Debug)]
pub(super) struct ControlLane {
    ranks: usize,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    group: Mutex<Group>,
    /// This rank has no samples now: the statistics of its model do not count.
    absent: AtomicBool,
    /// Microseconds that the model waited for others.
    waited: AtomicU64,
}

impl ControlLane {
    pub(super) fn new(group: Group) -> Self {
        let ranks = group.ranks();
        let (absent, waited) = (AtomicBool::new(false), AtomicU64::new(0));
        Self { ranks, shared: Arc::new(Shared { group: Mutex::new(group), absent, waited }) }
    }

    pub(super) fn ranks(&self) -> usize {
        self.ranks
    }

    /// Sums numbers over all ranks, for a model that normalises batches over all replicas.
    pub(super) fn sum_over(&self) -> Box<SumOver> {
        let shared = Arc::clone(&self.shared);
        Box::new(move |values| {
            if shared.absent.load(Ordering::Relaxed) {
                values.fill(0.0);
            }
            let began = Instant::now();
            let bytes = bytemuck::cast_slice_mut(values);
            let result = shared.lock().all_reduce(bytes, DType::F64, Reduction::Sum, "statistics");
            let waited = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            shared.waited.fetch_add(waited, Ordering::Relaxed);
            result.map_err(|error| error.to_string())
        })
    }

    /// A step begins; `absent` when this rank has no samples in it.
    pub(super) fn begin_step(&self, absent: bool) {
        self.shared.absent.store(absent, Ordering::Relaxed);
        self.shared.waited.store(0, Ordering::Relaxed);
    }

    /// How long the model waited for others since the step began.
    pub(super) fn waited(&self) -> Duration {
        Duration::from_micros(self.shared.waited.load(Ordering::Relaxed))
    }

    /// The bytes of every rank, which may be of different lengths.
    pub(super) fn all_gather(&self, own: &[u8], name: &str) -> Result<Gathered, CollectiveError> {
        self.shared.lock().all_gather(own, DType::U8, name)
    }

    pub(super) fn all_reduce(&self, values: &mut [f64], name: &str) -> Result<(), CollectiveError> {
        let bytes = bytemuck::cast_slice_mut(values);
        self.shared.lock().all_reduce(bytes, DType::F64, Reduction::Sum, name)
    }

    /// Brings every rank to the bytes that the root has.
    pub(super) fn broadcast(&self, root: usize, bytes: &mut [u8], name: &str) -> Result<(), CollectiveError> {
        self.shared.lock().broadcast(root, bytes, DType::U8, name)
    }

    pub(super) fn barrier(&self, name: &str) -> Result<(), CollectiveError> {
        self.shared.lock().barrier(name)
    }

    pub(super) fn aborter(&self) -> GroupAborter {
        self.shared.lock().aborter()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Group> {
        // A group whose call panicked is failed and says so itself.
        self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
