//! The language of `--where` and `--sort`: text → tokens → typed tree → SQL with bound parameters.
//!
//! ```text
//! filter     = either ;               either = all { "or" all } ;        all = unary { "and" unary } ;
//! unary      = "not" unary | "(" filter ")" | comparison ;
//! comparison = name ( "=" | "==" | "!=" | "<>" | "<" | "<=" | ">" | ">=" | "~" | "!~" ) value ;
//! name       = word { "." word } | quoted ;                              value = number | quoted | word ;
//! ```
//! The SQL text is made of constants of this module; whatever the user writes becomes a bound parameter.

mod error;
mod lexer;
mod parse;
mod sort;
mod sql;
#[cfg(test)]
mod tests;

pub use error::{FilterError, FilterProblem};
pub use sort::{SortKey, parse_sort};
pub(crate) use sql::{Dialect, Statement};

use std::fmt;

/// A filter that was understood.
#[derive(Debug, Clone, PartialEq)]
pub enum Filter {
    All(Vec<Filter>),
    Any(Vec<Filter>),
    Not(Box<Filter>),
    Compare(Comparison),
}

/// One comparison of a column with a value.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    pub column: Column,
    pub operator: Operator,
    pub value: Literal,
    /// Where the column stands in the text, in characters.
    pub position: usize,
}

/// What a name means.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Column {
    /// A field that every run has.
    Field(Field),
    /// A value of a series.
    Metric {
        name: String,
        of: Aggregate,
    },
    /// A value of the run file, with the path of its key.
    Param(String),
    Tag(String),
}

/// Which value of a series counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Aggregate {
    Last,
    Min,
    Max,
}

/// Fields of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    Uid,
    Name,
    Kind,
    Experiment,
    State,
    Reason,
    Waiting,
    Model,
    Host,
    Seed,
    Steps,
    TotalSteps,
    Started,
    Ended,
    Wall,
}

impl Field {
    pub const ALL: [(&'static str, Field); 15] = [
        ("uid", Field::Uid),
        ("name", Field::Name),
        ("kind", Field::Kind),
        ("experiment", Field::Experiment),
        ("state", Field::State),
        ("reason", Field::Reason),
        ("waiting", Field::Waiting),
        ("model", Field::Model),
        ("host", Field::Host),
        ("seed", Field::Seed),
        ("steps", Field::Steps),
        ("total_steps", Field::TotalSteps),
        ("started", Field::Started),
        ("ended", Field::Ended),
        ("wall_s", Field::Wall),
    ];

    pub(crate) fn named(word: &str) -> Option<Field> {
        match word {
            "run" | "id" => Some(Field::Name),
            _ => Self::ALL.iter().find(|(name, _)| *name == word).map(|(_, field)| *field),
        }
    }

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, field)| *field == self).map_or("", |(name, _)| name)
    }

    /// What its values are.
    fn values(self) -> Values {
        match self {
            Field::Seed | Field::Steps | Field::TotalSteps | Field::Wall => Values::Number,
            Field::Started | Field::Ended => Values::Time,
            _ => Values::Text,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Values {
    Number,
    Text,
    /// Milliseconds since 1970, written as dates.
    Time,
    /// Text that may be a number: parameters and tags.
    Either,
}

impl Column {
    /// What a name means when nothing else is known: fields first, then prefixes; a name with a point is a parameter,
    /// any other a metric.
    pub fn named(text: &str) -> Column {
        if let Some(field) = Field::named(text) {
            return Column::Field(field);
        }
        let metric = |name: &str, of| Column::Metric { name: name.to_owned(), of };
        match text.split_once('.') {
            Some(("tag" | "tags", key)) => Column::Tag(key.to_owned()),
            Some(("param" | "params", key)) => Column::Param(key.to_owned()),
            Some(("metric" | "metrics" | "last", name)) => metric(name, Aggregate::Last),
            Some(("min", name)) => metric(name, Aggregate::Min),
            Some(("max", name)) => metric(name, Aggregate::Max),
            Some(("best", name)) if super::lower_is_better(name) => metric(name, Aggregate::Min),
            Some(("best", name)) => metric(name, Aggregate::Max),
            Some(_) => Column::Param(text.to_owned()),
            None => metric(text, Aggregate::Last),
        }
    }

    pub(crate) fn values(&self) -> Values {
        match self {
            Column::Field(field) => field.values(),
            Column::Metric { .. } => Values::Number,
            Column::Param(_) | Column::Tag(_) => Values::Either,
        }
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Column::Field(field) => f.write_str(field.name()),
            Column::Metric { name, of: Aggregate::Last } => f.write_str(name),
            Column::Metric { name, of: Aggregate::Min } => write!(f, "min.{name}"),
            Column::Metric { name, of: Aggregate::Max } => write!(f, "max.{name}"),
            Column::Param(key) => f.write_str(key),
            Column::Tag(key) => write!(f, "tag.{key}"),
        }
    }
}

/// How values are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    Equal,
    NotEqual,
    Less,
    AtMost,
    Greater,
    AtLeast,
    /// Contains this text, whatever the case of its letters.
    Contains,
    Lacks,
}

/// A value in a filter.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    Number(f64),
    Text(String),
    /// Milliseconds since 1970.
    Time(i64),
}

impl Filter {
    /// Reads a filter.
    ///
    /// # Errors
    /// It cannot be understood; the error says where.
    pub fn parse(text: &str) -> Result<Filter, FilterError> {
        parse::parse(text)
    }

    /// All comparisons, in the order of the text.
    pub(crate) fn comparisons(&self) -> Vec<&Comparison> {
        match self {
            Filter::All(parts) | Filter::Any(parts) => parts.iter().flat_map(Filter::comparisons).collect(),
            Filter::Not(part) => part.comparisons(),
            Filter::Compare(comparison) => vec![comparison],
        }
    }
}
