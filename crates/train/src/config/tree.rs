//! A run file as a tree of values with their sources, before keys are interpreted.

use super::error::ConfigError;
use super::source::{FileLocation, Source};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The deepest nesting of tables that a run file can need.
const DEEPEST: usize = 16;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) value: Value,
    /// The source of the value.
    pub(crate) source: Source,
    /// The source of its key.
    pub(crate) key: Source,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Table(Table),
}

impl Node {
    /// A default value.
    pub(crate) fn default_of(value: Value) -> Self {
        Self { value, source: Source::Default, key: Source::Default }
    }
}

pub(crate) type Table = BTreeMap<String, Node>;

impl Value {
    /// The kind of the value, for errors.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Value::Bool(_) => "true or false",
            Value::Int(_) => "a whole number",
            Value::Float(_) => "a number",
            Value::Text(_) => "a text",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
        }
    }

    /// As TOML, in one line.
    pub(crate) fn to_toml(&self) -> String {
        match self {
            Value::Bool(b) => b.to_string(),
            Value::Int(n) => n.to_string(),
            Value::Float(x) => float(*x),
            Value::Text(text) => quoted(text),
            Value::List(items) => {
                let items: Vec<String> = items.iter().map(|item| item.value.to_toml()).collect();
                format!("[{}]", items.join(", "))
            }
            Value::Table(table) => {
                let entries =
                    table.iter().map(|(key, node)| format!("{} = {}", quoted(key), node.value.to_toml()));
                format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

fn float(x: f64) -> String {
    match x {
        x if x.is_nan() => "nan".to_owned(),
        x if x.is_infinite() => if x > 0.0 { "inf" } else { "-inf" }.to_owned(),
        // The debug form always has a point or an exponent, and reads back as the same number.
        x => format!("{x:?}"),
    }
}

/// A TOML string; JSON's escapes are TOML's.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Reads a TOML text.
pub(crate) fn parse(file: &Arc<Path>, text: &str) -> Result<Table, ConfigError> {
    let parsed = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        ConfigError::Syntax { place: FileLocation::of(file, text, at), what: error.message().to_owned() }
    })?;
    let place = |byte: usize| Source::File(FileLocation::of(file, text, byte));
    table(parsed.get_ref(), &place, 0)
}

fn table(parsed: &DeTable<'_>, place: &dyn Fn(usize) -> Source, depth: usize) -> Result<Table, ConfigError> {
    let nodes = parsed.iter().map(|(key, value)| {
        let at = place(key.span().start);
        Ok((key.get_ref().clone().into_owned(), node(value, at, place, depth)?))
    });
    nodes.collect()
}

fn node(
    parsed: &Spanned<DeValue<'_>>,
    key: Source,
    place: &dyn Fn(usize) -> Source,
    depth: usize,
) -> Result<Node, ConfigError> {
    let source = place(parsed.span().start);
    let unusable = |what: &'static str| ConfigError::Unusable { at: source.clone(), what };
    if depth > DEEPEST {
        return Err(unusable("tables or lists nested too deeply"));
    }
    let value = match parsed.get_ref() {
        DeValue::Boolean(b) => Value::Bool(*b),
        DeValue::Integer(n) => i64::from_str_radix(n.as_str(), n.radix())
            .map(Value::Int)
            .map_err(|_too_large| unusable("a whole number that is too large"))?,
        DeValue::Float(x) => {
            let parsed = x.as_str().parse();
            Value::Float(parsed.map_err(|_no_number| unusable("not a number that can be read"))?)
        }
        DeValue::String(text) => Value::Text(Cow::clone(text).into_owned()),
        DeValue::Datetime(_) => return Err(unusable("dates and times mean nothing in a run file")),
        DeValue::Array(items) => {
            let nodes = items.iter().map(|item| node(item, place(item.span().start), place, depth + 1));
            Value::List(nodes.collect::<Result<_, _>>()?)
        }
        DeValue::Table(inner) => Value::Table(table(inner, place, depth + 1)?),
    };
    Ok(Node { value, source, key })
}

/// Parses the value of an override: TOML if it is valid TOML, otherwise a string.
pub(crate) fn parse_value(text: &str, source: &Source) -> Result<Node, ConfigError> {
    let place = |_byte: usize| source.clone();
    match DeValue::parse(text) {
        Ok(parsed) => node(&parsed, source.clone(), &place, 0),
        Err(_no_toml) => {
            Ok(Node { value: Value::Text(text.to_owned()), source: source.clone(), key: source.clone() })
        }
    }
}

/// Whether a dotted path exists.
pub(crate) fn has(root: &Table, path: &str) -> bool {
    match path.split_once('.') {
        None => root.contains_key(path),
        Some((first, rest)) => match root.get(first).map(|node| &node.value) {
            Some(Value::Table(table)) => has(table, rest),
            _ => false,
        },
    }
}

/// Sets a value at a dotted path. Missing tables are created, and a string on the way (`optimizer = "adam"`) becomes
/// the name in a table.
pub(crate) fn put(root: &mut Table, path: &str, node: Node) -> Result<(), ConfigError> {
    let wrong = |why| ConfigError::Override { text: path.to_owned(), why };
    let mut keys: Vec<&str> = path.split('.').map(str::trim).collect();
    let last = keys.pop().filter(|key| !key.is_empty()).ok_or_else(|| wrong("there is no key"))?;
    if keys.len() > DEEPEST || keys.iter().any(|key| key.is_empty()) {
        return Err(wrong("a key is empty"));
    }
    let mut table = root;
    for key in keys {
        let made = || Node {
            value: Value::Table(Table::new()),
            source: node.source.clone(),
            key: node.source.clone(),
        };
        let entry = table.entry(key.to_owned()).or_insert_with(made);
        if let Value::Text(name) = &entry.value {
            let name = Node { value: Value::Text(name.clone()), ..entry.clone() };
            entry.value = Value::Table(Table::from([("name".to_owned(), name)]));
        }
        table = match &mut entry.value {
            Value::Table(table) => table,
            _ => return Err(wrong("a part of this key is a value, not a table")),
        };
    }
    table.insert(last.to_owned(), node);
    Ok(())
}
