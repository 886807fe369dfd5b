//! `[formation]`: which nodes train, in how many replicas and stages.
//!
//! A value that the run would not follow is refused, with its location: `max_replicas` of a run in stages, for example.
//! A key that only lacks replicas or stages to act on is idle, so that one file works in one process and on many nodes:
//! `shares` of a run in one process, `copies` of a run with `stages = 1`. Stage keys in a file without `stages` are
//! refused: no formation of that file would use them.

use super::error::ConfigError;
use super::section::Section;
use super::source::Source;
use super::tree::Value;
use phalanx_collective::Compression;
use phalanx_types::ByteSize;
use std::time::Duration;

pub(crate) const KEYS: &[&str] = &[
    "replicas",
    "stages",
    "local",
    "min_replicas",
    "max_replicas",
    "patience",
    "batch",
    "shares",
    "mode",
    "micro_batches",
    "in_flight",
    "ahead",
    "compress",
    "copies",
    "cuts",
    "measure",
    "cores",
    "memory",
];

/// Keys that act only on stages.
const OF_STAGES: [&str; 8] =
    ["mode", "micro_batches", "in_flight", "ahead", "compress", "copies", "cuts", "measure"];
/// The most replicas of one run.
pub(super) const MOST: i64 = 1024;
/// The most stages of one replica, batches in flight, and micro-batches.
pub(super) const MOST_STAGES: i64 = 1024;
/// Micro-batches that an exact stage admits to bridge pauses of others.
pub(super) const AHEAD: usize = 2;
/// Why `in_flight` has no effect without exact stages.
pub(super) const AHEAD_MEANS_NOTHING: &str = "`formation.in_flight` says how many asynchronous stages let in";
/// The most cores that a run may ask of a node.
pub(super) const MOST_CORES: i64 = 4096;
/// The most steps after which asynchronous stages stop: requests to the run wait for that. Filling and draining the
/// stages takes about as long as one or two steps.
const LONGEST_UNIT: u64 = 32;
/// Steps between copies of a stage's state.
const COPIES: u64 = 10;
/// Why the learning rate cannot be scaled by the number of replicas.
pub(crate) const NO_REPLICAS: &str =
    "with stages the planner decides how many replicas there are; say `formation.replicas`, too";

/// Why a run in stages has no maximum of replicas.
pub(super) const NO_MAXIMUM: &str =
    "with stages the planner decides how many replicas there are; `formation.replicas` fixes it";

/// Which nodes train, in how many replicas and stages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormationConfig {
    /// The initial number of replicas.
    pub replicas: usize,
    /// Nodes to start on this machine; 0 for none.
    pub local: usize,
    /// The run pauses with fewer replicas.
    pub min_replicas: usize,
    /// No further replicas are added.
    pub max_replicas: usize,
    /// How long to wait for more than the minimum of nodes before starting.
    pub patience: Duration,
    pub batch: BatchOf,
    pub shares: SharesBy,
    /// The number of stages of every replica; `None` lets the planner choose.
    pub stages: Option<usize>,
    /// The number of replicas of a run in stages; `None` lets the planner choose.
    pub pipelines: Option<usize>,
    pub mode: Mode,
    /// The micro-batches of a replica's batch; `None` lets the planner choose.
    pub micro_batches: Option<usize>,
    /// Batches in flight in asynchronous stages; by default twice as many as stages.
    pub in_flight: Option<usize>,
    /// Micro-batches that an exact stage admits beyond those that keep the stages behind it busy.
    pub ahead: usize,
    /// Compression of activations and gradients between stages.
    pub compress: Compression,
    /// Steps between copies of a stage's state on another node; 0 for never.
    pub copies: u64,
    /// Operators before which the model may be cut; any if empty.
    pub cuts: Vec<CutBefore>,
    /// Whether nodes are measured before a model is cut; otherwise all count as equally fast.
    pub measure: bool,
    /// Cores that the run uses of every node; all of them by default, so that it is alone there.
    pub cores: Option<u32>,
    /// Memory that the run claims on every node; by default the estimate of what training needs.
    pub memory: Option<ByteSize>,
}

/// An operator before which the model may be cut.
#[derive(Debug, Clone)]
pub struct CutBefore {
    pub op: String,
    /// Where the cut was requested.
    pub source: Source,
}

impl PartialEq for CutBefore {
    fn eq(&self, other: &Self) -> bool {
        self.op == other.op
    }
}

impl Eq for CutBefore {}

/// Whether a step waits for the previous one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// One update of all stages after every batch: the same numbers as without stages.
    #[default]
    Exact,
    /// Batches flow without a pause; every stage updates by itself.
    Asynchronous,
}

/// Which samples `train.batch` counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BatchOf {
    /// The samples of all replicas together.
    #[default]
    Global,
    /// The samples of one replica, for the initial number of replicas.
    PerReplica,
}

/// How a batch is divided among replicas.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SharesBy {
    /// A faster replica gets more samples.
    #[default]
    Speed,
    Equal,
}

