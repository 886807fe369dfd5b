//! The rules for a configuration, whether it was read from a file or built in code.
//!
//! An error names its key. For a file, [`ConfigError::placed`] adds the location.

use super::choice;
use super::error::ConfigError;
use super::formation::{
    AHEAD, AHEAD_MEANS_NOTHING, BatchOf, MOST, MOST_CORES, MOST_STAGES, Mode, NO_MAXIMUM, NO_REPLICAS,
    SharesBy,
};
use super::source::Source;
use super::sync::{ExchangeOf, ONLY_OUTER, ScaleLr};
use super::train::{LOSS, METRIC, OPTIMIZER, SCHEDULE};
use super::{DataConfig, FormationConfig, ModelConfig, RunConfig, SyncConfig, TrainConfig};
use phalanx_collective::Compression;
use phalanx_engine::Schedule;
use phalanx_protocol::{Every, Length};
use std::fmt::Display;
use std::ops::RangeInclusive;

impl RunConfig {
    /// Checks every value by itself, and values that depend on each other.
    ///
    /// # Errors
    /// Names the first key whose value cannot be used.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if let Some(name) = &self.name {
            check_name(name)?;
        }
        self.model.validate()?;
        self.data.validate()?;
        self.train.validate()?;
        self.formation.validate(&self.train)?;
        if let Some(stream) = &self.data.stream {
            stream.validate(self)?;
        }
        self.sync.validate(&self.formation)
    }
}

impl ModelConfig {
    /// Checks every value by itself.
    ///
    /// # Errors
    /// Names the first key whose value cannot be used.
    pub fn validate(&self) -> Result<(), ConfigError> {
        match self.dropout {
            Some(ratio) if !(0.0..1.0).contains(&ratio) => {
                Err(should_be("model.dropout", "from 0 to below 1", ratio))
            }
            _ => Ok(()),
        }
    }
}

impl DataConfig {
    /// Checks every value by itself; sources and transformations are checked against each other when they are opened.
    ///
    /// # Errors
    /// Names the first key whose value cannot be used.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let transform = &self.transform;
        if let Some(classes) = transform.one_hot {
            within("data.one_hot", classes, 1..=1 << 24)?;
        }
        match &transform.reshape {
            Some(shape) if shape.is_empty() || shape.contains(&0) => {
                let wanted = "a list of whole numbers from 1 on, like [1, 8, 8]";
                Err(should_be("data.reshape", wanted, format!("{shape:?}")))
            }
            _ => Ok(()),
        }
    }
}

impl TrainConfig {
    /// Checks every value by itself.
    ///
    /// # Errors
    /// Names the first key whose value cannot be used.
    pub fn validate(&self) -> Result<(), ConfigError> {
        choice::validate(&self.loss, "train.loss", LOSS)?;
        if self.own_loss.as_ref().is_some_and(String::is_empty) {
            return Err(should_be("train.own_loss", "the name of a loss", "\"\""));
        }
        choice::validate(&self.optimizer, "train.optimizer", OPTIMIZER)?;
        choice::validate(&self.schedule, "train.schedule", SCHEDULE)?;
        check_table(&self.schedule)?;
        for metric in &self.metrics {
            choice::validate(metric, "train.metrics", METRIC)?;
        }
        match self.length {
            Length::Passes(0) => return Err(should_be("train.epochs", "a whole number from 1 on", 0)),
            Length::Steps(0) => return Err(should_be("train.steps", "a whole number from 1 on", 0)),
            _ => {}
        }
        within("train.batch", self.batch, 1..=MOST_SAMPLES)?;
        within("train.seed", self.seed.0, 0..=i64::MAX)?;
        within("train.accumulate", self.accumulate, 1..=1 << 20)?;
        within("train.keep", self.keep, 1..=1_000_000)?;
        if let Some(threads) = self.threads {
            within("train.threads", threads, 1..=4096)?;
        }
        above_zero("train.clip_norm", self.clip_norm)?;
        above_zero("train.clip_value", self.clip_value)?;
        match self.validate_every {
            // Whether a step validates must not depend on the speed of the machine.
            Every::Time(_) => {
                Err(should_be("train.validate_every", super::train::EVERY, self.validate_every))
            }
            _ => Ok(()),
        }
    }
}

