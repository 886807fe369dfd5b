//! The run file: its keys, the source of each value, and its errors.
//!
//! ```text
//! run.toml ─► tree (values with places) ─► + environment ─► + flags ─► sections, checked ─► RunConfig
//!                                                                          └─► Resolved (run.toml of the run)
//! ```
//! Flags override the environment, which overrides the file, which overrides defaults. An unknown key is an error.

mod choice;
#[cfg(test)]
mod code_tests;
mod data;
mod error;
mod files;
mod formation;
mod model;
mod resolved;
mod section;
mod source;
mod stream;
mod sync;
#[cfg(test)]
mod tests;
mod train;
mod tree;
mod validate;
mod write;

pub use data::DataConfig;
pub use error::{ConfigError, Words};
pub use formation::{BatchOf, CutBefore, FormationConfig, Mode, SharesBy};
pub use model::{ModelConfig, ModelFrom};
pub use phalanx_protocol::{Every, Length, ParseEveryError};
pub use resolved::Resolved;
pub use source::{FileLocation, Source};
pub use stream::StreamConfig;
pub use sync::{ExchangeOf, ScaleLr, SyncConfig};
pub use train::TrainConfig;

use section::{Origin, Section, unknown_key};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tree::{Table, Value};

/// The prefix of environment variables for keys of `[train]`.
const ENV_PREFIX: &str = "PHALANX_TRAIN_";

/// The content of a run file. In code, `default()` is the meaning of an empty file.
///
/// ```
/// use phalanx_train::config::{FormationConfig, Length, RunConfig};
///
/// let mut config = RunConfig::default();
/// config.train.length = Length::Passes(10);
/// config.formation = FormationConfig::on_local_nodes(3);
/// config.validate()?;
/// config.train.batch = 0;
/// let error = config.validate().unwrap_err();
/// assert!(error.to_string().starts_with("`train.batch` must be a whole number from 1"));
/// # Ok::<(), phalanx_train::config::ConfigError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunConfig {
    /// The name of the run; by default its start time.
    pub name: Option<String>,
    pub model: ModelConfig,
    pub data: DataConfig,
    pub train: TrainConfig,
    pub formation: FormationConfig,
    pub sync: SyncConfig,
}

impl RunConfig {
    /// The learning rate of a step in a run of `steps` steps.
    pub fn lr(&self, step: u64, steps: u64) -> f32 {
        let factor = self.sync.scale_lr.factor(self.formation.replicas);
        factor * self.train.schedule.lr(self.train.optimizer.lr(), step, steps)
    }

    /// Compute threads of every process, if the run file sets them.
    pub fn threads(&self) -> Option<usize> {
        self.train.threads.or(self.formation.cores.map(|cores| cores as usize))
    }

    /// The part of the configuration that determines the result, without where it is computed.
    pub fn told(&self) -> Self {
        let mut told = self.clone();
        told.train.threads = None;
        let (batch, shares) = (told.formation.batch, told.formation.shares);
        if batch == BatchOf::Global && told.sync.scale_lr == ScaleLr::None {
            told.formation.replicas = 1;
        }
        let replicas = told.formation.replicas;
        told.formation = FormationConfig {
            replicas,
            local: 0,
            min_replicas: 1,
            max_replicas: replicas,
            patience: Duration::ZERO,
            batch,
            shares,
            // Stages change where things are computed. The result depends on how batches are cut, which a resumed run
            // knows from its earlier formation.
            stages: Some(1),
            pipelines: None,
            copies: 0,
            cuts: Vec::new(),
            measure: true,
            cores: None,
            memory: None,
            ..told.formation
        };
        told
    }
}

/// A parsed run file.
#[derive(Debug, Clone, PartialEq)]
pub struct RunFile {
    pub config: RunConfig,
    pub resolved: Resolved,
}

/// A value that is set outside the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    /// Dotted: `train.optimizer.lr`.
    pub key: String,
    /// TOML, or a text without quotes.
    pub value: String,
    pub source: Source,
}

impl Override {
    /// A dedicated flag: `--epochs 3`.
    pub fn flag(flag: &str, key: &str, value: impl ToString) -> Self {
        Self { key: key.to_owned(), value: value.to_string(), source: Source::Flag(flag.to_owned()) }
    }

    /// A value for a key that neither the file nor an earlier override sets.
    pub fn unless_said(key: &str, value: impl ToString) -> Self {
        Self { key: key.to_owned(), value: value.to_string(), source: Source::Default }
    }

    /// Parses `key=value`, as in `--set`.
    ///
    /// # Errors
    /// There is no `=`.
    pub fn set(text: &str) -> Result<Self, ConfigError> {
        match text.split_once('=') {
            Some((key, value)) => Ok(Self::flag("--set", key.trim(), value.trim())),
            None => Err(ConfigError::Override { text: text.to_owned(), why: "there is no `=`" }),
        }
    }

    /// Overrides from environment variables: `PHALANX_TRAIN_EPOCHS=3`.
    pub fn from_env(vars: impl Iterator<Item = (String, String)>) -> Vec<Self> {
        let mut found: Vec<Self> = vars
            .filter_map(|(name, value)| {
                let key = format!("train.{}", name.strip_prefix(ENV_PREFIX)?.to_ascii_lowercase());
                Some(Self { key, value, source: Source::Env(name) })
            })
            .collect();
        found.sort_by(|a, b| a.key.cmp(&b.key));
        found
    }
}

