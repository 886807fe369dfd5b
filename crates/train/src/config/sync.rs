//! `[sync]`: what replicas exchange, and when.
//!
//! A run with one replica has nothing to exchange: these keys are then idle, so that one file can be run in one process
//! and on many nodes. What contradicts the formation or another key is refused with its place.

use super::error::ConfigError;
use super::formation::{FormationConfig, NO_REPLICAS};
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

/// Steps between two looks at whether all replicas hold the same parameters.
const VERIFY: u64 = 100;

/// Why settings of the outer optimizer do nothing.
const ONLY_OUTER: &str = "only `sync.exchange = \"outer\"` has an outer optimizer";

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
    /// Of [`ExchangeOf::Outer`].
    pub outer_lr: f32,
    pub outer_momentum: f32,
    /// Steps between two looks at whether all replicas hold the same parameters; never when 0.
    pub verify: u64,
    /// Whether what optimizers keep is averaged with the parameters.
    pub average_optimizer: bool,
}

/// What replicas exchange.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExchangeOf {
    /// Of every step: all replicas together do what one would do with the whole batch.
    #[default]
    Gradients,
    /// The average of what every replica learned alone.
    Parameters,
    /// What every replica learned alone, averaged, is a gradient for an optimizer of its own.
    Outer,
}

/// How the learning rate follows from the number of replicas that the run begins with.
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

impl SyncConfig {
    pub(crate) fn read(section: &mut Section<'_>, formation: &FormationConfig) -> Result<Self, ConfigError> {
        let staged = formation.is_staged();
        let exchange = exchange(section, formation)?;
        let every = section.int("every", 1..=1 << 20)?;
        if let Some(said) = every.as_ref().filter(|said| exchange == ExchangeOf::Gradients && said.value != 1)
        {
            return Err(said.should_be(
                "1 with `sync.exchange = \"gradients\"`; \"parameters\" and \"outer\" may be exchanged less often",
            ));
        }
        let every = every.map_or(if exchange == ExchangeOf::Gradients { 1 } else { 20 }, |said| said.value);
        let compress = section
            .parsed("compress", "one of none, f16, bf16, int8, topk, or topk:0.01 for one of a hundred")?;
        let norm = section.word("batch_norm", "batch norm", &["sync", "local"])?;
        if let Some(said) = &norm
            && said.value == "sync"
        {
            let why = match exchange {
                _ if staged => "stages normalise each of their micro-batches by itself",
                ExchangeOf::Gradients => "",
                _ => "replicas that learn alone do not wait for each other",
            };
            if !why.is_empty() {
                return Err(said.should_be(format!("\"local\": {why}")));
            }
        }
        Ok(Self {
            exchange,
            every,
            compress: compress.unwrap_or_default(),
            shared_statistics: exchange == ExchangeOf::Gradients
                && norm.is_none_or(|said| said.value == "sync"),
            scale_lr: scale_lr(section, formation)?,
            outer_lr: outer_lr(section, exchange)?,
            outer_momentum: outer_momentum(section, exchange)?,
            verify: verify(section, exchange, staged)?,
            average_optimizer: average_optimizer(section, exchange)?,
        })
    }
}

/// Asynchronous stages update by themselves: there is no gradient that all replicas could agree on.
fn exchange(section: &mut Section<'_>, formation: &FormationConfig) -> Result<ExchangeOf, ConfigError> {
    let flows = formation.is_staged() && formation.is_asynchronous();
    let Some(said) = section.word("exchange", "exchange", &["gradients", "parameters", "outer"])? else {
        return Ok(if flows { ExchangeOf::Parameters } else { ExchangeOf::Gradients });
    };
    match said.value {
        "parameters" => Ok(ExchangeOf::Parameters),
        "outer" => Ok(ExchangeOf::Outer),
        _ if flows && formation.pipelines != Some(1) => Err(said.should_be(
            "\"parameters\" or \"outer\" with asynchronous stages, unless there is one replica \
             (`formation.replicas = 1`)",
        )),
        _ => Ok(ExchangeOf::Gradients),
    }
}

fn scale_lr(section: &mut Section<'_>, formation: &FormationConfig) -> Result<ScaleLr, ConfigError> {
    let scale = match section.word("scale_lr", "learning rate", &["none", "linear", "sqrt"])? {
        Some(said) if said.value == "linear" => ScaleLr::Linear,
        Some(said) if said.value == "sqrt" => ScaleLr::Sqrt,
        _ => ScaleLr::None,
    };
    let unknown = formation.is_staged() && formation.pipelines.is_none();
    if scale != ScaleLr::None && unknown { Err(section.useless("scale_lr", NO_REPLICAS)) } else { Ok(scale) }
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

/// Optimizers of replicas that exchange gradients keep the same; there is nothing to average.
fn average_optimizer(section: &mut Section<'_>, exchange: ExchangeOf) -> Result<bool, ConfigError> {
    match section.bool_or("average_optimizer", false)? {
        true if exchange == ExchangeOf::Gradients => Err(section.useless(
            "average_optimizer",
            "with `sync.exchange = \"gradients\"` the optimizers of all replicas keep the same",
        )),
        said => Ok(said),
    }
}

fn outer_lr(section: &mut Section<'_>, exchange: ExchangeOf) -> Result<f32, ConfigError> {
    match section.number("outer_lr")? {
        Some(said) if said.value <= 0.0 => Err(said.should_be("above 0")),
        Some(_) if exchange != ExchangeOf::Outer => Err(section.useless("outer_lr", ONLY_OUTER)),
        said => Ok(said.map_or(0.7, |said| said.value as f32)),
    }
}

fn outer_momentum(section: &mut Section<'_>, exchange: ExchangeOf) -> Result<f32, ConfigError> {
    match section.number("outer_momentum")? {
        Some(said) if !(0.0..1.0).contains(&said.value) => Err(said.should_be("from 0 to below 1")),
        Some(_) if exchange != ExchangeOf::Outer => Err(section.useless("outer_momentum", ONLY_OUTER)),
        said => Ok(said.map_or(0.9, |said| said.value as f32)),
    }
}
