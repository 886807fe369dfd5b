//! Which trials a listing shows, and in which order: `state=running and valid.accuracy>0.9`, `-accuracy,budget`.
//!
//! ```text
//! filter     = comparison { ( "and" | "," ) comparison } ;       comparison = name operator value ;
//! operator   = "=" | "==" | "!=" | "<" | "<=" | ">" | ">=" | "~" | "!~" ;
//! ```

use crate::table::{SearchTable, TrialRow, TrialStatus};
use phalanx_types::nearest;
use std::cmp::Ordering;
use std::fmt;

/// Comparisons that all must hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Filter {
    comparisons: Vec<Comparison>,
}

#[derive(Debug, Clone, PartialEq)]
struct Comparison {
    column: String,
    operator: Operator,
    value: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    AtMost,
    AtLeast,
    Less,
    Greater,
    Contains,
    Lacks,
}

/// Signs that begin with another stand before it.
const SIGNS: [(&str, Operator); 10] = [
    ("==", Operator::Equal),
    ("!=", Operator::NotEqual),
    ("<=", Operator::AtMost),
    (">=", Operator::AtLeast),
    ("<>", Operator::NotEqual),
    ("!~", Operator::Lacks),
    ("=", Operator::Equal),
    ("<", Operator::Less),
    (">", Operator::Greater),
    ("~", Operator::Contains),
];

/// Fields that every trial has.
const FIELDS: [&str; 16] = [
    "trial", "archid", "model", "state", "node", "rung", "budget", "seconds", "error", "parents", "starts",
    "retries", "proposed", "queued", "started", "ended",
];

/// Why trials cannot be chosen or sorted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    #[error("expected a comparison such as `state = running`, not `{found}`")]
    NotAComparison { found: String },
    #[error("the text after {quote} has no end in `{found}`")]
    Unclosed { quote: char, found: String },
    #[error("no trial has `{name}`")]
    UnknownColumn { name: String, nearest: Option<String> },
    #[error("`{value}` is not a state of a trial")]
    UnknownState { value: String, nearest: Option<String> },
}

impl FilterError {
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            FilterError::NotAComparison { .. } | FilterError::Unclosed { .. } => {
                "a filter looks like: state=partial and accuracy>0.9 and hidden_dim=32".to_owned()
            }
            FilterError::UnknownColumn { nearest: Some(nearest), .. }
            | FilterError::UnknownState { nearest: Some(nearest), .. } => {
                format!("did you mean `{nearest}`?")
            }
            FilterError::UnknownColumn { .. } => {
                format!("fields are {}; genes and measured values have their names", FIELDS.join(", "))
            }
            FilterError::UnknownState { .. } => {
                format!("states are {}", TrialStatus::ALL.map(TrialStatus::name).join(", "))
            }
        }
    }
}

/// What stands in a column.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell {
    Number(f64),
    Text(String),
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell::Number(number) => write!(f, "{number}"),
            Cell::Text(text) => f.write_str(text),
        }
    }
}

/// What a trial has in a column: a field, a gene, or a value of this name, in this order.
fn cell(table: &SearchTable, row: &TrialRow, column: &str) -> Option<Cell> {
    let number = |value: Option<f64>| value.map(Cell::Number);
    let text = |value: &str| Some(Cell::Text(value.to_owned()));
    let time = |value: Option<u64>| value.map(|ms| Cell::Number(ms as f64));
    match column {
        "trial" => text(&row.trial.to_string()),
        "archid" => text(&row.archid),
        "model" => text(&row.model),
        "state" => text(row.status.name()),
        "node" => text(row.node.as_deref()?),
        "rung" => number(row.rung.map(f64::from)),
        "budget" => number(Some(row.budget())),
        "seconds" => number(Some(row.seconds())),
        "error" => text(row.why.as_deref()?),
        "parents" => Some(Cell::Text(row.parents.iter().map(|p| format!("{p} ")).collect())),
        "starts" => number(Some(f64::from(row.starts))),
        "retries" => number(Some(f64::from(row.retries))),
        "proposed" => time(Some(row.proposed)),
        "queued" => time(row.queued),
        "started" => time(row.started),
        "ended" => time(row.ended),
        _ => gene(table, row, column).or_else(|| number(row.value(column))),
    }
}

