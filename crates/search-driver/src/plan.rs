//! What a search was told: its file with flags over it, and what follows from that for its core and its orders.

#[cfg(test)]
mod tests;

use crate::candidate::Candidate;
use crate::describe::Describer;
use crate::directory::{SEARCH_FILE, io};
use crate::error::SearchError;
use phalanx_search::core::algorithm::{AlgorithmKind, make};
use phalanx_search::core::control::{Candidates, ReplayReport, SearchConfig, SearchCore};
use phalanx_search::core::dice::Dice;
use phalanx_search::core::record::{SearchRecord, TrialId};
use phalanx_search::core::space::{Genes, Space};
use phalanx_search::core::template::{BudgetUnit, CHEAP_SOURCES, ObjectiveSpec, SearchFile, ready};
use phalanx_search_results::{Limits, SearchAbout, TrialRow};
use phalanx_train::config::RunConfig;
use phalanx_trial::{KIND, PROGRAM_KIND, TrialOrder, TrialWork};
use phalanx_types::{ByteSize, Seed};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Names a search file that comes with Phalanx.
const READY: &str = "ready:";
/// The files that those name: MNIST.
const READY_DATA: [&str; 4] = [
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
];

/// The memory of a trial beside its parameters, gradients, optimizer and activations: batches that are read ahead,
/// buffers of kernels, files that are written.
const BASE_MEMORY: ByteSize = ByteSize(64 << 20);

/// The kind of searches whose trials are functions of a program in Python, which alone can go on with them.
const PYTHON: &str = "python";

/// What flags say in the place of the search file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    pub trials: Option<u64>,
    pub algorithm: Option<String>,
    pub seed: Option<u64>,
    pub workers: Option<usize>,
    /// Where the data of a search file that comes with Phalanx is; where the user stands when not given.
    pub data: Option<PathBuf>,
}

/// A search as it was told.
#[derive(Debug, Clone)]
pub struct SearchPlan {
    file: Arc<SearchFile>,
    text: String,
    /// Where paths in the file begin.
    base: PathBuf,
    about: SearchAbout,
    algorithm: AlgorithmKind,
    workers: Option<usize>,
    /// The search file comes with Phalanx.
    is_ready: bool,
}

/// A candidate as it would be tried.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Surveyed {
    pub archid: String,
    pub known: BTreeMap<String, f64>,
    /// Why it would not be.
    pub why_not: Option<String>,
}

impl SearchPlan {
    /// Reads a search file, or one that comes with Phalanx: `ready:cnn`. `id` names the search.
    ///
    /// # Errors
    /// It cannot be read, or says something that cannot be.
    pub fn load(path: &Path, id: &str, said: &Overrides) -> Result<Self, SearchError> {
        let name = path.to_str().and_then(|path| path.strip_prefix(READY));
        let (text, base) = match name {
            Some(name) => {
                let text = ready(name).ok_or_else(|| SearchError::NotReady { name: name.to_owned() })?;
                let base = said.data.clone().unwrap_or_default();
                (with_files_of(&base, text), base)
            }
            None if said.data.is_some() => return Err(SearchError::OwnData { path: path.to_owned() }),
            None => {
                let text = std::fs::read_to_string(path).map_err(io("read", path))?;
                (text, path.parent().unwrap_or(Path::new("")).to_owned())
            }
        };
        let base = std::path::absolute(base.join(".")).map_err(io("find", path))?;
        let plan = Self::of_text(path, text, base, id, said, None)?;
        Ok(Self { is_ready: name.is_some(), ..plan })
    }

    /// The search in a directory, to go on with it: as it was told then.
    ///
    /// # Errors
    /// There is no search, or its file was changed so that it says something else.
    pub fn of_dir(dir: &Path, said: &Overrides) -> Result<Self, SearchError> {
        let about = SearchAbout::read(dir)?;
        if about.kind == PYTHON {
            return Err(SearchError::OfPython { path: dir.to_owned() });
        }
        let path = dir.join(SEARCH_FILE);
        let text = std::fs::read_to_string(&path).map_err(io("read", &path))?;
        let said = Overrides {
            trials: said.trials.map(|trials| trials.max(about.trials)).or(Some(about.trials)),
            algorithm: Some(about.algorithm.clone()),
            seed: Some(about.seed.0),
            workers: said.workers,
            data: None,
        };
        let (base, id) = (about.base.clone(), about.id.clone());
        Self::of_text(&path, text, base, &id, &said, Some(about))
    }

