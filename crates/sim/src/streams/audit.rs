//! What must hold for the facts of the journal, kept apart from the core.

use super::plan::Plan;
use super::producers::producer_id;
use super::world::{Tag, World};
use phalanx_streams::{
    Assignment, Cursor, Fact, PartialBatch, ProducerLife, ReadMode, ReaderEnding, ReaderSettings, Reservoir,
    Retention,
};
use phalanx_types::{Epoch, Incarnation, ProducerId};
use std::collections::{BTreeMap, BTreeSet};

/// What the world knows of the journal, of clients, and of work done.
#[derive(Debug)]
pub(super) struct Audit {
    pub(super) books: Books,
    /// Uploads that a producer knows to count.
    pub(super) acknowledged: BTreeSet<(ProducerId, u64)>,
    /// By reader: its newest life that a driver knows of, and the cursors that its trainers were told.
    told: BTreeMap<usize, (Incarnation, Vec<Cursor>)>,
    /// Shares that were computed, by reader, epoch, pass and step: by rank, of so many.
    work: Work,
    /// The producer whose upload is being completed.
    pub(super) uploading: Option<ProducerLife>,
    pub(super) sealed_early: bool,
}

/// What follows from the facts.
#[derive(Debug, Default)]
pub(super) struct Books {
    /// Whether samples are freed.
    frees: bool,
    incarnations: BTreeMap<ProducerId, Incarnation>,
    uploads: BTreeSet<(ProducerId, u64)>,
    /// All samples in order of arrival, by the upload that brought them.
    pub(super) arrived: Vec<(ProducerId, u64, u32)>,
    pub(super) readers: BTreeMap<usize, Book>,
}

/// What follows from the facts on one reader.
#[derive(Debug)]
pub(super) struct Book {
    settings: ReaderSettings,
    start: u64,
    epoch: Epoch,
    pub(super) cursor: Option<Cursor>,
    /// Samples used in the current pass.
    used: BTreeSet<u64>,
    /// Every pass that was ever sealed, whatever was rewound since.
    sealed: BTreeMap<u64, (u64, u64)>,
    steps: u64,
    pub(super) ending: Option<ReaderEnding>,
    /// Samples used in all passes.
    pub(super) uses: u64,
    pub(super) rewound: bool,
}

impl Audit {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            books: Books::new(plan),
            acknowledged: BTreeSet::new(),
            told: BTreeMap::new(),
            work: BTreeMap::new(),
            uploading: None,
            sealed_early: false,
        }
    }

    pub(super) fn producer_index(&self, producer: &ProducerId) -> Option<usize> {
        producer.as_str().strip_prefix("sim-")?.parse().ok()
    }

    pub(super) fn acknowledged(&mut self, producer: ProducerId, number: u64) {
        self.acknowledged.insert((producer, number));
    }

    pub(super) fn opened(&mut self, reader: usize, incarnation: Incarnation) {
        let told = self.told.entry(reader).or_insert((incarnation, Vec::new()));
        if told.0 < incarnation {
            *told = (incarnation, Vec::new());
        }
    }

    /// A trainer was told to compute at this cursor.
    pub(super) fn assigned(&mut self, reader: usize, incarnation: Incarnation, cursor: Cursor) {
        self.opened(reader, incarnation);
        if let Some((newest, cursors)) = self.told.get_mut(&reader)
            && *newest == incarnation
            && cursors.last().is_none_or(|last| (last.pass, last.step) < (cursor.pass, cursor.step))
        {
            cursors.push(cursor);
        }
    }

    /// The cursors that trainers of the newest life were told, in order.
    pub(super) fn told(&self, reader: usize) -> Vec<Cursor> {
        self.told.get(&reader).map_or_else(Vec::new, |(_, cursors)| cursors.clone())
    }

    pub(super) fn newest_told(&self, reader: usize) -> Option<(Incarnation, Option<Cursor>)> {
        self.told.get(&reader).map(|(incarnation, cursors)| (*incarnation, cursors.last().copied()))
    }

    pub(super) fn worked(&mut self, reader: usize, task: Assignment, share: Vec<Tag>) {
        let work = self.work.entry((reader, task.epoch, task.cursor.pass, task.cursor.step)).or_default();
        work.insert(task.rank, (task.ranks, share));
    }

    /// How many steps of a reader are committed.
    pub(super) fn committed(&self, reader: usize) -> u64 {
        self.books.readers.get(&reader).map_or(0, |book| book.steps)
    }

    pub(super) fn next_upload(&self, producer: usize) -> u64 {
        let id = producer_id(producer);
        (0..).find(|number| !self.books.uploads.contains(&(id.clone(), *number))).unwrap_or(0)
    }

    /// The store died: only these facts are left.
    pub(super) fn forget(&mut self, plan: &Plan, journal: &[Fact]) {
        self.books = Books::new(plan);
        for fact in journal {
            // They were checked when they were new.
            let _checked = self.books.add(fact, None);
        }
        // Epochs that were lost are given again, to other work.
        let epochs: BTreeMap<usize, Epoch> =
            self.books.readers.iter().map(|(reader, book)| (*reader, book.epoch)).collect();
        self.work.retain(|(reader, epoch, _, _), _| epochs.get(reader).is_some_and(|newest| epoch <= newest));
    }
}

