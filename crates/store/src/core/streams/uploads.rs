//! Uploads as datasets: begun, checked, kept, shrunk and dropped.

use super::super::change::Change;
use super::super::effects::Effects;
use super::super::keyspace::Keyspace;
use super::super::value::{Hash, Value};
use super::rows;
use bytes::{BufMut, Bytes, BytesMut};
use phalanx_streams::{ProducerLife, StreamField, StreamRefusal};
use phalanx_types::{ByteSize, DType, Tensor, Time, UploadSequence};
use std::sync::Arc;

pub(crate) const META: &str = ".meta";
pub(crate) const COMPLETE: &str = ".COMPLETE";
pub(crate) const TENSOR_NAMES: &str = ".tensor_names";

/// Where the samples of an upload lie.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StoredUpload {
    /// What its keys begin with.
    pub(crate) base: Bytes,
    /// Which samples are kept, if not all.
    pub(crate) rows: Option<Vec<u32>>,
}

/// An upload that was begun.
#[derive(Debug, Clone)]
pub(crate) struct Flight {
    pub(crate) base: Bytes,
    pub(crate) fields: Vec<String>,
    pub(crate) samples: u32,
    pub(crate) bytes: ByteSize,
}

pub(crate) fn key(base: &Bytes, end: &str) -> Bytes {
    let mut key = BytesMut::with_capacity(base.len() + 1 + end.len());
    key.put_slice(base);
    key.put_slice(end.as_bytes());
    key.freeze()
}

pub(crate) fn tensor_key(base: &Bytes, field: &str) -> Bytes {
    key(base, &format!(".{field}"))
}

/// How often per node of a shared store a key of that node is looked for: this many times in vain is as good as never.
const TRIES_PER_NODE: u32 = 64;

/// What the keys of an upload of a producer begin with. The braces keep them on one node of a cluster.
fn base(stream: &Bytes, producer: &ProducerLife, number: &str) -> Bytes {
    let ProducerLife { id, incarnation } = producer;
    let stream = String::from_utf8_lossy(stream);
    format!("{{{stream}.{id}.{}.{number}}}", incarnation.0).into()
}

/// The number of an upload as it is in its keys: `7`, or `7~3` where only the third key was of the stream's node.
pub(super) fn upload_number(text: &str) -> Option<u64> {
    let (number, tried) = text.split_once('~').unwrap_or((text, "0"));
    tried.parse::<u32>().ok()?;
    number.parse().ok()
}

/// The names of a dataset's tensors, as SmartRedis writes them.
fn encode_names(names: &[String]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(7);
    for name in names {
        out.put_u64_le(name.len() as u64);
        out.put_slice(name.as_bytes());
    }
    out.freeze()
}

pub(crate) fn decode_names(data: &[u8]) -> Option<Vec<String>> {
    let (7, mut rest) = data.split_first().map(|(kind, rest)| (*kind, rest))? else { return None };
    let mut names = Vec::new();
    while !rest.is_empty() {
        let (len, after) = rest.split_at_checked(8)?;
        let len = usize::try_from(u64::from_le_bytes(len.try_into().ok()?)).ok()?;
        let (name, after) = after.split_at_checked(len)?;
        names.push(std::str::from_utf8(name).ok()?.to_owned());
        rest = after;
    }
    Some(names)
}

/// A tensor of an upload, without its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundTensor {
    field: StreamField,
    samples: u64,
    bytes: u64,
}

impl FoundTensor {
    pub(crate) fn new(name: &str, dtype: DType, shape: &[u64]) -> Self {
        let sample_shape = shape.get(1..).unwrap_or_default().to_vec();
        let bytes = shape.iter().fold(dtype.size() as u64, |bytes, len| bytes.saturating_mul(*len));
        let field = StreamField { name: name.to_owned(), dtype, sample_shape };
        Self { field, samples: shape.first().copied().unwrap_or(0), bytes }
    }
}

