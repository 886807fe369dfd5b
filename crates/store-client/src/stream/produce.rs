//! Appending uploads.

use super::StreamError;
use super::heartbeat::Heartbeat;
use super::link::{StreamLink, accepted, answer, json, ms, or_none, refused, unexpected};
use crate::StoreError;
use crate::keys::Access;
use crate::store::Store;
use phalanx_streams::{StreamSettings, StreamWait};
use phalanx_types::{Incarnation, ProducerId, Tensor};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Is told why a producer waits, whenever the reason changes.
pub type WaitObserver = Arc<dyn Fn(&StreamWait) + Send + Sync>;

/// How a stream is appended to.
#[derive(Clone)]
pub struct ProducerOptions {
    /// The same after a restart: uploads are counted by it.
    pub id: ProducerId,
    /// Which of its lives; the store counts them if it is not given.
    pub incarnation: Option<Incarnation>,
    /// The settings of the stream if it is new; if it is known with others, they are refused.
    pub settings: Option<StreamSettings>,
    /// How long an upload waits for room, and a lost store is tried again; for ever if it is not given.
    pub patience: Option<Duration>,
    /// Is told why an upload waits.
    pub on_wait: Option<WaitObserver>,
}

impl fmt::Debug for ProducerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProducerOptions")
            .field("id", &self.id)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

impl ProducerOptions {
    /// A producer of this name that waits for ever.
    pub fn new(id: ProducerId) -> Self {
        Self { id, incarnation: None, settings: None, patience: None, on_wait: None }
    }
}

/// What the store says to a producer that opens a stream.
#[derive(Debug)]
struct Opened {
    incarnation: Incarnation,
    next: u64,
    closed: bool,
    /// A producer that says nothing for so long is lost.
    silence: Option<Duration>,
}

/// A program that appends uploads to a stream. One that is dropped without [`Producer::close`] counts as lost.
///
/// ```no_run
/// use phalanx_store_client::{ProducerOptions, Store, StoreOptions};
/// use phalanx_types::{ProducerId, Tensor};
///
/// let store = Store::connect("127.0.0.1:6780", StoreOptions::default())?;
/// let mut producer = store.produce("training_data", ProducerOptions::new(ProducerId::new("sim-1")?))?;
/// // A restarted program makes the samples again that have not arrived.
/// for step in producer.next()..100 {
///     let x = Tensor::from_f32(vec![32, 3], &[step as f32; 96])?;
///     producer.put(&[("x", &x)])?;
/// }
/// producer.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Producer {
    link: StreamLink,
    options: ProducerOptions,
    incarnation: Incarnation,
    next: u64,
    closed: bool,
    /// Until it is closed or dropped.
    heartbeat: Option<Heartbeat>,
}

impl Producer {
    pub(super) fn open(store: &Store, stream: &str, options: ProducerOptions) -> Result<Self, StreamError> {
        let link = StreamLink::of(store, stream, Access::Write)?.own()?;
        let first = Incarnation(0);
        let mut producer =
            Self { link, incarnation: first, next: 0, closed: false, options, heartbeat: None };
        let opened = producer.opened(producer.options.incarnation)?;
        let Opened { incarnation, next, closed, silence } = opened;
        producer.heartbeat = silence
            .filter(|_| !closed)
            .map(|silence| Heartbeat::start(&producer.link, &producer.options.id, incarnation, silence));
        (producer.incarnation, producer.next, producer.closed) = (incarnation, next, closed);
        Ok(producer)
    }

    fn opened(&self, incarnation: Option<Incarnation>) -> Result<Opened, StreamError> {
        let settings = match &self.options.settings {
            Some(settings) => json(settings)?,
            None => b"-".to_vec(),
        };
        let incarnation = or_none(incarnation.map(|incarnation| incarnation.0));
        let words = [self.options.id.as_str().as_bytes(), incarnation.as_bytes(), &settings];
        let answer = self.link.ask("PRODUCER", &words, None)?;
        // A store of an earlier version does not say how long a producer may be silent.
        let silence = answer.number(3).ok().filter(|silence| *silence > 0).map(Duration::from_millis);
        Ok(Opened {
            incarnation: Incarnation(answer.number(0)?),
            next: answer.number(1)?,
            closed: answer.number(2)? != 0,
            silence,
        })
    }

    /// The number of the next upload: after a restart, of the first that has not arrived.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Whether it has closed in an earlier life: there is nothing left to do.
    pub fn has_closed(&self) -> bool {
        self.closed
    }

    /// Which of its lives this is.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Appends an upload: tensors whose first dimension counts samples. Waits under back-pressure, and while the store is
    /// full as long as its client has patience. Gives the number of the upload; when this returns, the upload counts,
    /// once.
    ///
    /// # Errors
    /// There was no room in time, the tensors do not fit the stream, or the stream has ended.
    pub fn put(&mut self, fields: &[(&str, &Tensor)]) -> Result<u64, StreamError> {
        self.put_within(fields, self.options.patience)
    }

