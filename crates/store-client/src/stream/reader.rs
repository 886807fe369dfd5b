//! Training runs.

use super::link::{StreamLink, is_lost, json, ms, or_none};
use super::{StreamError, StreamField, StreamSamples};
use crate::keys::Access;
use crate::store::Store;
use phalanx_streams::{Cursor, PassAnswer, ReaderSettings, StreamSettings};
use phalanx_types::{Incarnation, ReaderId};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long a request that needs no wait is tried again if the store is lost.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a training run reads a stream.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// The same after a restart of the run.
    pub reader: ReaderId,
    /// Which life of the run; the store counts them if it is not given.
    pub incarnation: Option<Incarnation>,
    /// Which samples in which batches.
    pub settings: ReaderSettings,
    /// The settings of the stream if it is new; if it is known with others, they are refused.
    pub stream: Option<StreamSettings>,
    /// Where the run goes on, from its checkpoint; after the last committed step if it is not given.
    pub resume: Option<Cursor>,
}

impl ReadOptions {
    /// A new run, or one that goes on after its last committed step.
    pub fn new(reader: ReaderId, settings: ReaderSettings) -> Self {
        Self { reader, incarnation: None, settings, stream: None, resume: None }
    }
}

/// A training run that reads a stream, in one of its processes.
///
/// A reader that is dropped without [`StreamReader::close`] is away: samples are kept for it, and a later
/// [`Store::read_stream`] goes on.
#[derive(Debug)]
pub struct StreamReader {
    link: StreamLink,
    reader: ReaderId,
    settings: ReaderSettings,
    /// Of the stream, if it is new.
    stream: Option<StreamSettings>,
    incarnation: Incarnation,
    owns: bool,
    cursor: Option<Cursor>,
    /// The pass that was asked for last, and the kind of reason that was given.
    told: Mutex<Option<(u64, &'static str)>>,
    samples: StreamSamples,
}

impl StreamReader {
    pub(super) fn open(store: &Store, stream: &str, options: ReadOptions) -> Result<Self, StreamError> {
        let link = StreamLink::of(store, stream, Access::Read)?.own()?;
        let ReadOptions { reader, incarnation, settings, stream, resume } = options;
        let opened = open(&link, &reader, incarnation, &settings, (&stream, resume))?;
        let (incarnation, cursor) = opened;
        let samples = StreamSamples::open(&link, &settings)?;
        let told = Mutex::new(None);
        Ok(Self { link, reader, settings, stream, incarnation, owns: true, cursor, told, samples })
    }

    pub(super) fn attach(
        store: &Store,
        stream: &str,
        reader: &ReaderId,
        within: Duration,
    ) -> Result<Self, StreamError> {
        let link = StreamLink::of(store, stream, Access::Read)?.own()?;
        let found = link.insist(
            Some(within),
            |wait| {
                let words = [reader.as_str().as_bytes(), ms(wait).as_bytes()].map(<[u8]>::to_vec);
                let answer = link.ask("ATTACH", &[&words[0], &words[1]], Some(wait))?;
                Ok(answer.is("ATTACHED").then_some(answer))
            },
            || Ok(()),
        )?;
        let found = found.ok_or(StreamError::NotThere { what: "the reader", within })?;
        let (incarnation, settings) = (Incarnation(found.number(0)?), found.json_at(1)?);
        let samples = StreamSamples::open(&link, &settings)?;
        Ok(Self {
            reader: reader.clone(),
            cursor: found.json_at(2)?,
            told: Mutex::new(None),
            stream: None,
            owns: false,
            link,
            settings,
            incarnation,
            samples,
        })
    }

    /// How the run reads.
    pub fn settings(&self) -> &ReaderSettings {
        &self.settings
    }

    /// Which life of the run this is.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Where the run went on when this was opened: after its last committed step, or where it resumed.
    pub fn cursor(&self) -> Option<Cursor> {
        self.cursor
    }

    /// The tensors of every upload; waits for the first upload.
    ///
    /// # Errors
    /// There was no upload in time, or the store cannot be reached.
    pub fn fields(&self, within: Duration) -> Result<Vec<StreamField>, StreamError> {
        self.samples.fields(within)
    }

    /// The samples of a pass, if it has begun. It begins the next pass when all is there that it needs, so passes are
    /// asked for in order; any process of the run may ask, and all get the same answer.
    ///
    /// Waits at most `within`, and tells a reason to wait at once if it is another than was told before.
    ///
    /// # Errors
    /// The run was replaced by a newer life, the pass is not the next one, or the store cannot be reached in time.
    pub fn pass(&self, pass: u64, within: Duration) -> Result<PassAnswer, StreamError> {
        let answer = self.link.insist(Some(within), |wait| self.ask_pass(pass, wait), || self.opened_again());
        match answer? {
            Some(answer) => Ok(answer),
            // The time was up while the store had nothing new to say.
            None => self.ask_pass_now(pass),
        }
    }

