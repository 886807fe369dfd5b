//! The keys of one table, with the lines they are on.

use super::LayersError;
use phalanx_types::nearest;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub(super) struct Keys<'a> {
    table: &'a DeTable<'a>,
    text: &'a str,
    /// The line of the table itself.
    pub line: usize,
    place: &'static str,
}

impl<'a> Keys<'a> {
    pub(super) fn new(table: &'a DeTable<'a>, text: &'a str, line: usize, place: &'static str) -> Self {
        Self { table, text, line, place }
    }

    fn entry(&self, key: &str) -> Option<(usize, &'a Spanned<DeValue<'a>>)> {
        let (k, v) = self.table.iter().find(|(k, _)| k.get_ref() == key)?;
        Some((self.line_at(k.span().start), v))
    }

    fn line_at(&self, at: usize) -> usize {
        1 + self.text.as_bytes().iter().take(at).filter(|b| **b == b'\n').count()
    }

    pub(super) fn get(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.entry(key).map(|(_, v)| v)
    }

    pub(super) fn line_of(&self, key: &str) -> usize {
        self.entry(key).map_or(self.line, |(line, _)| line)
    }

    fn described(&self) -> String {
        match self.get("type").and_then(|v| v.get_ref().as_str()) {
            Some(kind) => format!("a layer of type `{}`", kind.chars().take(40).collect::<String>()),
            None => self.place.to_owned(),
        }
    }

    /// Refuses every other key.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), LayersError> {
        let unknown = |(k, _): &(&Spanned<_>, _)| {
            let key: &std::borrow::Cow<'_, str> = k.get_ref();
            !known.contains(&key.as_ref())
        };
        match self.table.iter().find(unknown) {
            None => Ok(()),
            Some((key, _)) => Err(LayersError::UnknownKey {
                line: self.line_at(key.span().start),
                key: key.get_ref().to_string(),
                place: self.described(),
                nearest: nearest(key.get_ref(), known.iter().copied()).map(str::to_owned),
            }),
        }
    }

    pub(super) fn missing(&self, key: &'static str) -> LayersError {
        LayersError::Missing { line: self.line, key, place: self.described() }
    }

    pub(super) fn value(&self, key: &str, wanted: &'static str) -> LayersError {
        LayersError::Value { line: self.line_of(key), key: key.into(), wanted }
    }

    fn read<T>(
        &self,
        key: &str,
        wanted: &'static str,
        read: impl Fn(&DeValue<'a>) -> Option<T>,
    ) -> Result<Option<T>, LayersError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        read(value.get_ref()).map(Some).ok_or_else(|| self.value(key, wanted))
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, LayersError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let text = value.get_ref().as_str().filter(|t| !t.is_empty());
        text.map(Some).ok_or_else(|| self.value(key, "a word in quotes"))
    }

    pub(super) fn need_text(&self, key: &'static str) -> Result<&'a str, LayersError> {
        self.text(key)?.ok_or_else(|| self.missing(key))
    }

    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, LayersError> {
        self.read(key, "true or false", |v| v.as_bool())
    }

    pub(super) fn size(&self, key: &str) -> Result<Option<usize>, LayersError> {
        let size = self.read(key, "a whole number", whole)?;
        self.bounded(key, size.as_slice())?;
        Ok(size)
    }

    fn bounded(&self, key: &str, sizes: &[usize]) -> Result<(), LayersError> {
        let fits = sizes.iter().all(|n| *n <= MOST_SIZE);
        if fits { Ok(()) } else { Err(self.value(key, "at most 134217728")) }
    }

    pub(super) fn need_size(&self, key: &'static str) -> Result<usize, LayersError> {
        self.size(key)?.ok_or_else(|| self.missing(key))
    }

    pub(super) fn sizes(&self, key: &str) -> Result<Option<Vec<usize>>, LayersError> {
        let sizes = self.read(key, "a list of whole numbers, at most 8", list)?;
        self.bounded(key, sizes.as_deref().unwrap_or_default())?;
        Ok(sizes)
    }

    pub(super) fn one_or_more(&self, key: &str) -> Result<Option<Vec<usize>>, LayersError> {
        let one_or_more = |v: &DeValue<'a>| whole(v).map(|n| vec![n]).or_else(|| list(v));
        let sizes = self.read(key, "a whole number or a list of them", one_or_more)?;
        self.bounded(key, sizes.as_deref().unwrap_or_default())?;
        Ok(sizes)
    }

    pub(super) fn number(&self, key: &str) -> Result<Option<f32>, LayersError> {
        self.read(key, "a number", float)
    }

    pub(super) fn ratio(&self, key: &str) -> Result<Option<f32>, LayersError> {
        self.read(key, "a number from 0 to 1", |v| float(v).filter(|x| (0.0..=1.0).contains(x)))
    }
}

/// The largest size of a layer.
const MOST_SIZE: usize = 1 << 27;

fn whole(value: &DeValue<'_>) -> Option<usize> {
    let n = value.as_integer()?;
    usize::from_str_radix(&n.as_str().replace('_', ""), n.radix()).ok()
}

fn list(value: &DeValue<'_>) -> Option<Vec<usize>> {
    let all = value.as_array().filter(|a| a.len() <= 8)?;
    all.iter().map(|v| whole(v.get_ref())).collect()
}

fn float(value: &DeValue<'_>) -> Option<f32> {
    match value {
        DeValue::Float(f) => f.as_str().replace('_', "").parse().ok().filter(|x: &f32| x.is_finite()),
        value => whole(value).map(|n| n as f32),
    }
}
