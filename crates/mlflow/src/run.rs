//! A run of MLflow as a run directory.

use crate::error::MlflowError;
use crate::messages::{KeyValue, MetricPoint, number};
use phalanx_records::history::{Entry, Metrics, Position, read_from};
use phalanx_records::run_dir::{Annotation, RUN_FILE, RunDir, RunState, Status, annotate};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// What MLflow knows of a run and other files do not say.
pub(crate) const MLFLOW: &str = "mlflow.json";
const STATE: &str = "state.json";
const METRICS: &str = "metrics.jsonl";
const EVENTS: &str = "events.jsonl";
/// The tag that names a run.
pub(crate) const NAME_TAG: &str = "mlflow.runName";
/// Names that lines of metrics use for something else; metrics of these names get a prefix.
const RESERVED: [&str; 7] = ["step", "pass", "unix_ms", "epoch", "replicas", "seen", "hash"];
const PREFIX: &str = "metric.";
/// Longer keys and values are refused, as MLflow does.
const KEY_BYTES: usize = 250;
const PARAM_BYTES: usize = 6000;
const TAG_BYTES: usize = 8000;

/// `mlflow.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct About {
    pub(crate) run_id: String,
    pub(crate) experiment_id: String,
    #[serde(default)]
    pub(crate) experiment: String,
    #[serde(default)]
    pub(crate) user_id: String,
    #[serde(default)]
    pub(crate) run_name: String,
    /// MLflow's own word.
    pub(crate) status: String,
    pub(crate) start_time: i64,
    #[serde(default)]
    pub(crate) end_time: Option<i64>,
    /// `active` or `deleted`.
    pub(crate) lifecycle_stage: String,
}

impl About {
    pub(crate) fn read(dir: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(dir.join(MLFLOW)).ok()?).ok()
    }

    fn status(&self) -> Result<Status, MlflowError> {
        Ok(match self.status.as_str() {
            "RUNNING" | "SCHEDULED" => Status::Running,
            "FINISHED" => Status::Finished,
            "FAILED" => Status::Failed,
            "KILLED" => Status::Interrupted,
            other => return Err(MlflowError::Invalid(format!("{other:?} is no status of a run"))),
        })
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self.status.as_str(), "RUNNING" | "SCHEDULED")
    }

    /// Writes what it says, and the state of the run that others read.
    pub(crate) fn write(&self, dir: &RunDir) -> Result<(), MlflowError> {
        let state = RunState {
            state: self.status()?,
            reason: None,
            waiting: None,
            started: stamp(self.start_time),
            ended: self.end_time.map(stamp),
            model: String::new(),
            total_steps: None,
            steps: 0,
            loss: None,
            val_loss: None,
            val_acc: None,
            samples_per_s: None,
            wall_s: self.end_time.map_or(0.0, |end| end.saturating_sub(self.start_time) as f64 / 1e3),
            params_hash: None,
        };
        let mut state = json!(state);
        state["kind"] = "mlflow".into();
        state["experiment"] = self.experiment.clone().into();
        dir.write(MLFLOW, format!("{:#}\n", json!(self)).as_bytes())?;
        Ok(dir.write(STATE, format!("{state:#}\n").as_bytes())?)
    }
}

fn stamp(unix_ms: i64) -> String {
    let since = Duration::from_millis(u64::try_from(unix_ms).unwrap_or(0).min(253_402_300_799_000));
    humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + since).to_string()
}

/// Makes the directory of a new run.
pub(crate) fn create(runs: &Path, about: &About) -> Result<RunDir, MlflowError> {
    let plain =
        |letter: char| if letter.is_ascii_alphanumeric() || "-_.".contains(letter) { letter } else { '-' };
    let name: String = about.run_name.trim_start_matches('.').chars().map(plain).take(80).collect();
    let name = if name.is_empty() { "mlflow".to_owned() } else { name };
    let short: String = about.run_id.chars().take(8).collect();
    let dir = RunDir::create(runs.join(format!("{name}-{short}")))?;
    let opened = json!({
        "seq": 0, "unix_ms": about.start_time, "event": "opened",
        "value": {
            "uid": about.run_id, "step": 0, "metrics_bytes": 0, "host": "", "pid": std::process::id(),
            "version": env!("CARGO_PKG_VERSION"),
        },
    });
    dir.write(EVENTS, format!("{opened}\n").as_bytes())?;
    about.write(&dir)?;
    dir.write(RUN_FILE, b"# Parameters that a program logged with MLflow's client.\n\n[params]\n")?;
    Ok(dir)
}