    pub(super) fn parts(&self) -> (&StreamLink, &ReaderId) {
        (&self.link, &self.reader)
    }

    fn opened_again(&self) -> Result<(), StreamError> {
        if !self.owns {
            return Ok(());
        }
        let again = (&self.stream, None);
        open(&self.link, &self.reader, Some(self.incarnation), &self.settings, again).map(|_opened| ())
    }

    fn ask_pass_now(&self, pass: u64) -> Result<PassAnswer, StreamError> {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let answered = self.ask_pass(pass, Duration::ZERO)?;
        answered.ok_or_else(|| super::link::unexpected("no answer about a pass"))
    }

    fn ask_pass(&self, pass: u64, wait: Duration) -> Result<Option<PassAnswer>, StreamError> {
        let told = *self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = told.filter(|(known, _)| *known == pass).map_or("-", |(_, kind)| kind);
        // Another process of the run may own the reader in a newer life.
        let incarnation = or_none(self.owns.then_some(self.incarnation.0));
        let (number, wait_ms) = (pass.to_string(), ms(wait));
        let words = [self.reader.as_str(), &incarnation, &number, seen, &wait_ms].map(str::as_bytes);
        let answer = self.link.ask("PASS", &words, Some(wait))?;
        if let Some(reason) = answer.wait()? {
            let kind = reason.kind();
            if kind == seen {
                return Ok(None);
            }
            *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some((pass, kind));
            return Ok(Some(PassAnswer::Waiting(reason)));
        }
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if answer.is("FINISHED") {
            return answer.json_at(0).map(PassAnswer::Finished).map(Some);
        }
        answer.json_at(0).map(PassAnswer::Sealed).map(Some)
    }

    /// Says that these steps of a pass, and all passes before it, will never be repeated: a checkpoint has them. In
    /// mode `once` their samples may be freed.
    ///
    /// # Errors
    /// This process does not own the reader, a newer life of the run does, or the store cannot be reached.
    pub fn commit(&self, pass: u64, steps: u64) -> Result<(), StreamError> {
        if !self.owns {
            return Err(StreamError::NotOwner);
        }
        let (incarnation, pass, steps) =
            (self.incarnation.0.to_string(), pass.to_string(), steps.to_string());
        let words = [self.reader.as_str(), &incarnation, &pass, &steps].map(str::as_bytes);
        let ask = |_wait| self.link.ask("COMMIT", &words, None).map(Some);
        self.link.insist(Some(PATIENCE), ask, || self.opened_again()).map(|_committed| ())
    }

    /// Reads the samples; threads and clones share what is mapped.
    pub fn samples(&self) -> StreamSamples {
        self.samples.clone()
    }

    /// Says that the run needs no more samples.
    ///
    /// # Errors
    /// A newer life of the run owns the reader, or the store cannot be reached.
    pub fn close(self) -> Result<(), StreamError> {
        if !self.owns {
            return Ok(());
        }
        let incarnation = self.incarnation.0.to_string();
        let words = [self.reader.as_str(), &incarnation].map(str::as_bytes);
        match self.link.ask("READERCLOSE", &words, None) {
            Err(error) if is_lost(&error) => self.link.ask("READERCLOSE", &words, None).map(|_closed| ()),
            other => other.map(|_closed| ()),
        }
    }
}

fn open(
    link: &StreamLink,
    reader: &ReaderId,
    incarnation: Option<Incarnation>,
    settings: &ReaderSettings,
    (stream, resume): (&Option<StreamSettings>, Option<Cursor>),
) -> Result<(Incarnation, Option<Cursor>), StreamError> {
    let incarnation = or_none(incarnation.map(|incarnation| incarnation.0));
    let or_dash = |encoded: Option<Vec<u8>>| encoded.unwrap_or_else(|| b"-".to_vec());
    let stream = or_dash(stream.as_ref().map(json).transpose()?);
    let resume = or_dash(resume.as_ref().map(json).transpose()?);
    let settings = json(settings)?;
    let words = [reader.as_str().as_bytes(), incarnation.as_bytes(), &settings, &stream, &resume];
    let answer = link.ask("READER", &words, None)?;
    Ok((Incarnation(answer.number(0)?), answer.json_at(1)?))
}
