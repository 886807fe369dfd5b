//! What ranks tell each other at the end of a step or of a round.

use super::super::connector::broken;
use super::super::control_lane::ControlLane;
use super::Session;
use super::live_queries::Asking;
use crate::error::RankError;
use phalanx_protocol::progress::Progress;
use phalanx_protocol::{Every, Outcome, Vote, VoteError, count};
use phalanx_wire::codec;
use phalanx_wire::train::StageReport;
use serde::{Deserialize, Serialize};

/// What one rank says of the steps that it has computed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Ballot {
    /// One vote for every step.
    votes: Vec<Vec<u8>>,
    pub(super) report: StageReport,
    /// The copy of its state before is still on its way.
    pub(super) copying: bool,
    /// That copy was not made, or the neighbour does not keep it.
    pub(super) missed: bool,
    /// The sum of the squares of every parameter's gradient, in the order of names; only stages say it.
    pub(super) squares: Vec<f64>,
    /// A live query that is to be computed after this.
    pub(super) asking: Option<Asking>,
    /// By its clock a checkpoint is due after this. That of the speaker counts.
    pub(super) late: bool,
    /// The driver has not taken its part of the checkpoint before.
    pub(super) saving: bool,
}

impl Ballot {
    /// Of a group of one rank.
    fn alone(self) -> Result<Ballots, RankError> {
        let read = |bytes: &Vec<u8>| bytes.as_slice().try_into().ok().and_then(Vote::from_bytes);
        let votes: Option<Vec<Vec<Vote>>> = self.votes.iter().map(|bytes| Some(vec![read(bytes)?])).collect();
        let votes = votes.ok_or(VoteError::Bytes { rank: 0 })?;
        let outcomes = votes.iter().map(|votes| count(votes)).collect::<Result<Vec<_>, VoteError>>()?;
        Ok(Ballots { all: vec![self], votes, outcomes })
    }

    pub(super) fn new(votes: &[Vote], report: StageReport, squares: Vec<f64>) -> Self {
        let votes = votes.iter().map(|vote| vote.to_bytes().to_vec()).collect();
        let (copying, missed, late, saving) = (false, false, false, false);
        Self { votes, report, squares, copying, missed, asking: None, late, saving }
    }
}

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
        let by_time = matches!(self.plan.checkpoint, Every::Time(_));
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
        return own.alone();
    }
    let mut bytes = bytes::BytesMut::new();
    codec::encode_into(&own, &mut bytes).map_err(|error| broken(error.to_string()))?;
    let gathered = lane.all_gather(&bytes, "vote")?;
    let mut all = Vec::new();
    let mut by_rank = Vec::new();
    for rank in 0..lane.ranks() {
        let ballot: Ballot = codec::decode(gathered.part(rank).unwrap_or_default())
            .map_err(|_garbled| RankError::from(VoteError::Bytes { rank }))?;
        let read = |bytes: &Vec<u8>| bytes.as_slice().try_into().ok().and_then(Vote::from_bytes);
        let votes: Option<Vec<Vote>> = ballot.votes.iter().map(read).collect();
        by_rank.push(votes.filter(|votes| votes.len() == own.votes.len()).ok_or(VoteError::Bytes { rank })?);
        all.push(ballot);
    }
    let votes: Vec<Vec<Vote>> =
        (0..own.votes.len()).map(|step| by_rank.iter().map(|votes| votes[step]).collect()).collect();
    let outcomes = votes.iter().map(|votes| count(votes)).collect::<Result<Vec<_>, VoteError>>()?;
    Ok(Ballots { all, votes, outcomes })
}
