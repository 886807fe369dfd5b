//! Reading samples: mapped on the store's host, gathered by the store elsewhere.

use super::link::{StreamLink, accepted, is_lost, ms, unexpected};
use super::{StreamError, StreamField};
use bytes::Bytes;
use phalanx_resp::Reply;
use phalanx_streams::{Cursor, PassOrder, ReadMode, ReaderSettings, Reservoir, StreamRefusal};
use phalanx_types::Tensor;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// With more uploads than this, samples are gathered: the server lends a client a bounded number of values.
const MOST_MAPPED: usize = 1500;
/// Uploads that are copied, since they are too small to be mapped, may take this many bytes.
const MOST_COPIED: u64 = 512 << 20;
/// How many rows and bytes are gathered at a time.
const ROWS: usize = 1 << 16;
const ROW_BYTES: usize = 32 << 20;
/// How long the node of a dataset may take to send rows of it.
const ANSWER: Duration = Duration::from_secs(30);

/// Samples of a stream as one training run sees them. Clones share what is mapped.
#[derive(Debug, Clone)]
pub struct StreamSamples {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    link: StreamLink,
    settings: ReaderSettings,
    /// What a pass draws from in mode `reservoir`.
    drawn: Mutex<Option<(Cursor, Arc<Vec<u64>>)>>,
    fields: Mutex<Vec<StreamField>>,
    known: Mutex<KnownUploads>,
}

/// Uploads that this process knows of, and the tensors it has mapped.
#[derive(Debug, Default)]
struct KnownUploads {
    arrived: u64,
    /// By first sample.
    uploads: BTreeMap<u64, KnownUpload>,
    copied: u64,
}

#[derive(Debug)]
struct KnownUpload {
    samples: u64,
    base: String,
    tensors: BTreeMap<String, Tensor>,
}

