//! The other replicas, as a step sees them.

use super::exchange::Exchange;
use crate::core::{Outcome, Vote, count};
use crate::error::TrainError;
use phalanx_collective::{Aborter, CollectiveError, SharedGroup};
use phalanx_engine::SumOver;
use phalanx_types::DType;
use std::sync::{Arc, Mutex, PoisonError};

/// This replica's end of the group it trains in: gradients on one lane, everything small on another.
#[derive(Debug)]
pub struct Together {
    pub(crate) exchange: Exchange,
    /// Shared with the model, which sums the statistics of batch norm over it.
    control: Arc<Mutex<SharedGroup>>,
}

impl Together {
    pub fn new(exchange: Exchange, control: SharedGroup) -> Self {
        Self { exchange, control: Arc::new(Mutex::new(control)) }
    }

    /// Sums numbers over all replicas, for a model that normalises batches over all of them.
    pub fn sum_over(&self) -> Box<SumOver> {
        let control = Arc::clone(&self.control);
        Box::new(move |values| {
            let bytes = bytemuck::cast_slice_mut(values);
            let reduction = phalanx_collective::Reduction::Sum;
            lock(&control).all_reduce(bytes, DType::F64, reduction, "statistics").map_err(|e| e.to_string())
        })
    }

    /// Tells all replicas what this one has to say of the step, and hears what follows from what all say.
    ///
    /// # Errors
    /// The group is over, or does not agree on the step.
    pub fn vote(&self, vote: &Vote) -> Result<(Vec<Vote>, Outcome), TrainError> {
        let gathered = lock(&self.control).all_gather(&vote.to_bytes(), DType::U8, "vote")?;
        let votes = Vote::all(&gathered.bytes)?;
        let outcome = count(&votes)?;
        Ok((votes, outcome))
    }

    /// Ends every call of the group, on every replica.
    pub fn aborters(&self) -> [Aborter; 2] {
        [self.exchange.aborter(), lock(&self.control).aborter()]
    }

    /// Brings every replica to the bytes that the root has.
    ///
    /// # Errors
    /// The group is over.
    pub fn broadcast(&self, root: usize, bytes: &mut [u8], name: &str) -> Result<(), CollectiveError> {
        lock(&self.control).broadcast(root, bytes, DType::U8, name)
    }
}

fn lock(group: &Mutex<SharedGroup>) -> std::sync::MutexGuard<'_, SharedGroup> {
    // A group whose call panicked is failed and says so itself.
    group.lock().unwrap_or_else(PoisonError::into_inner)
}
