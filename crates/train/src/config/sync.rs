//! `[sync]`: what replicas exchange, and when.

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

/// Steps between two looks at whether all replicas hold the same parameters.
const VERIFY: u64 = 100;

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
    /// Whether what optimizers keep is averaged with the parameters of stages.
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
            scale_lr: match section
                .word("scale_lr", "learning rate", &["none", "linear", "sqrt"])?
                .map(|said| said.value)
            {
                Some("linear") => ScaleLr::Linear,
                Some("sqrt") => ScaleLr::Sqrt,
                _ => ScaleLr::None,
            },
            outer_lr: above_zero(section, "outer_lr", 0.7)?,
            outer_momentum: momentum(section)?,
            verify: section.int("verify", 0..=i64::MAX)?.map_or(VERIFY, |said| said.value),
            average_optimizer: average_optimizer(section, staged)?,
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

fn average_optimizer(section: &mut Section<'_>, staged: bool) -> Result<bool, ConfigError> {
    match section.bool_or("average_optimizer", false)? {
        true if !staged => {
            Err(section.useless("average_optimizer", "only runs in stages average what optimizers keep"))
        }
        said => Ok(said),
    }
}

fn above_zero(section: &mut Section<'_>, key: &str, default: f32) -> Result<f32, ConfigError> {
    match section.number(key)? {
        Some(said) if said.value <= 0.0 => Err(said.should_be("above 0")),
        said => Ok(said.map_or(default, |said| said.value as f32)),
    }
}

fn momentum(section: &mut Section<'_>) -> Result<f32, ConfigError> {
    match section.number("outer_momentum")? {
        Some(said) if !(0.0..1.0).contains(&said.value) => Err(said.should_be("from 0 to below 1")),
        said => Ok(said.map_or(0.9, |said| said.value as f32)),
    }
}
