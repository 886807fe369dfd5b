use crate::shell::StoredValue;
use bytes::Bytes;

/// One record of a journal or a snapshot. Its meaning is the caller's.
#[derive(Debug, Clone)]
pub struct Record {
    pub kind: u8,
    /// The body in parts, which are written from where they lie. It is read back as one.
    pub parts: Vec<Bytes>,
    /// Large values. The record refers to them; each is written once, however many records and snapshots name it.
    pub values: Vec<StoredValue>,
}

impl Record {
    /// A record without large values.
    pub fn new(kind: u8, parts: impl IntoIterator<Item = Bytes>) -> Self {
        Self { kind, parts: parts.into_iter().collect(), values: Vec::new() }
    }

    /// The same record, with one more value.
    #[must_use]
    pub fn with_value(mut self, value: StoredValue) -> Self {
        self.values.push(value);
        self
    }

    /// Bytes of the body.
    pub(crate) fn body_len(&self) -> u64 {
        self.parts.iter().map(|p| p.len() as u64).sum()
    }
}
