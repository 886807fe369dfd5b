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
    /// None for a group of one rank.
    shared: Option<Arc<Shared>>,
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
        Self { ranks, shared: Some(Arc::new(Shared { group: Mutex::new(group), absent, waited })) }
    }

    pub(super) fn ranks(&self) -> usize {
        self.ranks
    }

    /// The lane of a rank that is alone.
    pub(super) fn alone() -> Self {
        Self { ranks: 1, shared: None }
    }

    /// Sums numbers over all ranks, for a model that normalises batches over all replicas.
    pub(super) fn sum_over(&self) -> Option<Box<SumOver>> {
        let shared = self.shared.clone()?;
        Some(Box::new(move |values| {
            if shared.absent.load(Ordering::Relaxed) {
                values.fill(0.0);
            }
            let began = Instant::now();
            let bytes = bytemuck::cast_slice_mut(values);
            let result = shared.lock().all_reduce(bytes, DType::F64, Reduction::Sum, "statistics");
            let waited = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            shared.waited.fetch_add(waited, Ordering::Relaxed);
            result.map_err(|error| error.to_string())
        }))
    }

    /// A step begins; `absent` when this rank has no samples in it.
    pub(super) fn begin_step(&self, absent: bool) {
        if let Some(shared) = &self.shared {
            shared.absent.store(absent, Ordering::Relaxed);
            shared.waited.store(0, Ordering::Relaxed);
        }
    }

    /// How long the model waited for others since the step began.
    pub(super) fn waited(&self) -> Duration {
        let waited = self.shared.as_ref().map_or(0, |shared| shared.waited.load(Ordering::Relaxed));
        Duration::from_micros(waited)
    }

    /// The bytes of every rank, which may be of different lengths.
    pub(super) fn all_gather(&self, own: &[u8], name: &str) -> Result<Gathered, CollectiveError> {
        match &self.shared {
            Some(shared) => shared.lock().all_gather(own, DType::U8, name),
            None => Ok(Gathered { bytes: own.to_vec(), ends: vec![own.len()] }),
        }
    }

    pub(super) fn all_reduce(&self, values: &mut [f64], name: &str) -> Result<(), CollectiveError> {
        let bytes = bytemuck::cast_slice_mut(values);
        self.call(|group| group.all_reduce(bytes, DType::F64, Reduction::Sum, name))
    }

    /// Brings every rank to the bytes that the root has.
    pub(super) fn broadcast(&self, root: usize, bytes: &mut [u8], name: &str) -> Result<(), CollectiveError> {
        self.call(|group| group.broadcast(root, bytes, DType::U8, name))
    }

    pub(super) fn barrier(&self, name: &str) -> Result<(), CollectiveError> {
        self.call(|group| group.barrier(name))
    }

    fn call(
        &self,
        call: impl FnOnce(&mut Group) -> Result<(), CollectiveError>,
    ) -> Result<(), CollectiveError> {
        self.shared.as_ref().map_or(Ok(()), |shared| call(&mut shared.lock()))
    }

    pub(super) fn aborter(&self) -> Option<GroupAborter> {
        self.shared.as_ref().map(|shared| shared.lock().aborter())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Group> {
        // A group whose call panicked is failed and says so itself.
        self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
