//! Batches of a pass, read and transformed ahead by a thread of their own.
//!
//! ```text
//!            full batches, at most `prefetch`
//!   thread ------------------------------------> consumer
//!          <------------------------------------
//!                 empty ones, to be used again
//! ```

use crate::batch::Batch;
use crate::dataset::Dataset;
use crate::error::DataError;
use crate::order::Order;
use crate::shard::Shard;
use crate::transform::{Prepared, Transform};
use phalanx_types::BatchPart;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

/// A position in the sequence of all batches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub pass: u64,
    /// The index within the pass.
    pub batch: u64,
}

/// Which batches a [`Loader`] gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoaderOptions {
    /// The samples in a batch.
    pub batch: usize,
    /// Seeds every order and augmentation.
    pub seed: u64,
    /// Whether each pass has its own order; otherwise the order of the file.
    pub shuffle: bool,
    /// Whether an incomplete last batch is dropped.
    pub drop_last: bool,
    /// The first batch.
    pub start: Position,
    /// The number of passes, including the one it starts in.
    pub passes: u64,
    /// Whether crops and flips are random.
    pub train: bool,
    /// How many finished batches may wait, at least one.
    pub prefetch: usize,
    /// The shard of each pass to read; all of it if `None`.
    pub shard: Option<Shard>,
    /// The part of each batch to read; all of it if `None`.
    pub part: Option<BatchPart>,
}

impl Default for LoaderOptions {
    fn default() -> Self {
        Self {
            batch: 32,
            seed: 0,
            shuffle: false,
            drop_last: false,
            start: Position::default(),
            passes: 1,
            train: false,
            prefetch: 2,
            shard: None,
            part: None,
        }
    }
}

impl LoaderOptions {
    /// The number of batches in a pass over `len` samples.
    pub fn batches(&self, len: usize) -> u64 {
        let len = self.shard.map_or(len, |shard| shard.len());
        let batches =
            if self.drop_last { len.checked_div(self.batch) } else { Some(len.div_ceil(self.batch.max(1))) };
        batches.unwrap_or(0) as u64
    }
}

/// The samples of one pass, where the source does not know its length: those of a stream, as they were sealed.
pub trait PassBatches: std::fmt::Debug + Send {
    /// How many samples the pass has.
    fn samples(&self) -> usize;

    /// Appends the indices of the samples at these positions of the pass.
    ///
    /// # Errors
    /// They cannot be found.
    fn at(&self, positions: Range<usize>, indices: &mut Vec<usize>) -> Result<(), DataError>;
}

/// A batch and its position.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    pub pass: u64,
    /// Its index in the pass.
    pub index: u64,
    pub batch: Batch,
    /// The number of samples of the whole batch, of which this may be a part.
    pub whole: usize,
}

/// A pass that follows, with its number.
type NextPass = (u64, Box<dyn PassBatches>);

/// An iterator of batches, read ahead; dropping it stops the reading.
#[derive(Debug)]
pub struct Loader {
    full: Option<Receiver<Result<Loaded, DataError>>>,
    empty: Sender<Batch>,
    /// Hands on passes that follow; only where passes are given one by one.
    following: Option<Sender<NextPass>>,
    /// Batches of given passes that were not taken yet: the thread waits for another pass after them.
    left: Option<u64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    options: LoaderOptions,
    batches: u64,
    x_shape: Vec<usize>,
    y_shape: Option<Vec<usize>>,
}

impl Loader {
    /// Starts reading.
    ///
    /// # Errors
    /// The transformation does not fit the samples, a batch has no samples, the shard does not fit this dataset, the
    /// source does not know its length yet, or the thread cannot be started.
    pub fn new(dataset: Dataset, transform: &Transform, options: LoaderOptions) -> Result<Self, DataError> {
        let len = dataset.fixed_len()?;
        Self::start(dataset, transform, options, len, None)
    }

    /// Starts reading the rest of one pass, whose samples are known.
    ///
    /// # Errors
    /// The transformation does not fit the samples, a batch has no samples, or the thread cannot be started.
    pub fn of_pass(
        dataset: Dataset,
        transform: &Transform,
        options: LoaderOptions,
        pass: Box<dyn PassBatches>,
    ) -> Result<Self, DataError> {
        let (len, options) = (pass.samples(), LoaderOptions { passes: 1, shard: None, ..options });
        Self::start(dataset, transform, options, len, Some(pass))
    }

    fn start(
        dataset: Dataset,
        transform: &Transform,
        options: LoaderOptions,
        len: usize,
        pass: Option<Box<dyn PassBatches>>,
    ) -> Result<Self, DataError> {
        if options.batch == 0 {
            return Err(DataError::EmptyBatch);
        }
        let shard = options.shard.unwrap_or_else(|| Shard::whole(len));
        if shard.end() > len {
            let index = shard.end() - 1;
            return Err(DataError::Index { index, len, origin: dataset.origin().clone() });
        }
        let prepared = transform.prepare(&dataset)?;
        let (x_shape, y_shape) = (prepared.x_shape().to_vec(), prepared.y_shape().map(<[usize]>::to_vec));
        let batches = options.batches(len);
        let (full_in, full) = sync_channel(options.prefetch.max(1) - 1);
        let (empty, empty_out) = channel();
        let (following, next_passes) = channel();
        let following = pass.is_some().then_some(following);
        let left = pass.is_some().then(|| batches.saturating_sub(options.start.batch));
        let stop = Arc::new(AtomicBool::new(false));
        let kept = options.clone();
        let reader = Reader {
            dataset,
            len,
            pass,
            prepared,
            options,
            shard,
            batches,
            full: full_in,
            empty: empty_out,
            next_passes,
            stop: Arc::clone(&stop),
        };
        let thread = std::thread::Builder::new().name("data".to_owned()).spawn(move || reader.run());
        let thread = Some(thread.map_err(|source| DataError::Thread { source })?);
        let (full, options) = (Some(full), kept);
        Ok(Self { full, empty, following, left, stop, thread, options, batches, x_shape, y_shape })
    }

