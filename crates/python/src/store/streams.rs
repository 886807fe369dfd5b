//! Producers and readers of streams.
//!
//! What waits does so in slices, so that Ctrl-C is noticed; the store is asked anew after each.

use crate::arrays;
use crate::errors::Failure;
use crate::submitter::seconds;
use phalanx_store_client::{
    PassAnswer, Producer, ProducerOptions, ReadOptions, Store, StoreError, StreamError, StreamReader,
    StreamTrainer, TrainerAnswer,
};
use phalanx_streams::{Cursor, StreamWait};
use phalanx_types::{Incarnation, ProducerId, ReaderId, Tensor, TrainerId};
use pyo3::prelude::*;
use pyo3::types::PyByteArray;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a wait lasts before it looks for Ctrl-C.
const SLICE: Duration = Duration::from_millis(500);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(error: StreamError) -> PyErr {
    Failure::stream(&error).into()
}

pub(super) fn json<T: Serialize>(value: &T) -> PyResult<String> {
    Ok(serde_json::to_string(value).map_err(|error| Failure::bug(error.to_string()))?)
}

fn parsed<T: DeserializeOwned>(what: &str, text: &str) -> PyResult<T> {
    Ok(serde_json::from_str(text)
        .map_err(|error| Failure::input(format!("{what} cannot be read: {error}")))?)
}

fn name<I: std::str::FromStr>(text: &str) -> PyResult<I> {
    let wrong = || Failure::input(format!("{text:?} is no name: letters, digits, `-`, `_` and `.` are"));
    Ok(text.parse().ok().ok_or_else(wrong)?)
}

/// Asks a store without the interpreter's lock.
pub(super) fn ask<T: Send>(
    py: Python<'_>,
    store: impl FnOnce() -> Result<Store, Failure>,
    act: impl FnOnce(&Store) -> Result<T, StreamError> + Send,
) -> PyResult<T> {
    let store = store()?;
    py.detach(|| act(&store)).map_err(failed)
}

pub(super) fn producer_options(
    id: &str,
    incarnation: Option<u64>,
    settings: Option<&str>,
) -> PyResult<ProducerOptions> {
    let id: ProducerId = name(id)?;
    let settings = settings.map(|text| parsed("settings of a stream", text)).transpose()?;
    Ok(ProducerOptions { incarnation: incarnation.map(Incarnation), settings, ..ProducerOptions::new(id) })
}

pub(super) fn read_options(
    id: &str,
    incarnation: Option<u64>,
    settings: &str,
    (stream, resume): &(Option<String>, Option<String>),
) -> PyResult<ReadOptions> {
    let reader: ReaderId = name(id)?;
    let settings = parsed("settings of a reader", settings)?;
    let stream = stream.as_deref().map(|text| parsed("settings of a stream", text)).transpose()?;
    let resume = resume.as_deref().map(|text| parsed("the place to resume from", text)).transpose()?;
    Ok(ReadOptions {
        incarnation: incarnation.map(Incarnation),
        stream,
        resume,
        ..ReadOptions::new(reader, settings)
    })
}

/// Repeats a request in slices until it is decided, the time is up, or Ctrl-C was pressed.
fn in_slices<T: Send>(
    py: Python<'_>,
    timeout: Option<f64>,
    mut slice: impl FnMut(Duration) -> Result<Option<T>, StreamError> + Send,
    mut between: impl FnMut(Python<'_>) -> PyResult<()>,
) -> PyResult<Option<T>> {
    let until = timeout.map(seconds).transpose()?.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let within = left.map_or(SLICE, |left| left.min(SLICE));
        let tried = py.detach(|| slice(within));
        between(py)?;
        let is_over = left.is_some_and(|left| left <= within);
        match tried {
            Ok(Some(found)) => return Ok(Some(found)),
            Ok(None) if is_over => return Ok(None),
            Err(
                StreamError::Store(
                    StoreError::Lost { .. } | StoreError::Connect { .. } | StoreError::Down { .. },
                )
                | StreamError::NotRecorded { .. },
            ) if !is_over => {}
            Ok(None) => {}
            Err(error) => return Err(failed(error)),
        }
        py.check_signals()?;
    }
}

/// Tells a function of the user why it waits, once for each kind of reason.
fn tell(py: Python<'_>, on_wait: Option<&Py<PyAny>>, reason: &StreamWait) -> PyResult<()> {
    on_wait.map_or(Ok(()), |told| told.call1(py, (reason.to_string(),)).map(|_said| ()))
}

