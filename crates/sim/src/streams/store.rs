//! The store: the real core, a journal, and the bytes of samples.
//!
//! Commands wait until the facts before them are durable. When the store dies, facts that are not durable are lost
//! with the commands that waited for them.

use super::plan::Plan;
use super::world::{Event, Tag, World};
use phalanx_streams::{
    Fact, StreamCommand, StreamCore, StreamEvent, StreamOutbox, StreamReport, StreamState, ToProducer,
};
use phalanx_types::{ProducerId, Time, UploadSequence};
use std::collections::{BTreeMap, VecDeque};

/// The store and its disk.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) core: Option<StreamCore>,
    pub(super) out: StreamOutbox,
    /// The journal, of which the first `durable` facts survive.
    pub(super) journal: Vec<Fact>,
    pub(super) durable: usize,
    /// A snapshot and how many facts it has.
    pub(super) snapshot: (StreamState, usize),
    /// Commands, each with the length of the journal that must be durable before.
    pending: VecDeque<(usize, StreamCommand)>,
    flushing: bool,
    tick_at: Option<Time>,
    /// Samples of kept uploads by place in the upload; `None` where they were dropped.
    pub(super) samples: BTreeMap<UploadSequence, Vec<Option<Tag>>>,
    /// Bytes of each upload that is kept.
    sizes: BTreeMap<UploadSequence, (u64, usize)>,
    /// Uploads whose bytes are there and which do not count yet, by producer and number.
    staged: BTreeMap<(ProducerId, u64), Vec<Tag>>,
    /// Room that was promised, by producer and number.
    promised: BTreeMap<(ProducerId, u64), u64>,
}

impl Store {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            core: None,
            out: StreamOutbox::default(),
            journal: Vec::new(),
            durable: 0,
            snapshot: (StreamState::new(plan.settings.clone()), 0),
            pending: VecDeque::new(),
            flushing: false,
            tick_at: None,
            samples: BTreeMap::new(),
            sizes: BTreeMap::new(),
            staged: BTreeMap::new(),
            promised: BTreeMap::new(),
        }
    }

    /// The bytes on the disk and those that were promised room.
    fn bytes(&self) -> u64 {
        let kept = self.sizes.iter().map(|(sequence, (bytes, all))| {
            let kept = self.samples.get(sequence).map_or(0, |samples| samples.iter().flatten().count());
            (bytes * kept as u64).div_ceil(*all as u64)
        });
        kept.sum::<u64>() + self.promised.values().sum::<u64>()
    }
}

impl World {
    /// Tells the core, and carries out what it decides.
    pub(super) fn feed(&mut self, event: StreamEvent) {
        let Some(core) = &mut self.store.core else { return };
        core.on_event(self.now, event, &mut self.store.out);
        core.check_invariants();
        self.take_commands();
        self.check_waits();
        if !self.healed && self.plan.crash > 0 && self.dice.faults.chance(1, self.plan.crash) {
            self.crash_store();
        }
    }

    fn take_commands(&mut self) {
        let mut out = std::mem::take(&mut self.store.out);
        for command in out.drain() {
            self.trace.line(self.now, format_args!("  {command:?}"));
            self.trace.mix(1);
            match command {
                StreamCommand::Record(fact) => self.append(fact),
                command => {
                    let after = self.store.journal.len();
                    self.store.pending.push_back((after, command));
                }
            }
        }
        self.store.out = out;
        if self.plan.flush == 0 {
            self.flush();
        } else if !self.store.flushing && self.store.durable < self.store.journal.len() {
            self.store.flushing = true;
            let delay = self.dice.paces.micros(1..self.plan.flush);
            self.after(delay, Event::Flush);
        }
        self.carry_out();
        self.plan_tick();
    }

    fn append(&mut self, fact: Fact) {
        if let Fact::UploadAccepted { sequence, producer, number, samples, bytes } = &fact {
            let key = (producer.clone(), *number);
            let tags = self.store.staged.remove(&key).unwrap_or_default();
            if tags.len() != *samples as usize {
                self.violate(format!("{sequence} of {producer} counts without its samples"));
            }
            self.store.sizes.insert(*sequence, (bytes.0, tags.len().max(1)));
            self.store.samples.insert(*sequence, tags.into_iter().map(Some).collect());
            self.store.promised.remove(&key);
        }
        self.store.journal.push(fact.clone());
        self.audit_fact(&fact);
    }

    pub(super) fn flush(&mut self) {
        self.store.flushing = false;
        if self.store.core.is_none() {
            return;
        }
        self.store.durable = self.store.journal.len();
        if self.dice.paces.chance(1, 40)
            && let Some(core) = &self.store.core
        {
            self.store.snapshot = (core.state().clone(), self.store.durable);
        }
        self.carry_out();
    }

    fn carry_out(&mut self) {
        let durable = self.store.durable;
        while let Some((_, command)) = self.store.pending.pop_front_if(|(after, _)| *after <= durable) {
            self.carry_out_one(command);
        }
    }

