//! `[formation]`: who trains.

use super::error::ConfigError;
use super::section::Section;
use super::tree::Value;
use std::time::Duration;

pub(crate) const KEYS: &[&str] =
    &["replicas", "stages", "local", "min_replicas", "max_replicas", "patience", "batch", "shares"];

/// The most replicas of one run.
const MOST: i64 = 1024;
const STAGES: &str = "leave it out, or set it to 1: this version keeps a whole model on every node";

/// Who trains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormationConfig {
    /// How many replicas to begin with.
    pub replicas: usize,
    /// Nodes to start on this machine; none when 0.
    pub local: usize,
    /// With fewer the run pauses.
    pub min_replicas: usize,
    /// More are not taken in.
    pub max_replicas: usize,
    /// How long to wait for more nodes than the fewest before beginning.
    pub patience: Duration,
    pub batch: BatchOf,
    pub shares: SharesBy,
}

/// Whose samples `train.batch` counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BatchOf {
    /// All replicas' together.
    #[default]
    Global,
    /// One replica's, of as many as the run begins with.
    PerReplica,
}

/// How a batch is cut.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SharesBy {
    /// A faster replica gets more samples.
    #[default]
    Speed,
    Equal,
}

impl FormationConfig {
    pub(crate) fn read(section: &mut Section<'_>) -> Result<Self, ConfigError> {
        if let Some(said) = section.int("stages", 1..=1 << 20)?.filter(|said| said.value != 1) {
            return Err(ConfigError::NotYet {
                key: said.key,
                got: said.value.to_string(),
                at: said.source,
                hint: STAGES,
            });
        }
        let local = section.int("local", 0..=MOST)?.map_or(0, |said| said.value);
        let replicas = section.int_or("replicas", 1..=MOST, local.max(1))?;
        let min_replicas = section.int_or("min_replicas", 1..=MOST, 1)?;
        let most = section.int("max_replicas", 1..=MOST)?;
        if let Some(said) = most.as_ref().filter(|said| said.value < replicas.max(min_replicas)) {
            return Err(said.should_be("at least `formation.replicas` and `formation.min_replicas`"));
        }
        if min_replicas > replicas {
            let wanted = format!("at most `formation.replicas`, which is {replicas}");
            let said = section.int("min_replicas", 1..=MOST)?;
            return Err(said.map_or_else(|| section.missing("replicas", ""), |said| said.should_be(wanted)));
        }
        Ok(Self {
            replicas: replicas as usize,
            local: local as usize,
            min_replicas: min_replicas as usize,
            max_replicas: most.map_or(MOST as u64, |said| said.value) as usize,
            patience: patience(section)?,
            batch: match section.word("batch", "batch", &["global", "per_replica"])?.map(|said| said.value) {
                Some("per_replica") => BatchOf::PerReplica,
                _ => BatchOf::Global,
            },
            shares: match section.word("shares", "shares", &["speed", "equal"])?.map(|said| said.value) {
                Some("equal") => SharesBy::Equal,
                _ => SharesBy::Speed,
            },
        })
    }

    /// Whether more than one process takes part.
    pub fn is_distributed(&self) -> bool {
        self.replicas > 1 || self.local > 1
    }
}

fn patience(section: &mut Section<'_>) -> Result<Duration, ConfigError> {
    let default = Duration::from_secs(30);
    let said = section.parsed::<humantime::Duration>("patience", "a duration such as \"30s\"")?;
    if said.is_none() {
        section.note_default("patience", &Value::Text(humantime::format_duration(default).to_string()));
    }
    Ok(said.map_or(default, Into::into))
}