impl Default for FormationConfig {
    /// One replica, in one process.
    fn default() -> Self {
        Self {
            replicas: 1,
            local: 0,
            min_replicas: 1,
            max_replicas: MOST as usize,
            patience: Duration::from_secs(30),
            batch: BatchOf::Global,
            shares: SharesBy::Speed,
            stages: Some(1),
            pipelines: None,
            mode: Mode::Exact,
            micro_batches: None,
            in_flight: None,
            ahead: AHEAD,
            compress: Compression::None,
            copies: COPIES,
            cuts: Vec::new(),
            measure: true,
            cores: None,
            memory: None,
        }
    }
}

impl FormationConfig {
    /// A replica on each of this many nodes of the domain.
    pub fn replicated(replicas: usize) -> Self {
        Self { replicas, pipelines: Some(replicas), ..Self::default() }
    }

    /// One replica on each of this many nodes, which the run starts on this machine.
    pub fn on_local_nodes(nodes: usize) -> Self {
        Self { replicas: nodes, local: nodes, ..Self::default() }
    }

    /// Every replica cut into this many stages, each on a node of its own; the planner chooses the nodes.
    pub fn staged(stages: usize, replicas: usize) -> Self {
        Self { replicas, pipelines: Some(replicas), stages: Some(stages), ..Self::default() }
    }

    pub(crate) fn read(section: &mut Section<'_>) -> Result<Self, ConfigError> {
        let stages = stages(section)?;
        let staged = stages != Some(1);
        let local = section.int("local", 0..=MOST)?.map_or(0, |said| said.value);
        let pipelines = section.int("replicas", 1..=MOST)?.map(|said| said.value);
        let replicas = match staged {
            true => pipelines.unwrap_or(1),
            false => replicas(section, local)?,
        };
        let (min_replicas, max_replicas) = match staged {
            true => (no_limits(section)?, MOST as u64),
            false => limits(section)?,
        };
        let batch = batch(section)?;
        let mode = match section.word("mode", "mode", &["exact", "asynchronous"])?.map(|said| said.value) {
            Some("asynchronous") => Mode::Asynchronous,
            _ => Mode::Exact,
        };
        Ok(Self {
            replicas: replicas as usize,
            local: local as usize,
            min_replicas: min_replicas as usize,
            max_replicas: max_replicas as usize,
            patience: patience(section)?,
            batch,
            shares: shares(section)?,
            stages,
            pipelines: pipelines.map(|said| said as usize),
            mode,
            micro_batches: section.int("micro_batches", 1..=MOST_STAGES)?.map(|said| said.value as usize),
            in_flight: section.int("in_flight", 1..=MOST_STAGES)?.map(|said| said.value as usize),
            ahead: ahead(section, mode)?,
            compress: compress(section)?,
            copies: section.int("copies", 0..=1 << 40)?.map_or(COPIES, |said| said.value),
            cuts: cuts(section)?,
            measure: section.bool_or("measure", true)?,
            cores: section.int("cores", 1..=MOST_CORES)?.and_then(|said| u32::try_from(said.value).ok()),
            memory: section.parsed("memory", "a size such as \"2GiB\"")?,
        })
    }

    /// Whether nodes hold parts of the model instead of all of it.
    pub fn is_staged(&self) -> bool {
        self.stages != Some(1)
    }

    pub fn is_asynchronous(&self) -> bool {
        self.mode == Mode::Asynchronous
    }

    /// The number of nodes that a run in stages waits for before it starts.
    pub fn nodes_wanted(&self) -> usize {
        match self.local {
            0 => self.pipelines.unwrap_or(1) * self.stages.unwrap_or(1),
            local => local,
        }
    }

    /// Batches in flight with this many stages.
    pub fn in_flight_of(&self, stages: usize) -> usize {
        self.in_flight.unwrap_or(2 * stages)
    }

    /// The most steps after which asynchronous stages of one replica stop: then they are copied and requests are
    /// handled.
    pub fn unit(&self) -> u64 {
        match self.copies {
            0 => LONGEST_UNIT,
            copies => copies.min(LONGEST_UNIT),
        }
    }

    /// A note for the user if the run's numbers depend on the speed of its nodes.
    pub fn timing_note(&self) -> Option<&'static str> {
        let by_speed = self.shares == SharesBy::Speed && !self.is_staged();
        (by_speed && self.is_distributed()).then_some(
            "faster replicas get more samples of a batch, so the numbers of this run depend on timing; \
             `formation.shares = \"equal\"` makes them repeat",
        )
    }

    /// Whether more than one process takes part.
    pub fn is_distributed(&self) -> bool {
        self.replicas > 1 || self.local > 1 || self.is_staged()
    }
}

/// Whether a run file or a flag sets the number of stages, including 1.
fn says_stages(section: &Section<'_>) -> bool {
    section.node("stages").is_some()
}

