//! Reads one table of a run file key by key; each value is checked and recorded with its source.

use super::error::{ConfigError, Words};
use super::resolved::Resolved;
use super::source::Source;
use super::tree::{Node, Table, Value};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The location of a run file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin<'a> {
    /// As the user wrote it.
    pub(crate) file: &'a Path,
    /// The base of relative paths in it.
    pub(crate) base: &'a Path,
}

/// A table that is being read.
#[derive(Debug)]
pub(crate) struct Section<'a> {
    /// Dotted: `train.optimizer`.
    name: String,
    origin: Origin<'a>,
    table: Option<&'a Table>,
    resolved: &'a mut Resolved,
}

/// A value with its key and source, for errors that only the reader can detect.
#[derive(Debug, Clone)]
pub(crate) struct Sourced<T> {
    pub(crate) value: T,
    pub(crate) key: String,
    pub(crate) source: Source,
}

impl<T: Display> Sourced<T> {
    /// An error that it should have been something else.
    pub(crate) fn should_be(&self, wanted: impl Into<String>) -> ConfigError {
        let (key, got, at) = (self.key.clone(), self.value.to_string(), self.source.clone());
        ConfigError::Range { key, wanted: wanted.into(), got, at }
    }
}

impl<'a> Section<'a> {
    /// Opens a table of the root; a missing table has no keys.
    pub(crate) fn open(
        root: &'a Table,
        name: &str,
        known: &[&'static str],
        origin: Origin<'a>,
        resolved: &'a mut Resolved,
    ) -> Result<Self, ConfigError> {
        let table = match root.get(name).map(|node| (node, &node.value)) {
            None => None,
            Some((_, Value::Table(table))) => Some(table),
            Some((node, other)) => return Err(wrong_type(name, "a table", other, &node.source)),
        };
        let section = Self { name: name.to_owned(), origin, table, resolved };
        section.check(known)?;
        Ok(section)
    }

    /// Opens a subtable. A string means a table with that `name`.
    pub(crate) fn table(
        &mut self,
        key: &'static str,
        known: &[&'static str],
    ) -> Result<Option<Section<'_>>, ConfigError> {
        let Some(node) = self.node(key) else { return Ok(None) };
        let name = format!("{}.{key}", self.name);
        let table = match &node.value {
            Value::Table(table) => table,
            other => return Err(wrong_type(&name, "a table", other, &node.source)),
        };
        let section = Section { name, origin: self.origin, table: Some(table), resolved: self.resolved };
        section.check(known)?;
        Ok(Some(section))
    }

    /// A subtable that was not set.
    pub(crate) fn unsaid(&mut self, key: &'static str) -> Section<'_> {
        let name = format!("{}.{key}", self.name);
        Section { name, origin: self.origin, table: None, resolved: self.resolved }
    }

    /// Refuses unknown keys.
    pub(crate) fn check(&self, known: &[&'static str]) -> Result<(), ConfigError> {
        unknown_key(self.table.into_iter().flatten(), &self.name, known)
    }

    pub(crate) fn node(&self, key: &str) -> Option<&'a Node> {
        self.table?.get(key)
    }

    /// A key with the table's name as prefix.
    pub(crate) fn key(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }

    fn note(&mut self, key: &str, value: String, source: &Source) {
        self.resolved.add(&self.name, key, value, source.clone());
    }

    /// Records a default value.
    pub(crate) fn note_default(&mut self, key: &str, value: &Value) {
        self.note(key, value.to_toml(), &Source::Default);
    }

    /// Records a value that was set.
    pub(crate) fn note_node(&mut self, key: &str, node: &Node) {
        self.note(key, node.value.to_toml(), &node.source);
    }

    pub(crate) fn missing(&self, key: &str, hint: &'static str) -> ConfigError {
        let file = self.origin.file.to_owned();
        ConfigError::Missing { key: key.to_owned(), section: self.name.clone(), file, hint }
    }

    /// An error that two keys exclude each other.
    pub(crate) fn conflict(&self, key: &str, other: &str) -> ConfigError {
        let at = self.node(key).map_or(Source::Default, |node| node.key.clone());
        ConfigError::Conflict { key: key.to_owned(), other: other.to_owned(), section: self.name.clone(), at }
    }

    /// An error that a valid key has no effect here.
    pub(crate) fn useless(&self, key: &str, why: &str) -> ConfigError {
        let at = self.node(key).map_or(Source::Default, |node| node.key.clone());
        ConfigError::Useless { key: self.key(key), why: why.to_owned(), at }
    }

    fn said<T>(&self, key: &str, node: &Node, value: T) -> Sourced<T> {
        Sourced { value, key: self.key(key), source: node.source.clone() }
    }

    pub(crate) fn wrong(&self, key: &str, wanted: &'static str, node: &Node) -> ConfigError {
        wrong_type(&self.key(key), wanted, &node.value, &node.source)
    }

    pub(crate) fn text(&mut self, key: &str) -> Result<Option<Sourced<String>>, ConfigError> {
        let Some(node) = self.node(key) else { return Ok(None) };
        let Value::Text(text) = &node.value else { return Err(self.wrong(key, "a text", node)) };
        self.note_node(key, node);
        Ok(Some(self.said(key, node, text.clone())))
    }

    /// One of some words.
    pub(crate) fn word(
        &mut self,
        key: &str,
        what: &'static str,
        known: &[&'static str],
    ) -> Result<Option<Sourced<&'static str>>, ConfigError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        let word = pick(&text, what, known)?;
        Ok(Some(Sourced { value: word, key: text.key, source: text.source }))
    }

    /// An absolute path: relative to the file for values of the file, otherwise to the working directory.
    pub(crate) fn path(&mut self, key: &str) -> Result<Option<PathBuf>, ConfigError> {
        let Some(node) = self.node(key) else { return Ok(None) };
        let Value::Text(text) = &node.value else { return Err(self.wrong(key, "a path", node)) };
        let told = match &node.source {
            Source::File(_) => self.origin.base.join(text),
            _ => PathBuf::from(text),
        };
        // Fails only for an empty path or without a working directory; the file is then not found.
        let path = std::path::absolute(&told).unwrap_or(told);
        self.note(key, Value::Text(path.to_string_lossy().into_owned()).to_toml(), &node.source);
        Ok(Some(path))
    }

    pub(crate) fn bool_or(&mut self, key: &str, default: bool) -> Result<bool, ConfigError> {
        let Some(node) = self.node(key) else {
            self.note_default(key, &Value::Bool(default));
            return Ok(default);
        };
        let Value::Bool(value) = node.value else { return Err(self.wrong(key, "true or false", node)) };
        self.note_node(key, node);
        Ok(value)
    }

    pub(crate) fn int(
        &mut self,
        key: &str,
        range: RangeInclusive<i64>,
    ) -> Result<Option<Sourced<u64>>, ConfigError> {
        let Some(node) = self.node(key) else { return Ok(None) };
        let Value::Int(value) = node.value else { return Err(self.wrong(key, "a whole number", node)) };
        self.note_node(key, node);
        match u64::try_from(value) {
            Ok(number) if range.contains(&value) => Ok(Some(self.said(key, node, number))),
            _ => Err(self.said(key, node, value).should_be(whole_range(&range))),
        }
    }

    pub(crate) fn int_or(
        &mut self,
        key: &str,
        range: RangeInclusive<i64>,
        default: u64,
    ) -> Result<u64, ConfigError> {
        match self.int(key, range)? {
            Some(said) => Ok(said.value),
            None => {
                self.note_default(key, &Value::Int(i64::try_from(default).unwrap_or(i64::MAX)));
                Ok(default)
            }
        }
    }

    /// A finite number.
    pub(crate) fn number(&mut self, key: &str) -> Result<Option<Sourced<f64>>, ConfigError> {
        let Some(node) = self.node(key) else { return Ok(None) };
        let value = number(node).ok_or_else(|| self.wrong(key, "a number", node))?;
        self.note_node(key, node);
        if !value.is_finite() {
            return Err(self.said(key, node, value).should_be("a finite number"));
        }
        Ok(Some(self.said(key, node, value)))
    }

    /// One number, or several.
    pub(crate) fn numbers(&mut self, key: &str) -> Result<Option<Vec<f64>>, ConfigError> {
        let Some(node) = self.node(key) else { return Ok(None) };
        let items = match &node.value {
            Value::List(items) => items.iter().collect(),
            _ => vec![node],
        };
        let numbers: Option<Vec<f64>> = items.into_iter().map(number).collect();
        let numbers = numbers.ok_or_else(|| self.wrong(key, "a number or a list of numbers", node))?;
        self.note_node(key, node);
        Ok(Some(numbers))
    }

    /// Sizes of dimensions, at least one.
    pub(crate) fn dims(&mut self, key: &str) -> Result<Option<Vec<usize>>, ConfigError> {
        let Some(node) = self.node(key) else { return Ok(None) };
        let wanted = "a list of whole numbers from 1 on, like [1, 8, 8]";
        let dims: Option<Vec<usize>> = match &node.value {
            Value::List(items) if !items.is_empty() => items.iter().map(|item| size(&item.value)).collect(),
            value @ Value::Int(_) => size(value).map(|n| vec![n]),
            _ => None,
        };
        let dims = dims.ok_or_else(|| self.wrong(key, wanted, node))?;
        self.note_node(key, node);
        Ok(Some(dims))
    }

    /// A value that is written as a string.
    pub(crate) fn parsed<T: FromStr>(&mut self, key: &str, wanted: &str) -> Result<Option<T>, ConfigError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        text.value.parse().map(Some).map_err(|_unreadable: T::Err| text.should_be(wanted))
    }
}

fn size(value: &Value) -> Option<usize> {
    match value {
        Value::Int(n) if *n > 0 => usize::try_from(*n).ok(),
        _ => None,
    }
}

fn number(node: &Node) -> Option<f64> {
    match node.value {
        Value::Int(n) => Some(n as f64),
        Value::Float(x) => Some(x),
        _ => None,
    }
}

pub(crate) fn whole_range(range: &RangeInclusive<i64>) -> String {
    match (*range.start(), *range.end()) {
        (low, i64::MAX) => format!("a whole number from {low} on"),
        (low, high) if low == high => low.to_string(),
        (low, high) => format!("a whole number from {low} to {high}"),
    }
}

fn wrong_type(key: &str, wanted: &'static str, got: &Value, at: &Source) -> ConfigError {
    ConfigError::Type { key: key.to_owned(), wanted, got: got.kind(), at: at.clone() }
}

/// Returns the word if it is known.
pub(crate) fn pick(
    said: &Sourced<String>,
    what: &'static str,
    known: &[&'static str],
) -> Result<&'static str, ConfigError> {
    let found = known.iter().find(|word| **word == said.value);
    found.copied().ok_or_else(|| ConfigError::UnknownWord {
        key: said.key.clone(),
        what,
        word: said.value.clone(),
        at: said.source.clone(),
        words: Words::new(&said.value, known),
    })
}

/// Refuses the first key that is not known, in the order of the file.
pub(crate) fn unknown_key<'a>(
    entries: impl Iterator<Item = (&'a String, &'a Node)>,
    section: &str,
    known: &[&str],
) -> Result<(), ConfigError> {
    let unknown = entries.filter(|(key, _)| !known.contains(&key.as_str()));
    let place = |node: &Node| match &node.key {
        Source::File(place) => (place.line, place.column),
        _ => (usize::MAX, 0),
    };
    let Some((key, node)) = unknown.min_by_key(|(_, node)| place(node)) else { return Ok(()) };
    Err(ConfigError::UnknownKey {
        key: key.clone(),
        section: section.to_owned(),
        at: node.key.clone(),
        words: Words::new(key, known),
    })
}
