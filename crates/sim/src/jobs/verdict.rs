//! What must hold when nothing is left to happen.

use super::Outcomes;
use super::journal::Record;
use super::plan::{Behaviour, PLENTY};
use super::world::World;
use phalanx_jobs::core::Outcome;
use phalanx_types::{JobId, Time};
use phalanx_wire::reason::{FailReason, LostInput};
use std::time::Duration;

/// How late the shell may come to look at a deadline.
const LATE: Duration = Duration::from_millis(1);

impl World {
    pub(super) fn outcomes(&self) -> Outcomes {
        let mut sum = Outcomes::default();
        for record in self.mains.iter().flat_map(|m| m.journal.records()) {
            sum.submitted += 1;
            match &record.outcome {
                Some((_, Outcome::Solved(_) | Outcome::Kept { .. })) => sum.solved += 1,
                Some((_, Outcome::Failed(_))) => sum.failed += 1,
                Some((_, Outcome::Cancelled)) => sum.cancelled += 1,
                Some((_, Outcome::Expired)) => sum.expired += 1,
                None => {}
            }
        }
        sum
    }

    /// Judges the quiet cluster.
    pub(super) fn verdict(&mut self) {
        self.check_books();
        let wrong = self.wrong_jobs().or_else(|| self.wrong_counts()).or_else(|| self.wrong_workers());
        if let Some(what) = wrong {
            self.violate(what);
        }
    }

    /// Names the first job without an outcome, for a cluster that does not come to rest.
    pub(super) fn what_is_stuck(&self) -> String {
        self.pending().unwrap_or_else(|| "every job ended but the cluster does not come to rest".to_owned())
    }

    fn pending(&self) -> Option<String> {
        for (main, node) in self.mains.iter().enumerate() {
            let Some(at) = node.journal.records().iter().position(|r| r.outcome.is_none()) else { continue };
            let info = node.core.as_ref().and_then(|c| c.info(self.now, JobId(at as u64 + 1)));
            return Some(format!("m{main}: job {} never ends: {info:?}", at + 1));
        }
        None
    }

    fn wrong_jobs(&self) -> Option<String> {
        if let Some(pending) = self.pending().or_else(|| self.still_wanted()) {
            return Some(pending);
        }
        for (main, node) in self.mains.iter().enumerate() {
            for (at, record) in node.journal.records().iter().enumerate() {
                if let Some(what) = self.wrong_outcome(record, node.life) {
                    return Some(format!("m{main}: job {} {what}", at + 1));
                }
            }
        }
        None
    }

    /// Why this outcome is not one the job may have.
    fn wrong_outcome(&self, record: &Record, lives: u64) -> Option<String> {
        let plan = &self.plan.jobs[record.plan];
        let (at, outcome) = record.outcome.as_ref()?;
        let deadline = plan.spec.deadline.map_or(Time::NEVER, |d| record.submitted + d);
        let max = plan.spec.max_attempts;
        let right = match outcome {
            Outcome::Expired => *at >= deadline,
            Outcome::Cancelled => plan.cancel_at.is_some(),
            Outcome::Solved(parcel) => {
                *parcel == plan.solution
                    && matches!(plan.behaviour, Behaviour::Solves | Behaviour::FailsTimes(_))
            }
            Outcome::Kept { len } => {
                let solves = matches!(plan.behaviour, Behaviour::Solves | Behaviour::FailsTimes(_));
                plan.spec.keep && *len == plan.solution.len() && solves
            }
            Outcome::Failed(FailReason::InputFailed { job, .. }) => self.is_unsolved(plan.main, *job),
            // With few attempts two nodes that do not reach each other are reason enough; what takes the solution of
            // such a job fails for the same reason, however many attempts it has itself.
            Outcome::Failed(FailReason::InputLost { why: LostInput::Unreachable { .. }, .. }) => {
                max < PLENTY || record.inputs.iter().any(|input| self.ends_as(plan.main, *input, outcome))
            }
            Outcome::Failed(FailReason::InputLost { .. }) => false,
            Outcome::Failed(FailReason::NodesLost { attempts, nodes }) => {
                let may = matches!(plan.behaviour, Behaviour::Poison | Behaviour::FailsAlways);
                may && *attempts == max && nodes.len() <= max as usize
            }
            Outcome::Failed(FailReason::Handler { .. }) => {
                matches!(plan.behaviour, Behaviour::FailsForGood | Behaviour::FailsAlways)
            }
            Outcome::Failed(FailReason::Raised(_)) => false,
            Outcome::Failed(FailReason::Panicked { .. } | FailReason::Unreadable { .. }) => {
                plan.behaviour == Behaviour::FailsAlways && plan.large.1
            }
        };
        if !right {
            return Some(format!("ends as {outcome:?} but is {:?} of {max} attempts", plan.behaviour));
        }
        if *outcome != Outcome::Expired && *at > deadline + LATE {
            return Some(format!("ends as {outcome:?} at {at}, after its deadline {deadline}"));
        }
        // Once in each life of its main node it may take a worker down before anybody knows that
        // it runs, and once more when the main node dies too before it sees the loss.
        let most = max + 2 * lives as u32 - 1;
        (record.crashes > most).then(|| format!("took {} workers down, {most} were allowed", record.crashes))
    }

    fn ends_as(&self, main: usize, job: JobId, outcome: &Outcome) -> bool {
        let record = self.mains[main].journal.get(job);
        record.and_then(|r| r.outcome.as_ref()).is_some_and(|(_, other)| other == outcome)
    }

    pub(super) fn is_unsolved(&self, main: usize, job: JobId) -> bool {
        let record = self.mains[main].journal.get(job);
        let outcome = record.and_then(|r| r.outcome.as_ref());
        matches!(outcome, Some((_, Outcome::Failed(_) | Outcome::Cancelled | Outcome::Expired)))
    }

    fn wrong_counts(&self) -> Option<String> {
        for (main, node) in self.mains.iter().enumerate() {
            let counts = node.core.as_ref()?.counts();
            let recorded = node.journal.records().len() as u64;
            if counts.submitted != recorded || counts.ended() != recorded {
                return Some(format!("m{main}: {recorded} jobs in the journal, counted {counts:?}"));
            }
        }
        None
    }

    /// Workers must have let go of everything.
    fn wrong_workers(&self) -> Option<String> {
        for (worker, node) in self.workers.iter().enumerate() {
            let Some(core) = node.core.as_ref() else {
                return Some(format!("w{worker} is down after the heal phase"));
            };
            if node.draining {
                return Some(format!("w{worker} drains and never leaves"));
            }
            if !node.threads.is_empty() || core.running() > 0 {
                return Some(format!("w{worker} still runs {} jobs", core.running()));
            }
            if let Some((blob, _)) = node.blobs.first_key_value() {
                return Some(format!("w{worker} still keeps {blob}"));
            }
        }
        let held = |l: &&super::link::Link| l.worker_up && !l.cut && !l.held.is_empty();
        let link = self.links.iter().find(held)?;
        Some(format!("w{} still holds {:?} of m{}", link.worker, link.held, link.main))
    }
}
