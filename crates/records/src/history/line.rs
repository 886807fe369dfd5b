//! A line of a record as an entry.

use super::{Entry, LoggedEvent, Metrics};
use crate::run_dir::Annotation;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

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
    let Line { step, pass, unix_ms, epoch, replicas, mut values } = serde_json::from_slice(line).ok()?;
    // A name that is there twice has its last value.
    values.sort_by(|(a, _), (b, _)| a.cmp(b));
    values.reverse();
    values.dedup_by(|(a, _), (b, _)| a == b);
    values.reverse();
    let is_valid = values.iter().any(|(name, _)| name == "val_loss");
    let values = values.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let replicas = replicas.map(|replicas| (epoch.unwrap_or(0), replicas));
    let metrics = Metrics { at, unix_ms, step: step?, pass: pass.unwrap_or(0), values, replicas };
    Some(if is_valid { Entry::Valid(metrics) } else { Entry::Step(metrics) })
}

/// The parts of a line of `metrics.jsonl`, read without a tree of values in between: a run may have millions of them.
#[derive(Default)]
struct Line {
    step: Option<u64>,
    pass: Option<u64>,
    unix_ms: Option<u64>,
    epoch: Option<u64>,
    replicas: Option<Value>,
    /// `None` for what is no number.
    values: Vec<(String, Option<f64>)>,
}

impl<'de> Deserialize<'de> for Line {
    fn deserialize<D: Deserializer<'de>>(line: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Name<'a>(#[serde(borrow)] Cow<'a, str>);
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Line;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Line, A::Error> {
                let mut line = Line::default();
                while let Some(Name(name)) = map.next_key()? {
                    match &*name {
                        "step" => line.step = map.next_value::<Number>()?.whole(),
                        "pass" => line.pass = map.next_value::<Number>()?.whole(),
                        "unix_ms" => line.unix_ms = map.next_value::<Number>()?.whole(),
                        "epoch" => line.epoch = map.next_value::<Number>()?.whole(),
                        "replicas" => line.replicas = Some(map.next_value()?),
                        _ => line.values.push((name.into_owned(), map.next_value::<Number>()?.number())),
                    }
                }
                Ok(line)
            }
        }
        line.deserialize_map(Fields)
    }
}

/// What a value is, as a number. JSON has no NaN and no infinity: they are `null` and words.
enum Number {
    Whole(u64),
    Real(f64),
    None,
}

impl Number {
    fn whole(self) -> Option<u64> {
        match self {
            Self::Whole(whole) => Some(whole),
            Self::Real(_) | Self::None => None,
        }
    }

    fn number(self) -> Option<f64> {
        match self {
            Self::Whole(whole) => Some(whole as f64),
            Self::Real(real) => Some(real),
            Self::None => None,
        }
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        struct AnyValue;
        impl<'de> Visitor<'de> for AnyValue {
            type Value = Number;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_u64<E>(self, whole: u64) -> Result<Number, E> {
                Ok(Number::Whole(whole))
            }

            fn visit_i64<E>(self, whole: i64) -> Result<Number, E> {
                Ok(u64::try_from(whole).map_or(Number::Real(whole as f64), Number::Whole))
            }

            fn visit_f64<E>(self, real: f64) -> Result<Number, E> {
                Ok(Number::Real(real))
            }

            fn visit_unit<E>(self) -> Result<Number, E> {
                Ok(Number::Real(f64::NAN))
            }

            fn visit_str<E>(self, word: &str) -> Result<Number, E> {
                Ok(match word {
                    "NaN" => Number::Real(f64::NAN),
                    "Infinity" => Number::Real(f64::INFINITY),
                    "-Infinity" => Number::Real(f64::NEG_INFINITY),
                    _ => Number::None,
                })
            }

            fn visit_bool<E>(self, _value: bool) -> Result<Number, E> {
                Ok(Number::None)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Number, A::Error> {
                IgnoredAny.visit_map(map).map(|_ignored| Number::None)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Number, A::Error> {
                IgnoredAny.visit_seq(seq).map(|_ignored| Number::None)
            }
        }
        value.deserialize_any(AnyValue)
    }
}

pub(super) fn annotation_of(line: &[u8]) -> Option<Entry> {
    #[derive(Deserialize)]
    struct Annotated {
        unix_ms: u64,
        #[serde(flatten)]
        annotation: Annotation,
    }
    let Annotated { unix_ms, annotation } = serde_json::from_slice(line).ok()?;
    Some(Entry::Annotation { unix_ms, annotation })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_numbers_by_name_whatever_else_is_in_it() {
        let text = r#"{"step":3,"z":2,"a":-1,"n":null,"w":"Infinity","word":"x","yes":true,"list":[1,{"b":2}],
            "object":{"c":1e999},"z":0.5,"escaped\u0041":1,"replicas":[{"node":"n1"}],"epoch":7,"pass":"x"}"#;
        let Some(Entry::Step(metrics)) = metrics_of(5, text.as_bytes()) else { panic!("no step") };
        let Metrics { at, unix_ms, step, pass, values, replicas } = metrics;
        assert_eq!((at, unix_ms, step, pass), (5, None, 3, 0));
        assert_eq!(replicas, Some((7, serde_json::json!([{ "node": "n1" }]))));
        let shown: Vec<String> = values.iter().map(|(name, value)| format!("{name} {value}")).collect();
        assert_eq!(shown, ["a -1", "escapedA 1", "n NaN", "w inf", "z 0.5"]);
        assert!(matches!(metrics_of(0, br#"{"step":1,"val_loss":0.5}"#), Some(Entry::Valid(_))));
        assert!(matches!(metrics_of(0, br#"{"step":1,"val_loss":"?"}"#), Some(Entry::Valid(_))));
        for wrong in
            ["", "[]", "3", "{}", r#"{"loss":1}"#, r#"{"step":1.5}"#, r#"{"step":1,}"#, r#"{"step":1} x"#]
        {
            assert_eq!(metrics_of(0, wrong.as_bytes()), None, "{wrong}");
        }
    }
}