impl RunFile {
    /// Reads a run file; later overrides win over earlier ones.
    ///
    /// # Errors
    /// It cannot be read or is invalid.
    pub fn load(path: &Path, overrides: &[Override]) -> Result<Self, ConfigError> {
        let read = |source| ConfigError::Read { path: path.to_owned(), source };
        let text = std::fs::read_to_string(path).map_err(read)?;
        Self::parse(path, &text, overrides)
    }

    /// Parses the text of a file with this name.
    ///
    /// # Errors
    /// It is invalid.
    pub fn parse(path: &Path, text: &str, overrides: &[Override]) -> Result<Self, ConfigError> {
        let mut root = tree::parse(&Arc::from(path), text)?;
        for said in overrides {
            if said.source == Source::Default && tree::has(&root, &said.key) {
                continue;
            }
            tree::put(&mut root, &said.key, tree::parse_value(&said.value, &said.source)?)?;
        }
        move_lr(&mut root)?;
        choose_length(&mut root);
        let base = path.parent().unwrap_or(Path::new(""));
        read(&root, Origin { file: path, base })
    }
}

/// `train.lr` is short for `train.optimizer.lr`.
fn move_lr(root: &mut Table) -> Result<(), ConfigError> {
    let Some(Value::Table(train)) = root.get_mut("train").map(|node| &mut node.value) else { return Ok(()) };
    let Some(lr) = train.remove("lr") else { return Ok(()) };
    if let Some(Value::Table(optimizer)) = train.get("optimizer").map(|node| &node.value) {
        // The later one that is not from the file wins.
        if let (Some(other), Source::File(_)) = (optimizer.get("lr"), &lr.source) {
            let (key, at) = ("lr".to_owned(), other.key.clone());
            let (other, section) = ("optimizer.lr".to_owned(), "train".to_owned());
            return Err(ConfigError::Conflict { key, other, section, at });
        }
    }
    let optimizer = train.entry("optimizer".to_owned());
    optimizer.or_insert_with(|| tree::Node::default_of(Value::Text("adam".to_owned())));
    tree::put(train, "optimizer.lr", lr)
}

/// Of `epochs` and `steps` the one that is not from the file wins.
fn choose_length(root: &mut Table) {
    let Some(Value::Table(train)) = root.get_mut("train").map(|node| &mut node.value) else { return };
    let in_file = |key: &str| Some(matches!(train.get(key)?.source, Source::File(_)));
    match (in_file("epochs"), in_file("steps")) {
        (Some(true), Some(false)) => drop(train.remove("epochs")),
        (Some(false), Some(true)) => drop(train.remove("steps")),
        _ => {}
    }
}

fn read(root: &Table, origin: Origin<'_>) -> Result<RunFile, ConfigError> {
    unknown_key(root.iter(), "", &["name", "model", "data", "train", "formation", "sync"])?;
    let mut resolved = Resolved::default();
    let name = name(root, &mut resolved)?;
    for (section, hint) in [
        ("model", "add a section [model] with zoo = \"digits-cnn\", say"),
        (
            "data",
            "add a section [data] with train = { file = \"digits.npz\", x = \"x_train\", y = \"y_train\" }, say",
        ),
        ("train", "add a section [train] with loss = \"mse\" and epochs = 10, say"),
    ] {
        if !root.contains_key(section) {
            let (key, file) = (format!("[{section}]"), origin.file.to_owned());
            return Err(ConfigError::Missing { key, section: String::new(), file, hint });
        }
    }
    let model = ModelConfig::read(&mut Section::open(root, "model", model::KEYS, origin, &mut resolved)?)?;
    let data = DataConfig::read(&mut Section::open(root, "data", data::KEYS, origin, &mut resolved)?)?;
    let mut train =
        TrainConfig::read(&mut Section::open(root, "train", train::KEYS, origin, &mut resolved)?)?;
    let mut section = Section::open(root, "formation", formation::KEYS, origin, &mut resolved)?;
    let formation = FormationConfig::read(&mut section)?;
    let mut section = Section::open(root, "sync", sync::KEYS, origin, &mut resolved)?;
    let sync = SyncConfig::read(&mut section, &formation)?;
    if formation.batch == BatchOf::PerReplica {
        train.batch *= formation.replicas;
    }
    let config = RunConfig { name, model, data, train, formation, sync };
    config.validate().map_err(|error| error.placed(&resolved))?;
    formation::check_stages(&Section::open(root, "formation", formation::KEYS, origin, &mut resolved)?)?;
    sync::check_outer(
        &Section::open(root, "sync", sync::KEYS, origin, &mut resolved)?,
        config.sync.exchange,
    )?;
    Ok(RunFile { config, resolved })
}

/// The name of the run, which is also the name of its directory.
fn name(root: &Table, resolved: &mut Resolved) -> Result<Option<String>, ConfigError> {
    let Some(node) = root.get("name") else { return Ok(None) };
    let Value::Text(name) = &node.value else {
        let (wanted, got) = (validate::NAME.to_owned(), node.value.kind().to_owned());
        return Err(ConfigError::Range { key: "name".to_owned(), wanted, got, at: node.source.clone() });
    };
    resolved.add("", "name", node.value.to_toml(), node.source.clone());
    Ok(Some(name.clone()))
}