impl World {
    pub(super) fn audit_fact(&mut self, fact: &Fact) {
        if let (Fact::UploadAccepted { producer, .. }, Some(life)) = (fact, &self.audit.uploading) {
            let newest = self.audit.books.incarnations.get(producer);
            if newest.is_some_and(|newest| *newest > life.incarnation) {
                let what = format!("an upload of {life} counts, which is replaced by {newest:?}");
                return self.violate(what);
            }
        }
        match fact {
            Fact::UploadAccepted { .. } => self.counts.uploads += 1,
            Fact::PassSealed { .. } => self.counts.passes += 1,
            Fact::StepsCommitted { .. } => self.counts.steps += 1,
            _ => {}
        }
        let checked = self.audit.books.add(fact, Some(&self.audit.work));
        if let Err(what) = checked {
            self.violate(what);
        }
    }
}

/// Shares by reader, epoch, pass and step, then by rank, with the number of ranks.
type Work = BTreeMap<(usize, Epoch, u64, u64), BTreeMap<u32, (u32, Vec<Tag>)>>;

impl Books {
    fn new(plan: &Plan) -> Self {
        Self { frees: plan.settings.retention == Retention::Free, ..Self::default() }
    }

    fn add(&mut self, fact: &Fact, work: Option<&Work>) -> Result<(), String> {
        match fact {
            Fact::ProducerOpened { producer, incarnation } => {
                self.incarnations.insert(producer.clone(), *incarnation);
            }
            Fact::UploadAccepted { producer, number, samples, .. } => {
                if !self.uploads.insert((producer.clone(), *number)) {
                    return Err(format!("upload {number} of {producer} counts twice"));
                }
                self.arrived.extend((0..*samples).map(|place| (producer.clone(), *number, place)));
            }
            Fact::ReaderRegistered { reader, settings, start, .. } => {
                let book = Book {
                    settings: settings.clone(),
                    start: *start,
                    epoch: Epoch(0),
                    cursor: None,
                    used: BTreeSet::new(),
                    sealed: BTreeMap::new(),
                    steps: 0,
                    ending: None,
                    uses: 0,
                    rewound: false,
                };
                self.readers.insert(index(reader.as_str()), book);
            }
            Fact::ReaderRenewed { reader, rewind, .. } => {
                let frees = self.frees;
                let book = self.book(reader.as_str())?;
                book.ending = book.ending.filter(|_| frees);
                if let Some(cursor) = rewind {
                    book.rewound = true;
                    book.cursor = Some(*cursor);
                    book.refill();
                }
            }
            Fact::Regrouped { reader, epoch } => {
                let book = self.book(reader.as_str())?;
                if *epoch <= book.epoch {
                    return Err(format!("{reader} goes back to {epoch}"));
                }
                book.epoch = *epoch;
            }
            Fact::PassSealed { reader, pass, base, horizon } => {
                let arrived = self.arrived.len() as u64;
                self.book(reader.as_str())?.seal(*pass, *base, *horizon, arrived)?;
            }
            Fact::StepsCommitted { reader, steps } => self.commit(reader.as_str(), *steps, work)?,
            Fact::ReaderFinished { reader, ending } => self.book(reader.as_str())?.ending = Some(*ending),
            Fact::ProducerClosed { .. }
            | Fact::StreamEnded
            | Fact::UploadShrunk { .. }
            | Fact::UploadFreed { .. } => {}
        }
        Ok(())
    }

    fn book(&mut self, reader: &str) -> Result<&mut Book, String> {
        self.readers.get_mut(&index(reader)).ok_or_else(|| format!("{reader} is not registered"))
    }

