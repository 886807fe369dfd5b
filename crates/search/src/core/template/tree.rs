//! A file as values with their lines, in the order of the file.

use super::error::{Checked, TemplateFault};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The deepest nesting of tables and lists: blocks in blocks need a few levels each.
const DEEPEST: usize = 40;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Table(Vec<Entry>),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) value: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) line: usize,
    pub(super) node: Node,
}

impl Node {
    pub(super) fn entries(&self, field: &str) -> Checked<&[Entry]> {
        match &self.value {
            Value::Table(entries) => Ok(entries),
            other => Err(self.wrong(field, "a table", other.kind())),
        }
    }

    pub(super) fn items(&self, field: &str) -> Checked<&[Node]> {
        match &self.value {
            Value::List(items) => Ok(items),
            other => Err(self.wrong(field, "a list", other.kind())),
        }
    }

    pub(super) fn text(&self, field: &str) -> Checked<&str> {
        match &self.value {
            Value::Text(text) if !text.is_empty() => Ok(text),
            other => Err(self.wrong(field, "a text", other.kind())),
        }
    }

    pub(super) fn number(&self, field: &str) -> Checked<f64> {
        let number = self.value.as_number().filter(|number| number.is_finite());
        number.ok_or_else(|| self.wrong(field, "a number", self.value.to_toml()))
    }

    pub(super) fn whole(&self, field: &str, from: u64) -> Checked<u64> {
        let whole = match self.value {
            Value::Int(number) => u64::try_from(number).ok().filter(|number| *number >= from),
            _ => None,
        };
        whole
            .ok_or_else(|| self.wrong(field, &format!("a whole number from {from} on"), self.value.to_toml()))
    }

    pub(super) fn flag(&self, field: &str) -> Checked<bool> {
        match self.value {
            Value::Bool(flag) => Ok(flag),
            _ => Err(self.wrong(field, "true or false", self.value.to_toml())),
        }
    }

    pub(super) fn wrong(
        &self,
        field: &str,
        wanted: &str,
        got: impl std::fmt::Display,
    ) -> Box<super::error::Placed> {
        TemplateFault::value(field, wanted, got).at(self.line)
    }
}

/// Finds a key.
pub(super) fn get<'a>(entries: &'a [Entry], key: &str) -> Option<&'a Node> {
    entries.iter().find(|entry| entry.key == key).map(|entry| &entry.node)
}

/// Refuses every other key.
pub(super) fn only(entries: &[Entry], place: &str, known: &[&str]) -> Checked<()> {
    match entries.iter().find(|entry| !known.contains(&entry.key.as_str())) {
        None => Ok(()),
        Some(entry) => {
            Err(TemplateFault::unknown_key(&entry.key, place, known.iter().copied()).at(entry.line))
        }
    }
}

impl Value {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Value::Bool(_) => "true or false",
            Value::Int(_) => "a whole number",
            Value::Float(_) => "a number",
            Value::Text(text) if text.is_empty() => "an empty text",
            Value::Text(_) => "a text",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
        }
    }

    pub(super) fn as_number(&self) -> Option<f64> {
        match self {
            Value::Int(number) => Some(*number as f64),
            Value::Float(number) => Some(*number),
            _ => None,
        }
    }

    /// As a person reads it: a text without quotes.
    pub(super) fn label(&self) -> String {
        match self {
            Value::Text(text) => text.clone(),
            other => other.to_toml(),
        }
    }

    /// As TOML, in one line.
    pub(super) fn to_toml(&self) -> String {
        let all = |items: Vec<String>| items.join(", ");
        match self {
            Value::Bool(flag) => flag.to_string(),
            Value::Int(number) => number.to_string(),
            Value::Float(number) if number.is_nan() => "nan".to_owned(),
            // The debug form always has a point or an exponent, and reads back as the same number.
            Value::Float(number) => format!("{number:?}"),
            Value::Text(text) => quoted(text),
            Value::List(items) => {
                format!("[{}]", all(items.iter().map(|item| item.value.to_toml()).collect()))
            }
            Value::Table(entries) if entries.is_empty() => "{}".to_owned(),
            Value::Table(entries) => format!("{{ {} }}", all(entries.iter().map(Entry::to_toml).collect())),
        }
    }
}

impl Entry {
    pub(super) fn to_toml(&self) -> String {
        let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let bare = !self.key.is_empty() && self.key.chars().all(is_bare);
        let key = if bare { self.key.clone() } else { quoted(&self.key) };
        format!("{key} = {}", self.node.value.to_toml())
    }
}

/// A TOML string; JSON's escapes are TOML's. DEL is a control character in TOML alone.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// Reads a TOML text.
pub(super) fn parse(text: &str) -> Checked<Vec<Entry>> {
    let lines = Lines::of(text);
    let parsed = DeTable::parse(text).map_err(|error| {
        let line = lines.of_byte(error.span().map_or(0, |span| span.start));
        TemplateFault::Syntax { what: error.message().to_owned() }.at(line)
    })?;
    table(parsed.get_ref(), &lines, 0)
}

/// Where the lines of a text begin.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        Self(text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect())
    }

    fn of_byte(&self, byte: usize) -> usize {
        1 + self.0.partition_point(|end| *end < byte)
    }
}

fn table(parsed: &DeTable<'_>, lines: &Lines, depth: usize) -> Checked<Vec<Entry>> {
    let mut entries: Vec<_> = parsed.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let entry = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
        let key_text: &std::borrow::Cow<'_, str> = key.get_ref();
        let line = lines.of_byte(key.span().start);
        Ok(Entry { key: key_text.clone().into_owned(), line, node: node(value, lines, depth + 1)? })
    };
    entries.into_iter().map(entry).collect()
}

fn node(parsed: &Spanned<DeValue<'_>>, lines: &Lines, depth: usize) -> Checked<Node> {
    let line = lines.of_byte(parsed.span().start);
    let unusable = |what: &str| TemplateFault::Syntax { what: what.to_owned() }.at(line);
    if depth > DEEPEST {
        return Err(unusable("tables or lists are nested too deeply"));
    }
    let value = match parsed.get_ref() {
        DeValue::Boolean(flag) => Value::Bool(*flag),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map(Value::Int)
            .map_err(|_too_large| unusable("a whole number is too large"))?,
        DeValue::Float(number) => {
            let number = number.as_str().parse();
            Value::Float(number.map_err(|_unreadable| unusable("a number cannot be read"))?)
        }
        DeValue::String(text) => Value::Text(text.clone().into_owned()),
        DeValue::Datetime(_) => return Err(unusable("dates and times mean nothing in a search file")),
        DeValue::Array(items) => {
            Value::List(items.iter().map(|item| node(item, lines, depth + 1)).collect::<Checked<_>>()?)
        }
        DeValue::Table(inner) => Value::Table(table(inner, lines, depth + 1)?),
    };
    Ok(Node { line, value })
}