    /// Goes on with a whole pass after those it was given: its batches are read ahead like any others. `false` if this
    /// loader was not made for passes that are given one by one.
    pub fn continue_with(&mut self, number: u64, pass: Box<dyn PassBatches>) -> bool {
        let (Some(following), Some(left)) = (&self.following, &mut self.left) else { return false };
        *left += self.options.batches(pass.samples());
        // A thread that has ended says why in place of its next batch.
        drop(following.send((number, pass)));
        true
    }

    /// The number of batches in a pass.
    pub fn batches(&self) -> u64 {
        self.batches
    }

    /// The shape of one sample, transformed.
    pub fn x_shape(&self) -> &[usize] {
        &self.x_shape
    }

    /// The shape of one label, transformed.
    pub fn y_shape(&self) -> Option<&[usize]> {
        self.y_shape.as_deref()
    }

    /// Returns a batch for reuse.
    pub fn recycle(&mut self, batch: Batch) {
        // At the end there is no thread left to reuse it.
        drop(self.empty.send(batch));
    }
}

impl Iterator for Loader {
    type Item = Result<Loaded, DataError>;

    /// Waits for the next batch; an error is the last item.
    fn next(&mut self) -> Option<Self::Item> {
        if self.left == Some(0) {
            return None;
        }
        let next = self.full.as_ref()?.recv();
        self.left = self.left.map(|left| left - 1);
        if !matches!(next, Ok(Ok(_))) {
            self.full = None;
        }
        match next {
            Ok(next) => Some(next),
            Err(_) => match self.thread.take()?.join() {
                Ok(()) => None,
                Err(_) => Some(Err(DataError::ReaderDied)),
            },
        }
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the thread if it waits to hand over a batch, or for another pass.
        (self.full, self.following) = (None, None);
        if let Some(thread) = self.thread.take() {
            // A panic was reported by `next`, or is no longer of interest.
            drop(thread.join());
        }
    }
}

/// The state of the thread.
struct Reader {
    dataset: Dataset,
    len: usize,
    /// The only pass, if its order is not that of the seed.
    pass: Option<Box<dyn PassBatches>>,
    prepared: Prepared,
    options: LoaderOptions,
    shard: Shard,
    batches: u64,
    full: SyncSender<Result<Loaded, DataError>>,
    empty: Receiver<Batch>,
    next_passes: Receiver<NextPass>,
    stop: Arc<AtomicBool>,
}

impl Reader {
    fn run(mut self) {
        while self.read_passes() {
            let Ok((number, pass)) = self.next_passes.recv() else { return };
            self.options.start = Position { pass: number, batch: 0 };
            self.len = pass.samples();
            self.shard = Shard::whole(self.len);
            self.batches = self.options.batches(self.len);
            self.pass = Some(pass);
        }
    }

    /// Reads all batches of the passes it was given; whether there may be more passes.
    fn read_passes(&mut self) -> bool {
        let start = self.options.start;
        if self.batches == 0 {
            return true;
        }
        let mut indices = Vec::with_capacity(self.options.batch.min(self.shard.len()));
        for pass in start.pass..start.pass.saturating_add(self.options.passes) {
            let first = if pass == start.pass { start.batch } else { 0 };
            if first >= self.batches {
                continue;
            }
            let shuffle = self.options.shuffle.then_some(self.options.seed);
            let order = match &self.pass {
                Some(_) => Order::new(0, None, pass),
                None => Order::new(self.len, shuffle, pass),
            };
            for index in first..self.batches {
                let loaded = self.load(&order, pass, index, &mut indices);
                let failed = loaded.is_err();
                if self.stop.load(Ordering::Relaxed) || self.full.send(loaded).is_err() || failed {
                    return false;
                }
            }
        }
        true
    }

    fn load(
        &mut self,
        order: &Order,
        pass: u64,
        index: u64,
        indices: &mut Vec<usize>,
    ) -> Result<Loaded, DataError> {
        let first = index as usize * self.options.batch;
        let len = self.options.batch.min(self.shard.len().saturating_sub(first));
        let part = self.options.part.map_or(0..len, |part| part.range(len, self.options.batch));
        indices.clear();
        match &self.pass {
            Some(pass) => pass.at(first + part.start..first + part.end, indices)?,
            None => indices.extend(part.map(|k| order.get(self.shard.get(first + k)))),
        }
        let mut batch = self.empty.try_recv().unwrap_or_default();
        self.dataset.read_until(indices, &mut batch, &self.stop)?;
        if !self.stop.load(Ordering::Relaxed) {
            self.prepared.apply(&mut batch, self.options.train.then_some((self.options.seed, pass)))?;
        }
        Ok(Loaded { pass, index, batch, whole: len })
    }
}