/// Asks in slices until the answer is not to wait, and tells the reasons meanwhile; the last reason when the time is up.
fn decided<T: Send>(
    py: Python<'_>,
    timeout: Option<f64>,
    on_wait: Option<&Py<PyAny>>,
    mut ask: impl FnMut(Duration) -> Result<Asked<T>, StreamError> + Send,
) -> PyResult<Asked<T>> {
    let reasons = Mutex::new(Vec::new());
    let slice = |within| match ask(within)? {
        Asked::Waits(reason) => {
            lock(&reasons).push(reason);
            Ok(None)
        }
        Asked::Decided(answer) => Ok(Some(answer)),
    };
    let mut told = None;
    let mut last = None;
    let between = |py: Python<'_>| {
        for reason in std::mem::take(&mut *lock(&reasons)) {
            if told != Some(reason.kind()) {
                told = Some(reason.kind());
                tell(py, on_wait, &reason)?;
            }
            last = Some(reason);
        }
        Ok(())
    };
    match (in_slices(py, timeout, slice, between)?, last) {
        (Some(answer), _) => Ok(Asked::Decided(answer)),
        (None, Some(reason)) => Ok(Asked::Waits(reason)),
        (None, None) => Err(Failure::bug("a wait without a reason".to_owned()).into()),
    }
}

/// What a stream said.
enum Asked<T> {
    Decided(T),
    Waits(StreamWait),
}

/// What Python is told: a word, and a cursor, a share or an ending as JSON, or a reason in words.
type Told = (&'static str, String);

fn written<T: Serialize>(word: &'static str, value: &T) -> Result<Told, Failure> {
    let text = serde_json::to_string(value).map_err(|error| Failure::bug(error.to_string()))?;
    Ok((word, text))
}

fn waiting(reason: &StreamWait) -> Told {
    ("waiting", reason.to_string())
}

/// A producer of a stream.
#[pyclass(frozen, module = "phalanx._phalanx")]
#[derive(Debug)]
pub(crate) struct StreamProducer {
    producer: Mutex<Option<Producer>>,
    /// How long a full store is waited for.
    patience: Duration,
    reasons: Arc<Mutex<Vec<StreamWait>>>,
}

impl StreamProducer {
    pub(super) fn open(
        py: Python<'_>,
        store: &Store,
        stream: &str,
        options: ProducerOptions,
    ) -> PyResult<Self> {
        let reasons: Arc<Mutex<Vec<StreamWait>>> = Arc::default();
        let told = reasons.clone();
        let on_wait = move |reason: &StreamWait| lock(&told).push(reason.clone());
        let options = ProducerOptions { on_wait: Some(Arc::new(on_wait)), ..options };
        let producer = py.detach(|| store.produce(stream, options)).map_err(failed)?;
        Ok(Self { producer: Mutex::new(Some(producer)), patience: store.patience(), reasons })
    }

    fn with<T>(&self, act: impl FnOnce(&mut Producer) -> T) -> PyResult<T> {
        let mut producer = lock(&self.producer);
        let producer = producer.as_mut().ok_or_else(|| Failure::input("the producer is closed"))?;
        Ok(act(producer))
    }
}

#[pymethods]
impl StreamProducer {
    #[getter]
    fn next(&self) -> PyResult<u64> {
        self.with(|producer| producer.next())
    }

    #[getter]
    fn incarnation(&self) -> PyResult<u64> {
        self.with(|producer| producer.incarnation().0)
    }

    #[getter]
    fn has_closed(&self) -> PyResult<bool> {
        self.with(|producer| producer.has_closed())
    }

    /// Appends an upload.
    fn put(
        &self,
        py: Python<'_>,
        named: Vec<(String, Bound<'_, PyAny>)>,
        timeout: Option<f64>,
        on_wait: Option<Py<PyAny>>,
    ) -> PyResult<u64> {
        let tensors: Vec<(String, Tensor)> = named
            .into_iter()
            .map(|(name, array)| Ok((name, arrays::borrow(&array)?)))
            .collect::<PyResult<_>>()?;
        let fields: Vec<(&str, &Tensor)> =
            tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        let mut last: Option<StreamWait> = None;
        let mut full: Option<StreamError> = None;
        let mut told: Option<&'static str> = None;
        let began = Instant::now();
        let until = timeout.map(seconds).transpose()?;
        let slice = |within| {
            let mut producer = lock(&self.producer);
            let Some(producer) = producer.as_mut() else { return Ok(Some(None)) };
            match producer.put_within(&fields, Some(within)) {
                Ok(number) => Ok(Some(Some(number))),
                Err(StreamError::TimedOut { reason, .. }) => {
                    (last, full) = (Some(*reason), None);
                    Ok(None)
                }
                Err(error @ StreamError::Store(StoreError::Full { .. }))
                    if began.elapsed() < self.patience =>
                {
                    full = Some(error);
                    Ok(None)
                }
                Err(error) => Err(error),
            }
        };
        let between = |py: Python<'_>| {
            let reasons = std::mem::take(&mut *lock(&self.reasons));
            for reason in reasons {
                if told != Some(reason.kind()) {
                    told = Some(reason.kind());
                    tell(py, on_wait.as_ref(), &reason)?;
                }
            }
            Ok(())
        };
        let put = in_slices(py, timeout, slice, between)?;
        if let Some(error) = full.filter(|_| put.is_none()) {
            return Err(failed(error));
        }
        match (put, last) {
            (Some(Some(number)), _) => Ok(number),
            (Some(None), _) => Err(Failure::input("the producer is closed").into()),
            (None, Some(reason)) => {
                let within = until.unwrap_or_default();
                Err(failed(StreamError::TimedOut { reason: Box::new(reason), within }))
            }
            (None, None) => Err(Failure::bug("an upload was not decided".to_owned()).into()),
        }
    }

    /// There are no more samples.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let producer = lock(&self.producer).take();
        producer.map_or(Ok(()), |producer| py.detach(|| producer.close()).map_err(failed))
    }

    /// Ends without closing: the producer counts as lost.
    fn abandon(&self) {
        drop(lock(&self.producer).take());
    }
}

