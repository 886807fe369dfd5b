//! Errors of search files, with the line and the word that may have been meant.

use crate::core::space::SpaceError;
use phalanx_types::{Class, nearest};
use std::fmt::Display;
use std::path::PathBuf;

/// Why a search file cannot be used, or not for one candidate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}: {fault}", file.display())]
pub struct TemplateError {
    pub file: PathBuf,
    /// Counted from 1.
    pub line: usize,
    pub fault: TemplateFault,
}

impl TemplateError {
    pub fn class(&self) -> Class {
        Class::Fatal
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateFault {
    #[error("not TOML: {what}")]
    Syntax { what: String },
    #[error("there is no key `{key}` in {place}{}", hint(nearest))]
    UnknownKey { key: String, place: String, nearest: Option<String> },
    #[error("nothing in [space] is called `{name}`{}", hint(nearest))]
    UnknownName { name: String, nearest: Option<String> },
    #[error("`{name}` is never used: write \"${name}\" where its value belongs")]
    Unused { name: String },
    #[error("`{name}` depends on `{on}`, which stands after it: move `{on}` up")]
    LaterName { name: String, on: String },
    #[error("`{name}` has no choice {choice}{}", hint(nearest))]
    UnknownChoice { name: String, choice: String, nearest: Option<String> },
    #[error("`{name}` stands twice")]
    Twice { name: String },
    #[error("{place} needs the key `{key}`{}", as_in(example))]
    Missing { key: &'static str, place: String, example: &'static str },
    #[error("`{field}` must be {wanted}, not {got}")]
    Value { field: String, wanted: String, got: String },
    #[error("`{key}` and `{other}` exclude each other")]
    Conflict { key: &'static str, other: &'static str },
    #[error("`{text}` in `{field}` cannot be read: {why}")]
    Expression { field: String, text: String, why: &'static str },
    #[error("`{text}` in `{field}` cannot be computed: {why}")]
    Arithmetic { field: String, text: String, why: String },
    #[error(
        "`{name}` does not exist here for every candidate: it needs {needs}; add this to the `when` of the layer"
    )]
    MayNotExist { name: String, needs: String },
    #[error("{met} of the alternatives of `{field}` apply to this candidate, and exactly one must")]
    Alternatives { field: String, met: usize },
    #[error("no layer before this one is called `{name}`{}", hint(nearest))]
    UnknownLayer { name: String, nearest: Option<String> },
    #[error("layer `{name}` does not exist in this candidate")]
    AbsentLayer { name: String },
    #[error("there are more than {most} {what}")]
    TooMany { most: usize, what: &'static str },
    #[error(transparent)]
    Space(#[from] SpaceError),
}

fn hint(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|nearest| format!("; did you mean `{nearest}`?")).unwrap_or_default()
}

fn as_in(example: &str) -> String {
    if example.is_empty() { String::new() } else { format!(", as in {example}") }
}

/// A fault with its line; the file is added at the end.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) line: usize,
    pub(super) fault: TemplateFault,
}

pub(super) type Checked<T> = Result<T, Box<Placed>>;

impl TemplateFault {
    pub(super) fn at(self, line: usize) -> Box<Placed> {
        Box::new(Placed { line, fault: self })
    }

    pub(super) fn value(field: &str, wanted: impl Display, got: impl Display) -> Self {
        Self::Value { field: field.to_owned(), wanted: wanted.to_string(), got: got.to_string() }
    }

    pub(super) fn unknown_key<'a>(key: &str, place: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        let nearest = nearest(key, known).map(str::to_owned);
        Self::UnknownKey { key: key.to_owned(), place: place.to_owned(), nearest }
    }
}
