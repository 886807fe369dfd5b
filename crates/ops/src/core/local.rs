//! One rank's knowledge of operations: which of them have numbers, which are under way.

use super::failure::OpFailure;
use super::messages::{OpKey, ToLeader, ToRank, UnitId};
use super::signature::{OpSignature, SetId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The name of an operation that this rank has under way already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DuplicateName;

/// One operation of a batch.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RunUnit {
    /// This rank has issued it.
    Issued { key: OpKey },
    /// This rank has joined and takes part without data.
    Joined { name: String, signature: OpSignature },
}

/// What the shell does because of a message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RankCommand {
    /// Compute these together.
    Run(Vec<RunUnit>),
    /// Tell the caller of an operation.
    Fail(SetId, OpFailure),
    /// Say this to the leader.
    Send(ToLeader),
    /// Tell the user that an operation waits.
    Report { name: String, missing: Vec<u32>, waited: Duration },
    /// End the call of join.
    AllJoined { last: u32 },
    /// A rank is lost.
    Lost { rank: u32 },
    /// The leader has shut down.
    LeaderLeft,
    /// The leader knows that this rank leaves.
    Goodbye,
    /// The leader said what makes no sense.
    Broken,
}

#[derive(Debug, Clone)]
struct Known {
    unit: UnitId,
    signature: OpSignature,
}

/// The core of one rank.
#[derive(Debug, Default)]
pub(crate) struct LocalRank {
    known: BTreeMap<OpKey, Known>,
    names: BTreeMap<UnitId, OpKey>,
    /// Operations that were issued and have not ended.
    outstanding: BTreeSet<OpKey>,
    joined: bool,
}

impl LocalRank {
    /// Notes an operation of this rank. Gives what the leader is told.
    pub(crate) fn issue(&mut self, name: &str, signature: &OpSignature) -> Result<ToLeader, DuplicateName> {
        let key = (signature.set, name.to_owned());
        let known = self.known.get(&key).filter(|known| known.signature.difference(signature).is_none());
        let message = match known {
            Some(known) => ToLeader::Ready { unit: known.unit },
            None => ToLeader::Announce { name: name.to_owned(), signature: signature.clone() },
        };
        if self.outstanding.insert(key) { Ok(message) } else { Err(DuplicateName) }
    }

    /// Notes that this rank has no more data. `None` if it has said so already.
    pub(crate) fn join(&mut self) -> Option<ToLeader> {
        (!std::mem::replace(&mut self.joined, true)).then_some(ToLeader::Join)
    }

    pub(crate) fn has_outstanding(&self) -> bool {
        !self.outstanding.is_empty() || self.joined
    }

    /// Takes a message of the leader.
    pub(crate) fn on_message(&mut self, message: ToRank) -> Option<RankCommand> {
        match message {
            ToRank::Define { unit, name, signature } => {
                let key = (signature.set, name);
                if let Some(old) = self.known.insert(key.clone(), Known { unit, signature }) {
                    self.names.remove(&old.unit);
                }
                self.names.insert(unit, key);
                None
            }
            ToRank::Forget { unit } => {
                if let Some(key) = self.names.remove(&unit) {
                    self.known.remove(&key);
                }
                Some(RankCommand::Send(ToLeader::Forgotten { unit }))
            }
            ToRank::Run { units } => Some(self.run(&units)),
            ToRank::Fail { set, failure } => {
                self.outstanding.remove(&(set, failure.name().to_owned()));
                Some(RankCommand::Fail(set, failure))
            }
            ToRank::Stalled { name, missing, waited } => Some(RankCommand::Report { name, missing, waited }),
            ToRank::AllJoined { last } => {
                self.joined = false;
                Some(RankCommand::AllJoined { last })
            }
            ToRank::Lost { rank } => Some(RankCommand::Lost { rank }),
            ToRank::Leave => Some(RankCommand::LeaderLeft),
            ToRank::Goodbye => Some(RankCommand::Goodbye),
        }
    }

    fn run(&mut self, units: &[UnitId]) -> RankCommand {
        let mut batch = Vec::with_capacity(units.len());
        for unit in units {
            let Some(key) = self.names.get(unit) else { return RankCommand::Broken };
            if self.outstanding.remove(key) {
                batch.push(RunUnit::Issued { key: key.clone() });
                continue;
            }
            match self.known.get(key).filter(|_| self.joined) {
                Some(known) => {
                    let (name, signature) = (key.1.clone(), known.signature.clone());
                    batch.push(RunUnit::Joined { name, signature });
                }
                None => return RankCommand::Broken,
            }
        }
        RankCommand::Run(batch)
    }
}