    fn of_text(
        path: &Path,
        text: String,
        base: PathBuf,
        id: &str,
        said: &Overrides,
        before: Option<SearchAbout>,
    ) -> Result<Self, SearchError> {
        // Paths in it begin where it was, also when this is its copy in the directory of a search.
        let file = SearchFile::parse(&base.join(path.file_name().unwrap_or_default()), &text)?;
        let settings = file.settings();
        let algorithm = match &said.algorithm {
            None => settings.algorithm,
            Some(name) => name.parse().map_err(|unknown| SearchError::Algorithm(format!("{unknown}")))?,
        };
        if algorithm.needs_rungs() && settings.rungs.is_none() {
            return Err(SearchError::NoRungs { algorithm });
        }
        let limits = |bound: &phalanx_search::core::template::BoundSpec| Limits {
            at_least: bound.at_least,
            at_most: bound.at_most,
        };
        let objectives: Vec<_> = file.objectives().iter().map(|spec| spec.objective.clone()).collect();
        if objectives.is_empty() {
            return Err(SearchError::NoObjective { path: path.to_owned() });
        }
        let unit = match file.full_training().unit {
            BudgetUnit::Epochs => "epochs",
            BudgetUnit::Steps => "steps",
        };
        let start = settings.algorithm_settings.start.unwrap_or(match algorithm {
            AlgorithmKind::Guided => 20,
            _ => 10,
        });
        let about = SearchAbout {
            id: id.to_owned(),
            name: file.name().unwrap_or(id).to_owned(),
            kind: if file.is_program() { "program" } else { "run" }.to_owned(),
            algorithm: algorithm.to_string(),
            seed: said.seed.map_or(settings.seed, Seed),
            objectives,
            constraints: file
                .constraints()
                .iter()
                .map(|(name, bound)| (name.clone(), limits(bound)))
                .collect(),
            rungs: file.config().rungs,
            budget_unit: unit.to_owned(),
            trials: said.trials.unwrap_or(settings.trials),
            space: file.space().clone(),
            init: settings.generation.unwrap_or(start),
            per_iteration: settings.generation.unwrap_or(10),
            started: before.map_or_else(crate::directory::unix_ms, |before| before.started),
            base: base.clone(),
        };
        let workers = said.workers.or(settings.workers.map(|workers| workers as usize));
        Ok(Self { file: Arc::new(file), text, base, about, algorithm, workers, is_ready: false })
    }

    /// The search file as it is.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What the search was told, with defaults.
    pub fn about(&self) -> &SearchAbout {
        &self.about
    }

    pub fn space(&self) -> &Space {
        self.file.space()
    }

    /// Whether trials are programs of the user's.
    pub fn runs_programs(&self) -> bool {
        self.file.is_program()
    }

    pub(crate) fn base(&self) -> &Path {
        &self.base
    }

