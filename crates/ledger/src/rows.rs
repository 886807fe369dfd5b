//! What the ledger answers.

use crate::core::filter::{Filter, SortKey};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Which runs, in which order.
#[derive(Debug, Clone, Default)]
pub struct RunQuery {
    pub filter: Option<Filter>,
    /// The text of the filter, for errors about columns that no run has.
    pub filter_text: String,
    /// Only runs that have each of these words, whatever its case, in their name, model, state, reason, kind or a tag.
    pub words: Vec<String>,
    /// Runs that are equal by these keys come in the order in which they began.
    pub sort: Vec<SortKey>,
    pub limit: Option<usize>,
    pub offset: usize,
    /// Only runs of this kind.
    pub kind: Option<String>,
    /// Only runs of this directory.
    pub runs: Option<PathBuf>,
    pub with: Detail,
}

/// Which parts of a [`RunRow`] are filled, apart from its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Detail {
    pub params: bool,
    pub metrics: bool,
    pub tags: bool,
}

impl Detail {
    /// Everything.
    pub const FULL: Detail = Detail { params: true, metrics: true, tags: true };
}

impl RunQuery {
    /// Reads a filter and an order as users write them.
    ///
    /// # Errors
    /// The filter cannot be understood.
    pub fn parse(filter: Option<&str>, sort: Option<&str>) -> Result<Self, crate::LedgerError> {
        Ok(Self {
            filter: filter.map(Filter::parse).transpose()?,
            filter_text: filter.unwrap_or_default().to_owned(),
            sort: sort.map(crate::core::filter::parse_sort).unwrap_or_default(),
            ..Self::default()
        })
    }
}

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunRow {
    /// Identifies the run, wherever its directory is copied.
    pub uid: String,
    pub name: String,
    pub kind: String,
    pub experiment: Option<String>,
    pub state: String,
    pub reason: Option<String>,
    pub waiting: Option<String>,
    pub model: String,
    pub seed: Option<i64>,
    pub started_ms: Option<u64>,
    pub ended_ms: Option<u64>,
    /// The host that recorded it last.
    pub host: String,
    /// Whether its directory is one of this host.
    #[serde(skip)]
    pub here: bool,
    pub dir: PathBuf,
    pub steps: u64,
    pub total_steps: Option<u64>,
    pub loss: Option<f64>,
    pub val_loss: Option<f64>,
    pub val_acc: Option<f64>,
    pub samples_per_s: Option<f64>,
    pub wall_s: f64,
    pub params_hash: Option<String>,
    /// The run file, flattened: `train.batch`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, String>,
    /// The last value of every series; one that is not a number is NaN.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub last: BTreeMap<String, f64>,
    /// The best finite value: the least where the name says that lower is better, else the most.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub best: BTreeMap<String, f64>,
    /// The least and the most finite value.
    #[serde(skip)]
    pub min: BTreeMap<String, f64>,
    #[serde(skip)]
    pub max: BTreeMap<String, f64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

/// A series of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SeriesInfo {
    pub name: String,
    pub points: u64,
    pub first_step: u64,
    pub last_step: u64,
    pub last_ms: Option<u64>,
    /// `None` if it is not a number.
    pub last: Option<f64>,
    /// Of the finite values.
    pub min: Option<f64>,
    pub max: Option<f64>,
}

/// An event of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EventRow {
    pub seq: u64,
    pub unix_ms: u64,
    pub event: String,
    pub value: serde_json::Value,
}

/// A file of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArtifactRow {
    /// Relative to the run directory.
    pub path: String,
    /// Where else it is.
    pub url: Option<String>,
    pub size: Option<u64>,
    pub sha256: Option<String>,
}

/// A node that took part in a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeRow {
    pub name: String,
    pub joined_ms: u64,
    pub lost_ms: Option<u64>,
    pub reason: Option<String>,
}

/// A group of nodes of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FormationRow {
    pub epoch: u64,
    pub unix_ms: u64,
    pub step: u64,
    pub value: serde_json::Value,
}

/// A note about a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NoteRow {
    pub unix_ms: u64,
    pub text: String,
}

/// What a look at one run brought.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Fed {
    /// Records that were new.
    pub entries: u64,
    /// Whether anything about the run changed.
    pub changed: bool,
}

