//! What a program says of its results: lines that are JSON objects.
//!
//! `{"epoch": 1, "accuracy": 0.9}` is a point of the curve; the last object is the result.

use phalanx_wire::trial::TrialPoint;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The keys that say at which budget something was measured.
const BUDGET: [&str; 4] = ["budget", "epoch", "epochs", "pass"];
/// The most points that are kept; of more, the newest.
const MAX_POINTS: usize = 10_000;
/// The most values of a point.
const MAX_VALUES: usize = 4096;

/// The objects of a text, as they come.
#[derive(Debug, Default)]
pub(crate) struct Points {
    points: Vec<TrialPoint>,
}

impl Points {
    /// Adds a line; gives the point that it is, if it is one. Without a budget it is of `otherwise`.
    pub(crate) fn add(&mut self, line: &[u8], otherwise: f64) -> Option<&TrialPoint> {
        let point = point_of(line, otherwise)?;
        if self.points.len() >= MAX_POINTS {
            self.points.remove(0);
        }
        self.points.push(point);
        self.points.last()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    pub(crate) fn into_points(self) -> Vec<TrialPoint> {
        self.points
    }
}

fn point_of(line: &[u8], otherwise: f64) -> Option<TrialPoint> {
    let text = std::str::from_utf8(line).ok()?.trim();
    if !text.starts_with('{') {
        return None;
    }
    let object: Map<String, Value> = serde_json::from_str(&quoted(text)).ok()?;
    let budget = BUDGET.iter().find_map(|key| object.get(*key)?.as_f64());
    let values: BTreeMap<String, f64> = object
        .iter()
        .filter(|(name, _)| !BUDGET.contains(&name.as_str()))
        .filter_map(|(name, value)| Some((name.clone(), number(value)?)))
        .take(MAX_VALUES)
        .collect();
    Some(TrialPoint { budget: budget.unwrap_or(otherwise), values })
}

/// A number, also one that is not finite, which many languages write as a word.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::Null => Some(f64::NAN),
        Value::String(word) => match word.as_str() {
            "NaN" | "nan" => Some(f64::NAN),
            "Infinity" | "inf" => Some(f64::INFINITY),
            "-Infinity" | "-inf" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The text with quotes around `NaN` and `Infinity`, which Python writes bare.
fn quoted(text: &str) -> String {
    let (mut out, mut rest, mut in_text) = (String::with_capacity(text.len()), text, false);
    while let Some(next) = rest.chars().next() {
        let bare =
            ["NaN", "-Infinity", "Infinity"].into_iter().find(|word| !in_text && rest.starts_with(word));
        if let Some(word) = bare {
            out.extend(["\"", word, "\""]);
            rest = &rest[word.len()..];
            continue;
        }
        let escaped = in_text && next == '\\';
        in_text ^= next == '"';
        let len = rest.chars().take(1 + usize::from(escaped)).map(char::len_utf8).sum::<usize>();
        out.push_str(&rest[..len]);
        rest = &rest[len..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(line: &str) -> Option<(f64, Vec<(String, f64)>)> {
        let point = point_of(line.as_bytes(), 9.0)?;
        Some((point.budget, point.values.into_iter().collect()))
    }

    #[test]
    fn lines_that_are_objects_are_points_and_others_are_not() {
        let one = |name: &str, value: f64| vec![(name.to_owned(), value)];
        assert_eq!(point(r#"{"epoch": 2, "accuracy": 0.5}"#), Some((2.0, one("accuracy", 0.5))));
        assert_eq!(point(r#" {"accuracy": 1} "#), Some((9.0, one("accuracy", 1.0))));
        assert_eq!(point(r#"{"name": "x", "list": [1], "yes": true}"#), Some((9.0, vec![])));
        for other in ["", "epoch 2", "[1]", "3", "{", "{\"a\": }", "\u{0}"] {
            assert_eq!(point(other), None, "{other:?}");
        }
        assert_eq!(point_of(b"{\"a\": \xff}", 0.0), None);
    }

    #[test]
    fn what_is_no_number_stays_none() {
        for text in ["NaN", "null", "\"nan\""] {
            let (_, values) = point(&format!("{{\"loss\": {text}}}")).unwrap();
            assert!(values[0].1.is_nan(), "{text}");
        }
        let (_, values) = point(r#"{"loss": -Infinity, "note \"NaN\" {": Infinity}"#).unwrap();
        let (names, values): (Vec<String>, Vec<f64>) = values.into_iter().unzip();
        assert_eq!(values, [f64::NEG_INFINITY, f64::INFINITY]);
        assert_eq!(names[1], "note \"NaN\" {");
    }

    #[test]
    fn a_program_that_says_much_takes_bounded_memory() {
        let mut points = Points::default();
        for budget in 0..MAX_POINTS + 5 {
            assert!(points.add(format!("{{\"budget\": {budget}}}").as_bytes(), 0.0).is_some());
        }
        let points = points.into_points();
        assert_eq!((points.len(), points[0].budget), (MAX_POINTS, 5.0));
    }
}