/// A training run that reads a stream, in this process.
#[pyclass(frozen, module = "phalanx._phalanx")]
#[derive(Debug)]
pub(crate) struct StreamRun {
    reader: Mutex<Option<Arc<StreamReader>>>,
}

impl StreamRun {
    fn new(reader: StreamReader) -> Self {
        Self { reader: Mutex::new(Some(Arc::new(reader))) }
    }

    pub(super) fn open(py: Python<'_>, store: &Store, stream: &str, options: ReadOptions) -> PyResult<Self> {
        py.detach(|| store.read_stream(stream, options)).map_err(failed).map(Self::new)
    }

    pub(super) fn attach(
        py: Python<'_>,
        store: &Store,
        stream: &str,
        id: &str,
        timeout: Option<f64>,
    ) -> PyResult<Self> {
        let id: ReaderId = name(id)?;
        let slice = |within| match store.attach_stream(stream, &id, within) {
            Ok(reader) => Ok(Some(reader)),
            Err(StreamError::NotThere { .. }) => Ok(None),
            Err(error) => Err(error),
        };
        let within = timeout.map(seconds).transpose()?.unwrap_or_default();
        let missing = || failed(StreamError::NotThere { what: "the reader", within });
        in_slices(py, timeout, slice, |_py| Ok(()))?.map(Self::new).ok_or_else(missing)
    }

    fn reader(&self) -> PyResult<Arc<StreamReader>> {
        let reader = lock(&self.reader).clone();
        Ok(reader.ok_or_else(|| Failure::input("the reader is closed"))?)
    }
}

#[pymethods]
impl StreamRun {
    #[getter]
    fn incarnation(&self) -> PyResult<u64> {
        Ok(self.reader()?.incarnation().0)
    }

    /// Where it goes on, as JSON.
    #[getter]
    fn cursor(&self) -> PyResult<Option<String>> {
        self.reader()?.cursor().as_ref().map(json).transpose()
    }

    #[getter]
    fn settings(&self) -> PyResult<String> {
        json(self.reader()?.settings())
    }

