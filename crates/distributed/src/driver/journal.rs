//! What replicas reported and what of it is sure to have happened.
//!
//! The first rank reports a step when it has applied it. Should it be lost then, the others may not have: so what it
//! said of its last step is held back until another follows, or until a new group says how far it is.

use crate::error::DistributedError;
use phalanx_protocol::progress::Plan;
use phalanx_records::ModelState;
use phalanx_records::Sums;
use phalanx_records::run_dir::{
    Manifest, ReplicaRecord, ReplicasRecord, StageRecord, StepRecord, ValidRecord,
};
use phalanx_records::{Book, samples_per_second};
use phalanx_records::{Event, Events};
use phalanx_train::Task;
use phalanx_types::{Epoch, NodeId};
use phalanx_wire::train::{Recorded, StepReport, ValidSums};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Reports that are held back, at most: a round has fewer steps.
const MOST_WAITING: usize = 1 << 21;

/// With so many steps after one that nobody has reported, nobody will.
const MOST_BEHIND: usize = 1024;

#[derive(Debug)]
enum Entry {
    Valid(ValidSums),
    /// A state of this step is on its way.
    Snapshot,
}

/// Reports on their way into the book.
#[derive(Debug)]
pub(super) struct Journal {
    /// What is in the book.
    recorded: Recorded,
    began_at: u64,
    /// Steps in whatever order they were reported: after a loss several ranks say what they remember.
    steps_waiting: BTreeMap<u64, StepReport>,
    /// By epoch: the nodes of its ranks.
    seats: BTreeMap<Epoch, Vec<String>>,
    /// What was reported after a step.
    waiting: VecDeque<(u64, Entry)>,
    /// Checkpoints whose states have not come yet, by step.
    drafts: BTreeMap<u64, Manifest>,
    /// States of steps that are not sure yet.
    states: BTreeMap<u64, ModelState>,
    /// Steps and their time since the epoch began.
    steps: u64,
    time: Duration,
    /// It has done a step already.
    warm: bool,
}

impl Journal {
    /// A run goes on after a step; it was validated last after `validated`.
    pub(super) fn new(step: u64, validated: u64) -> Self {
        Self {
            recorded: Recorded { step, validated, saved: step },
            began_at: step,
            steps_waiting: BTreeMap::new(),
            seats: BTreeMap::new(),
            waiting: VecDeque::new(),
            drafts: BTreeMap::new(),
            states: BTreeMap::new(),
            steps: 0,
            time: Duration::ZERO,
            warm: false,
        }
    }

    /// Steps that are in the book.
    pub(super) fn step(&self) -> u64 {
        self.recorded.step
    }

    /// What is in the book.
    pub(super) fn recorded(&self) -> Recorded {
        self.recorded
    }

    pub(super) fn has_begun(&self) -> bool {
        self.recorded.step > self.began_at
    }

    pub(super) fn on_step(&mut self, report: StepReport) {
        if report.step > self.recorded.step && self.steps_waiting.len() < MOST_WAITING {
            self.steps_waiting.entry(report.step).or_insert(report);
        }
    }

    /// Steps that are done again after a loss are not validated again.
    pub(super) fn on_valid(&mut self, step: u64, sums: ValidSums) {
        if step > self.recorded.validated {
            self.push(step, Entry::Valid(sums));
        }
    }

    /// A checkpoint says how long the records were when the run stood there: there is none of a step that is done
    /// again when more has been recorded, unless it was drafted the first time.
    pub(super) fn on_snapshot(&mut self, step: u64) {
        if step >= self.recorded.step {
            self.push(step, Entry::Snapshot);
        }
    }

    fn push(&mut self, step: u64, entry: Entry) {
        // A node that reports without end reports nothing that counts.
        if self.waiting.len() < MOST_WAITING {
            self.waiting.push_back((step, entry));
        }
    }

    /// A state has come. Nothing more will be reported of it when its group is over.
    pub(super) fn on_state(
        &mut self,
        step: u64,
        state: ModelState,
        over: bool,
        book: &mut Book,
        events: &mut Events<'_>,
    ) -> Result<(), DistributedError> {
        match self.drafts.remove(&step) {
            // What nodes held was saved meanwhile, and is not to give way to something older.
            Some(_) if step < self.recorded.saved => Ok(()),
            Some(manifest) => self.save(manifest, state, book, events),
            None if over || step < self.recorded.step => Ok(()),
            None => {
                self.states.insert(step, state);
                Ok(())
            }
        }
    }

    fn save(
        &mut self,
        manifest: Manifest,
        state: ModelState,
        book: &mut Book,
        events: &mut Events<'_>,
    ) -> Result<(), DistributedError> {
        self.on_saved(manifest.step);
        Ok(book.save(manifest, state, events)?)
    }

    /// A state does not come.
    pub(super) fn forget_draft(&mut self, step: u64) {
        self.drafts.remove(&step);
        self.waiting.retain(|(of, entry)| *of != step || !matches!(entry, Entry::Snapshot));
    }

    /// There is a checkpoint of a step.
    pub(super) fn on_saved(&mut self, step: u64) {
        self.recorded.saved = self.recorded.saved.max(step);
    }

    /// Forgets what was reported beyond the steps that are sure.
    pub(super) fn forget_the_rest(&mut self) {
        self.steps_waiting.clear();
        self.waiting.clear();
        self.states.clear();
    }

