//! How ranks exchange ballots at the end of a step or of a round.

use super::super::connector::broken;
use super::super::control_lane::ControlLane;
use super::Session;
use crate::error::RankError;
use phalanx_protocol::progress::Progress;
use phalanx_protocol::{Every, Outcome, Vote, VoteError, count};
pub(super) use phalanx_wire::ballot::Ballot;
use phalanx_wire::codec;

/// What all ranks said.
#[derive(Debug)]
pub(super) struct Ballots {
    pub(super) all: Vec<Ballot>,
    /// By step, then by rank.
    pub(super) votes: Vec<Vec<Vote>>,
    /// By step.
    pub(super) outcomes: Vec<Outcome>,
}

impl Ballots {
    /// Counts the ballots of all ranks, which have equally many votes.
    fn of(all: Vec<Ballot>) -> Result<Self, RankError> {
        let steps = all.first().map_or(0, |ballot| ballot.votes.len());
        let by_step = |step: usize| all.iter().map(|ballot| ballot.votes[step]).collect();
        let votes: Vec<Vec<Vote>> = (0..steps).map(by_step).collect();
        let outcomes = votes.iter().map(|votes| count(votes)).collect::<Result<_, VoteError>>()?;
        Ok(Self { all, votes, outcomes })
    }

    /// Whether a checkpoint is due by time, as all ranks find alike. While a part of the last one waits for the driver
    /// there is none: they would pile up.
    pub(super) fn are_late(&self, speaker: usize) -> bool {
        self.all.get(speaker).is_some_and(|ballot| ballot.late)
            && !self.all.iter().any(|ballot| ballot.saving)
    }
}

impl Session<'_, '_> {
    /// Tells all ranks what is to be said of these steps, and hears their ballots.
    pub(super) fn agree(&mut self, ballot: Ballot) -> Result<Ballots, RankError> {
        let by_time = matches!(self.worker.passes.plan().checkpoint, Every::Time(_));
        let is_late = |progress: &Progress| by_time && progress.is_late(self.spans.now());
        let late = self.progress.as_ref().is_some_and(is_late);
        let saving = by_time && self.worker.mailbox.is_saving(self.epoch);
        let (copying, missed) = (self.guard.is_copying(), self.guard.has_missed());
        let own = Ballot { copying, missed, asking: self.asking(), late, saving, ..ballot };
        exchange(&self.lane, own)
    }
}

/// Tells all ranks a ballot, and hears theirs.
pub(super) fn exchange(lane: &ControlLane, own: Ballot) -> Result<Ballots, RankError> {
    if lane.ranks() == 1 {
        return Ballots::of(vec![own]);
    }
    let mut bytes = bytes::BytesMut::new();
    codec::encode_into(&own, &mut bytes).map_err(|error| broken(error.to_string()))?;
    let gathered = lane.all_gather(&bytes, "vote")?;
    let mut all = Vec::with_capacity(lane.ranks());
    for rank in 0..lane.ranks() {
        let ballot = codec::decode::<Ballot>(gathered.part(rank).unwrap_or_default());
        let ballot = ballot.ok().filter(|ballot| ballot.votes.len() == own.votes.len());
        all.push(ballot.ok_or(VoteError::Bytes { rank })?);
    }
    Ballots::of(all)
}
