//! A value on its way into or out of a database.

/// What a column holds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Int(i64),
    Real(f64),
    Text(String),
}

impl Value {
    /// A number as it is stored: NULL stands for a value that is not a number, since SQLite has none.
    pub(crate) fn number(value: f64) -> Self {
        if value.is_nan() { Value::Null } else { Value::Real(value) }
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Value::Int(value)
    }
}

impl From<u64> for Value {
    /// Steps, bytes and times; larger ones than 2^63 are held there.
    fn from(value: u64) -> Self {
        Value::Int(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Value::number(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Value::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Value::Text(value)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

/// A row of a result, by position.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row(pub(crate) Vec<Value>);

impl Row {
    pub(crate) fn int(&self, at: usize) -> Option<i64> {
        match self.0.get(at) {
            Some(Value::Int(value)) => Some(*value),
            // Whole numbers in a REAL column.
            Some(Value::Real(value)) => Some(*value as i64),
            _ => None,
        }
    }

    /// A number that is never below zero.
    pub(crate) fn count(&self, at: usize) -> u64 {
        self.int(at).and_then(|value| u64::try_from(value).ok()).unwrap_or(0)
    }

    pub(crate) fn maybe_count(&self, at: usize) -> Option<u64> {
        self.int(at).and_then(|value| u64::try_from(value).ok())
    }

    pub(crate) fn real(&self, at: usize) -> Option<f64> {
        match self.0.get(at) {
            Some(Value::Real(value)) => Some(*value),
            Some(Value::Int(value)) => Some(*value as f64),
            _ => None,
        }
    }

    pub(crate) fn str(&self, at: usize) -> Option<&str> {
        match self.0.get(at) {
            Some(Value::Text(value)) => Some(value),
            _ => None,
        }
    }

    pub(crate) fn text(&self, at: usize) -> Option<String> {
        self.str(at).map(str::to_owned)
    }

    pub(crate) fn required_text(&self, at: usize) -> String {
        self.text(at).unwrap_or_default()
    }
}