impl KnownUploads {
    fn holding(&self, sample: u64) -> Option<(u64, &KnownUpload)> {
        let (first, upload) = self.uploads.range(..=sample).next_back()?;
        (sample - first < upload.samples).then_some((*first, upload))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StreamSamples {
    pub(super) fn open(link: &StreamLink, settings: &ReaderSettings) -> Result<Self, StreamError> {
        let shared = Shared {
            link: link.own()?,
            settings: settings.clone(),
            drawn: Mutex::default(),
            fields: Mutex::default(),
            known: Mutex::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The tensors of every upload; waits for the first upload.
    ///
    /// # Errors
    /// There was no upload in time, or the store cannot be reached.
    pub fn fields(&self, within: Duration) -> Result<Vec<StreamField>, StreamError> {
        let known = lock(&self.shared.fields).clone();
        if !known.is_empty() {
            return Ok(known);
        }
        // It may take long: others can read meanwhile.
        let link = self.shared.link.own()?;
        let found: Option<Vec<StreamField>> = link.insist(
            Some(within),
            |wait| {
                let answer = link.ask("FIELDS", &[ms(wait).as_bytes()], Some(wait))?;
                if answer.is("FIELDS") { answer.json_at(0).map(Some) } else { Ok(None) }
            },
            || Ok(()),
        )?;
        let found = found.ok_or(StreamError::NotThere { what: "the tensors of the stream", within })?;
        (*lock(&self.shared.fields)).clone_from(&found);
        Ok(found)
    }

    /// The order of a pass and its batches.
    pub fn order(&self, cursor: &Cursor) -> PassOrder {
        cursor.pass(&self.shared.settings)
    }

    /// The samples of the global batch of a step, by order of arrival. Computed here, without asking the store.
    ///
    /// # Errors
    /// The cursor is none of this reader.
    pub fn batch(&self, cursor: &Cursor, step: u64) -> Result<Vec<u64>, StreamError> {
        let order = self.order(cursor);
        self.at_positions(cursor, &order, order.positions(step))
    }

    /// The samples of one of `ranks` shares of a step; all shares together are the batch.
    ///
    /// # Errors
    /// As [`StreamSamples::batch`].
    pub fn share(&self, cursor: &Cursor, step: u64, rank: u32, ranks: u32) -> Result<Vec<u64>, StreamError> {
        let order = self.order(cursor);
        self.at_positions(cursor, &order, order.share(step, rank, ranks))
    }

    /// The samples at positions of a pass, by order of arrival.
    ///
    /// # Errors
    /// As [`StreamSamples::batch`].
    pub fn at_positions(
        &self,
        cursor: &Cursor,
        order: &PassOrder,
        positions: std::ops::Range<u64>,
    ) -> Result<Vec<u64>, StreamError> {
        let beyond = || unexpected("a position beyond the pass");
        if !matches!(self.shared.settings.mode, ReadMode::Reservoir { .. }) {
            return positions.map(|at| order.sample(at).ok_or_else(beyond)).collect();
        }
        let drawn = self.drawn(cursor);
        let sample = |at| {
            let slot = order.sample(at)?.checked_sub(cursor.base)?;
            drawn.get(usize::try_from(slot).ok()?).copied()
        };
        positions.map(|at| sample(at).ok_or_else(beyond)).collect()
    }

    /// What a pass draws from in mode `reservoir`: a function of seed and horizon.
    fn drawn(&self, cursor: &Cursor) -> Arc<Vec<u64>> {
        let ReadMode::Reservoir { capacity, .. } = self.shared.settings.mode else { return Arc::default() };
        let mut known = lock(&self.shared.drawn);
        match &*known {
            Some((pass, drawn)) if *pass == cursor.at(0) => drawn.clone(),
            _ => {
                let reservoir = Reservoir::at(cursor.seed, capacity, cursor.base, cursor.horizon);
                let drawn = Arc::new(reservoir.slots().to_vec());
                *known = Some((cursor.at(0), drawn.clone()));
                drawn
            }
        }
    }

    /// Copies samples of a field into memory of the caller, one after the other in the order given. On the store's
    /// host they come from mapped memory, else the store sends just these.
    ///
    /// # Errors
    /// A sample is not there any more, the memory has another size, or the store cannot be reached.
    pub fn read(&self, field: &str, samples: &[u64], out: &mut [u8]) -> Result<(), StreamError> {
        let fields = self.fields(Duration::from_secs(30))?;
        let Some(known) = fields.iter().find(|known| known.name == field) else {
            return Err(StreamError::Refused(StreamRefusal::UnknownField { field: field.to_owned() }));
        };
        let row = known.sample_bytes().ok_or_else(|| unexpected("samples of a size that cannot be"))?;
        let needed = row.saturating_mul(samples.len());
        if needed != out.len() {
            let field = field.to_owned();
            return Err(StreamError::Room { field, needed, room: out.len() });
        }
        let mapped = self.shared.link.store.is_sharing()
            && !matches!(self.shared.settings.mode, ReadMode::Reservoir { .. });
        let missing = match mapped {
            true => self.copy_mapped(field, row, samples, out)?,
            false => (0..samples.len()).collect(),
        };
        self.gather(field, row, samples, &missing, out)
    }

    /// Copies what can be mapped; gives the places of the rest.
    fn copy_mapped(
        &self,
        field: &str,
        row: usize,
        samples: &[u64],
        out: &mut [u8],
    ) -> Result<Vec<usize>, StreamError> {
        let mut known = lock(&self.shared.known);
        if samples.iter().any(|sample| *sample >= known.arrived) {
            self.refresh(&mut known)?;
        }
        if known.uploads.len() > MOST_MAPPED {
            known.uploads.values_mut().for_each(|upload| upload.tensors.clear());
            return Ok((0..samples.len()).collect());
        }
        // What cannot be mapped now is asked for, with patience.
        if let Err(error) = self.map(&mut known, field, samples)
            && !is_lost(&error)
        {
            return Err(error);
        }
        let mut missing = Vec::new();
        for (at, sample) in samples.iter().enumerate() {
            let source = known.holding(*sample).and_then(|(first, upload)| {
                let tensor = upload.tensors.get(field)?;
                // An upload that was shrunk has other rows.
                let whole = tensor.shape().first() == Some(&upload.samples);
                let begin = usize::try_from(sample - first).ok().filter(|_| whole)?.checked_mul(row)?;
                tensor.data().get(begin..begin.checked_add(row)?)
            });
            match (source, out.get_mut(at * row..(at + 1) * row)) {
                (Some(source), Some(place)) => place.copy_from_slice(source),
                _ => missing.push(at),
            }
        }
        Ok(missing)
    }

    /// Maps the uploads that have these samples.
    fn map(&self, known: &mut KnownUploads, field: &str, samples: &[u64]) -> Result<(), StreamError> {
        let mut firsts: Vec<u64> = samples
            .iter()
            .filter_map(|sample| known.holding(*sample))
            .filter(|(_, upload)| !upload.tensors.contains_key(field))
            .map(|(first, _)| first)
            .collect();
        if firsts.is_empty() || known.copied > MOST_COPIED {
            return Ok(());
        }
        firsts.sort_unstable();
        firsts.dedup();
        let key = |first: &u64| known.uploads.get(first).map(|upload| format!("{}.{field}", upload.base));
        let keys: Vec<String> = firsts.iter().filter_map(key).collect();
        for (first, tensor) in firsts.iter().zip(self.shared.link.store.tensors_at(&keys)?) {
            let (Some(upload), Some(tensor)) = (known.uploads.get_mut(first), tensor) else { continue };
            if tensor.data().len() < phalanx_shared::WORTH_SHARING {
                known.copied += tensor.data().len() as u64;
            }
            upload.tensors.insert(field.to_owned(), tensor);
        }
        Ok(())
    }

    /// Learns of uploads that have arrived, and lets go of those that were freed.
    fn refresh(&self, known: &mut KnownUploads) -> Result<(), StreamError> {
        let link = &self.shared.link;
        let since = known.arrived.to_string();
        let words = [since.as_bytes()];
        let asked = link.insist(
            Some(Duration::from_secs(30)),
            |_wait| link.ask("UPLOADS", &words, None).map(Some),
            || Ok(()),
        )?;
        let answer = asked.ok_or_else(|| unexpected("no uploads"))?;
        let (arrived, is_all, places) = (answer.number(0)?, answer.number(1)? != 0, answer.bytes(2)?);
        let mut bases = answer.rest().into_iter().skip(3);
        if is_all {
            let mut before = std::mem::take(&mut known.uploads);
            known.copied = 0;
            for [first, samples] in pairs(&places) {
                let base = text(bases.next())?;
                let tensors = before.remove(&first).map(|upload| upload.tensors).unwrap_or_default();
                let sizes = tensors.values().map(|tensor| tensor.data().len());
                known.copied +=
                    sizes.filter(|len| *len < phalanx_shared::WORTH_SHARING).sum::<usize>() as u64;
                known.uploads.insert(first, KnownUpload { samples, base, tensors });
            }
        } else {
            for [first, samples] in pairs(&places) {
                let base = text(bases.next())?;
                known.uploads.insert(first, KnownUpload { samples, base, tensors: BTreeMap::new() });
            }
        }
        known.arrived = arrived;
        Ok(())
    }

    /// Has the store send the samples at these places of the list.
    fn gather(
        &self,
        field: &str,
        row: usize,
        samples: &[u64],
        missing: &[usize],
        out: &mut [u8],
    ) -> Result<(), StreamError> {
        let at_once = (ROW_BYTES / row.max(1)).clamp(1, ROWS);
        for places in missing.chunks(at_once) {
            let wanted = places.iter().filter_map(|at| samples.get(*at));
            let blob: Vec<u8> = wanted.flat_map(|sample| sample.to_le_bytes()).collect();
            let words = [&blob[..], field.as_bytes()];
            let link = &self.shared.link;
            let asked = link.insist(
                Some(Duration::from_secs(30)),
                |_wait| link.ask("GATHER", &words, None).map(Some),
                || Ok(()),
            )?;
            let mut rows = asked.ok_or_else(|| unexpected("no samples"))?.rest().into_iter();
            let Some(Reply::Array(parts)) = rows.next() else { return Err(unexpected("samples")) };
            let elsewhere = elsewhere(rows, places)?;
            let others: BTreeSet<usize> = elsewhere.iter().flat_map(|rows| &rows.places).copied().collect();
            let here: Vec<usize> = places.iter().filter(|at| !others.contains(at)).copied().collect();
            let differs = || unexpected("samples of another size");
            scatter(parts, row, &here, out).ok_or_else(differs)?;
            for RowsElsewhere { key, places, rows } in elsewhere {
                let command = vec![Bytes::from_static(b"PHALANX.ROWS"), key.clone(), rows];
                let parts = link.insist(
                    Some(Duration::from_secs(30)),
                    |_wait| {
                        let reply = link.store.call_within(&key, vec![command.clone()], Some(ANSWER))?.pop();
                        accepted(reply).map(Some)
                    },
                    || Ok(()),
                )?;
                let Some(Reply::Array(parts)) = parts else { return Err(unexpected("rows of a tensor")) };
                scatter(parts, row, &places, out).ok_or_else(differs)?;
            }
        }
        Ok(())
    }
}

/// Samples of a dataset that another node of a shared store has.
struct RowsElsewhere {
    /// The key of the tensor.
    key: Bytes,
    /// Where the samples belong.
    places: Vec<usize>,
    /// The rows of the tensor, as the store takes them.
    rows: Bytes,
}

/// What a stream said of samples that are not at its node: a key, numbers of the samples that were asked for, rows.
fn elsewhere(
    mut said: impl Iterator<Item = Reply>,
    asked: &[usize],
) -> Result<Vec<RowsElsewhere>, StreamError> {
    let mut all = Vec::new();
    while let Some(key) = said.next() {
        let (Reply::Bulk(key), Some(Reply::Bulk(numbers)), Some(Reply::Bulk(rows))) =
            (key, said.next(), said.next())
        else {
            return Err(unexpected("samples at another node"));
        };
        let place = |number: &[u8; 8]| {
            let number = usize::try_from(u64::from_le_bytes(*number)).ok()?;
            asked.get(number).copied()
        };
        let places: Option<Vec<usize>> = numbers.as_chunks::<8>().0.iter().map(place).collect();
        let places = places.ok_or_else(|| unexpected("samples that were not asked for"))?;
        all.push(RowsElsewhere { key, places, rows });
    }
    Ok(all)
}

/// Puts rows, which came in parts of one or more, where they belong.
fn scatter(parts: Vec<Reply>, row: usize, places: &[usize], out: &mut [u8]) -> Option<()> {
    let mut places = places.iter();
    for part in parts {
        let Reply::Bulk(bytes) = part else { return None };
        if row == 0 || !bytes.len().is_multiple_of(row) {
            return None;
        }
        for source in bytes.chunks(row) {
            let at = *places.next()?;
            out.get_mut(at * row..(at + 1) * row)?.copy_from_slice(source);
        }
    }
    places.next().is_none().then_some(())
}

fn pairs(blob: &Bytes) -> impl Iterator<Item = [u64; 2]> {
    blob.as_chunks::<16>().0.iter().map(|pair| {
        let (first, samples) = pair.split_at(8);
        [first, samples].map(|half| half.try_into().map_or(0, u64::from_le_bytes))
    })
}

fn text(reply: Option<Reply>) -> Result<String, StreamError> {
    match reply {
        Some(Reply::Bulk(bytes)) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        _ => Err(unexpected("the key of an upload")),
    }
}
