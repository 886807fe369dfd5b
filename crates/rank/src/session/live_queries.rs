//! Live queries: samples that the model computes between two steps while it is trained.
//!
//! ```text
//!   speaker: "I was asked about 100 samples" ─ ballot ─► all ranks
//!   first stage of its replica ── frames ──► … ──► last stage ── outputs ──► driver
//! ```
//! All ranks see the same ballots, so all do it after the same step. A model that cannot compute the samples says so,
//! and goes on learning.

use super::Session;
use crate::connector::broken;
use crate::error::RankError;
use crate::frame::{Carries, Head};
use crate::live_query::{Answer, LiveQuery, PASS, batches};
use crate::sync::Statistics;
use crate::worker::{Report, with_causes};
use phalanx_collective::Compression;
use phalanx_train::{Task, sample_shape};
use phalanx_wire::ballot::Asking;
use phalanx_wire::live::MAX_LIVE_BYTES;
use phalanx_wire::train::Activity;
use phalanx_wire::train_reason::QueryRefusal;
use std::ops::Range;
use std::time::Instant;

const SLOT: usize = 0;
/// In the place of what says which samples a frame is of: a stage before could not compute them.
const FAILED: u64 = u64::MAX;

/// Whether a live query can have been asked: it was checked before it came to the speaker.
pub(crate) fn is_sound(asking: &Asking, task: &Task) -> bool {
    let (graph, most) = (&task.graph, task.config.train.batch as u64);
    let ends = graph.inputs.iter().chain(&graph.outputs);
    let values = ends.map(|value| graph.shape(*value).at(1).iter().product::<usize>() as u64).max();
    let bytes = asking.samples.checked_mul(4 * values.unwrap_or(0));
    asking.batch <= most && bytes.is_some_and(|bytes| bytes <= MAX_LIVE_BYTES)
}

impl Session<'_, '_> {
    /// What this rank has to say of live queries: the speaker hears them.
    pub(super) fn asking(&mut self) -> Option<Asking> {
        if !self.speaks() {
            return None;
        }
        if self.query.is_none() {
            self.query = self.next_query();
        }
        let asking = |ask: &LiveQuery| Asking {
            number: ask.number,
            samples: ask.samples as u64,
            batch: ask.batch.min(self.worker.task.config.train.batch) as u64,
        };
        self.query.as_ref().map(asking)
    }

    fn next_query(&self) -> Option<LiveQuery> {
        let ask = self.worker.mailbox.take_query(self.epoch)?;
        let values = sample_shape(&self.worker.task.graph).map_or(0, |shape| shape.iter().product());
        if ask.has(values) {
            return Some(ask);
        }
        self.worker.say(ask.refuse(QueryRefusal::SampleSize { values: values as u64 }));
        None
    }

    /// Computes what was asked about in the ballots of the last step. `shared` says whether all replicas have the same
    /// statistics already.
    pub(super) fn answer(&mut self, shared: bool) -> Result<(), RankError> {
        let Some(asking) = self.asked.take() else { return Ok(()) };
        if !is_sound(&asking, &self.worker.task) {
            return Err(broken(format!("a live query of more than is allowed: {asking:?}")));
        }
        let ask = self.query.take();
        let began = self.spans.if_traced();
        // What a checkpoint of this step would hold; then training goes on with what it had.
        let apart = self.sync.statistics() == Statistics::Averaged && !shared;
        let own = apart.then(|| self.part.stepper.buffers(&self.part.graph));
        if apart {
            self.share_buffers()?;
        }
        let passed = match self.is_first_replica() {
            true => self.pass_through(asking, ask.as_ref()),
            false => Ok(()),
        };
        // Whatever became of it.
        if let Some(own) = own.filter(|own| !own.is_empty()) {
            self.part.stepper.set_buffers(own)?;
        }
        passed?;
        self.spans.end(Activity::Answer, self.at, began);
        self.last = Instant::now();
        Ok(())
    }

    fn pass_through(&mut self, asking: Asking, ask: Option<&LiveQuery>) -> Result<(), RankError> {
        let Asking { number, samples, batch } = asking;
        let step = self.at;
        let mut answer = Answer::default();
        let mut failed = false;
        for (index, range) in batches(samples as usize, batch as usize).enumerate() {
            let computed = match self.compute_asked(index, range.clone(), ask)? {
                Some(Ok(())) => !failed,
                Some(Err(error)) => {
                    if !failed {
                        let refusal = QueryRefusal::Failed { detail: with_causes(&error).into() };
                        self.worker.say(Report::NotComputed { number, refusal });
                    }
                    false
                }
                None => false,
            };
            failed |= !computed;
            if let Some(next) = &mut self.next {
                let (part, len) = (index as u32, range.len() as u32);
                let seen = if failed { FAILED } else { number };
                let head = Head { carries: Carries::Asked, part, len, step, seen, bytes: 0 };
                let part = &mut self.part;
                next.send(head, |bytes| {
                    if !failed {
                        part.pack_outputs(Compression::None, SLOT, bytes);
                    }
                })?;
            } else if !failed {
                let model = &self.part.stepper.model;
                answer.add(model.output(SLOT, 0), &model.output_shape(SLOT, 0));
            }
        }
        if self.next.is_none() && !failed {
            self.worker.say(answer.into_report(number, step));
        }
        Ok(())
    }

    /// Runs some samples forward; none, when a stage before could not.
    fn compute_asked(
        &mut self,
        index: usize,
        range: Range<usize>,
        ask: Option<&LiveQuery>,
    ) -> Result<Option<Result<(), RankError>>, RankError> {
        let len = range.len();
        if let Some(prev) = &mut self.prev {
            let frame = prev.recv()?;
            frame.expect(Carries::Asked, self.at, index, len)?;
            if frame.head.seen == FAILED {
                prev.recycle(frame);
                return Ok(None);
            }
            self.part.unpack_inputs(Compression::None, len, &frame)?;
            prev.recycle(frame);
            return Ok(Some(self.part.forward_received(SLOT, len, PASS)));
        }
        let Some(ask) = ask else { return Ok(None) };
        let forward = self.part.stepper.model.forward(SLOT, len, &[&ask.values(range)], PASS);
        Ok(Some(forward.map_err(RankError::from)))
    }
}
