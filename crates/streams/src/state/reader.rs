use super::{FactError, Loose, SamplePlace, Upload, Uploads};
use crate::bugs::{StreamBug, planted};
use crate::cursor::{Cursor, PassOrder};
use crate::fact::{Fact, ReaderEnding};
use crate::reservoir::Reservoir;
use crate::settings::{ReadMode, ReaderSettings};
use phalanx_types::{Epoch, Incarnation, ReaderId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// How many sealed passes are remembered, so that a run that goes back to a checkpoint sees the same samples again.
const HISTORY: usize = 4096;

/// What is remembered of a reader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReaderState {
    incarnation: Incarnation,
    settings: ReaderSettings,
    /// The first sample it uses.
    start: u64,
    epoch: Epoch,
    cursor: Option<Cursor>,
    ending: Option<ReaderEnding>,
    /// Base and horizon of its passes by number, if samples are kept.
    sealed: BTreeMap<u64, (u64, u64)>,
    /// Base and horizon of passes that were sealed before all steps of the current one were committed.
    ahead: VecDeque<(u64, u64)>,
    /// What the next pass draws from, in mode `reservoir`.
    reservoir: Option<Reservoir>,
    /// What the current pass draws from, in mode `reservoir`.
    drawn: Vec<u64>,
    /// By the first sample of an upload: how many uses of its samples are to come. Only if samples are freed.
    needs: BTreeMap<u64, u64>,
    frees: bool,
}

impl ReaderState {
    pub(super) fn new(incarnation: Incarnation, settings: ReaderSettings, start: u64, frees: bool) -> Self {
        let reservoir = match settings.mode {
            ReadMode::Reservoir { capacity, .. } => Some(Reservoir::new(settings.seed, capacity, start)),
            ReadMode::Static | ReadMode::Grow { .. } | ReadMode::Once { .. } => None,
        };
        Self {
            incarnation,
            settings,
            start,
            epoch: Epoch(0),
            cursor: None,
            ending: None,
            sealed: BTreeMap::new(),
            ahead: VecDeque::new(),
            reservoir,
            drawn: Vec::new(),
            needs: BTreeMap::new(),
            frees,
        }
    }

    /// The newest of its lives.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// How it uses the samples.
    pub fn settings(&self) -> &ReaderSettings {
        &self.settings
    }

    /// The first sample it uses.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The epoch of its trainers.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Where it stands; `None` before its first pass.
    pub fn cursor(&self) -> Option<Cursor> {
        self.cursor
    }

    /// The last pass that was sealed.
    pub fn last_sealed(&self) -> Option<Cursor> {
        self.passes_ahead().last().or(self.cursor)
    }

    /// Passes that were sealed and come after the current one.
    pub fn passes_ahead(&self) -> impl DoubleEndedIterator<Item = Cursor> {
        let current = self.cursor;
        self.ahead.iter().enumerate().filter_map(move |(at, (base, horizon))| {
            let Cursor { seed, pass, .. } = current?;
            Some(Cursor { seed, pass: pass + 1 + at as u64, base: *base, horizon: *horizon, step: 0 })
        })
    }

    /// A pass that was sealed, if that is remembered: at its committed step if it is the current one.
    pub fn sealed_pass(&self, pass: u64) -> Option<Cursor> {
        let current = self.cursor.filter(|cursor| cursor.pass == pass);
        let ahead = || self.passes_ahead().find(|cursor| cursor.pass == pass);
        current.or_else(ahead).or_else(|| {
            let (base, horizon) = self.sealed(pass)?;
            Some(Cursor { seed: self.settings.seed, pass, base, horizon, step: 0 })
        })
    }

    /// Whether the next pass can be sealed before all steps of the current one are committed.
    pub(crate) fn may_seal_ahead(&self) -> bool {
        matches!(self.settings.mode, ReadMode::Once { .. }) && self.ahead.len() < HISTORY
    }

    /// Why it needs no more samples, if so.
    pub fn ending(&self) -> Option<ReaderEnding> {
        self.ending
    }