/// A table of learning rates has a rate for each of its steps.
fn check_table(schedule: &Schedule) -> Result<(), ConfigError> {
    let Schedule::Table { steps, rates, .. } = schedule else { return Ok(()) };
    if !steps.is_sorted_by(|a, b| a < b) {
        return Err(should_be("train.schedule.steps", "ascending", format!("{steps:?}")));
    }
    match rates.len() == steps.len() {
        true => Ok(()),
        false => {
            let wanted = format!("a list of {}, as many as `train.schedule.steps` has", steps.len());
            Err(should_be("train.schedule.rates", wanted, rates.len()))
        }
    }
}

/// The most samples of a step: the most of one replica times the most replicas.
const MOST_SAMPLES: i64 = (1 << 24) * MOST;

impl FormationConfig {
    /// Checks every value by itself, and against the samples of a step.
    ///
    /// # Errors
    /// Names the first key whose value cannot be used.
    pub fn validate(&self, train: &TrainConfig) -> Result<(), ConfigError> {
        within("formation.replicas", self.replicas, 1..=MOST)?;
        within("formation.local", self.local, 0..=MOST)?;
        within("formation.min_replicas", self.min_replicas, 1..=MOST)?;
        if let Some(stages) = self.stages {
            within("formation.stages", stages, 1..=MOST_STAGES)?;
        }
        let (replicas, fewest, most) = (self.replicas, self.min_replicas, self.max_replicas);
        let implied = match self.stages {
            Some(1) if self.local > 0 => Some(self.local),
            Some(1) => None,
            _ => Some(self.pipelines.unwrap_or(1)),
        };
        if let Some(implied) = implied.filter(|implied| *implied != replicas) {
            let wanted = format!("{implied}, as `formation.local` or `formation.pipelines` say");
            return Err(should_be("formation.replicas", wanted, replicas));
        }
        if self.is_staged() {
            self.validate_staged()?;
        } else if most < replicas.max(fewest) {
            let wanted = "at least `formation.replicas` and `formation.min_replicas`";
            return Err(should_be("formation.max_replicas", wanted, most));
        } else if fewest > replicas {
            let wanted = format!("at most `formation.replicas`, which is {replicas}");
            return Err(should_be("formation.min_replicas", wanted, fewest));
        }
        self.validate_share(train.threads)?;
        if self.batch == BatchOf::PerReplica && !train.batch.is_multiple_of(replicas) {
            let wanted = format!("a multiple of `formation.replicas`, which is {replicas}");
            return Err(should_be("train.batch", wanted, train.batch));
        }
        let samples = train.batch.saturating_mul(train.accumulate);
        if let Some(parts) = self.micro_batches.filter(|parts| *parts > samples) {
            // Every micro-batch has at least one sample.
            return Err(should_be("formation.micro_batches", format!("at most the batch, {samples}"), parts));
        }
        if self.in_flight.is_some() && self.mode == Mode::Exact {
            return Err(useless("formation.in_flight", "only asynchronous stages have batches in flight"));
        }
        if self.ahead != AHEAD && self.mode == Mode::Asynchronous {
            return Err(useless("formation.ahead", AHEAD_MEANS_NOTHING));
        }
        match self.compress {
            Compression::TopK { .. } => {
                Err(should_be("formation.compress", "one of none, f16, bf16, int8", self.compress))
            }
            _ => Ok(()),
        }
    }
}

impl FormationConfig {
    /// What only the planner decides cannot be set for a run in stages.
    fn validate_staged(&self) -> Result<(), ConfigError> {
        if self.max_replicas < MOST as usize {
            return Err(useless("formation.max_replicas", NO_MAXIMUM));
        }
        if self.min_replicas > 1 {
            let why =
                "a run in stages pauses when the nodes cannot hold the model, not at a number of replicas";
            return Err(useless("formation.min_replicas", why));
        }
        if self.batch == BatchOf::PerReplica && self.pipelines.is_none() {
            return Err(useless("formation.batch", NO_REPLICAS));
        }
        match self.shares {
            SharesBy::Speed => Ok(()),
            SharesBy::Equal => {
                let wanted = "\"speed\": with stages the planner decides which replica gets how many samples";
                Err(should_be("formation.shares", wanted, "equal"))
            }
        }
    }

