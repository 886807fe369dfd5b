//! The fields of one node or link, independent of the file format.

use crate::pool::units;
use crate::{Link, PoolError};
use phalanx_types::{ByteSize, nearest};
use std::collections::BTreeMap;

/// One value of a field.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FieldValue {
    Text(String),
    Number(f64),
    Other(&'static str),
}

/// Named values, and the name of their owner for messages.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fields {
    pub(crate) of: String,
    pub(crate) values: BTreeMap<String, FieldValue>,
}

impl Fields {
    /// Refuses keys that are not known.
    pub(crate) fn only(&self, known: &[&str]) -> Result<(), PoolError> {
        let Some(key) = self.values.keys().find(|k| !known.contains(&k.as_str())) else { return Ok(()) };
        let nearest = nearest(key, known.iter().copied()).map(str::to_owned);
        Err(PoolError::UnknownKey { of: self.of.clone(), key: key.chars().take(64).collect(), nearest })
    }

    pub(crate) fn missing(&self, key: &'static str) -> PoolError {
        PoolError::Missing { of: self.of.clone(), key }
    }

    fn read<T>(
        &self,
        key: &'static str,
        expected: &'static str,
        read: impl Fn(&FieldValue) -> Option<T>,
    ) -> Result<Option<T>, PoolError> {
        let Some(value) = self.values.get(key) else { return Ok(None) };
        let wrong = || PoolError::Value { of: self.of.clone(), key, expected, found: shown(value) };
        read(value).map(Some).ok_or_else(wrong)
    }

    pub(crate) fn text(&self, key: &'static str) -> Result<Option<String>, PoolError> {
        self.read(key, "a text", |value| match value {
            FieldValue::Text(text) if !text.is_empty() => Some(text.clone()),
            _ => None,
        })
    }

    /// A number above 0.
    pub(crate) fn positive(&self, key: &'static str) -> Result<Option<f64>, PoolError> {
        self.read(key, "a number above 0", |value| match value {
            FieldValue::Number(n) => Some(*n).filter(|n| n.is_finite() && *n > 0.0),
            _ => None,
        })
    }

    pub(crate) fn size(&self, key: &'static str) -> Result<Option<u64>, PoolError> {
        self.read(key, "a size like \"8GiB\"", |value| match value {
            FieldValue::Text(text) => text.parse::<ByteSize>().ok().map(|size| size.0).filter(|n| *n > 0),
            _ => None,
        })
    }

    pub(crate) fn bandwidth(&self, key: &'static str) -> Result<Option<f64>, PoolError> {
        self.read(key, "a bandwidth like \"100Mbit\" or \"10MiB/s\"", |value| match value {
            FieldValue::Text(text) => units::bandwidth(text).filter(|b| b.is_finite()),
            _ => None,
        })
    }

    pub(crate) fn latency(&self, key: &'static str) -> Result<Option<f64>, PoolError> {
        self.read(key, "a time like \"0.2ms\"", |value| match value {
            FieldValue::Text(text) => units::duration(text).filter(|b| b.is_finite()),
            _ => None,
        })
    }

    /// Bandwidth and latency, if at least one of them is given.
    pub(crate) fn link(&self, otherwise: Link) -> Result<Option<Link>, PoolError> {
        let (bandwidth, latency) = (self.bandwidth("bandwidth")?, self.latency("latency")?);
        let link =
            Link::new(bandwidth.unwrap_or(otherwise.bytes_per_s), latency.unwrap_or(otherwise.latency_s));
        Ok((bandwidth.is_some() || latency.is_some()).then_some(link))
    }
}

fn shown(value: &FieldValue) -> String {
    match value {
        FieldValue::Text(text) => format!("{:?}", text.chars().take(40).collect::<String>()),
        FieldValue::Number(number) => number.to_string(),
        FieldValue::Other(what) => (*what).to_owned(),
    }
}