fn gene(table: &SearchTable, row: &TrialRow, name: &str) -> Option<Cell> {
    let at = table.about().space.genes.iter().position(|gene| gene.name == name)?;
    let choice = table.choice(row, at)?;
    Some(choice.number.map_or_else(|| Cell::Text(choice.label.clone()), Cell::Number))
}

impl Filter {
    /// Reads a filter; an empty text lets every trial through.
    ///
    /// # Errors
    /// It is not made of comparisons.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        let mut comparisons = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let (comparison, after) = comparison(rest)?;
            comparisons.push(comparison);
            let after = after.trim_start();
            rest = match joined(after) {
                Some(next) if !next.trim().is_empty() => next.trim_start(),
                None if after.is_empty() => after,
                _ => return Err(FilterError::NotAComparison { found: after.to_owned() }),
            };
        }
        Ok(Self { comparisons })
    }

    /// Whether all its names mean something in this search.
    ///
    /// # Errors
    /// A column or a state is not known; the error names the nearest one.
    pub fn check(&self, table: &SearchTable) -> Result<(), FilterError> {
        for comparison in &self.comparisons {
            check_column(table, &comparison.column)?;
            let is_exact = matches!(comparison.operator, Operator::Equal | Operator::NotEqual);
            let names = || TrialStatus::ALL.map(TrialStatus::name);
            if comparison.column == "state"
                && is_exact
                && !names().contains(&comparison.value.to_lowercase().as_str())
            {
                let nearest = nearest(&comparison.value, names()).map(str::to_owned);
                return Err(FilterError::UnknownState { value: comparison.value.clone(), nearest });
            }
        }
        Ok(())
    }

    /// Whether a trial is shown. A comparison with what a trial does not have is false.
    pub fn lets(&self, table: &SearchTable, row: &TrialRow) -> bool {
        self.comparisons.iter().all(|comparison| {
            cell(table, row, &comparison.column).is_some_and(|cell| comparison.holds(&cell))
        })
    }
}

impl Comparison {
    fn holds(&self, cell: &Cell) -> bool {
        let (has, value) = (cell.to_string().to_lowercase(), self.value.to_lowercase());
        let order = match (cell, self.value.parse::<f64>()) {
            (Cell::Number(number), Ok(value)) => number.partial_cmp(&value),
            (Cell::Text(_), _) => Some(has.cmp(&value)),
            // A number is never a word.
            (Cell::Number(_), Err(_)) => None,
        };
        let is_different = order.is_none_or(Ordering::is_ne);
        match self.operator {
            Operator::Equal => !is_different,
            Operator::NotEqual => is_different,
            Operator::Less => order.is_some_and(Ordering::is_lt),
            Operator::AtMost => order.is_some_and(Ordering::is_le),
            Operator::Greater => order.is_some_and(Ordering::is_gt),
            Operator::AtLeast => order.is_some_and(Ordering::is_ge),
            Operator::Contains => has.contains(&value),
            Operator::Lacks => !has.contains(&value),
        }
    }
}

/// What follows `and` or a comma, if the text begins with one.
fn joined(text: &str) -> Option<&str> {
    text.strip_prefix(',').or_else(|| {
        let (word, rest) = text.split_at_checked(3)?;
        let is_whole = rest.starts_with(char::is_whitespace);
        (word.eq_ignore_ascii_case("and") && is_whole).then_some(rest)
    })
}