    /// The same with another patience. An upload that had to wait longer may be tried again, and counts once.
    ///
    /// # Errors
    /// As [`Producer::put`].
    pub fn put_within(
        &mut self,
        fields: &[(&str, &Tensor)],
        patience: Option<Duration>,
    ) -> Result<u64, StreamError> {
        let samples = samples_of(fields)?;
        let bytes: u64 = fields.iter().map(|(_, tensor)| tensor.data().len() as u64).sum();
        let number = self.next;
        let mut told: Option<StreamWait> = None;
        let began = Instant::now();
        let done = self.link.insist(
            patience,
            |within| self.attempt(number, (samples, bytes), fields, (within, patience), &mut told),
            || self.opened(Some(self.incarnation)).map(|_opened| ()),
        )?;
        match (done, told) {
            (Some(()), _) => {
                self.next = number + 1;
                Ok(number)
            }
            (None, Some(reason)) => {
                Err(StreamError::TimedOut { reason: Box::new(reason), within: began.elapsed() })
            }
            (None, None) => Err(unexpected("no decision on an upload")),
        }
    }

    /// One attempt to have an upload counted; nothing if it has to wait longer.
    fn attempt(
        &self,
        number: u64,
        (samples, bytes): (u64, u64),
        fields: &[(&str, &Tensor)],
        (within, patience): (Duration, Option<Duration>),
        told: &mut Option<StreamWait>,
    ) -> Result<Option<()>, StreamError> {
        let incarnation = self.incarnation.0.to_string();
        let (number, samples, bytes) = (number.to_string(), samples.to_string(), bytes.to_string());
        let (seen, wait) = (told.as_ref().map_or("-", StreamWait::kind), ms(within));
        let id = self.options.id.as_str().as_bytes();
        let mut words = vec![id, incarnation.as_bytes(), number.as_bytes(), samples.as_bytes()];
        words.extend([bytes.as_bytes(), seen.as_bytes(), wait.as_bytes()]);
        words.extend(fields.iter().map(|(name, _)| name.as_bytes()));
        let begun = self.link.ask("BEGIN", &words, Some(within))?;
        if let Some(reason) = begun.wait()? {
            if let Some(observer) = self.options.on_wait.as_ref().filter(|_| seen != reason.kind()) {
                observer(&reason);
            }
            *told = Some(reason);
            return Ok(None);
        }
        if begun.is("ACKNOWLEDGED") {
            return Ok(Some(()));
        }
        let base = begun.text(0)?;
        // A full store is not waited for longer than the upload may take.
        let longest = self.link.store.patience();
        let store = self.link.store.with_patience(patience.map_or(longest, |most| most.min(longest)));
        let mut small = Vec::new();
        for (name, tensor) in fields {
            let key = format!("{base}.{name}");
            if tensor.data().len() >= phalanx_shared::WORTH_SHARING {
                store.put_at(&key, tensor).map_err(refused_put)?;
            } else {
                small.push(self.link.store.backend().set(&key, tensor));
            }
        }
        small.push(self.link.command("COMPLETE", &[id, incarnation.as_bytes(), number.as_bytes()]));
        let mut replies = self.link.store.call_within(self.link.key.as_bytes(), small, None)?;
        let completed = replies.pop();
        for reply in replies {
            accepted(Some(reply))?;
        }
        answer(completed).map(|_acknowledged| Some(()))
    }

    /// Says that there are no more samples.
    ///
    /// # Errors
    /// The store cannot be reached.
    pub fn close(self) -> Result<(), StreamError> {
        let (incarnation, uploads) = (self.incarnation.0.to_string(), self.next.to_string());
        let words = [self.options.id.as_str().as_bytes(), incarnation.as_bytes(), uploads.as_bytes()];
        let wait = self.options.patience.or(Some(Duration::from_secs(30)));
        let closed = self.link.insist(
            wait,
            |_within| self.link.ask("CLOSE", &words, None).map(Some),
            || self.opened(Some(self.incarnation)).map(|_opened| ()),
        )?;
        closed.map(|_closed| ()).ok_or_else(|| unexpected("no answer to a closing producer"))
    }
}

fn refused_put(error: StoreError) -> StreamError {
    match error {
        StoreError::Refused { text } => refused(text),
        error => error.into(),
    }
}

/// The first dimension, which all tensors must share.
fn samples_of(fields: &[(&str, &Tensor)]) -> Result<u64, StreamError> {
    let mut samples = None;
    for (_, tensor) in fields {
        let Some(len) = tensor.shape().first().filter(|len| **len > 0) else {
            return Err(StreamError::Upload { problem: "one has no samples" });
        };
        if samples.is_some_and(|samples| samples != *len) {
            return Err(StreamError::Upload { problem: "they have different numbers of samples" });
        }
        samples = Some(*len);
    }
    samples.ok_or(StreamError::Upload { problem: "there is none" })
}
