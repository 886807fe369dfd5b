//! Changes as bytes, for a journal.
//!
//! ```text
//!   body   := change*
//!   change := tag u8, fields
//!   bytes  := number n; n even: n/2 bytes follow; n odd: the (n-1)/2-th of the values that are stored apart
//!   number := LEB128, at most 64 bits
//!   time   := 0 | 1, number of microseconds
//!   list of x := number, x*
//! ```
//! One record holds all changes of one command, so that a command is recorded whole or not at all.

use super::change::Change;
use super::value::{Hash, List, Model, Script, Side, Value};
use bytes::{BufMut, Bytes, BytesMut};
use phalanx_types::{Class, DType, Tensor, TensorError, Time};
use std::collections::VecDeque;
use std::sync::Arc;

/// The kind of records that hold changes in this form.
pub const ENCODED_KIND: u8 = 1;

/// Values of this length are stored apart from their record, each once.
pub const STORED_APART: usize = 64 << 10;

/// A record can name this many values that are stored apart; others are in the record.
const MOST_APART: usize = 60_000;

const BACKENDS: [&str; 4] = ["ONNX", "TORCH", "TF", "TFLITE"];

/// Why bytes are no changes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// Another version wrote it.
    #[error("records of kind {kind} are unknown")]
    Kind {
        /// The kind of the record.
        kind: u8,
    },
    /// The bytes end too early.
    #[error("ends in the middle of a change")]
    Short,
    /// A number has more than 64 bits, or a length more than an address.
    #[error("a number is too large")]
    Number,
    /// Another version wrote it.
    #[error("{what} {tag} is unknown")]
    Tag {
        /// What the number should say.
        what: &'static str,
        /// The number.
        tag: u8,
    },
    /// The record has fewer values.
    #[error("names value {index} of {count}")]
    NoValue {
        /// Which one it names.
        index: u64,
        /// How many there are.
        count: usize,
    },
    /// The bytes of a tensor do not fit to its shape.
    #[error("holds a tensor that is none")]
    Tensor(#[source] TensorError),
}

impl ChangeError {
    /// How to handle it.
    pub fn class(&self) -> Class {
        Class::Fatal
    }
}

/// Changes as bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedChanges {
    /// The changes, without large values.
    pub body: Bytes,
    /// The large values, in the order in which the body names them.
    pub values: Vec<Bytes>,
}

/// The changes of one command as bytes.
pub fn encode_changes<'a>(changes: impl IntoIterator<Item = &'a Change>) -> EncodedChanges {
    let mut writer = Writer { body: BytesMut::new(), values: Vec::new() };
    changes.into_iter().for_each(|change| writer.change(change));
    EncodedChanges { body: writer.body.freeze(), values: writer.values }
}

/// The changes that a record holds.
///
/// The seed is that of the store: it orders the fields of hashes.
///
/// # Errors
/// The record is not one of this version, or it is damaged.
pub fn decode_changes(
    kind: u8,
    body: &[u8],
    values: &[Bytes],
    seed: u64,
) -> Result<Vec<Change>, ChangeError> {
    if kind != ENCODED_KIND {
        return Err(ChangeError::Kind { kind });
    }
    let mut reader = Reader { rest: body, values, seed };
    let mut changes = Vec::new();
    while !reader.rest.is_empty() {
        changes.push(reader.change()?);
    }
    Ok(changes)
}

struct Writer {
    body: BytesMut,
    values: Vec<Bytes>,
}

impl Writer {
    fn change(&mut self, change: &Change) {
        match change {
            Change::Put { key, value, expires } => {
                self.tagged(1, key);
                self.time(*expires);
                self.value(value);
            }
            Change::Delete { key } => self.tagged(2, key),
            Change::Expire { key, at } => {
                self.tagged(3, key);
                self.time(*at);
            }
            Change::Push { key, side, items } => {
                self.tagged(4, key);
                self.side(*side);
                self.all(items.iter());
            }
            Change::Pop { key, side, count } => {
                self.tagged(5, key);
                self.side(*side);
                self.number(*count as u64);
            }
            Change::SetFields { key, fields } => {
                self.tagged(6, key);
                self.number(fields.len() as u64);
                for (name, value) in fields {
                    self.bytes(name);
                    self.bytes(value);
                }
            }
            Change::DeleteFields { key, fields } => {
                self.tagged(7, key);
                self.all(fields.iter());
            }
            Change::Clear => self.body.put_u8(8),
            Change::Stream { name, record } => {
                self.tagged(9, name);
                self.bytes(record);
            }
        }
    }