    /// Names, types and shapes of the tensors, as JSON.
    fn fields(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<String> {
        let reader = self.reader()?;
        let slice = |within| match reader.fields(within) {
            Ok(fields) => Ok(Some(fields)),
            Err(StreamError::NotThere { .. }) => Ok(None),
            Err(error) => Err(error),
        };
        let within = timeout.map(seconds).transpose()?.unwrap_or_default();
        let missing = || failed(StreamError::NotThere { what: "the tensors of the stream", within });
        json(&in_slices(py, timeout, slice, |_py| Ok(()))?.ok_or_else(missing)?)
    }

    /// `("sealed", cursor)`, `("finished", ending)` or `("waiting", reason)`, the second as JSON.
    fn next_pass(
        &self,
        py: Python<'_>,
        number: u64,
        timeout: Option<f64>,
        on_wait: Option<Py<PyAny>>,
    ) -> PyResult<Told> {
        let reader = self.reader()?;
        let ask = |within| {
            Ok(match reader.pass(number, within)? {
                PassAnswer::Waiting(reason) => Asked::Waits(reason),
                PassAnswer::Sealed(cursor) => Asked::Decided(written("sealed", &cursor)),
                PassAnswer::Finished(ending) => Asked::Decided(written("finished", &ending)),
            })
        };
        match decided(py, timeout, on_wait.as_ref(), ask)? {
            Asked::Decided(answer) => Ok(answer?),
            Asked::Waits(reason) => Ok(waiting(&reason)),
        }
    }

    /// How many steps the pass at a cursor has.
    fn steps(&self, cursor: &str) -> PyResult<u64> {
        let cursor: Cursor = parsed("a cursor", cursor)?;
        Ok(self.reader()?.samples().order(&cursor).steps())
    }

    /// A share of a step: which samples, and their bytes of every field.
    fn read<'py>(
        &self,
        py: Python<'py>,
        cursor: &str,
        step: u64,
        rank: u32,
        ranks: u32,
    ) -> PyResult<(Vec<u64>, Vec<Bound<'py, PyByteArray>>)> {
        let cursor: Cursor = parsed("a cursor", cursor)?;
        let samples = self.reader()?.samples();
        let numbers = samples.share(&cursor, step, rank, ranks).map_err(failed)?;
        let fields = py.detach(|| samples.fields(Duration::from_secs(30))).map_err(failed)?;
        let mut arrays = Vec::with_capacity(fields.len());
        for field in fields {
            let bytes = field.sample_bytes().and_then(|row| row.checked_mul(numbers.len()));
            let bytes = bytes.ok_or_else(|| Failure::input("samples of a size that cannot be"))?;
            arrays.push(PyByteArray::new_with(py, bytes, |out| {
                py.detach(|| samples.read(&field.name, &numbers, out)).map_err(failed)
            })?);
        }
        Ok((numbers, arrays))
    }

    /// Steps of a pass will not be repeated.
    fn commit(&self, py: Python<'_>, number: u64, steps: u64) -> PyResult<()> {
        let reader = self.reader()?;
        py.detach(|| reader.commit(number, steps)).map_err(failed)
    }

    /// A member of the group of trainers whose shares the store gives out.
    fn member(&self, py: Python<'_>, id: &str, incarnation: u64) -> PyResult<StreamMember> {
        let (reader, id): (_, TrainerId) = (self.reader()?, name(id)?);
        let trainer = py.detach(|| reader.trainer(id, Incarnation(incarnation))).map_err(failed)?;
        Ok(StreamMember { trainer: Mutex::new(Some(trainer)) })
    }

    /// The run needs no more samples.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(reader) = lock(&self.reader).take() else { return Ok(()) };
        match Arc::try_unwrap(reader) {
            Ok(reader) => py.detach(|| reader.close()).map_err(failed),
            // Another thread reads at this moment; the connection ends with it.
            Err(_used) => Ok(()),
        }
    }

    /// Ends without closing: samples are kept for the run, which may go on later.
    fn abandon(&self) {
        drop(lock(&self.reader).take());
    }
}

/// A member of a group of trainers.
#[pyclass(frozen, module = "phalanx._phalanx")]
#[derive(Debug)]
pub(crate) struct StreamMember {
    trainer: Mutex<Option<StreamTrainer>>,
}

#[pymethods]
impl StreamMember {
    /// `("share", assignment)`, `("finished", ending)` or `("waiting", reason)`, the first two as JSON.
    fn next(
        &self,
        py: Python<'_>,
        done: bool,
        timeout: Option<f64>,
        on_wait: Option<Py<PyAny>>,
    ) -> PyResult<Told> {
        // Locked for a slice only: another thread may have it leave.
        let ask = |within| {
            let mut trainer = lock(&self.trainer);
            let Some(trainer) = trainer.as_mut() else { return Ok(Asked::Decided(None)) };
            Ok(match trainer.next(done, within)? {
                TrainerAnswer::Waiting(reason) => Asked::Waits(reason),
                TrainerAnswer::Share(share) => Asked::Decided(Some(written("share", &share))),
                TrainerAnswer::Finished(ending) => Asked::Decided(Some(written("finished", &ending))),
            })
        };
        match decided(py, timeout, on_wait.as_ref(), ask)? {
            Asked::Decided(None) => Err(Failure::input("the trainer has left the group").into()),
            Asked::Decided(Some(answer)) => Ok(answer?),
            Asked::Waits(reason) => Ok(waiting(&reason)),
        }
    }

    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        let trainer = lock(&self.trainer).take();
        trainer.map_or(Ok(()), |trainer| py.detach(|| trainer.leave()).map_err(failed))
    }
}
