//! Searches of runs: `metrics.acc > 0.9 and params.model = 'cnn' and tags.team != "b"`, and their order.

use crate::error::MlflowError;
use crate::run::Recorded;
use std::cmp::Ordering;

/// What a condition looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Field {
    Metric(String),
    Param(String),
    Tag(String),
    Attribute(Attribute),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attribute {
    RunId,
    RunName,
    Status,
    UserId,
    StartTime,
    EndTime,
}

/// A value of a run, or one that it is compared with.
#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Number(f64),
    Text(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// `%` stands for any text; the flag says whether capital letters are as small ones.
    Like {
        any_case: bool,
    },
}

/// A comparison that must hold.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Condition {
    field: Field,
    comparison: Comparison,
    operand: Operand,
}

/// By what runs are sorted.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OrderBy {
    field: Field,
    falling: bool,
}

fn wrong(text: &str, why: &str) -> MlflowError {
    MlflowError::Invalid(format!("the filter {text:?} is not understood: {why}"))
}

/// Splits a filter into words, texts in quotes, and signs.
fn words(text: &str) -> Result<Vec<String>, MlflowError> {
    let mut words = Vec::new();
    let mut letters = text.chars().peekable();
    while let Some(first) = letters.next() {
        let mut word = String::from(first);
        match first {
            letter if letter.is_whitespace() => continue,
            quote @ ('\'' | '"' | '`') => loop {
                match letters.next() {
                    Some(letter) => word.push(letter),
                    None => return Err(wrong(text, "a quote is not closed")),
                }
                if word.ends_with(quote) {
                    break;
                }
            },
            '<' | '>' | '=' | '!' => {
                if let Some(second) = letters.next_if_eq(&'=') {
                    word.push(second);
                }
            }
            _ => {
                // A name may have a part in quotes: metrics.`val loss`.
                let mut quoted: Option<char> = None;
                while let Some(letter) = letters.next_if(|letter| {
                    quoted.is_some() || (!letter.is_whitespace() && !"<>=!".contains(*letter))
                }) {
                    word.push(letter);
                    quoted = match quoted {
                        Some(open) if open == letter => None,
                        None if letter == '`' || letter == '"' => Some(letter),
                        other => other,
                    };
                }
            }
        }
        words.push(word);
    }
    Ok(words)
}

fn unquoted(word: &str) -> Option<&str> {
    let quote = word.chars().next().filter(|quote| "'\"`".contains(*quote))?;
    word.strip_prefix(quote)?.strip_suffix(quote)
}

fn field(text: &str, word: &str) -> Result<Field, MlflowError> {
    let (of, name) = word.split_once('.').unwrap_or(("attributes", word));
    let name = unquoted(name).unwrap_or(name);
    Ok(match of {
        "metrics" | "metric" => Field::Metric(name.to_owned()),
        "params" | "param" | "parameters" | "parameter" => Field::Param(name.to_owned()),
        "tags" | "tag" => Field::Tag(name.to_owned()),
        "attributes" | "attribute" | "attr" | "run" => Field::Attribute(match name {
            "run_id" => Attribute::RunId,
            "run_name" | "run name" | "Run name" | "Run Name" => Attribute::RunName,
            "status" => Attribute::Status,
            "user_id" => Attribute::UserId,
            "start_time" | "created" | "Created" => Attribute::StartTime,
            "end_time" => Attribute::EndTime,
            _ => {
                return Err(wrong(
                    text,
                    "an attribute is run_id, run_name, status, user_id, start_time or end_time",
                ));
            }
        }),
        _ => return Err(wrong(text, "a field begins with metrics., params., tags. or attributes.")),
    })
}

pub(crate) fn parse(text: &str) -> Result<Vec<Condition>, MlflowError> {
    let words = words(text)?;
    let mut rest = words.as_slice();
    let mut conditions = Vec::new();
    while !rest.is_empty() {
        let [name, sign, value, more @ ..] = rest else {
            return Err(wrong(text, "a condition is a field, a comparison and a value"));
        };
        conditions.push(condition(text, name, sign, value)?);
        rest = match more {
            [] => more,
            [and, next @ ..] if and.eq_ignore_ascii_case("and") && !next.is_empty() => next,
            _ => return Err(wrong(text, "conditions are joined by AND")),
        };
    }
    Ok(conditions)
}

fn condition(text: &str, name: &str, sign: &str, value: &str) -> Result<Condition, MlflowError> {
    let field = field(text, name)?;
    let comparison = match sign.to_lowercase().as_str() {
        "=" | "==" => Comparison::Equal,
        "!=" => Comparison::NotEqual,
        "<" => Comparison::Less,
        "<=" => Comparison::LessOrEqual,
        ">" => Comparison::Greater,
        ">=" => Comparison::GreaterOrEqual,
        "like" => Comparison::Like { any_case: false },
        "ilike" => Comparison::Like { any_case: true },
        _ => return Err(wrong(text, "comparisons are = != < <= > >= LIKE ILIKE")),
    };
    let is_number = matches!(
        field,
        Field::Metric(_) | Field::Attribute(Attribute::StartTime) | Field::Attribute(Attribute::EndTime)
    );
    let operand = if is_number {
        let value = unquoted(value).unwrap_or(value);
        Operand::Number(value.parse().map_err(|_text| wrong(text, "this field is compared with a number"))?)
    } else {
        let value = unquoted(value).ok_or_else(|| wrong(text, "a text is in quotes"))?;
        Operand::Text(value.to_owned())
    };
    let is_order = !matches!(comparison, Comparison::Equal | Comparison::NotEqual | Comparison::Like { .. });
    match (&operand, comparison) {
        (Operand::Number(_), Comparison::Like { .. }) => Err(wrong(text, "LIKE compares texts")),
        (Operand::Text(_), _) if is_order => Err(wrong(text, "texts are compared by =, !=, LIKE and ILIKE")),
        _ => Ok(Condition { field, comparison, operand }),
    }
}