impl Keyspace {
    /// What the keys of an upload begin with. In a shared store they are of the node that has the stream.
    pub(crate) fn upload_base(&self, stream: &Bytes, producer: &ProducerLife, number: u64) -> Bytes {
        let plain = base(stream, producer, &number.to_string());
        let Some(shards) = self.shards.as_ref().filter(|shards| !shards.is_own_part(&plain)) else {
            return plain;
        };
        let tries = 1..=TRIES_PER_NODE * u32::from(shards.own().count());
        let mut others = tries.map(|tried| base(stream, producer, &format!("{number}~{tried}")));
        others.find(|base| shards.is_own_part(base)).unwrap_or(plain)
    }

    pub(crate) fn tensor_at(&mut self, now: Time, key: &Bytes) -> Option<Arc<Tensor>> {
        match self.database.get(now, key) {
            Some(Value::Tensor(tensor)) => Some(tensor.clone()),
            _ => None,
        }
    }

    /// Checks the tensors of an upload against each other and against the other uploads; gives its samples, bytes and
    /// fields.
    pub(crate) fn inspect_upload(
        &mut self,
        now: Time,
        stream: &Bytes,
        number: u64,
        base: &Bytes,
        names: &[String],
    ) -> Result<(u32, ByteSize, Vec<StreamField>), StreamRefusal> {
        let found = self.find_tensors(now, number, base, names)?;
        self.inspect_tensors(stream, number, found)
    }

    /// The tensors of an upload that is at this node.
    pub(super) fn find_tensors(
        &mut self,
        now: Time,
        number: u64,
        base: &Bytes,
        names: &[String],
    ) -> Result<Vec<FoundTensor>, StreamRefusal> {
        let find = |name: &String| {
            let missing = || StreamRefusal::FieldMissing { number, field: name.clone() };
            let tensor = self.tensor_at(now, &tensor_key(base, name)).ok_or_else(missing)?;
            Ok(FoundTensor::new(name, tensor.dtype(), tensor.shape()))
        };
        names.iter().map(find).collect()
    }

    /// Checks the tensors of an upload, wherever they are.
    pub(super) fn inspect_tensors(
        &self,
        stream: &Bytes,
        number: u64,
        found: Vec<FoundTensor>,
    ) -> Result<(u32, ByteSize, Vec<StreamField>), StreamRefusal> {
        let bytes = found.iter().fold(0u64, |bytes, tensor| bytes.saturating_add(tensor.bytes));
        let Some(samples) = found.first().map(|tensor| tensor.samples).filter(|samples| *samples > 0) else {
            return Err(StreamRefusal::Empty { number });
        };
        if let Some(other) = found.iter().find(|tensor| tensor.samples != samples) {
            let (field, expected, found) = (other.field.name.clone(), samples, other.samples);
            return Err(StreamRefusal::SamplesDiffer { number, field, expected, found });
        }
        let known = self.streams.entries.get(stream).map(|entry| &entry.fields[..]).unwrap_or_default();
        for expected in known {
            let field = found.iter().map(|tensor| &tensor.field).find(|field| field.name == expected.name);
            let missing = || StreamRefusal::FieldMissing { number, field: expected.name.clone() };
            let field = field.ok_or_else(missing)?;
            if field != expected {
                let (expected, found) = (expected.to_string(), field.to_string());
                return Err(StreamRefusal::FieldDiffers {
                    number,
                    field: field.name.clone(),
                    expected,
                    found,
                });
            }
        }
        let samples = u32::try_from(samples).ok().ok_or(StreamRefusal::TooManySamples)?;
        Ok((samples, ByteSize(bytes), found.into_iter().map(|tensor| tensor.field).collect()))
    }

    /// Makes a dataset of tensors that are there.
    pub(crate) fn complete_dataset(&mut self, base: &Bytes, names: &[String]) {
        let meta = key(base, META);
        let fields = [(TENSOR_NAMES, encode_names(names)), (COMPLETE, Bytes::from_static(b"1"))];
        let fields = fields.map(|(name, value)| (Bytes::from_static(name.as_bytes()), value));
        let change = || Change::SetFields { key: meta.clone(), fields: fields.to_vec() };
        self.database.edit_hash(&meta, change, |hash: &mut Hash| {
            for (name, value) in &fields {
                hash.insert(name, value.clone());
            }
        });
        self.written(&meta);
    }

