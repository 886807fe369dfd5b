//! How the deltas of all members of a round become their average.

use crate::control_lane::ControlLane;
use crate::error::RankError;
use crate::rings::Rings;
use phalanx_protocol::aggregate::weight;
use phalanx_train::round::Delta;
use std::collections::BTreeMap;

/// One member's end of a round. Members give first and take then, so they need no links to each other: a coordinator may
/// stand between them.
pub(crate) trait Combine {
    /// Hands over what this member learned from a number of samples; does not wait for other members.
    fn give(&mut self, own: Delta, samples: u64) -> Result<(), RankError>;

    /// Waits for the average of what all members gave, weighted by their samples.
    fn take(&mut self) -> Result<Delta, RankError>;
}

/// A rank that is linked to the other ranks: rings add up parameters over replicas, the control lane adds up
/// statistics over all ranks.
#[derive(Debug)]
pub(crate) struct Linked<'s> {
    pub(crate) rings: &'s mut Rings,
    pub(crate) lane: &'s ControlLane,
    /// Statistics of the whole model, in the order in which they travel, and how many values each has.
    pub(crate) buffers: &'s [(String, usize)],
    /// Samples of all members: ranks know them, because they share out batches.
    pub(crate) samples: u64,
    /// What this rank gave, by its weight.
    pub(crate) given: Delta,
}

impl Combine for Linked<'_> {
    fn give(&mut self, own: Delta, samples: u64) -> Result<(), RankError> {
        self.given = own;
        let Delta { parameters, optimizer, statistics } = &mut self.given;
        // Only what is averaged over all ranks may be here.
        statistics.retain(|name, _| self.buffers.iter().any(|(known, _)| known == name));
        let weight = weight(samples, self.samples);
        let all = [parameters, statistics].into_iter().chain(optimizer.values_mut());
        all.flat_map(BTreeMap::values_mut).flatten().for_each(|value| *value *= weight);
        Ok(())
    }

    fn take(&mut self) -> Result<Delta, RankError> {
        let mut all = std::mem::take(&mut self.given);
        self.rings.add_up(&mut all.parameters, false)?;
        for kept in all.optimizer.values_mut() {
            // A second moment that compression made negative would be the end of its parameter.
            self.rings.add_up(kept, true)?;
        }
        let mut flat: Vec<f64> = Vec::new();
        for (name, elements) in self.buffers {
            let end = flat.len() + elements;
            flat.extend(all.statistics.get(name).into_iter().flatten().map(|value| f64::from(*value)));
            flat.resize(end, 0.0);
        }
        if !flat.is_empty() {
            self.lane.all_reduce(&mut flat, "statistics of the round")?;
        }
        let mut rest = &flat[..];
        for (name, elements) in self.buffers {
            let (sums, others) = rest.split_at(*elements);
            let own = all.statistics.get_mut(name).into_iter().flatten();
            own.zip(sums).for_each(|(own, sum)| *own = *sum as f32);
            rest = others;
        }
        Ok(all)
    }
}