/// Refuses stage keys if the number of stages is not set.
pub(super) fn check_stages(section: &Section<'_>) -> Result<(), ConfigError> {
    let found = OF_STAGES.into_iter().find(|key| section.node(key).is_some());
    match found.filter(|_| !says_stages(section)) {
        Some(key) => Err(section.useless(
            key,
            "the model is not cut into stages; say `formation.stages` (1 is fine, and leaves the key idle)",
        )),
        None => Ok(()),
    }
}

/// Replicas of a run without stages: one on each local node, or as many as are given.
fn replicas(section: &mut Section<'_>, local: u64) -> Result<u64, ConfigError> {
    let node = section.node("local").filter(|_| local > 0);
    let Some(node) = node else { return section.int_or("replicas", 1..=MOST, 1) };
    if let Some(said) = section.int("replicas", 1..=MOST)?.filter(|said| said.value != local) {
        // `--local` overrides the file.
        let overridden = matches!(said.source, Source::File(_)) && !matches!(node.source, Source::File(_));
        if !overridden {
            let wanted = format!("{local}, as `formation.local`: without stages each node holds a replica");
            return Err(said.should_be(wanted));
        }
        section.note_node("replicas", node);
    }
    Ok(local)
}

/// The minimum and maximum of replicas of a run without stages.
fn limits(section: &mut Section<'_>) -> Result<(u64, u64), ConfigError> {
    let least = section.int_or("min_replicas", 1..=MOST, 1)?;
    let most = section.int("max_replicas", 1..=MOST)?;
    Ok((least, most.map_or(MOST as u64, |said| said.value)))
}

/// A run in stages works with any number of replicas; the planner chooses the number.
fn no_limits(section: &mut Section<'_>) -> Result<u64, ConfigError> {
    if section.int("max_replicas", 1..=MOST)?.is_some() {
        return Err(section.useless("max_replicas", NO_MAXIMUM));
    }
    Ok(section.int("min_replicas", 1..=MOST)?.map_or(1, |said| said.value))
}

fn batch(section: &mut Section<'_>) -> Result<BatchOf, ConfigError> {
    Ok(match section.word("batch", "batch", &["global", "per_replica"])?.map(|said| said.value) {
        Some("per_replica") => BatchOf::PerReplica,
        _ => BatchOf::Global,
    })
}

fn shares(section: &mut Section<'_>) -> Result<SharesBy, ConfigError> {
    Ok(match section.word("shares", "shares", &["speed", "equal"])?.map(|said| said.value) {
        Some("equal") => SharesBy::Equal,
        _ => SharesBy::Speed,
    })
}

fn stages(section: &mut Section<'_>) -> Result<Option<usize>, ConfigError> {
    let auto = section.node("stages").is_some_and(|node| node.value == Value::Text("auto".to_owned()));
    if auto {
        section.text("stages")?;
        return Ok(None);
    }
    match section.node("stages") {
        Some(node) if !matches!(node.value, Value::Int(_)) => {
            Err(section.wrong("stages", "a whole number or \"auto\"", node))
        }
        _ => Ok(Some(section.int_or("stages", 1..=MOST_STAGES, 1)? as usize)),
    }
}

fn ahead(section: &mut Section<'_>, mode: Mode) -> Result<usize, ConfigError> {
    match section.int("ahead", 0..=MOST_STAGES)? {
        Some(_) if mode == Mode::Asynchronous => Err(section.useless("ahead", AHEAD_MEANS_NOTHING)),
        said => Ok(said.map_or(AHEAD, |said| said.value as usize)),
    }
}

fn cuts(section: &mut Section<'_>) -> Result<Vec<CutBefore>, ConfigError> {
    let Some(node) = section.node("cuts") else { return Ok(Vec::new()) };
    let wrong =
        || section.wrong("cuts", "a list of names of operators, as `phalanx model inspect` shows them", node);
    let Value::List(items) = &node.value else { return Err(wrong()) };
    let cut = |item: &super::tree::Node| match &item.value {
        Value::Text(name) => Ok(CutBefore { op: name.clone(), source: item.source.clone() }),
        _ => Err(wrong()),
    };
    let cuts = items.iter().map(cut).collect::<Result<_, _>>()?;
    section.note_node("cuts", node);
    Ok(cuts)
}

fn compress(section: &mut Section<'_>) -> Result<Compression, ConfigError> {
    let words = ["none", "f16", "bf16", "int8"];
    Ok(match section.word("compress", "compression", &words)?.map(|said| said.value) {
        Some("f16") => Compression::F16,
        Some("bf16") => Compression::Bf16,
        Some("int8") => Compression::Int8,
        _ => Compression::None,
    })
}

fn patience(section: &mut Section<'_>) -> Result<Duration, ConfigError> {
    let default = Duration::from_secs(30);
    let said = section.parsed::<humantime::Duration>("patience", "a duration such as \"30s\"")?;
    if said.is_none() {
        section.note_default("patience", &Value::Text(humantime::format_duration(default).to_string()));
    }
    Ok(said.map_or(default, Into::into))
}