    /// A group begins, of these nodes in the order of their ranks.
    pub(super) fn begin_epoch(&mut self, epoch: Epoch, nodes: &[NodeId]) {
        self.seats.insert(epoch, nodes.iter().map(ToString::to_string).collect());
        (self.steps, self.time, self.warm) = (0, Duration::ZERO, false);
    }

    /// Milliseconds of a step since the epoch began.
    pub(super) fn step_ms(&self) -> Option<f64> {
        (self.steps > 0).then(|| self.time.as_secs_f64() * 1e3 / self.steps as f64)
    }

    /// Writes down everything up to a step.
    pub(super) fn commit(
        &mut self,
        upto: u64,
        plan: Plan,
        task: &Task,
        book: &mut Book,
        events: &mut Events<'_>,
    ) -> Result<(), DistributedError> {
        loop {
            while let Some((step, entry)) = self.waiting.pop_front_if(|(step, _)| *step <= self.recorded.step)
            {
                self.write(step, entry, plan, task, book, events)?;
            }
            if self.steps_waiting.len() >= MOST_BEHIND {
                self.close_gaps();
            }
            let next = self.recorded.step + 1;
            // What is missing will still be said by somebody who remembers it.
            let Some(report) = (next <= upto).then(|| self.steps_waiting.remove(&next)).flatten() else {
                return Ok(());
            };
            let nodes = self.seats.get(&report.epoch).map_or(&[][..], Vec::as_slice);
            let (record, samples, took) = record(&report, nodes);
            book.on_step(&record, samples, took)?;
            self.recorded.step = next;
            // The first step of a group also makes its buffers.
            if std::mem::replace(&mut self.warm, true) {
                self.steps += 1;
                self.time += took;
            }
            events.on(Event::Step(record));
        }
    }

    /// Writes down what was reported after a step.
    fn write(
        &mut self,
        step: u64,
        entry: Entry,
        plan: Plan,
        task: &Task,
        book: &mut Book,
        events: &mut Events<'_>,
    ) -> Result<(), DistributedError> {
        match entry {
            // Several may have said it.
            Entry::Valid(_) if step <= self.recorded.validated => {}
            Entry::Valid(sums) => {
                let ValidSums { samples, loss, metrics } = sums;
                let threads = phalanx_engine::Threads::new(1);
                let evaluation = task.evaluator(&threads).value(&Sums { samples, loss, metrics });
                let pass = (step.saturating_sub(1)) / plan.batches_per_pass.max(1) + 1;
                let record = ValidRecord::new(step, pass, evaluation);
                book.on_valid(&record)?;
                self.recorded.validated = step;
                events.on(Event::Validated(record));
            }
            Entry::Snapshot => {
                let manifest = book.draft(plan.place(step))?;
                match self.states.remove(&step) {
                    Some(state) => self.save(manifest, state, book, events)?,
                    None => drop(self.drafts.insert(step, manifest)),
                }
            }
        }
        Ok(())
    }

    /// Nobody is left who could say what is missing.
    pub(super) fn close_gaps(&mut self) {
        let next = self.steps_waiting.first_key_value().map_or(0, |(next, _)| next - 1);
        if next > self.recorded.step {
            tracing::warn!(
                from = self.recorded.step + 1,
                to = next,
                "nobody remembers what these steps were"
            );
            self.recorded.step = next;
        }
    }
}

/// A step as it stands in the records, its samples, and how long it took.
fn record(report: &StepReport, nodes: &[String]) -> (StepRecord, u64, Duration) {
    let samples: u64 = report.ranks.iter().map(|rank| u64::from(rank.samples)).sum();
    let took = Duration::from_micros(u64::from(report.took_us));
    let ms = |us: u32| f64::from(us) / 1e3;
    let replica = |(rank, of): (usize, &phalanx_wire::train::RankReport)| ReplicaRecord {
        node: nodes.get(rank).cloned().unwrap_or_else(|| format!("rank {rank}")),
        samples: of.samples,
        compute_ms: ms(of.compute_us),
        exchange_ms: ms(of.exchange_us),
        wait_ms: ms(of.wait_us),
        stage: of.stage.map(|stage| StageRecord {
            replica: stage.replica,
            stage: stage.stage,
            memory_bytes: stage.memory,
            link_bytes: stage.sent,
            idle_ms: ms(stage.idle_us),
            staleness: stage.staleness,
        }),
    };
    let replicas = ReplicasRecord {
        epoch: report.epoch.0,
        seen: format!("{:016x}", report.seen),
        hash: (report.hash != 0).then(|| format!("{:016x}", report.hash)),
        sent_bytes: report.sent,
        replicas: report.ranks.iter().enumerate().map(replica).collect(),
    };
    let record = StepRecord {
        step: report.step,
        pass: report.pass,
        loss: report.loss,
        lr: report.lr,
        grad_norm: report.grad_norm,
        samples_per_s: samples_per_second(samples, took),
        replicas: Some(replicas),
    };
    (record, samples, took)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_again_is_not_written_down_again() {
        let sums = || ValidSums { samples: 1, loss: 0.5, metrics: Vec::new() };
        let mut journal = Journal::new(20, 17);
        // The run has gone back to step 10.
        journal.on_valid(17, sums());
        journal.on_snapshot(15);
        assert!(journal.waiting.is_empty(), "{:?}", journal.waiting);
        journal.on_snapshot(20);
        journal.on_valid(34, sums());
        let steps: Vec<u64> = journal.waiting.iter().map(|(step, _)| *step).collect();
        assert_eq!(steps, [20, 34]);
    }
}