fn comparison(text: &str) -> Result<(Comparison, &str), FilterError> {
    let fail = || FilterError::NotAComparison { found: text.to_owned() };
    let (column, rest) = word(text, |c| matches!(c, '=' | '!' | '<' | '>' | '~' | ','))?;
    let rest = rest.trim_start();
    let sign = SIGNS.iter().find_map(|(sign, operator)| Some((*operator, rest.strip_prefix(sign)?)));
    let (operator, rest) = sign.ok_or_else(fail)?;
    let (value, rest) = word(rest.trim_start(), |c| c == ',')?;
    if column.is_empty() || (value.is_empty() && !rest.starts_with(['"', '\''])) {
        return Err(fail());
    }
    Ok((Comparison { column, operator, value }, rest))
}

/// A text in quotes, or all up to a space or a sign; and what follows it.
fn word(text: &str, ends: impl Fn(char) -> bool) -> Result<(String, &str), FilterError> {
    if let Some(quote) = text.chars().next().filter(|c| matches!(c, '"' | '\'')) {
        let inner = &text[1..];
        let (word, rest) =
            inner.split_once(quote).ok_or_else(|| FilterError::Unclosed { quote, found: text.to_owned() })?;
        return Ok((word.to_owned(), rest));
    }
    let end = text.find(|c: char| c.is_whitespace() || ends(c)).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    Ok((word.to_owned(), rest))
}

fn check_column(table: &SearchTable, column: &str) -> Result<(), FilterError> {
    let values = table.value_names();
    let objectives = table.about().objectives.iter().map(|objective| objective.name.as_str());
    let genes = table.about().space.genes.iter().map(|gene| gene.name.as_str());
    let known: Vec<&str> =
        FIELDS.into_iter().chain(genes).chain(objectives).chain(values.iter().map(String::as_str)).collect();
    if known.contains(&column) {
        return Ok(());
    }
    let nearest = nearest(column, known).map(str::to_owned);
    Err(FilterError::UnknownColumn { name: column.to_owned(), nearest })
}

/// One key of an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortKey {
    pub column: String,
    pub descending: bool,
}

impl SortKey {
    /// Reads an order: names with commas between, a minus before those with the largest first.
    pub fn parse_all(text: &str) -> Vec<Self> {
        let key = |part: &str| {
            let (descending, column) = match part.trim().strip_prefix('-') {
                Some(column) => (true, column),
                None => (false, part.trim()),
            };
            (!column.is_empty()).then(|| Self { column: column.to_owned(), descending })
        };
        text.split(',').filter_map(key).collect()
    }
}

/// The trials of a listing. Those without a value of a key come last; else the order is that of their numbers.
///
/// # Errors
/// A column or a state is not known.
pub fn select<'a>(
    table: &'a SearchTable,
    filter: &Filter,
    order: &[SortKey],
) -> Result<Vec<&'a TrialRow>, FilterError> {
    filter.check(table)?;
    order.iter().try_for_each(|key| check_column(table, &key.column))?;
    let mut rows: Vec<&TrialRow> = table.rows().filter(|row| filter.lets(table, row)).collect();
    for key in order.iter().rev() {
        let value = |row: &TrialRow| match key.column.as_str() {
            "trial" => Some(Cell::Number(row.trial.0 as f64)),
            column => cell(table, row, column),
        };
        rows.sort_by_cached_key(|row| Place::of(value(row), key.descending));
    }
    Ok(rows)
}

/// Where a cell stands in an order: numbers before texts, and nothing last, whatever the direction.
struct Place {
    cell: Option<Cell>,
    descending: bool,
}

impl Place {
    fn of(cell: Option<Cell>, descending: bool) -> Self {
        Self { cell, descending }
    }
}

impl Ord for Place {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = match (&self.cell, &other.cell) {
            (Some(Cell::Number(a)), Some(Cell::Number(b))) => a.total_cmp(b),
            (Some(Cell::Text(a)), Some(Cell::Text(b))) => a.cmp(b),
            (Some(Cell::Number(_)), Some(Cell::Text(_))) | (Some(_), None) => return Ordering::Less,
            (Some(Cell::Text(_)), Some(Cell::Number(_))) | (None, Some(_)) => return Ordering::Greater,
            (None, None) => Ordering::Equal,
        };
        if self.descending { order.reverse() } else { order }
    }
}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Place {}