    /// The current pass, if it has steps left.
    pub fn open_pass(&self) -> Option<(Cursor, PassOrder)> {
        let cursor = self.cursor?;
        let pass = cursor.pass(&self.settings);
        (cursor.step < pass.steps()).then_some((cursor, pass))
    }

    /// The sample at a position of the current pass, by order of arrival.
    pub fn sample(&self, pass: &PassOrder, position: u64) -> Option<u64> {
        match self.settings.mode {
            ReadMode::Static | ReadMode::Grow { .. } | ReadMode::Once { .. } => pass.sample(position),
            ReadMode::Reservoir { .. } => {
                let slot = usize::try_from(pass.slot(position)?).ok()?;
                self.drawn.get(slot).copied()
            }
        }
    }

    /// Where the samples of a step of the current pass lie, by position.
    pub fn places(&self, uploads: &Uploads, step: u64) -> Vec<Option<SamplePlace>> {
        let Some(cursor) = self.cursor else { return Vec::new() };
        let pass = cursor.pass(&self.settings);
        let sample = |position| self.sample(&pass, position);
        pass.positions(step).map(|position| uploads.place(sample(position)?)).collect()
    }

    /// Base and horizon of a pass that was sealed before, if that is remembered.
    pub(crate) fn sealed(&self, pass: u64) -> Option<(u64, u64)> {
        self.sealed.get(&pass).copied()
    }

    /// Samples in the reservoir, each of which is needed for the next pass.
    pub(crate) fn reservoir(&self) -> Option<&[u64]> {
        self.reservoir.as_ref().map(Reservoir::slots)
    }

    /// Samples that the current pass draws from in mode `reservoir`.
    pub(crate) fn drawn(&self) -> &[u64] {
        &self.drawn
    }

    /// Whether samples are kept for it: it has not closed and was not released.
    pub(crate) fn keeps_samples(&self) -> bool {
        !matches!(self.ending, Some(ReaderEnding::Closed | ReaderEnding::Released))
    }

    /// How many uses of samples of this upload are to come.
    pub(crate) fn needs_of(&self, first: u64) -> u64 {
        self.needs.get(&first).copied().unwrap_or(0)
    }

    /// How many uses of samples are to come.
    pub(crate) fn needs(&self) -> &BTreeMap<u64, u64> {
        &self.needs
    }

    pub(super) fn upload_arrived(&mut self, upload: &Upload, uploads: &Uploads, loose: &mut Loose) {
        if self.ending.is_some() || upload.first < self.start {
            return;
        }
        match self.settings.mode {
            ReadMode::Static | ReadMode::Grow { .. } => {}
            ReadMode::Once { .. } => {
                if self.frees {
                    self.needs.insert(upload.first, u64::from(upload.samples));
                }
            }
            ReadMode::Reservoir { .. } => {
                let Some(mut reservoir) = self.reservoir.take() else { return };
                reservoir.offer_until(upload.end(), |came, left| {
                    self.need(uploads, came);
                    if let Some(left) = left {
                        self.release(uploads, left, loose);
                    }
                });
                self.reservoir = Some(reservoir);
            }
        }
    }

