//! `[train]`: how to train.

use super::choice::{self, Bare, Kind};
use super::error::ConfigError;
use super::section::Section;
use super::tree::{Node, Value};
use phalanx_engine::{Adam, Loss, Metric, OptimizerSpec, Schedule};
use phalanx_protocol::{Every, Length};
use phalanx_types::Seed;
use std::time::Duration;

pub(crate) const KEYS: &[&str] = &[
    "loss",
    "own_loss",
    "optimizer",
    "lr",
    "schedule",
    "epochs",
    "steps",
    "batch",
    "seed",
    "accumulate",
    "clip_norm",
    "clip_value",
    "validate_every",
    "checkpoint_every",
    "keep",
    "threads",
    "recompute",
    "metrics",
];
pub(crate) const LOSS: Kind = Kind {
    what: "loss",
    names: &["mse", "l1", "huber", "cross_entropy", "bce", "bce_with_logits", "nll"],
    bare: &[],
};
pub(crate) const OPTIMIZER: Kind =
    Kind { what: "optimizer", names: &["sgd", "adam", "adamw", "rmsprop", "adagrad"], bare: &[] };
pub(crate) const SCHEDULE: Kind = Kind {
    what: "schedule",
    names: &["constant", "step", "cosine", "exponential", "one_cycle", "table"],
    bare: &[
        Bare { name: "step", setting: "every", required: true },
        Bare { name: "exponential", setting: "gamma", required: true },
        Bare { name: "one_cycle", setting: "max_lr", required: false },
    ],
};
pub(crate) const METRIC: Kind = Kind {
    what: "metric",
    names: &["accuracy", "binary_accuracy", "top_k", "mae", "mse", "perplexity"],
    bare: &[],
};

/// How to train.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainConfig {
    pub loss: Loss,
    /// The name of a custom loss, which takes the place of `loss`: nodes that train must have been given it.
    pub own_loss: Option<String>,
    pub optimizer: OptimizerSpec,
    pub schedule: Schedule,
    pub length: Length,
    /// Samples computed at once.
    pub batch: usize,
    pub seed: Seed,
    /// Batches per step.
    pub accumulate: usize,
    pub clip_norm: Option<f32>,
    pub clip_value: Option<f32>,
    pub validate_every: Every,
    pub checkpoint_every: Every,
    /// How many checkpoints are kept.
    pub keep: usize,
    /// Compute threads; all cores by default. Results do not depend on it.
    pub threads: Option<usize>,
    pub recompute: bool,
    /// Metrics of validation besides the loss.
    pub metrics: Vec<Metric>,
}

/// The valid values of `validate_every`.
pub(super) const EVERY: &str = "a number of steps, or something like \"1 epoch\", \"500 steps\" or \"never\"";

/// The valid values of `checkpoint_every`.
const EVERY_OR_TIME: &str =
    "a number of steps, or something like \"1 epoch\", \"500 steps\", \"30s\" or \"never\"";

impl Default for TrainConfig {
    /// One pass with the mean squared error.
    fn default() -> Self {
        Self {
            loss: Loss::Mse,
            own_loss: None,
            optimizer: OptimizerSpec::Adam(Adam::default()),
            schedule: Schedule::default(),
            length: Length::Passes(1),
            batch: 32,
            seed: Seed(0),
            accumulate: 1,
            clip_norm: None,
            clip_value: None,
            validate_every: Every::Passes(1),
            checkpoint_every: Every::Time(Duration::from_secs(30)),
            keep: 3,
            threads: None,
            recompute: false,
            metrics: Vec::new(),
        }
    }
}

impl TrainConfig {
    pub(crate) fn read(section: &mut Section<'_>) -> Result<Self, ConfigError> {
        let usual = Self::default();
        let (loss, own_loss) = loss(section)?;
        let optimizer = choice::read(section, "optimizer", OPTIMIZER, Some("adam"))?;
        let optimizer = optimizer.ok_or_else(|| section.missing("optimizer", ""))?;
        let schedule = choice::read(section, "schedule", SCHEDULE, Some("constant"))?;
        let length = length(section)?;
        Ok(Self {
            loss,
            own_loss,
            optimizer,
            schedule: schedule.unwrap_or_default(),
            length,
            batch: section.int_or("batch", 1..=1 << 24, usual.batch as u64)? as usize,
            seed: Seed(section.int_or("seed", 0..=i64::MAX, usual.seed.0)?),
            accumulate: section.int_or("accumulate", 1..=1 << 20, usual.accumulate as u64)? as usize,
            clip_norm: section.number("clip_norm")?.map(|said| said.value as f32),
            clip_value: section.number("clip_value")?.map(|said| said.value as f32),
            validate_every: every(section, "validate_every", usual.validate_every, EVERY)?,
            checkpoint_every: every(section, "checkpoint_every", usual.checkpoint_every, EVERY_OR_TIME)?,
            keep: section.int_or("keep", 1..=1_000_000, usual.keep as u64)? as usize,
            threads: section.int("threads", 1..=4096)?.map(|n| n.value as usize),
            recompute: section.bool_or("recompute", usual.recompute)?,
            metrics: metrics(section)?,
        })
    }
}

/// The loss by name, or the name of a custom one.
fn loss(section: &mut Section<'_>) -> Result<(Loss, Option<String>), ConfigError> {
    let loss = choice::read(section, "loss", LOSS, None)?;
    let own = section.text("own_loss")?.map(|said| said.value);
    match (loss, own) {
        (Some(_), Some(_)) => Err(section.conflict("own_loss", "loss")),
        (Some(loss), None) => Ok((loss, None)),
        (None, Some(own)) => Ok((Loss::Mse, Some(own))),
        (None, None) => Err(section.missing("loss", "say what to minimise: loss = \"cross_entropy\"")),
    }
}

fn length(section: &mut Section<'_>) -> Result<Length, ConfigError> {
    let epochs = section.int("epochs", 1..=i64::MAX)?;
    let steps = section.int("steps", 1..=i64::MAX)?;
    match (epochs, steps) {
        (Some(epochs), None) => Ok(Length::Passes(epochs.value)),
        (None, Some(steps)) => Ok(Length::Steps(steps.value)),
        (Some(_), Some(_)) => Err(section.conflict("steps", "epochs")),
        (None, None) => Err(section.missing("epochs", "say how long to train: epochs = 10 or steps = 1000")),
    }
}

/// A string such as `"2 epochs"`, or a number of steps.
fn every(section: &mut Section<'_>, key: &str, default: Every, wanted: &str) -> Result<Every, ConfigError> {
    match section.node(key).map(|node| &node.value) {
        Some(Value::Int(_)) => Ok(section.int(key, 1..=i64::MAX)?.map_or(default, |n| Every::Steps(n.value))),
        Some(_) => Ok(section.parsed(key, wanted)?.unwrap_or(default)),
        None => {
            section.note_default(key, &Value::Text(default.to_string()));
            Ok(default)
        }
    }
}

fn metrics(section: &mut Section<'_>) -> Result<Vec<Metric>, ConfigError> {
    let Some(node) = section.node("metrics") else { return Ok(Vec::new()) };
    let Value::List(items) = &node.value else {
        return Err(section.wrong("metrics", "a list of names", node));
    };
    let key = section.key("metrics");
    let read = |item: &Node| choice::choose(item, &key, METRIC).map(|chosen| chosen.value);
    let metrics = items.iter().map(read).collect::<Result<_, _>>()?;
    section.note_node("metrics", node);
    Ok(metrics)
}
