use super::table::Table;
use bytes::Bytes;
use phalanx_types::Tensor;
use std::collections::VecDeque;
use std::sync::Arc;

/// What an entry takes beside its key and value: its share of the tree, its reference counts.
pub(crate) const ENTRY_OVERHEAD: u64 = 120;

/// What an element of a list or a field of a hash takes beside its bytes.
const ELEMENT_OVERHEAD: u64 = 40;

/// What a key holds. Cloning shares the bytes.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Any bytes.
    String(Bytes),
    /// Fields and their values.
    Hash(Arc<Hash>),
    /// A sequence of byte strings.
    List(Arc<List>),
    /// A tensor.
    Tensor(Arc<Tensor>),
    /// A model that may be run.
    Model(Arc<Model>),
    /// A script; kept for its users, never run.
    Script(Arc<Script>),
}

impl Value {
    /// The name that `TYPE` gives.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::String(_) => "string",
            Value::Hash(_) => "hash",
            Value::List(_) => "list",
            Value::Tensor(_) => "AI_TENSOR",
            Value::Model(_) => "AI__MODEL",
            Value::Script(_) => "AI_SCRIPT",
        }
    }

    /// The memory it takes.
    pub fn size(&self) -> u64 {
        match self {
            Value::String(bytes) => bytes.len() as u64,
            Value::Hash(hash) => hash.size,
            Value::List(list) => list.size,
            Value::Tensor(tensor) => tensor.data().len() as u64 + 8 * tensor.shape().len() as u64,
            Value::Model(model) => model.blob.len() as u64,
            Value::Script(script) => script.source.len() as u64,
        }
    }

    /// Whether it is a collection without elements, which Redis has no keys for.
    pub(crate) fn is_empty_collection(&self) -> bool {
        match self {
            Value::Hash(hash) => hash.fields.is_empty(),
            Value::List(list) => list.items.is_empty(),
            _ => false,
        }
    }
}

/// The fields of a hash.
#[derive(Debug, Clone, PartialEq)]
pub struct Hash {
    fields: Table<Bytes>,
    size: u64,
}

impl Hash {
    pub(crate) fn new(seed: u64) -> Self {
        Self { fields: Table::new(seed), size: 0 }
    }

    /// The value of a field.
    pub fn get(&self, field: &Bytes) -> Option<&Bytes> {
        self.fields.get(field)
    }

    /// All fields, in no order that means something.
    pub fn iter(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.fields.iter()
    }

    /// How many fields there are.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether there is no field.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    pub(crate) fn scan(&self, cursor: u64, count: usize) -> (u64, Vec<(&Bytes, &Bytes)>) {
        self.fields.scan(cursor, count)
    }

    /// Says whether the field is new.
    pub(crate) fn insert(&mut self, field: &Bytes, value: Bytes) -> bool {
        self.size += value.len() as u64;
        match self.fields.insert(field, value) {
            Some(old) => {
                self.size -= old.len() as u64;
                false
            }
            None => {
                self.size += field.len() as u64 + ELEMENT_OVERHEAD;
                true
            }
        }
    }

    pub(crate) fn remove(&mut self, field: &Bytes) -> Option<Bytes> {
        let old = self.fields.remove(field)?;
        self.size -= old.len() as u64 + field.len() as u64 + ELEMENT_OVERHEAD;
        Some(old)
    }
}

/// The end of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The first element.
    Left,
    /// The last element.
    Right,
}

/// The elements of a list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct List {
    items: VecDeque<Bytes>,
    size: u64,
}

impl List {
    /// The elements from the left.
    pub fn items(&self) -> &VecDeque<Bytes> {
        &self.items
    }

    pub(crate) fn from_items(items: VecDeque<Bytes>) -> Self {
        let size = items.iter().map(Self::item_size).sum();
        Self { items, size }
    }

    fn item_size(item: &Bytes) -> u64 {
        item.len() as u64 + ELEMENT_OVERHEAD
    }

    pub(crate) fn push(&mut self, side: Side, item: Bytes) {
        self.size += Self::item_size(&item);
        match side {
            Side::Left => self.items.push_front(item),
            Side::Right => self.items.push_back(item),
        }
    }

    pub(crate) fn pop(&mut self, side: Side) -> Option<Bytes> {
        let item = match side {
            Side::Left => self.items.pop_front(),
            Side::Right => self.items.pop_back(),
        }?;
        self.size -= Self::item_size(&item);
        Some(item)
    }
}

/// A model: what it is for, and its bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// `ONNX`, `TORCH`, `TF` or `TFLITE`.
    pub backend: &'static str,
    /// Where its user wants it to run, such as `CPU` or `GPU:1`.
    pub device: Bytes,
    /// What its user calls this version.
    pub tag: Bytes,
    /// Inputs of several requests may be joined up to this number of samples; 0 for no joining.
    pub batch_size: u64,
    /// How many samples to wait for before running.
    pub min_batch_size: u64,
    /// The longest wait for them, in milliseconds.
    pub min_batch_timeout: u64,
    /// Names of inputs, where the backend needs them.
    pub inputs: Vec<Bytes>,
    /// Names of outputs, where the backend needs them.
    pub outputs: Vec<Bytes>,
    /// The file of the model.
    pub blob: Bytes,
}

/// A script.
#[derive(Debug, Clone, PartialEq)]
pub struct Script {
    /// Where its user wants it to run.
    pub device: Bytes,
    /// What its user calls this version.
    pub tag: Bytes,
    /// The functions that may be called, if they were said.
    pub entry_points: Vec<Bytes>,
    /// Its text.
    pub source: Bytes,
}
