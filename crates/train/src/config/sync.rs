//! `[sync]`: what replicas exchange, and when.
//!
//! A run with one replica has nothing to exchange: these keys are then idle, so that one file works in one process and
//! on many nodes. Values that contradict the formation or another key are refused with their location.

use super::error::ConfigError;
use super::formation::FormationConfig;
use super::section::Section;
use phalanx_collective::Compression;

pub(crate) const KEYS: &[&str] = &[
    "exchange",
    "every",
    "compress",
    "batch_norm",
    "scale_lr",
    "outer_lr",
    "outer_momentum",
    "verify",
    "average_optimizer",
];

/// Steps between checks that all replicas hold the same parameters.
pub(super) const VERIFY: u64 = 100;

/// Why settings of the outer optimizer have no effect.
pub(super) const ONLY_OUTER: &str = "only `sync.exchange = \"outer\"` has an outer optimizer";

/// What replicas exchange, and when.
#[derive(Debug, Clone, PartialEq)]
pub struct SyncConfig {
    pub exchange: ExchangeOf,
    /// Steps between two exchanges.
    pub every: u64,
    pub compress: Compression,
    /// Whether a batch is normalised over all replicas.
    pub shared_statistics: bool,
    pub scale_lr: ScaleLr,
    /// For [`ExchangeOf::Outer`].
    pub outer_lr: f32,
    pub outer_momentum: f32,
    /// Steps between checks that all replicas hold the same parameters; 0 for never.
    pub verify: u64,
    /// Whether optimizer state is averaged with the parameters.
    pub average_optimizer: bool,
}

/// What replicas exchange.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExchangeOf {
    /// Gradients of every step: all replicas together compute what one would with the whole batch.
    #[default]
    Gradients,
    /// The average of the parameters after local steps.
    Parameters,
    /// The average of the local updates, as a gradient for an outer optimizer.
    Outer,
}

/// How the learning rate depends on the initial number of replicas.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ScaleLr {
    #[default]
    None,
    Linear,
    Sqrt,
}

impl ScaleLr {
    pub fn factor(self, replicas: usize) -> f32 {
        match self {
            ScaleLr::None => 1.0,
            ScaleLr::Linear => replicas as f32,
            ScaleLr::Sqrt => (replicas as f32).sqrt(),
        }
    }
}

impl Default for SyncConfig {
    /// Gradients of every step, so that replicas compute what one would.
    fn default() -> Self {
        Self {
            exchange: ExchangeOf::Gradients,
            every: 1,
            compress: Compression::None,
            shared_statistics: true,
            scale_lr: ScaleLr::None,
            outer_lr: 0.7,
            outer_momentum: 0.9,
            verify: VERIFY,
            average_optimizer: false,
        }
    }
}

impl SyncConfig {
    /// Replicas train locally and average their parameters after this many steps.
    pub fn parameters(every: u64) -> Self {
        Self { exchange: ExchangeOf::Parameters, every, shared_statistics: false, ..Self::default() }
    }

    /// Replicas train locally; the average of their updates after this many steps is a gradient for an outer optimizer.
    pub fn outer(every: u64) -> Self {
        Self { exchange: ExchangeOf::Outer, ..Self::parameters(every) }
    }

    pub(crate) fn read(section: &mut Section<'_>, formation: &FormationConfig) -> Result<Self, ConfigError> {
        let (usual, staged) = (Self::default(), formation.is_staged());
        let exchange = exchange(section, formation)?;
        let every = section.int("every", 1..=1 << 20)?;
        let every = every.map_or(if exchange == ExchangeOf::Gradients { 1 } else { 20 }, |said| said.value);
        let compress = section
            .parsed("compress", "one of none, f16, bf16, int8, topk, or topk:0.01 for one of a hundred")?;
        let norm = section.word("batch_norm", "batch norm", &["sync", "local"])?;
        if let Some(said) = norm.as_ref().filter(|said| said.value == "sync" && staged) {
            let why = "stages normalise each of their micro-batches by itself";
            return Err(said.should_be(format!("\"local\": {why}")));
        }
        Ok(Self {
            exchange,
            every,
            compress: compress.unwrap_or_default(),
            shared_statistics: norm.map_or(exchange == ExchangeOf::Gradients, |said| said.value == "sync"),
            scale_lr: scale_lr(section)?,
            outer_lr: section.number("outer_lr")?.map_or(usual.outer_lr, |said| said.value as f32),
            outer_momentum: section
                .number("outer_momentum")?
                .map_or(usual.outer_momentum, |said| said.value as f32),
            verify: verify(section, exchange, staged)?,
            average_optimizer: section.bool_or("average_optimizer", usual.average_optimizer)?,
        })
    }
}

/// Asynchronous stages update by themselves, so they exchange parameters by default.
fn exchange(section: &mut Section<'_>, formation: &FormationConfig) -> Result<ExchangeOf, ConfigError> {
    let flows = formation.is_staged() && formation.is_asynchronous();
    let said = section.word("exchange", "exchange", &["gradients", "parameters", "outer"])?;
    Ok(match said.map(|said| said.value) {
        Some("parameters") => ExchangeOf::Parameters,
        Some("outer") => ExchangeOf::Outer,
        Some(_) => ExchangeOf::Gradients,
        None if flows => ExchangeOf::Parameters,
        None => ExchangeOf::Gradients,
    })
}

fn scale_lr(section: &mut Section<'_>) -> Result<ScaleLr, ConfigError> {
    Ok(match section.word("scale_lr", "learning rate", &["none", "linear", "sqrt"])?.map(|said| said.value) {
        Some("linear") => ScaleLr::Linear,
        Some("sqrt") => ScaleLr::Sqrt,
        _ => ScaleLr::None,
    })
}

fn verify(section: &mut Section<'_>, exchange: ExchangeOf, staged: bool) -> Result<u64, ConfigError> {
    let said = section.int("verify", 0..=i64::MAX)?;
    match said.map(|said| said.value) {
        None => Ok(VERIFY),
        Some(1..) if staged => {
            let why = "only replicas that hold the whole model compare their parameters";
            Err(section.useless("verify", why))
        }
        Some(1..) if exchange != ExchangeOf::Gradients => {
            let why = "replicas that learn alone differ between two exchanges";
            Err(section.useless("verify", why))
        }
        Some(every) => Ok(every),
    }
}

/// Settings of the outer optimizer may only be set if there is one, even to their defaults.
pub(super) fn check_outer(section: &Section<'_>, exchange: ExchangeOf) -> Result<(), ConfigError> {
    let said = ["outer_lr", "outer_momentum"].into_iter().find(|key| section.node(key).is_some());
    match said.filter(|_| exchange != ExchangeOf::Outer) {
        Some(key) => Err(section.useless(key, ONLY_OUTER)),
        None => Ok(()),
    }
}
