//! The requests of MLflow's clients that are understood. Unknown fields are left out: newer clients send more.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// A name and a text: a parameter or a tag.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeyValue {
    pub(crate) key: String,
    #[serde(default)]
    pub(crate) value: String,
}

/// A value of a metric.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct MetricPoint {
    pub(crate) key: String,
    #[serde(deserialize_with = "double")]
    pub(crate) value: f64,
    /// Milliseconds since 1970.
    #[serde(default, deserialize_with = "whole")]
    pub(crate) timestamp: i64,
    #[serde(default, deserialize_with = "whole")]
    pub(crate) step: i64,
}

/// Names a run; old clients say `run_uuid`.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct OfRun {
    #[serde(default)]
    pub(crate) run_id: String,
    #[serde(default)]
    pub(crate) run_uuid: String,
}

impl OfRun {
    pub(crate) fn id(&self) -> &str {
        if self.run_id.is_empty() { &self.run_uuid } else { &self.run_id }
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct CreateExperiment {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) tags: Vec<KeyValue>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct OfExperiment {
    #[serde(default)]
    pub(crate) experiment_id: String,
    #[serde(default)]
    pub(crate) experiment_name: String,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct SearchExperiments {
    #[serde(default)]
    pub(crate) filter: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct CreateRun {
    #[serde(default)]
    pub(crate) experiment_id: String,
    #[serde(default)]
    pub(crate) user_id: String,
    #[serde(default)]
    pub(crate) run_name: String,
    #[serde(default, deserialize_with = "whole")]
    pub(crate) start_time: i64,
    #[serde(default)]
    pub(crate) tags: Vec<KeyValue>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct UpdateRun {
    #[serde(flatten)]
    pub(crate) run: OfRun,
    #[serde(default)]
    pub(crate) status: Option<String>,
    #[serde(default, deserialize_with = "maybe_whole")]
    pub(crate) end_time: Option<i64>,
    #[serde(default)]
    pub(crate) run_name: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct LogMetric {
    #[serde(flatten)]
    pub(crate) run: OfRun,
    #[serde(flatten)]
    pub(crate) point: MetricPoint,
}

#[derive(Debug, Deserialize)]
pub(crate) struct LogKeyValue {
    #[serde(flatten)]
    pub(crate) run: OfRun,
    #[serde(flatten)]
    pub(crate) pair: KeyValue,
}

#[derive(Debug, Deserialize)]
pub(crate) struct DeleteTag {
    #[serde(flatten)]
    pub(crate) run: OfRun,
    pub(crate) key: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct LogBatch {
    #[serde(flatten)]
    pub(crate) run: OfRun,
    #[serde(default)]
    pub(crate) metrics: Vec<MetricPoint>,
    #[serde(default)]
    pub(crate) params: Vec<KeyValue>,
    #[serde(default)]
    pub(crate) tags: Vec<KeyValue>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct SearchRuns {
    #[serde(default)]
    pub(crate) experiment_ids: Vec<String>,
    #[serde(default)]
    pub(crate) filter: String,
    #[serde(default)]
    pub(crate) run_view_type: String,
    #[serde(default, deserialize_with = "maybe_whole")]
    pub(crate) max_results: Option<i64>,
    #[serde(default)]
    pub(crate) order_by: Vec<String>,
    #[serde(default)]
    pub(crate) page_token: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct MetricHistory {
    #[serde(flatten)]
    pub(crate) run: OfRun,
    pub(crate) metric_key: String,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct ListArtifacts {
    #[serde(default)]
    pub(crate) path: String,
}

/// A whole number, which JSON of protobuf may write as a text.
fn whole<'de, D: Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
    maybe_whole(from).map(Option::unwrap_or_default)
}

fn maybe_whole<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i64>, D::Error> {
    let wrong = || serde::de::Error::custom("expected a whole number");
    Ok(match Value::deserialize(from)? {
        Value::Null => None,
        Value::String(text) => Some(text.parse().map_err(|_not_whole| wrong())?),
        // Some clients send a time as a number with a fraction.
        value => {
            Some(value.as_i64().or_else(|| value.as_f64().map(|number| number as i64)).ok_or_else(wrong)?)
        }
    })
}

/// A number; those that JSON lacks are words.
fn double<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let wrong = || serde::de::Error::custom("expected a number");
    match Value::deserialize(from)? {
        Value::String(text) => text.parse().map_err(|_not_a_number| wrong()),
        value => value.as_f64().ok_or_else(wrong),
    }
}

/// A number as the client reads it.
pub(crate) fn number(value: f64) -> Value {
    if value.is_nan() {
        "NaN".into()
    } else if value.is_infinite() {
        if value > 0.0 { "Infinity" } else { "-Infinity" }.into()
    } else {
        value.into()
    }
}