    /// The names of a dataset's tensors, if all of it is there.
    pub(crate) fn dataset_names(&mut self, now: Time, base: &Bytes) -> Option<Vec<String>> {
        let Some(Value::Hash(hash)) = self.database.get(now, &key(base, META)) else { return None };
        hash.get(&Bytes::from_static(COMPLETE.as_bytes()))?;
        let names = hash.get(&Bytes::from_static(TENSOR_NAMES.as_bytes()))?;
        decode_names(names)
    }

    /// Deletes the keys of a dataset.
    pub(crate) fn drop_dataset(&mut self, now: Time, base: &Bytes, names: &[String]) {
        for name in names {
            self.database.remove(now, &tensor_key(base, name));
        }
        self.database.remove(now, &key(base, META));
    }

    /// An upload that is being begun, unless it is on its way already.
    pub(crate) fn note_flight(
        &mut self,
        stream: &Bytes,
        producer: &ProducerLife,
        number: u64,
        flight: Flight,
    ) {
        let Some(entry) = self.streams.entries.get_mut(stream) else { return };
        let known = entry.state().producers().get(&producer.id);
        let is_new =
            known.is_some_and(|known| known.incarnation() == producer.incarnation && !known.has(number));
        // A producer has as few uploads on their way as the stream allows; the rest is refused by it.
        let near = known.is_some_and(|known| number.saturating_sub(known.next_upload()) < 1 << 16);
        if is_new && near {
            entry.flights.insert((producer.clone(), number), flight);
        }
    }

    /// An upload that was begun and may not be admitted yet.
    pub(crate) fn flight(&self, stream: &Bytes, producer: &ProducerLife, number: u64) -> Option<Flight> {
        self.streams.entries.get(stream)?.flights.get(&(producer.clone(), number)).cloned()
    }

    pub(super) fn discard_upload(&mut self, now: Time, stream: &Bytes, producer: ProducerLife, number: u64) {
        let entry = self.streams.entries.get_mut(stream);
        let flight = entry.and_then(|entry| entry.flights.remove(&(producer, number)));
        if let Some(flight) = flight {
            self.drop_dataset(now, &flight.base, &flight.fields);
        }
    }

    pub(super) fn free_upload(
        &mut self,
        now: Time,
        stream: &Bytes,
        sequence: UploadSequence,
        out: &mut Effects,
    ) {
        let Some(entry) = self.streams.entries.get_mut(stream) else { return };
        let names: Vec<String> = entry.fields.iter().map(|field| field.name.clone()).collect();
        let Some(upload) = entry.forget(sequence) else { return };
        self.drop_upload(now, &upload.base, names, out);
    }

    /// Deletes the keys of an upload, wherever they are.
    pub(super) fn drop_upload(&mut self, now: Time, base: &Bytes, fields: Vec<String>, out: &mut Effects) {
        if let Some(part) = self.part_elsewhere(base) {
            return self.drop_elsewhere(base, &fields, part, out);
        }
        let names = self.dataset_names(now, base).unwrap_or(fields);
        self.drop_dataset(now, base, &names);
    }

    /// Keeps only some samples of an upload. One that another node has stays whole until none of it is needed.
    pub(super) fn shrink_upload(
        &mut self,
        now: Time,
        stream: &Bytes,
        sequence: UploadSequence,
        keep: Vec<u32>,
    ) {
        let Some(entry) = self.streams.entries.get_mut(stream) else { return };
        let names: Vec<String> = entry.fields.iter().map(|field| field.name.clone()).collect();
        let Some(upload) = entry.stored.get_mut(&sequence) else { return };
        let before = upload.rows.replace(keep.clone());
        let base = upload.base.clone();
        let places = rows::places(before.as_deref(), &keep);
        for name in names {
            let key = tensor_key(&base, &name);
            let shrunk = self.tensor_at(now, &key).and_then(|tensor| rows::taken(&tensor, &places));
            if let Some(shrunk) = shrunk {
                self.database.put(&key, Value::Tensor(Arc::new(shrunk)), None);
            }
        }
    }
}