    fn carry_out_one(&mut self, command: StreamCommand) {
        match command {
            StreamCommand::Record(_) => {}
            StreamCommand::TellProducer { producer, message } => {
                if let ToProducer::Admitted { number } = message {
                    self.promise_room(&producer.id, number);
                }
                self.answer_producer(&producer, message);
            }
            StreamCommand::TellReader { reader, message } => self.answer_driver(&reader, message),
            StreamCommand::TellTrainer { trainer, message } => self.answer_trainer(&trainer, message),
            StreamCommand::DiscardUpload { producer, number } => {
                self.store.staged.remove(&(producer.id.clone(), number));
                self.store.promised.remove(&(producer.id, number));
            }
            StreamCommand::ShrinkUpload { sequence, keep } => {
                self.counts.shrunk += 1;
                for (place, sample) in self.store.samples.entry(sequence).or_default().iter_mut().enumerate()
                {
                    if keep.binary_search(&(place as u32)).is_err() {
                        *sample = None;
                    }
                }
            }
            StreamCommand::FreeUpload { sequence } => {
                self.counts.freed += 1;
                self.store.samples.remove(&sequence);
                self.store.sizes.remove(&sequence);
            }
            StreamCommand::Report(StreamReport::WindowCut { .. }) => self.counts.cut_windows += 1,
            StreamCommand::Report(StreamReport::ReaderReleased { .. }) => self.counts.released += 1,
            StreamCommand::Report(report) => {
                assert!(!report.to_string().is_empty(), "a report has words");
            }
        }
    }

    fn promise_room(&mut self, producer: &ProducerId, number: u64) {
        let Some(index) = self.audit.producer_index(producer) else { return };
        let Some((_, bytes)) = self.plan.producers[index].uploads.get(number as usize) else { return };
        let core = self.store.core.as_ref();
        let has =
            core.is_some_and(|core| core.state().producers().get(producer).is_some_and(|p| p.has(number)));
        if has {
            return;
        }
        self.store.promised.insert((producer.clone(), number), *bytes);
        if let Some(budget) = self.plan.settings.budget
            && self.store.bytes() > budget.0
        {
            let bytes = self.store.bytes();
            self.violate(format!("{bytes} bytes are kept or promised, the budget is {}", budget.0));
        }
    }

    pub(super) fn bytes_arrived(&mut self, process: usize, number: u64) {
        if self.store.core.is_none() {
            return;
        }
        let producer = self.producers[process].life.clone();
        let index = self.producers[process].producer;
        let Some((samples, _)) = self.plan.producers[index].uploads.get(number as usize) else { return };
        let tags = (0..*samples).map(|place| (index, number, place)).collect();
        self.store.staged.insert((producer.id.clone(), number), tags);
        let before = self.counts.uploads;
        self.audit.uploading = Some(producer.clone());
        self.feed(StreamEvent::UploadCompleted { producer, number });
        self.audit.uploading = None;
        self.counts.repeated += u64::from(self.counts.uploads == before);
    }

    fn plan_tick(&mut self) {
        let next = self.store.core.as_ref().and_then(StreamCore::next_tick);
        if next.is_some_and(|next| self.store.tick_at.is_none_or(|at| next < at)) {
            let at = next.unwrap_or(self.now).max(self.now);
            self.store.tick_at = Some(at);
            self.queue.push(at, Event::Tick);
        }
    }

    pub(super) fn tick(&mut self) {
        if self.store.tick_at == Some(self.now) {
            self.store.tick_at = None;
        }
        let due =
            self.store.core.as_ref().and_then(StreamCore::next_tick).is_some_and(|next| next <= self.now);
        if due {
            self.feed(StreamEvent::Ticked);
        } else {
            self.plan_tick();
        }
    }

    /// Kills the store: what is not durable is lost.
    pub(super) fn crash_store(&mut self) {
        if self.store.core.take().is_none() {
            return;
        }
        self.trace.line(self.now, format_args!("the store dies"));
        self.counts.store_restarts += 1;
        self.counts.lost_facts += (self.store.journal.len() - self.store.durable) as u64;
        self.store.journal.truncate(self.store.durable);
        self.audit.forget(&self.plan, &self.store.journal);
        self.store.pending.clear();
        self.store.staged.clear();
        self.store.promised.clear();
        let delay = self.dice.faults.micros(100..400_000);
        self.after(delay, Event::StartStore);
    }

    pub(super) fn start_store(&mut self) {
        let (mut state, facts) = self.store.snapshot.clone();
        for fact in &self.store.journal[facts..] {
            state.apply(fact).expect("the journal fits its snapshot");
        }
        self.check_recovered(&state);
        let kept: Vec<UploadSequence> = state.uploads().iter().map(|upload| upload.sequence).collect();
        self.store.samples.retain(|sequence, _| kept.binary_search(sequence).is_ok());
        self.store.sizes.retain(|sequence, _| kept.binary_search(sequence).is_ok());
        let core = StreamCore::new(self.now, state, &mut self.store.out);
        core.check_invariants();
        self.store.core = Some(core);
        self.store.tick_at = None;
        self.take_commands();
        self.break_connections();
    }
}
