//! Why a filter cannot be understood, and where.

use std::fmt;

/// Why a filter or a sort order cannot be understood.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{problem} at character {} of `{text}`", position + 1)]
pub struct FilterError {
    /// What was given.
    pub text: String,
    /// The character of `text` at which it stops making sense, counted from 0.
    pub position: usize,
    pub problem: FilterProblem,
}

/// What is wrong with a filter.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum FilterProblem {
    Unexpected { found: String, expected: &'static str },
    Ended { expected: &'static str },
    Unclosed { quote: char },
    BadTime { column: String, text: String },
    NotANumber { column: String, text: String },
    NotText { column: String },
    UnknownColumn { name: String, nearest: Option<String> },
    TooLong { limit: usize },
    TooDeep { limit: usize },
}

impl fmt::Display for FilterProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unexpected { found, expected } => write!(f, "expected {expected}, not `{found}`"),
            Self::Ended { expected } => write!(f, "expected {expected}, but the text ends"),
            Self::Unclosed { quote } => write!(f, "the text after {quote} has no end"),
            Self::BadTime { column, text } => {
                write!(f, "`{column}` is a time, and `{text}` is none")
            }
            Self::NotANumber { column, text } => {
                write!(f, "`{column}` is a number and cannot be compared with `{text}`")
            }
            Self::NotText { column } => write!(f, "`{column}` is a number, and `~` compares text"),
            Self::UnknownColumn { name, .. } => write!(f, "no run has `{name}`"),
            Self::TooLong { limit } => write!(f, "a filter has at most {limit} characters; this one ends"),
            Self::TooDeep { limit } => write!(f, "parentheses and `not` nest at most {limit} deep"),
        }
    }
}

impl FilterError {
    /// What the user can do about it, if that is known.
    pub fn hint(&self) -> Option<String> {
        Some(match &self.problem {
            FilterProblem::UnknownColumn { nearest: Some(nearest), .. } => format!("did you mean `{nearest}`?"),
            FilterProblem::UnknownColumn { nearest: None, .. } => {
                "metrics have their names, parameters the path of their key (train.batch), tags `tag.` before them; \
                 also: state, name, model, started, steps"
                    .to_owned()
            }
            FilterProblem::BadTime { .. } => "write it like \"2026-11-01\" or \"2026-11-01T12:30\" (UTC)".to_owned(),
            FilterProblem::Unexpected { .. } | FilterProblem::Ended { .. } => {
                "a filter looks like: val_acc > 0.97 and (model = \"digits-cnn\" or not state = failed)".to_owned()
            }
            _ => return None,
        })
    }
}