    fn tagged(&mut self, tag: u8, key: &Bytes) {
        self.body.put_u8(tag);
        self.bytes(key);
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::String(bytes) => {
                self.body.put_u8(1);
                self.bytes(bytes);
            }
            Value::Hash(hash) => {
                self.body.put_u8(2);
                self.number(hash.len() as u64);
                for (name, value) in hash.iter() {
                    self.bytes(name);
                    self.bytes(value);
                }
            }
            Value::List(list) => {
                self.body.put_u8(3);
                self.number(list.items().len() as u64);
                list.items().iter().for_each(|item| self.bytes(item));
            }
            Value::Tensor(tensor) => {
                self.body.put_u8(4);
                let dtype = DType::ALL.iter().position(|dtype| *dtype == tensor.dtype());
                self.number(dtype.unwrap_or_default() as u64);
                self.number(tensor.shape().len() as u64);
                tensor.shape().iter().for_each(|len| self.number(*len));
                self.bytes(tensor.data());
            }
            Value::Model(model) => {
                self.body.put_u8(5);
                self.model(model);
            }
            Value::Script(script) => {
                self.body.put_u8(6);
                self.bytes(&script.device);
                self.bytes(&script.tag);
                self.all(script.entry_points.iter());
                self.bytes(&script.source);
            }
        }
    }

    fn model(&mut self, model: &Model) {
        let backend = BACKENDS.iter().position(|backend| *backend == model.backend);
        self.number(backend.unwrap_or_default() as u64);
        self.bytes(&model.device);
        self.bytes(&model.tag);
        for number in [model.batch_size, model.min_batch_size, model.min_batch_timeout] {
            self.number(number);
        }
        self.all(model.inputs.iter());
        self.all(model.outputs.iter());
        self.bytes(&model.blob);
    }

    fn all<'a>(&mut self, items: impl ExactSizeIterator<Item = &'a Bytes>) {
        self.number(items.len() as u64);
        items.for_each(|item| self.bytes(item));
    }

    fn bytes(&mut self, bytes: &Bytes) {
        if bytes.len() >= STORED_APART && self.values.len() < MOST_APART {
            self.number((self.values.len() as u64) << 1 | 1);
            self.values.push(bytes.clone());
        } else {
            self.number((bytes.len() as u64) << 1);
            self.body.put_slice(bytes);
        }
    }

    fn side(&mut self, side: Side) {
        self.body.put_u8(match side {
            Side::Left => 0,
            Side::Right => 1,
        });
    }

    fn time(&mut self, time: Option<Time>) {
        match time {
            None => self.body.put_u8(0),
            Some(time) => {
                self.body.put_u8(1);
                self.number(time.0);
            }
        }
    }

    fn number(&mut self, mut number: u64) {
        while number >= 128 {
            self.body.put_u8(number as u8 | 128);
            number >>= 7;
        }
        self.body.put_u8(number as u8);
    }
}

struct Reader<'a> {
    rest: &'a [u8],
    values: &'a [Bytes],
    seed: u64,
}