    /// The kind of job that a trial is.
    pub(crate) fn kind(&self) -> &'static str {
        if self.runs_programs() { PROGRAM_KIND } else { KIND }
    }

    /// The cores of a trial.
    pub(crate) fn cores(&self) -> u32 {
        self.file.settings().cores
    }

    /// How long a node may train a trial to its next budget.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.file.settings().deadline
    }

    /// How many nodes may begin with a stretch of a trial, each after the one before was lost.
    pub(crate) fn attempts(&self) -> u32 {
        self.file.settings().retries.saturating_add(1)
    }

    /// The memory that a trial asks of its node: what its training takes by computation, and [`BASE_MEMORY`] for what
    /// is not counted there. Of programs nothing is known.
    fn memory(&self, known: &BTreeMap<String, f64>) -> ByteSize {
        let follows = || {
            let training = known.get("training_memory").filter(|_| !self.runs_programs())?;
            Some(ByteSize(BASE_MEMORY.0.saturating_add(*training as u64)))
        };
        self.file.settings().memory.or_else(follows).unwrap_or(ByteSize(0))
    }

    /// An order whose memory, unless the search file says it, is at most that of the largest node: a trial that may not
    /// fit anywhere has a node for itself. While no node is known, as when a search is resumed, it asks for none, because
    /// it would wait for ever if it fits none that comes.
    pub(crate) fn within(&self, mut order: TrialOrder, largest: Option<ByteSize>) -> TrialOrder {
        if self.file.settings().memory.is_none() {
            order.memory = largest.map_or(ByteSize(0), |largest| order.memory.min(largest));
        }
        order
    }

    pub(crate) fn workers(&self) -> Option<usize> {
        self.workers
    }

    /// The core of this search after these records; the same records give the same core.
    pub(crate) fn core(&self, records: &[SearchRecord]) -> Result<SearchCore, SearchError> {
        let algorithm = make(self.algorithm, &self.file.settings().algorithm_settings);
        let space = self.about.space.clone();
        let core = SearchCore::restore(self.config(), space, algorithm, self.describer(), records)?;
        Ok(core)
    }

    /// Decides again from every one of these records.
    pub(crate) fn replay(&self, records: &[SearchRecord]) -> Result<ReplayReport, SearchError> {
        let algorithm = || make(self.algorithm, &self.file.settings().algorithm_settings);
        let space = self.about.space.clone();
        Ok(SearchCore::replay(self.config(), space, &algorithm, self.describer(), records)?)
    }

    fn config(&self) -> SearchConfig {
        SearchConfig { seed: self.about.seed, trials: self.about.trials, ..self.file.config() }
    }

    fn describer(&self) -> Box<Describer> {
        Box::new(Describer::new(self.file.clone(), self.base.clone()))
    }

    /// Looks for what would make every trial fail, before anything is made: the files that a run needs.
    ///
    /// # Errors
    /// A file is missing, or cannot be used.
    pub fn check(&self) -> Result<(), SearchError> {
        let mut dice = Dice::of(self.about.seed, "check", 0);
        let config = (0..100).find_map(|_| self.config_of(&self.space().sample(&mut dice)));
        let Some(config) = config else { return Ok(()) };
        for (key, path) in config.files() {
            if key != "model.toml" && !path.exists() {
                let path = path.to_owned();
                return Err(match self.is_ready {
                    true => SearchError::NoReadyData { path },
                    false => SearchError::NoFile { key: key.to_owned(), path },
                });
            }
        }
        Ok(())
    }

    fn config_of(&self, genes: &Genes) -> Option<Box<RunConfig>> {
        let expanded = self.file.expand(genes).ok()?;
        match Candidate::of(&expanded, &self.base).ok()? {
            Candidate::Train { config, .. } => Some(config),
            Candidate::Program => None,
        }
    }

    /// Random candidates, each once, and what is known of them.
    pub fn survey(&self, count: u64) -> Vec<Surveyed> {
        let (space, describer) = (self.space(), self.describer());
        let mut seen = std::collections::BTreeSet::new();
        let mut surveyed = Vec::new();
        // A small space has fewer than are asked for.
        for number in 0..count.saturating_mul(20) {
            let genes = space.sample(&mut Dice::of(self.about.seed, "survey", number));
            if surveyed.len() as u64 == count || !seen.insert(genes.clone()) {
                continue;
            }
            surveyed.push(match describer.describe(&genes) {
                Ok(described) => {
                    let why_not = self.broken(&described.known);
                    Surveyed { archid: described.archid, known: described.known, why_not }
                }
                Err(why) => {
                    Surveyed { archid: space.archid(&genes), known: BTreeMap::new(), why_not: Some(why) }
                }
            });
        }
        surveyed
    }

    /// Which constraint a candidate breaks.
    fn broken(&self, known: &BTreeMap<String, f64>) -> Option<String> {
        self.about.constraints.iter().find_map(|(name, limits)| {
            let value = *known.get(name)?;
            let least = limits
                .at_least
                .filter(|least| value < *least)
                .map(|least| format!("{name} is below {least}"));
            let most =
                limits.at_most.filter(|most| value > *most).map(|most| format!("{name} is above {most}"));
            least.or(most)
        })
    }

    /// What a node is told of a stretch of a trial.
    pub(crate) fn order(
        &self,
        (trial, attempt): (TrialId, u32),
        row: &TrialRow,
        (from, to): (f64, f64),
    ) -> Result<TrialOrder, SearchError> {
        let expanded = self.file.expand(&row.genes)?;
        let work = match expanded.argv {
            Some(argv) => TrialWork::Program { argv, genes: expanded.genes },
            None => TrialWork::Train { run: expanded.run, model: expanded.model },
        };
        let objectives = self.file.objectives();
        let measured = objectives.iter().map(|spec| spec.from.clone());
        let bounded = self
            .about
            .constraints
            .keys()
            .filter(|name| !objectives.iter().any(|spec| spec.objective.name == **name));
        let mut values: Vec<String> =
            measured.chain(bounded.cloned()).filter(|name| !self.is_known(name)).collect();
        values.sort_unstable();
        values.dedup();
        Ok(TrialOrder {
            search: self.about.id.clone(),
            trial: trial.0,
            attempt,
            work,
            from,
            to,
            full: self.about.full_budget().unwrap_or(to),
            values,
            latency_trials: objectives.iter().map(|spec| spec.trials).max().unwrap_or(1),
            cores: self.cores(),
            memory: self.memory(&row.known),
            keep: true,
        })
    }

    /// Whether a value is known before a candidate is trained, so that no node measures it.
    fn is_known(&self, name: &str) -> bool {
        let follows = !self.runs_programs() && CHEAP_SOURCES.contains(&name);
        let of_program = |spec: &ObjectiveSpec| spec.program.is_some() && spec.from == name;
        follows
            || self.file.objectives().iter().any(of_program)
            || self.file.measured_before().contains(&name)
    }

    /// Values that a node measured, also under the names of the objectives.
    pub(crate) fn named(&self, mut values: BTreeMap<String, f64>) -> BTreeMap<String, f64> {
        for spec in self.file.objectives() {
            if let Some(value) = values.get(&spec.from).copied() {
                values.insert(spec.objective.name.clone(), value);
            }
        }
        values
    }
}

/// The text of a search file that comes with Phalanx, with the names of files that lie unpacked in `base`.
fn with_files_of(base: &Path, text: &str) -> String {
    let mut text = text.to_owned();
    for packed in READY_DATA {
        let unpacked = packed.trim_end_matches(".gz");
        if !base.join(packed).is_file() && base.join(unpacked).is_file() {
            text = text.replace(packed, unpacked);
        }
    }
    text
}