    fn commit(&mut self, reader: &str, steps: u64, work: Option<&Work>) -> Result<(), String> {
        let at = index(reader);
        let Some(book) = self.readers.get_mut(&at) else { return Err(format!("{reader} is not registered")) };
        let Some(cursor) = book.cursor else { return Err(format!("{reader} commits without a pass")) };
        for step in cursor.step..steps {
            let batch = book.batch(cursor, step);
            for sample in &batch {
                if !book.used.insert(*sample) {
                    return Err(format!("{reader} uses sample {sample} twice in pass {}", cursor.pass));
                }
            }
            book.steps += 1;
            book.uses += batch.len() as u64;
            let Some(work) = work else { continue };
            let tag =
                |sample: u64| self.arrived.get(sample as usize).map(|(p, n, s)| (index(p.as_str()), *n, *s));
            let expected: Vec<Option<Tag>> = batch.iter().map(|sample| tag(*sample)).collect();
            let shares = work.get(&(at, book.epoch, cursor.pass, step));
            let ranks = shares.and_then(|shares| shares.values().next()).map_or(0, |(ranks, _)| *ranks);
            let all = shares.map_or(0, |shares| shares.values().filter(|(of, _)| *of == ranks).count());
            let done: Vec<Option<Tag>> = shares
                .iter()
                .flat_map(|shares| shares.values())
                .flat_map(|(_, tags)| tags)
                .copied()
                .map(Some)
                .collect();
            if all != ranks as usize || done != expected {
                return Err(format!(
                    "step {step} of pass {} of {reader} in {} is committed with {all} of {ranks} shares: {done:?} \
                     instead of {expected:?}",
                    cursor.pass, book.epoch
                ));
            }
        }
        book.cursor = Some(cursor.at(steps));
        Ok(())
    }
}

impl Book {
    /// The samples of a step, found without the core.
    fn batch(&self, cursor: Cursor, step: u64) -> Vec<u64> {
        let pass = cursor.pass(&self.settings);
        let positions = pass.positions(step);
        match self.settings.mode {
            ReadMode::Reservoir { capacity, .. } => {
                let reservoir = Reservoir::at(self.settings.seed, capacity, self.start, cursor.horizon);
                let slot = |position| pass.sample(position).map(|slot| slot - cursor.base);
                let sample = |position| reservoir.slots().get(slot(position)? as usize).copied();
                positions.filter_map(sample).collect()
            }
            ReadMode::Static | ReadMode::Grow { .. } | ReadMode::Once { .. } => {
                positions.filter_map(|position| pass.sample(position)).collect()
            }
        }
    }

    /// What is used of a pass at the cursor.
    fn refill(&mut self) {
        self.used.clear();
        if let Some(cursor) = self.cursor {
            self.used = (0..cursor.step).flat_map(|step| self.batch(cursor, step)).collect();
        }
    }

    fn seal(&mut self, pass: u64, base: u64, horizon: u64, arrived: u64) -> Result<(), String> {
        let next = self.cursor.map_or(0, |cursor| cursor.pass + 1);
        let last = self.cursor.map_or(self.start, |cursor| cursor.horizon);
        if let Some(cursor) = self.cursor {
            let plan = cursor.pass(&self.settings);
            let all = match (self.settings.partial, self.settings.mode) {
                (_, ReadMode::Reservoir { .. }) | (PartialBatch::Drop, _) => cursor.step == plan.steps(),
                (PartialBatch::Keep, _) => self.used.len() as u64 == cursor.horizon - cursor.base,
            };
            if !all {
                return Err(format!("pass {} ends with {} samples used", cursor.pass, self.used.len()));
            }
        }
        let first = if matches!(self.settings.mode, ReadMode::Once { .. }) { last } else { self.start };
        let known = self.sealed.get(&pass).copied();
        if pass != next || base != first || horizon > arrived || horizon <= base {
            return Err(format!("pass {pass} begins at {base}..{horizon} after pass {next} at {first}"));
        }
        if known.is_some_and(|known| known != (base, horizon)) {
            return Err(format!("pass {pass} had the horizon {known:?} and now has {horizon}"));
        }
        self.sealed.insert(pass, (base, horizon));
        self.cursor = Some(Cursor { seed: self.settings.seed, pass, base, horizon, step: 0 });
        self.used.clear();
        Ok(())
    }
}

fn index(name: &str) -> usize {
    name.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(usize::MAX)
}