    pub(super) fn apply(
        &mut self,
        fact: &Fact,
        uploads: &Uploads,
        loose: &mut Loose,
    ) -> Result<(), FactError> {
        match fact {
            Fact::ReaderRenewed { incarnation, rewind, .. } => {
                self.incarnation = *incarnation;
                if !self.frees {
                    self.ending = None;
                }
                if let Some(cursor) = rewind {
                    self.cursor = Some(*cursor);
                    self.draw(uploads, loose);
                }
            }
            Fact::Regrouped { epoch, .. } => self.epoch = *epoch,
            Fact::PassSealed { base, horizon, .. } if self.open_pass().is_some() && self.frees => {
                self.ahead.push_back((*base, *horizon));
            }
            Fact::PassSealed { pass, base, horizon, .. } => {
                let cursor =
                    Cursor { seed: self.settings.seed, pass: *pass, base: *base, horizon: *horizon, step: 0 };
                self.cursor = Some(cursor);
                if !self.frees {
                    self.sealed.insert(*pass, (*base, *horizon));
                    if self.sealed.len() > HISTORY {
                        self.sealed.pop_first();
                    }
                }
                self.draw(uploads, loose);
            }
            Fact::StepsCommitted { reader, steps } => self.commit(reader, *steps, uploads, loose)?,
            Fact::ReaderFinished { ending, .. } => {
                self.ending = Some(*ending);
                loose.extend(std::mem::take(&mut self.needs).into_keys());
                if self.frees {
                    self.reservoir = None;
                    self.drawn = Vec::new();
                    self.ahead = VecDeque::new();
                }
            }
            Fact::ProducerOpened { .. }
            | Fact::UploadAccepted { .. }
            | Fact::ProducerClosed { .. }
            | Fact::StreamEnded
            | Fact::ReaderRegistered { .. }
            | Fact::UploadShrunk { .. }
            | Fact::UploadFreed { .. } => {}
        }
        Ok(())
    }

    fn commit(
        &mut self,
        reader: &ReaderId,
        steps: u64,
        uploads: &Uploads,
        loose: &mut Loose,
    ) -> Result<(), FactError> {
        let wrong = |cursor: Option<Cursor>| {
            let pass = cursor.map_or(0, |cursor| cursor.pass);
            FactError::Place { reader: reader.clone(), pass, step: steps }
        };
        let Some((cursor, pass)) = self.open_pass() else { return Err(wrong(self.cursor)) };
        if steps <= cursor.step || steps > pass.steps() {
            return Err(wrong(self.cursor));
        }
        let next = match steps == pass.steps() {
            true => self.passes_ahead().next(),
            false => None,
        };
        if next.is_some() {
            self.ahead.pop_front();
        }
        self.cursor = Some(next.unwrap_or(cursor.at(steps)));
        if !self.frees {
            return Ok(());
        }
        match self.settings.mode {
            ReadMode::Static | ReadMode::Grow { .. } => {}
            ReadMode::Once { .. } => {
                for position in (cursor.step..steps).flat_map(|step| pass.positions(step)) {
                    if let Some(sample) = pass.sample(position) {
                        self.release(uploads, sample, loose);
                    }
                }
            }
            ReadMode::Reservoir { .. } => {
                let over = steps == pass.steps() || planted(StreamBug::FreesReservoirEarly);
                for sample in if over { std::mem::take(&mut self.drawn) } else { Vec::new() } {
                    self.release(uploads, sample, loose);
                }
            }
        }
        Ok(())
    }

    /// Takes what the current pass draws from.
    fn draw(&mut self, uploads: &Uploads, loose: &mut Loose) {
        let (Some(reservoir), Some(cursor)) = (&self.reservoir, self.cursor) else { return };
        let new = if reservoir.horizon() == cursor.horizon {
            reservoir.slots().to_vec()
        } else {
            // A pass that was sealed in an earlier life is repeated with what was in the reservoir then.
            let ReadMode::Reservoir { capacity, .. } = self.settings.mode else { return };
            Reservoir::at(self.settings.seed, capacity, self.start, cursor.horizon).slots().to_vec()
        };
        new.iter().for_each(|sample| self.need(uploads, *sample));
        for sample in std::mem::replace(&mut self.drawn, new) {
            self.release(uploads, sample, loose);
        }
    }

    fn need(&mut self, uploads: &Uploads, sample: u64) {
        if !self.frees {
            return;
        }
        if let Some(upload) = uploads.holding(sample) {
            *self.needs.entry(upload.first).or_default() += 1;
        }
    }

    fn release(&mut self, uploads: &Uploads, sample: u64, loose: &mut Loose) {
        if !self.frees {
            return;
        }
        let Some(first) = uploads.holding(sample).map(|upload| upload.first) else { return };
        if let Some(count) = self.needs.get_mut(&first) {
            *count -= 1;
            if *count == 0 {
                self.needs.remove(&first);
            }
        }
        loose.insert(first);
    }
}