/// What a look at a directory of runs brought.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CaughtUp {
    pub runs: u64,
    /// Runs that had something new.
    pub changed: u64,
    pub entries: u64,
    /// Runs whose directory is gone.
    pub removed: u64,
    /// Runs that could not be read, and why.
    pub failed: Vec<(PathBuf, String)>,
}

/// The journal of a main node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JournalRow {
    #[serde(skip)]
    pub(crate) id: i64,
    /// The name of its file, without the ending.
    pub name: String,
    /// The main node that took it up last, if it tells.
    pub main: Option<String>,
    pub domain: String,
    /// The host that read it last.
    pub host: String,
    pub path: PathBuf,
}

impl JournalRow {
    /// Whether its main node is one of these: their ids are longer than a name by a dash and digits.
    pub fn is_of(&self, mains: &[String]) -> bool {
        mains.iter().any(|id| match &self.main {
            Some(main) => main == id,
            None => id.rsplit_once('-').is_some_and(|(name, _digits)| name == self.name),
        })
    }
}

/// A job that a journal tells of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JobRow {
    /// The name of the journal, by which its main node is known.
    pub main: String,
    pub job: u64,
    pub kind: String,
    /// `waiting` until it ended.
    pub state: String,
    /// Why it failed.
    pub reason: Option<String>,
    /// The node that solved it.
    pub node: Option<String>,
    pub priority: i64,
    /// Runs that ended with their node or with an error worth retrying.
    pub attempts: u64,
    pub submitted_ms: Option<u64>,
    pub ended_ms: Option<u64>,
}

/// What a look at a directory of journals brought.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CaughtUpJournals {
    pub journals: u64,
    /// Journals that had something new.
    pub changed: u64,
    pub entries: u64,
    /// Journals that are gone.
    pub removed: u64,
    /// Journals that could not be read, and why.
    pub failed: Vec<(PathBuf, String)>,
}

/// A search.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SearchRow {
    #[serde(skip)]
    pub(crate) id: i64,
    #[serde(skip)]
    pub(crate) root: String,
    /// Tells searches of one name apart.
    pub uid: String,
    /// The name of its directory.
    pub search: String,
    pub name: String,
    /// The host that recorded it last.
    pub host: String,
    /// Whether its directory is one of this host.
    #[serde(skip)]
    pub here: bool,
    pub path: PathBuf,
    /// What a trial is: `run`, `program` or `python`.
    pub kind: String,
    pub algorithm: String,
    /// `not ended`, `finished`, `stopped` or `failed`.
    pub state: String,
    /// Why it failed.
    pub reason: Option<String>,
    pub started_ms: u64,
    pub changed_ms: Option<u64>,
    /// How many trials there are, and how many there are to be.
    pub trials: u64,
    pub of: u64,
    /// How many records were read.
    pub events: u64,
}

/// What a look at a directory of searches brought.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CaughtUpSearches {
    pub searches: u64,
    /// Searches that had something new.
    pub changed: u64,
    pub entries: u64,
    /// Searches whose directory is gone.
    pub removed: u64,
    /// Searches that could not be read, and why.
    pub failed: Vec<(PathBuf, String)>,
}

impl CaughtUpJournals {
    pub(crate) fn add(&mut self, other: Self) {
        let Self { journals, changed, entries, removed, failed } = other;
        self.journals += journals;
        self.changed += changed;
        self.entries += entries;
        self.removed += removed;
        self.failed.extend(failed);
    }
}

/// What a ledger is and holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LedgerInfo {
    pub place: String,
    pub database: String,
    pub schema: u32,
    /// The newest schema that this program knows.
    pub newest_schema: u32,
    pub runs: u64,
    pub running: u64,
    pub series: u64,
    pub points: u64,
    pub events: u64,
    pub jobs: u64,
    pub searches: u64,
    pub trials: u64,
    /// Bytes on disk.
    pub size: u64,
}

/// How a ledger came to its schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Migrated {
    pub from: u32,
    pub to: u32,
    /// The copy that was made first: a file, or a schema of the database.
    pub copy: Option<String>,
}

/// What is removed from a ledger.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Pruned {
    pub runs: u64,
    pub journals: u64,
    pub searches: u64,
    pub copies: u64,
    /// Bytes that the file became smaller by.
    pub freed: u64,
}
