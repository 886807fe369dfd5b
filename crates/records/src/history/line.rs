//! A line of a record as an entry.

use super::{Entry, LoggedEvent, Metrics};
use crate::run_dir::Annotation;
use serde::Deserialize;
use serde_json::{Map, Value};

/// The step and the length to which an event says that metrics were cut.
pub(super) fn cut_of(event: &LoggedEvent) -> Option<(u64, u64)> {
    if event.event != "opened" {
        return None;
    }
    // An `opened` event without them cannot say which metrics still count: then none of them do.
    let number = |name: &str| event.value[name].as_u64().unwrap_or(0);
    Some((number("step"), number("metrics_bytes")))
}

/// A step or a validation.
pub(super) fn metrics_of(at: u64, line: &[u8]) -> Option<Entry> {
    let mut line: Map<String, Value> = serde_json::from_slice(line).ok()?;
    let step = line.remove("step")?.as_u64()?;
    let pass = line.remove("pass").and_then(|pass| pass.as_u64()).unwrap_or(0);
    let unix_ms = line.remove("unix_ms").and_then(|time| time.as_u64());
    let epoch = line.remove("epoch").and_then(|epoch| epoch.as_u64());
    let replicas = line.remove("replicas").map(|replicas| (epoch.unwrap_or(0), replicas));
    let is_valid = line.contains_key("val_loss");
    let values = line.into_iter().filter_map(|(name, value)| Some((name, number(&value)?))).collect();
    let metrics = Metrics { at, unix_ms, step, pass, values, replicas };
    Some(if is_valid { Entry::Valid(metrics) } else { Entry::Step(metrics) })
}

/// A number. JSON has no NaN and no infinity: they are `null` and words.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::Null => Some(f64::NAN),
        Value::String(word) => match word.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

pub(super) fn annotation_of(line: &[u8]) -> Option<Entry> {
    #[derive(Deserialize)]
    struct Line {
        unix_ms: u64,
        #[serde(flatten)]
        annotation: Annotation,
    }
    let Line { unix_ms, annotation } = serde_json::from_slice(line).ok()?;
    Some(Entry::Annotation { unix_ms, annotation })
}
