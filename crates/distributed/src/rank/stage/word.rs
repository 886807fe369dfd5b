//! What stages tell each other at the end of a step or of several.

use super::super::lanes::broken;
use super::serve::Asking;
use super::session::Session;
use crate::error::DistributedError;
use phalanx_collective::Group;
use phalanx_protocol::{Outcome, Vote, VoteError, count};
use phalanx_types::DType;
use phalanx_wire::codec;
use phalanx_wire::train::StageReport;
use serde::{Deserialize, Serialize};

/// One stage's word on the steps that it has computed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Word {
    /// One vote for every step.
    votes: Vec<Vec<u8>>,
    pub(super) report: StageReport,
    /// The copy of its state before is still on its way.
    pub(super) copying: bool,
    /// That copy was not made, or nobody keeps it.
    pub(super) missed: bool,
    /// The sum of the squares of every parameter's gradient, in the order of names.
    pub(super) squares: Vec<f64>,
    /// What somebody asks the model, to be computed after this.
    pub(super) asking: Option<Asking>,
    /// By its clock a checkpoint is due after this. That of the first rank counts.
    pub(super) late: bool,
    /// The driver has not taken its part of the checkpoint before.
    pub(super) saving: bool,
}

impl Word {
    pub(super) fn new(votes: &[Vote], report: StageReport, squares: Vec<f64>) -> Self {
        let votes = votes.iter().map(|vote| vote.to_bytes().to_vec()).collect();
        let (copying, missed, late, saving) = (false, false, false, false);
        Self { votes, report, squares, copying, missed, asking: None, late, saving }
    }
}

/// What all stages said.
#[derive(Debug)]
pub(super) struct Words {
    pub(super) words: Vec<Word>,
    /// By step, then by rank.
    pub(super) votes: Vec<Vec<Vote>>,
    /// By step.
    pub(super) outcomes: Vec<Outcome>,
}

impl Words {
    /// Whether so much time has passed that a checkpoint is due, as all find alike. While a part of the last one waits
    /// for the driver there is none: they would pile up.
    pub(super) fn are_late(&self) -> bool {
        self.words.first().is_some_and(|word| word.late) && !self.words.iter().any(|word| word.saving)
    }
}

impl Session<'_> {
    /// Tells all stages what is to be said of these steps, and hears their words.
    pub(super) fn agree(&mut self, word: Word) -> Result<Words, DistributedError> {
        let now = self.spans.now();
        let late = self.progress.as_ref().is_some_and(|progress| progress.is_late(now));
        let saving = self.worker.control.is_saving(self.epoch);
        let (copying, missed) = (self.guard.is_copying(), self.guard.has_missed());
        let own = Word { copying, missed, asking: self.asking(), late, saving, ..word };
        exchange(&mut self.control, &own)
    }
}

/// Tells all stages a word, and hears theirs.
pub(super) fn exchange(control: &mut Group, own: &Word) -> Result<Words, DistributedError> {
    let mut bytes = bytes::BytesMut::new();
    codec::encode_into(own, &mut bytes).map_err(|error| broken(error.to_string()))?;
    let all = control.all_gather(&bytes, DType::U8, "vote")?;
    let mut words = Vec::new();
    let mut by_rank = Vec::new();
    for rank in 0..control.ranks() {
        let word: Word = codec::decode(all.part(rank).unwrap_or_default())
            .map_err(|_garbled| DistributedError::from(VoteError::Bytes { rank }))?;
        let read = |bytes: &Vec<u8>| bytes.as_slice().try_into().ok().and_then(Vote::from_bytes);
        let votes: Option<Vec<Vote>> = word.votes.iter().map(read).collect();
        by_rank.push(votes.filter(|votes| votes.len() == own.votes.len()).ok_or(VoteError::Bytes { rank })?);
        words.push(word);
    }
    let votes: Vec<Vec<Vote>> =
        (0..own.votes.len()).map(|step| by_rank.iter().map(|votes| votes[step]).collect()).collect();
    let outcomes = votes.iter().map(|votes| count(votes)).collect::<Result<Vec<_>, VoteError>>()?;
    Ok(Words { words, votes, outcomes })
}
