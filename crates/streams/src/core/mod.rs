//! The state machine of one stream.
//!
//! Durable is what [`StreamState`] has. Everything else here is known only while the store runs: which clients are
//! connected, which uploads are on their way, who waits. A client that is connected again repeats its last request.

mod checks;
mod explain;
mod freeing;
mod group;
mod links;
mod overview;
mod passes;
mod producers;
mod readers;
mod runs;
mod ticks;
mod trainers;
mod uploads;

#[cfg(test)]
mod tests;

pub use explain::{ClientWait, WaitingClient};
pub use overview::{ProducerOverview, ProducerPresence, ReaderOverview, StreamOverview, TrainerOverview};
pub use runs::PassAnswer;

use crate::command::{StreamCommand, ToProducer, ToTrainer};
use crate::event::{ProducerLife, StreamEvent, TrainerLife};
use crate::fact::Fact;
use crate::state::{Loose, SamplePlace, StreamState};
use group::Group;
use links::{Held, Presence, ProducerLink};
use phalanx_types::{Outbox, ProducerId, ReaderId, Time};
use std::collections::{BTreeMap, VecDeque};

/// Where the commands go.
pub type StreamOutbox = Outbox<StreamCommand>;

/// The core of one stream: takes events, decides, and pushes commands.
#[derive(Debug, Clone)]
pub struct StreamCore {
    state: StreamState,
    links: BTreeMap<ProducerId, ProducerLink>,
    groups: BTreeMap<ReaderId, Group>,
    /// Uploads that wait for room, first come, first served.
    held: VecDeque<Held>,
    /// Bytes of uploads on their way.
    reserved: u64,
    /// Uploads that may be freed.
    loose: Loose,
}

impl StreamCore {
    /// A core that goes on from this state: a new one, or one recovered from a snapshot and a journal.
    ///
    /// All clients count as disconnected until they come again. Half-written uploads are forgotten; the shell drops
    /// every byte that is not of an upload in `state.uploads()`.
    pub fn new(now: Time, state: StreamState, out: &mut StreamOutbox) -> Self {
        let links = state.producers().keys().map(|id| (id.clone(), ProducerLink::lost(now))).collect();
        let groups = state.readers().keys().map(|id| (id.clone(), Group::new(now))).collect();
        let loose = state.uploads().iter().map(|upload| upload.first).collect();
        let mut core = Self { state, links, groups, held: VecDeque::new(), reserved: 0, loose };
        core.settle(now, out);
        core
    }

    /// What is remembered over a restart. It is as the journal will have it when every command so far is carried out.
    pub fn state(&self) -> &StreamState {
        &self.state
    }

    /// Where the samples of a step of a reader's current pass lie, by position; `None` for samples that are freed.
    pub fn places(&self, reader: &ReaderId, step: u64) -> Vec<Option<SamplePlace>> {
        self.state.reader(reader).map_or_else(Vec::new, |state| state.places(self.state.uploads(), step))
    }

    /// Tells the core what happened.
    pub fn on_event(&mut self, now: Time, event: StreamEvent, out: &mut StreamOutbox) {
        match event {
            StreamEvent::ProducerOpened { producer } => self.on_producer_opened(now, producer, out),
            StreamEvent::UploadBegun { producer, number, samples, bytes } => {
                self.on_upload_begun(now, Held::new(producer, number, samples, bytes), out);
            }
            StreamEvent::UploadCompleted { producer, number } => {
                self.on_upload_completed(now, &producer, number, out);
            }
            StreamEvent::UploadAborted { producer, number } => {
                self.on_upload_aborted(now, &producer, number, out);
            }
            StreamEvent::ProducerClosed { producer, uploads } => {
                self.on_producer_closed(now, &producer, uploads, out);
            }
            StreamEvent::ProducerHeard { producer } => self.on_producer_heard(now, &producer),
            StreamEvent::ProducerLost { producer } => self.on_producer_lost(now, &producer, out),
            StreamEvent::StreamSealed => self.end_stream(out),
            StreamEvent::ReaderOpened { reader, settings, resume } => {
                self.on_reader_opened(now, reader, settings, resume, out);
            }
            StreamEvent::ReaderClosed { reader } => self.on_reader_closed(now, &reader, out),
            StreamEvent::ReaderReleased { reader } => self.release_reader(now, &reader, out),
            StreamEvent::TrainerJoined { trainer } => self.on_trainer_joined(now, trainer, out),
            StreamEvent::StepsDone { trainer, epoch, pass, steps } => {
                self.on_steps_done(now, &trainer, epoch, pass, steps, out);
            }
            StreamEvent::PassWanted { reader, pass } => self.on_pass_wanted(&reader, pass, out),
            StreamEvent::RunCommitted { reader, pass, steps } => {
                self.on_run_committed(&reader, pass, steps, out);
            }
            StreamEvent::TrainerHeard { trainer } => self.on_trainer_heard(now, &trainer),
            StreamEvent::TrainerLeft { trainer } => self.on_trainer_left(now, &trainer, out),
            StreamEvent::TrainerLost { trainer } => self.on_trainer_lost(now, &trainer, out),
            StreamEvent::Ticked => self.on_ticked(now, out),
        }
        self.settle(now, out);
    }

    /// Draws all consequences: frees, admits, seals, and tells reasons that have changed.
    fn settle(&mut self, now: Time, out: &mut StreamOutbox) {
        loop {
            self.free_loose(out);
            self.admit_held(out);
            if !self.begin_passes(out) && !self.resolve_full_budget(out) {
                break;
            }
        }
        self.tell_waits(now, out);
    }

    fn record(&mut self, fact: Fact, out: &mut StreamOutbox) {
        let applied = self.state.apply_noting(&fact, &mut self.loose);
        debug_assert_eq!(applied, Ok(()), "the core decides only what fits: {fact:?}");
        out.push(StreamCommand::Record(fact));
    }

    fn is_here(&self, producer: &ProducerId) -> bool {
        self.links.get(producer).is_some_and(|link| matches!(link.presence, Presence::Here { .. }))
    }
}

fn tell_producer(producer: &ProducerLife, message: ToProducer, out: &mut StreamOutbox) {
    out.push(StreamCommand::TellProducer { producer: producer.clone(), message });
}

fn tell_trainer(trainer: TrainerLife, message: ToTrainer, out: &mut StreamOutbox) {
    out.push(StreamCommand::TellTrainer { trainer, message });
}