/// The parameters in `run.toml`.
pub(crate) fn params(dir: &Path) -> Result<BTreeMap<String, String>, MlflowError> {
    let text = std::fs::read_to_string(dir.join(RUN_FILE)).map_err(MlflowError::io("read parameters"))?;
    // Every line is a name and a value as JSON texts, which are TOML's, too.
    let pair = |line: &str| {
        let mut texts = serde_json::Deserializer::from_str(line).into_iter::<String>();
        let key = texts.next()?.ok()?;
        let rest = line[texts.byte_offset()..].trim_start().strip_prefix('=')?;
        let value = serde_json::Deserializer::from_str(rest).into_iter::<String>().next()?.ok()?;
        Some((key, value))
    };
    Ok(text.lines().filter_map(pair).collect())
}

/// Adds parameters: they may be logged again, but not changed.
pub(crate) fn add_params(dir: &Path, new: &[KeyValue]) -> Result<(), MlflowError> {
    let mut have = params(dir)?;
    let mut lines = String::new();
    for KeyValue { key, value } in new {
        check_key(key)?;
        check_length("the value of a parameter", value, PARAM_BYTES)?;
        match have.get(key) {
            Some(old) if old == value => continue,
            Some(old) => {
                let (key, old, new) = (key.clone(), old.clone(), value.clone());
                return Err(MlflowError::ParamChanged { key, old, new });
            }
            None => {}
        }
        lines.push_str(&format!(
            "{} = {} # from MLflow\n",
            Value::from(key.as_str()),
            Value::from(value.as_str())
        ));
        have.insert(key.clone(), value.clone());
    }
    append(&dir.join(RUN_FILE), &lines, "write parameters")
}

/// Adds values of metrics.
pub(crate) fn add_metrics(dir: &Path, points: &[MetricPoint]) -> Result<(), MlflowError> {
    let mut lines = String::new();
    for point in points {
        check_key(&point.key)?;
        let step = u64::try_from(point.step).map_err(|_negative| {
            MlflowError::Invalid(format!("step {} of metric {:?} is below 0", point.step, point.key))
        })?;
        let is_reserved = RESERVED.contains(&point.key.as_str()) || point.key.starts_with(PREFIX);
        let key = if is_reserved { format!("{PREFIX}{}", point.key) } else { point.key.clone() };
        let mut line = Map::new();
        line.insert("step".to_owned(), step.into());
        line.insert("pass".to_owned(), 0.into());
        line.insert(key, number(point.value));
        line.insert("unix_ms".to_owned(), u64::try_from(point.timestamp).unwrap_or(0).into());
        lines.push_str(&format!("{}\n", Value::Object(line)));
    }
    append(&dir.join(METRICS), &lines, "write metrics")
}

/// Sets tags.
pub(crate) fn set_tags(dir: &Path, tags: &[KeyValue]) -> Result<(), MlflowError> {
    if tags.is_empty() {
        return Ok(());
    }
    let mut set = BTreeMap::new();
    for KeyValue { key, value } in tags {
        check_key(key)?;
        check_length("the value of a tag", value, TAG_BYTES)?;
        set.insert(key.clone(), value.clone());
    }
    Ok(annotate(dir, &Annotation::Set(set))?)
}

fn check_key(key: &str) -> Result<(), MlflowError> {
    let is_fine = !key.is_empty() && !key.chars().any(char::is_control);
    if !is_fine {
        return Err(MlflowError::Invalid(format!("{key:?} is no name of a parameter, metric or tag")));
    }
    check_length("a name", key, KEY_BYTES)
}

fn check_length(what: &str, text: &str, most: usize) -> Result<(), MlflowError> {
    if text.len() > most {
        return Err(MlflowError::Invalid(format!("{what} has {} bytes, {most} are allowed", text.len())));
    }
    Ok(())
}