impl Reader<'_> {
    fn change(&mut self) -> Result<Change, ChangeError> {
        Ok(match self.byte()? {
            1 => Change::Put { key: self.bytes()?, expires: self.time()?, value: self.value()? },
            2 => Change::Delete { key: self.bytes()? },
            3 => Change::Expire { key: self.bytes()?, at: self.time()? },
            4 => Change::Push { key: self.bytes()?, side: self.side()?, items: self.all()?.into() },
            5 => Change::Pop { key: self.bytes()?, side: self.side()?, count: self.length()? },
            6 => Change::SetFields { key: self.bytes()?, fields: self.pairs()? },
            7 => Change::DeleteFields { key: self.bytes()?, fields: self.all()? },
            8 => Change::Clear,
            9 => Change::Stream { name: self.bytes()?, record: self.bytes()? },
            tag => return Err(ChangeError::Tag { what: "change", tag }),
        })
    }

    fn value(&mut self) -> Result<Value, ChangeError> {
        Ok(match self.byte()? {
            1 => Value::String(self.bytes()?),
            2 => {
                let mut hash = Hash::new(self.seed);
                for (name, value) in self.pairs()? {
                    hash.insert(&name, value);
                }
                Value::Hash(Arc::new(hash))
            }
            3 => Value::List(Arc::new(List::from_items(VecDeque::from(self.all()?)))),
            4 => {
                let tag = self.byte()?;
                let dtype = DType::ALL.get(usize::from(tag)).copied();
                let dtype = dtype.ok_or(ChangeError::Tag { what: "type of tensors", tag })?;
                let rank = self.length()?;
                let shape = (0..rank).map(|_| self.number()).collect::<Result<_, _>>()?;
                let tensor = Tensor::new(dtype, shape, self.bytes()?).map_err(ChangeError::Tensor)?;
                Value::Tensor(Arc::new(tensor))
            }
            5 => Value::Model(Arc::new(self.model()?)),
            6 => Value::Script(Arc::new(Script {
                device: self.bytes()?,
                tag: self.bytes()?,
                entry_points: self.all()?,
                source: self.bytes()?,
            })),
            tag => return Err(ChangeError::Tag { what: "value", tag }),
        })
    }

    fn model(&mut self) -> Result<Model, ChangeError> {
        let tag = self.byte()?;
        let backend = BACKENDS.get(usize::from(tag)).copied();
        Ok(Model {
            backend: backend.ok_or(ChangeError::Tag { what: "backend of models", tag })?,
            device: self.bytes()?,
            tag: self.bytes()?,
            batch_size: self.number()?,
            min_batch_size: self.number()?,
            min_batch_timeout: self.number()?,
            inputs: self.all()?,
            outputs: self.all()?,
            blob: self.bytes()?,
        })
    }

    /// Nothing is reserved for a number that was read: a wrong one ends with the bytes.
    fn all(&mut self) -> Result<Vec<Bytes>, ChangeError> {
        let count = self.length()?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(self.bytes()?);
        }
        Ok(items)
    }

    fn pairs(&mut self) -> Result<Vec<(Bytes, Bytes)>, ChangeError> {
        let count = self.length()?;
        let mut pairs = Vec::new();
        for _ in 0..count {
            pairs.push((self.bytes()?, self.bytes()?));
        }
        Ok(pairs)
    }

    /// Bytes of the record are copied: a value must not keep the whole record.
    fn bytes(&mut self) -> Result<Bytes, ChangeError> {
        let number = self.number()?;
        if number & 1 == 1 {
            let index = number >> 1;
            let value = usize::try_from(index).ok().and_then(|index| self.values.get(index));
            return value.cloned().ok_or(ChangeError::NoValue { index, count: self.values.len() });
        }
        let len = usize::try_from(number >> 1).map_err(|_large| ChangeError::Number)?;
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(ChangeError::Short)?;
        self.rest = rest;
        Ok(Bytes::copy_from_slice(bytes))
    }

    fn side(&mut self) -> Result<Side, ChangeError> {
        match self.byte()? {
            0 => Ok(Side::Left),
            1 => Ok(Side::Right),
            tag => Err(ChangeError::Tag { what: "end of lists", tag }),
        }
    }

    fn time(&mut self) -> Result<Option<Time>, ChangeError> {
        match self.byte()? {
            0 => Ok(None),
            1 => Ok(Some(Time(self.number()?))),
            tag => Err(ChangeError::Tag { what: "form of times", tag }),
        }
    }

    fn byte(&mut self) -> Result<u8, ChangeError> {
        let (byte, rest) = self.rest.split_first().ok_or(ChangeError::Short)?;
        self.rest = rest;
        Ok(*byte)
    }

    fn length(&mut self) -> Result<usize, ChangeError> {
        usize::try_from(self.number()?).map_err(|_large| ChangeError::Number)
    }

    fn number(&mut self) -> Result<u64, ChangeError> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 127);
            if bits << shift >> shift != bits {
                return Err(ChangeError::Number);
            }
            number |= bits << shift;
            if byte < 128 {
                return Ok(number);
            }
        }
        Err(ChangeError::Number)
    }
}
