//! This replica's end of the group it trains in.
//!
//! ```text
//!   lane of gradients    a thread of its own, while the model computes      Exchange
//!   lane of control      the computing thread: votes, statistics, states    Together
//! ```

use super::exchange::Exchange;
use crate::error::DistributedError;
use phalanx_collective::{CollectiveError, Group, GroupAborter, Reduction};
use phalanx_engine::SumOver;
use phalanx_protocol::Vote;
use phalanx_types::DType;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The other replicas, as a step sees them.
#[derive(Debug)]
pub(super) struct Together {
    pub(super) exchange: Exchange,
    rank: usize,
    ranks: usize,
    shared: Arc<Shared>,
}

/// Shared with the model, which sums the statistics of batch norm over the lane of control.
#[derive(Debug)]
struct Shared {
    control: Mutex<Group>,
    /// This replica has no samples now: whatever its model computes does not count.
    absent: AtomicBool,
    /// Microseconds that the model waited for others.
    waited: AtomicU64,
}

impl Together {
    pub(super) fn new(exchange: Exchange, control: Group) -> Self {
        let (rank, ranks) = (control.rank(), control.ranks());
        let (absent, waited) = (AtomicBool::new(false), AtomicU64::new(0));
        Self {
            exchange,
            rank,
            ranks,
            shared: Arc::new(Shared { control: Mutex::new(control), absent, waited }),
        }
    }

    pub(super) fn rank(&self) -> usize {
        self.rank
    }

    pub(super) fn ranks(&self) -> usize {
        self.ranks
    }

    /// Sums numbers over all replicas, for a model that normalises batches over all of them.
    pub(super) fn sum_over(&self) -> Box<SumOver> {
        let shared = Arc::clone(&self.shared);
        Box::new(move |values| {
            if shared.absent.load(Ordering::Relaxed) {
                values.fill(0.0);
            }
            let began = Instant::now();
            let bytes = bytemuck::cast_slice_mut(values);
            let result = lock(&shared.control).all_reduce(bytes, DType::F64, Reduction::Sum, "statistics");
            let waited = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            shared.waited.fetch_add(waited, Ordering::Relaxed);
            result.map_err(|error| error.to_string())
        })
    }

    /// A step begins; `absent` when this replica has no samples in it.
    pub(super) fn begin_step(&self, absent: bool) {
        self.shared.absent.store(absent, Ordering::Relaxed);
        self.shared.waited.store(0, Ordering::Relaxed);
    }

    /// How long the model waited for others since the step began.
    pub(super) fn waited(&self) -> Duration {
        Duration::from_micros(self.shared.waited.load(Ordering::Relaxed))
    }

    /// Tells all replicas what this one has to say of some steps, and hears what all say: a list for every step.
    ///
    /// # Errors
    /// The group is over, or says what makes no sense.
    pub(super) fn vote(&self, votes: &[Vote]) -> Result<Vec<Vec<Vote>>, DistributedError> {
        let own: Vec<u8> = votes.iter().flat_map(Vote::to_bytes).collect();
        let gathered = self.gather_alike(&own, "vote")?;
        let all = Vote::all(&gathered)?;
        let of_step = |step: usize| all.iter().skip(step).step_by(votes.len()).copied().collect();
        Ok((0..votes.len()).map(of_step).collect())
    }

    /// Everybody's bytes, in the order of ranks, who all give as many.
    pub(super) fn gather_alike(&self, own: &[u8], name: &str) -> Result<Vec<u8>, CollectiveError> {
        let all = self.all_gather(own, name)?;
        let (wanted, got) = (own.len() * self.ranks, all.len());
        match wanted == got {
            true => Ok(all),
            false => Err(CollectiveError::Length { what: "an exchange of equal parts", wanted, got }),
        }
    }

    /// Everybody's bytes, in the order of ranks.
    pub(super) fn all_gather(&self, own: &[u8], name: &str) -> Result<Vec<u8>, CollectiveError> {
        Ok(lock(&self.shared.control).all_gather(own, DType::U8, name)?.bytes)
    }

    pub(super) fn all_reduce(&self, values: &mut [f64], name: &str) -> Result<(), CollectiveError> {
        let bytes = bytemuck::cast_slice_mut(values);
        lock(&self.shared.control).all_reduce(bytes, DType::F64, Reduction::Sum, name)
    }

    /// Brings every replica to the bytes that the root has.
    ///
    /// # Errors
    /// The group is over.
    pub(super) fn broadcast(&self, root: usize, bytes: &mut [u8], name: &str) -> Result<(), CollectiveError> {
        lock(&self.shared.control).broadcast(root, bytes, DType::U8, name)
    }

    /// Ends every call of the group, on every replica.
    pub(super) fn aborters(&self) -> [GroupAborter; 2] {
        [self.exchange.aborter(), lock(&self.shared.control).aborter()]
    }
}

fn lock(group: &Mutex<Group>) -> MutexGuard<'_, Group> {
    // A group whose call panicked is failed and says so itself.
    group.lock().unwrap_or_else(PoisonError::into_inner)
}