/// Adds lines by one call, so that readers and other writers see whole ones.
fn append(path: &Path, lines: &str, what: &'static str) -> Result<(), MlflowError> {
    if lines.is_empty() {
        return Ok(());
    }
    let file = File::options().append(true).create(true).open(path);
    file.and_then(|mut file| file.write_all(lines.as_bytes())).map_err(MlflowError::io(what))
}

/// Everything that is recorded of a run.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) about: About,
    pub(crate) params: BTreeMap<String, String>,
    pub(crate) tags: BTreeMap<String, String>,
    /// The last value of each metric, by the greatest step, then the greatest time.
    pub(crate) last: BTreeMap<String, MetricPoint>,
}

impl Recorded {
    pub(crate) fn read(dir: &Path, about: About) -> Result<Self, MlflowError> {
        let mut recorded = Self { params: params(dir)?, about, tags: BTreeMap::new(), last: BTreeMap::new() };
        each_entry(dir, |entry| match entry {
            Entry::Step(metrics) | Entry::Valid(metrics) => {
                for point in points(&metrics) {
                    let is_newer =
                        |old: &MetricPoint| (old.step, old.timestamp) <= (point.step, point.timestamp);
                    if recorded.last.get(&point.key).is_none_or(is_newer) {
                        recorded.last.insert(point.key.clone(), point);
                    }
                }
            }
            Entry::Annotation { annotation: Annotation::Set(tags), .. } => recorded.tags.extend(tags),
            Entry::Annotation { annotation: Annotation::Remove(tag), .. } => {
                recorded.tags.remove(&tag);
            }
            Entry::Annotation { .. } | Entry::Event(_) | Entry::Cut { .. } => {}
        })?;
        if !recorded.about.run_name.is_empty() {
            recorded.tags.insert(NAME_TAG.to_owned(), recorded.about.run_name.clone());
        }
        Ok(recorded)
    }

    pub(crate) fn to_json(&self) -> Value {
        let About { run_id, experiment_id, user_id, run_name, status, start_time, end_time, .. } =
            &self.about;
        let pairs = |of: &BTreeMap<String, String>| -> Vec<Value> {
            of.iter().map(|(key, value)| json!({ "key": key, "value": value })).collect()
        };
        let metrics: Vec<Value> = self.last.values().map(point_json).collect();
        let mut info = json!({
            "run_id": run_id, "run_uuid": run_id, "run_name": run_name, "experiment_id": experiment_id,
            "user_id": user_id, "status": status, "start_time": start_time,
            "artifact_uri": format!("mlflow-artifacts:/{run_id}"),
            "lifecycle_stage": self.about.lifecycle_stage,
        });
        if let Some(end) = end_time {
            info["end_time"] = (*end).into();
        }
        json!({
            "info": info,
            "data": { "metrics": metrics, "params": pairs(&self.params), "tags": pairs(&self.tags) },
            "inputs": {},
        })
    }
}

pub(crate) fn point_json(point: &MetricPoint) -> Value {
    json!({
        "key": point.key, "value": number(point.value), "timestamp": point.timestamp, "step": point.step,
    })
}

/// All values of a metric, in the order in which they were logged.
pub(crate) fn history(dir: &Path, key: &str) -> Result<Vec<MetricPoint>, MlflowError> {
    let mut found = Vec::new();
    each_entry(dir, |entry| {
        if let Entry::Step(metrics) | Entry::Valid(metrics) = entry {
            found.extend(points(&metrics).filter(|point| point.key == key));
        }
    })?;
    Ok(found)
}

fn points(metrics: &Metrics) -> impl Iterator<Item = MetricPoint> {
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    metrics.values.iter().map(move |(key, value)| MetricPoint {
        key: key.strip_prefix(PREFIX).unwrap_or(key).to_owned(),
        value: *value,
        timestamp: signed(metrics.unix_ms.unwrap_or(0)),
        step: signed(metrics.step),
    })
}

fn each_entry(dir: &Path, mut take: impl FnMut(Entry)) -> Result<(), MlflowError> {
    let mut position = Position::default();
    loop {
        let batch = read_from(dir, &position)?;
        if batch.position == position {
            return Ok(());
        }
        position = batch.position;
        batch.entries.into_iter().for_each(&mut take);
    }
}

/// The directory of a run's artifacts.
pub(crate) fn artifacts(dir: &Path) -> PathBuf {
    dir.join("artifacts")
}