    /// Refuses a share of a node that the run could not respect.
    fn validate_share(&self, threads: Option<usize>) -> Result<(), ConfigError> {
        if self.memory.is_some() && self.pipelines.is_none() && self.local == 0 && !self.is_staged() {
            let why = "it is claimed on the nodes of a run, and this one is in one process";
            return Err(useless("formation.memory", why));
        }
        let Some(cores) = self.cores else { return Ok(()) };
        within("formation.cores", cores, 1..=MOST_CORES)?;
        match threads {
            Some(threads) if threads > cores as usize => {
                let wanted = format!("at least `train.threads`, which is {threads}");
                Err(should_be("formation.cores", wanted, cores))
            }
            _ => Ok(()),
        }
    }
}

impl SyncConfig {
    /// Checks every value by itself, and against the formation.
    ///
    /// # Errors
    /// Names the first key whose value cannot be used.
    pub fn validate(&self, formation: &FormationConfig) -> Result<(), ConfigError> {
        // Asynchronous stages update by themselves: there is no gradient that all replicas could agree on.
        let flows = formation.is_staged() && formation.is_asynchronous();
        if flows && formation.pipelines != Some(1) && self.exchange == ExchangeOf::Gradients {
            let wanted = "\"parameters\" or \"outer\" with asynchronous stages, unless there is one replica \
                          (`formation.replicas = 1`)";
            return Err(should_be("sync.exchange", wanted, "gradients"));
        }
        within("sync.every", self.every, 1..=1 << 20)?;
        if self.exchange == ExchangeOf::Gradients && self.every != 1 {
            let wanted = "1 with `sync.exchange = \"gradients\"`; \"parameters\" and \"outer\" may be exchanged \
                          less often";
            return Err(should_be("sync.every", wanted, self.every));
        }
        if self.shared_statistics && self.exchange != ExchangeOf::Gradients {
            let wanted = "\"local\": replicas that learn alone do not wait for each other";
            return Err(should_be("sync.batch_norm", wanted, "sync"));
        }
        if self.scale_lr != ScaleLr::None && formation.is_staged() && formation.pipelines.is_none() {
            return Err(useless("sync.scale_lr", NO_REPLICAS));
        }
        self.validate_outer()?;
        if self.average_optimizer && self.exchange == ExchangeOf::Gradients {
            let why = "with `sync.exchange = \"gradients\"` the optimizers of all replicas keep the same";
            return Err(useless("sync.average_optimizer", why));
        }
        Ok(())
    }

    fn validate_outer(&self) -> Result<(), ConfigError> {
        above_zero("sync.outer_lr", Some(self.outer_lr))?;
        if !(0.0..1.0).contains(&self.outer_momentum) {
            return Err(should_be("sync.outer_momentum", "from 0 to below 1", self.outer_momentum));
        }
        let usual = Self::default();
        for (key, said) in [
            ("sync.outer_lr", self.outer_lr != usual.outer_lr),
            ("sync.outer_momentum", self.outer_momentum != usual.outer_momentum),
        ] {
            if said && self.exchange != ExchangeOf::Outer {
                return Err(useless(key, ONLY_OUTER));
            }
        }
        Ok(())
    }
}

/// The valid names of runs.
pub(super) const NAME: &str = "a word of letters, digits, `-`, `_` and `.`, at most 64";

/// The name of a run is also the name of its directory.
fn check_name(name: &str) -> Result<(), ConfigError> {
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > 64 || name.starts_with('.') || !name.chars().all(fine) {
        return Err(should_be("name", NAME, format!("{name:?}")));
    }
    Ok(())
}

fn should_be(key: &str, wanted: impl Into<String>, got: impl Display) -> ConfigError {
    ConfigError::Range { key: key.to_owned(), wanted: wanted.into(), got: got.to_string(), at: Source::Code }
}

fn useless(key: &str, why: &str) -> ConfigError {
    ConfigError::Useless { key: key.to_owned(), why: why.to_owned(), at: Source::Code }
}

fn within<T: TryInto<i64> + Display + Copy>(
    key: &str,
    value: T,
    range: RangeInclusive<i64>,
) -> Result<(), ConfigError> {
    match value.try_into() {
        Ok(number) if range.contains(&number) => Ok(()),
        _ => Err(should_be(key, super::section::whole_range(&range), value)),
    }
}

fn above_zero(key: &str, value: Option<f32>) -> Result<(), ConfigError> {
    match value {
        Some(value) if value <= 0.0 => Err(should_be(key, "above 0", value)),
        Some(value) if !value.is_finite() => Err(should_be(key, "a finite number", value)),
        _ => Ok(()),
    }
}
