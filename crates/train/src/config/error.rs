//! Errors of run files, with the location and suggestions.

use super::resolved::Resolved;
use super::source::{FileLocation, Source};
use phalanx_types::Class;
use phalanx_types::nearest;
use std::fmt;
use std::path::PathBuf;

/// Why a run file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    #[error("could not read run file {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("not TOML at {place}: {what}")]
    Syntax { place: FileLocation, what: String },
    #[error("cannot be used at {at}: {what}")]
    Unusable { at: Source, what: &'static str },
    #[error("unknown key `{key}` in {} at {at}{}", in_section(section), words)]
    UnknownKey { key: String, section: String, at: Source, words: Box<Words> },
    #[error("unknown {what} {word:?} for `{key}`{}{}", at_place(at), words)]
    UnknownWord { key: String, what: &'static str, word: String, at: Source, words: Box<Words> },
    #[error("`{key}` must be {wanted}, not {got}, at {at}")]
    Type { key: String, wanted: &'static str, got: &'static str, at: Source },
    #[error("`{key}` must be {wanted}, not {got}{}", place(at))]
    Range { key: String, wanted: String, got: String, at: Source },
    #[error("there is no `{key}` in {} of {}", in_section(section), file.display())]
    Missing { key: String, section: String, file: PathBuf, hint: &'static str },
    #[error("`{key}` and `{other}` are both given in {}, at {at}", in_section(section))]
    Conflict { key: String, other: String, section: String, at: Source },
    #[error("`{key}` means nothing here: {why}{}", place(at))]
    Useless { key: String, why: String, at: Source },
    /// For a configuration that was built in code.
    #[error("`{key}` is in memory: a run file cannot name it")]
    InMemory { key: &'static str },
    #[error("cannot set `{text}`: {why}")]
    Override { text: String, why: &'static str },
}

/// The same without a comma.
fn at_place(at: &Source) -> String {
    if *at == Source::Code { String::new() } else { format!(" at {at}") }
}

/// The location of a value, if it has one.
fn place(at: &Source) -> String {
    if *at == Source::Code { String::new() } else { format!(", at {at}") }
}

fn in_section(name: &str) -> String {
    if name.is_empty() { "the run file".to_owned() } else { format!("[{name}]") }
}

/// The valid words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Words {
    /// The most similar one.
    pub nearest: Option<String>,
    pub known: Vec<String>,
}

impl Words {
    pub(crate) fn new(wrong: &str, known: &[&str]) -> Box<Self> {
        Box::new(Self {
            nearest: nearest(wrong, known.iter().copied()).map(str::to_owned),
            known: known.iter().map(|word| (*word).to_owned()).collect(),
        })
    }
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.nearest {
            Some(word) => write!(f, "; did you mean `{word}`?"),
            None => write!(f, "; there are {}", self.known.join(", ")),
        }
    }
}

impl ConfigError {
    /// An error for an unknown loss.
    pub fn unknown_loss(word: &str) -> Self {
        let words = Words::new(word, super::train::LOSS.names);
        let (key, word) = ("train.loss".to_owned(), word.to_owned());
        Self::UnknownWord { key, what: "loss", word, at: Source::Code, words }
    }

    /// Adds the location of the key, if it is in a file.
    pub(crate) fn placed(mut self, resolved: &Resolved) -> Self {
        if let Self::Range { key, at, .. } | Self::Useless { key, at, .. } = &mut self
            && *at == Source::Code
        {
            *at = resolved.source(key).unwrap_or(Source::Default);
        }
        self
    }

    pub fn class(&self) -> Class {
        Class::Fatal
    }

    /// What the user can do about it, unless the message says it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Missing { hint, .. } if !hint.is_empty() => Some((*hint).to_owned()),
            Self::Conflict { .. } => Some("give one of the two".to_owned()),
            Self::Override { .. } => Some("write it like --set train.optimizer.lr=0.01".to_owned()),
            Self::Read { .. } => {
                Some("give the path of a run file; examples/digits/run.toml is one".to_owned())
            }
            _ => None,
        }
    }
}