pub(crate) fn parse_order(text: &str) -> Result<OrderBy, MlflowError> {
    let words = words(text)?;
    let (name, falling) = match words.as_slice() {
        [name] => (name, false),
        [name, way] if way.eq_ignore_ascii_case("asc") => (name, false),
        [name, way] if way.eq_ignore_ascii_case("desc") => (name, true),
        _ => return Err(wrong(text, "an order is a field, then ASC or DESC")),
    };
    Ok(OrderBy { field: field(text, name)?, falling })
}

impl Field {
    fn of(&self, run: &Recorded) -> Option<Operand> {
        let text = |text: &String| Operand::Text(text.clone());
        Some(match self {
            Field::Metric(name) => Operand::Number(run.last.get(name)?.value),
            Field::Param(name) => text(run.params.get(name)?),
            Field::Tag(name) => text(run.tags.get(name)?),
            Field::Attribute(attribute) => match attribute {
                Attribute::RunId => text(&run.about.run_id),
                Attribute::RunName => text(&run.about.run_name),
                Attribute::Status => text(&run.about.status),
                Attribute::UserId => text(&run.about.user_id),
                Attribute::StartTime => Operand::Number(run.about.start_time as f64),
                Attribute::EndTime => Operand::Number(run.about.end_time? as f64),
            },
        })
    }
}

impl Condition {
    pub(crate) fn holds(&self, run: &Recorded) -> bool {
        match (self.field.of(run), &self.operand) {
            (Some(Operand::Number(have)), Operand::Number(want)) => self.comparison.of_numbers(have, *want),
            (Some(Operand::Text(have)), Operand::Text(want)) => self.comparison.of_texts(&have, want),
            _ => false,
        }
    }
}

impl Comparison {
    fn of_numbers(self, have: f64, want: f64) -> bool {
        match self {
            Comparison::Equal => have == want,
            Comparison::NotEqual => have != want,
            Comparison::Less => have < want,
            Comparison::LessOrEqual => have <= want,
            Comparison::Greater => have > want,
            Comparison::GreaterOrEqual => have >= want,
            Comparison::Like { .. } => false,
        }
    }

    fn of_texts(self, have: &str, want: &str) -> bool {
        match self {
            Comparison::Equal => have == want,
            Comparison::NotEqual => have != want,
            Comparison::Like { any_case: true } => is_like(&have.to_lowercase(), &want.to_lowercase()),
            Comparison::Like { any_case: false } => is_like(have, want),
            _ => false,
        }
    }
}

/// Whether a text has the parts of a pattern between its `%`, in order, and begins and ends as it does.
fn is_like(text: &str, pattern: &str) -> bool {
    let parts: Vec<&str> = pattern.split('%').collect();
    let [first, middle @ .., last] = parts.as_slice() else { return text == pattern };
    let Some(mut rest) = text.strip_prefix(first).and_then(|rest| rest.strip_suffix(last)) else {
        return false;
    };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    true
}

/// The order of runs; without one, and between equals, the newest first.
pub(crate) fn compare(order: &[OrderBy], a: &Recorded, b: &Recorded) -> Ordering {
    let by = |order: &OrderBy| {
        let ordering = match (order.field.of(a), order.field.of(b)) {
            (Some(Operand::Number(a)), Some(Operand::Number(b))) => a.total_cmp(&b),
            (Some(Operand::Text(a)), Some(Operand::Text(b))) => a.cmp(&b),
            // Runs without a value come last, whatever the order.
            (Some(_), None) => return Ordering::Less,
            (None, Some(_)) => return Ordering::Greater,
            _ => Ordering::Equal,
        };
        if order.falling { ordering.reverse() } else { ordering }
    };
    let first = order.iter().map(by).find(|ordering| ordering.is_ne());
    first.unwrap_or_else(|| {
        b.about.start_time.cmp(&a.about.start_time).then_with(|| a.about.run_id.cmp(&b.about.run_id))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_sql() {
        for (text, pattern, is) in [
            ("digits-cnn", "digits%", true),
            ("digits-cnn", "%cnn", true),
            ("digits-cnn", "%its%c%", true),
            ("digits-cnn", "cnn", false),
            ("aa", "a%a", true),
            ("a", "a%a", false),
            ("", "%", true),
        ] {
            assert_eq!(is_like(text, pattern), is, "{text} {pattern}");
        }
    }

    #[test]
    fn quoted_names_are_one_word() {
        let conditions = parse("metrics.`val loss`<=0.5 AND tags.\"a b\" ILIKE 'x%'").unwrap();
        assert_eq!(conditions[0].field, Field::Metric("val loss".to_owned()));
        assert_eq!(conditions[1].field, Field::Tag("a b".to_owned()));
    }
}
