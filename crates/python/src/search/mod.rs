//! Searches that Python drives: events in, commands out.
//!
//! Records are written by the calls that make them, before these give what follows from them. Python is called for what
//! is known of a candidate, on the thread that called in.

mod nodes;
mod progress;
mod space;
mod told;

pub(crate) use self::nodes::NodeSearch;
pub(crate) use self::space::SearchSpace;

use self::progress::end_words;
use self::told::Told;
use crate::errors::Failure;
use crate::train::json;
use phalanx_search::core::control::{Candidates, Described, SearchCommand, SearchCore as Core, SearchEvent};
use phalanx_search::core::pareto;
use phalanx_search::core::record::{SearchRecord, TrialId};
use phalanx_search::core::space::{Genes, Space};
use phalanx_search_driver::{RESULTS, SearchDir, SearchError, is_search};
use phalanx_search_results::{EventLine, ResultsWriter, SearchAbout, SearchTable};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Stands where searches of other kinds have their file.
const SEARCH_TEXT: &str = "# This search is a call of `phalanx.search.search` in a Python program: the same call goes on with it.\n";

type Values = BTreeMap<String, f64>;

/// What Python is to do: a tuple that begins with a word.
#[derive(IntoPyObject)]
pub(crate) enum Command {
    /// Trial, genes, the budget it was trained to, the budget to train it to, priority.
    #[pyo3(transparent)]
    Run((&'static str, u64, Vec<u16>, f64, f64, i32)),
    #[pyo3(transparent)]
    Cancel((&'static str, u64)),
    /// How, and why if it has failed.
    #[pyo3(transparent)]
    Ended((&'static str, &'static str, Option<String>)),
}

/// A search whose trials Python runs.
#[pyclass(frozen)]
pub(crate) struct SearchCore {
    searching: Mutex<Searching>,
}

struct Searching {
    core: Core,
    table: SearchTable,
    dir: Option<SearchDir>,
}

#[pymethods]
impl SearchCore {
    /// A search as JSON tells it, or the one that the directory holds. `known` gives the cheap values of a candidate.
    #[new]
    #[pyo3(signature = (space, told, known = None, directory = None))]
    fn new(
        py: Python<'_>,
        space: &SearchSpace,
        told: &str,
        known: Option<Py<PyAny>>,
        directory: Option<PathBuf>,
    ) -> PyResult<Self> {
        let (told, space) = (Told::parse(told)?, space.space.clone());
        let candidates = Box::new(PythonCandidates { space: space.clone(), known });
        let searching = py.detach(|| Searching::begin(&told, space, candidates, directory.as_deref()))?;
        Ok(Self { searching: Mutex::new(searching) })
    }

    /// What is to be done first; also of a search that goes on.
    fn resume(&self, py: Python<'_>) -> PyResult<Vec<Command>> {
        self.decide(py, Core::resume)
    }

    /// So many trials can be run at once.
    fn capacity(&self, py: Python<'_>, slots: usize) -> PyResult<Vec<Command>> {
        self.on(py, SearchEvent::Capacity { slots })
    }

    fn started(&self, py: Python<'_>, trial: u64, node: String) -> PyResult<Vec<Command>> {
        self.on(py, SearchEvent::TrialStarted { trial: TrialId(trial), node })
    }

    fn reached(
        &self,
        py: Python<'_>,
        trial: u64,
        budget: f64,
        values: Values,
        seconds: f64,
    ) -> PyResult<Vec<Command>> {
        self.on(py, SearchEvent::TrialReached { trial: TrialId(trial), budget, values, seconds })
    }

    fn failed(&self, py: Python<'_>, trial: u64, why: String, retry: bool) -> PyResult<Vec<Command>> {
        self.on(py, SearchEvent::TrialFailed { trial: TrialId(trial), why, retry })
    }

    fn stop(&self, py: Python<'_>) -> PyResult<Vec<Command>> {
        self.on(py, SearchEvent::StopAsked)
    }

    /// The trials as JSON.
    fn trials(&self, py: Python<'_>) -> PyResult<String> {
        self.look(py, |now| json(&now.table.rows().collect::<Vec<_>>()))
    }

    /// The trials that no other is better than.
    fn front(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        self.look(py, |now| Ok(now.core.front().into_iter().map(|trial| trial.0).collect()))
    }

    /// The covered share of the space of objectives after each result.
    fn hypervolumes(&self, py: Python<'_>) -> PyResult<Vec<(u64, f64)>> {
        self.look(py, |now| {
            let points = now.table.hypervolume();
            Ok(points.into_iter().map(|point| (point.trial.0, point.hypervolume)).collect())
        })
    }

    /// Why fewer trials run than could.
    fn reason(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.look(py, |now| Ok(now.core.reason()))
    }

    /// Writes tables and plots to the folder of results in the directory, if there is one.
    fn write_results(&self, py: Python<'_>) -> PyResult<()> {
        self.look(py, |now| {
            let Some(dir) = &now.dir else { return Ok(()) };
            let written = ResultsWriter::new(dir.path().join(RESULTS)).write(&now.table);
            written.map(|_paths| ()).map_err(|error| Failure::search(&error.into()))
        })
    }

    /// Lets go of the directory: others may go on with it, also while somebody holds this object.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.look(py, |now| {
            now.dir = None;
            Ok(())
        })
    }
}

impl SearchCore {
    fn on(&self, py: Python<'_>, event: SearchEvent) -> PyResult<Vec<Command>> {
        self.decide(py, |core| core.on(event))
    }

    fn decide(
        &self,
        py: Python<'_>,
        how: impl FnOnce(&mut Core) -> Vec<SearchCommand> + Send,
    ) -> PyResult<Vec<Command>> {
        self.look(py, |now| now.decide(how))
    }

    /// Nobody waits for the search with the lock of the interpreter: whoever has the search may need that.
    fn look<T: Send>(
        &self,
        py: Python<'_>,
        how: impl FnOnce(&mut Searching) -> Result<T, Failure> + Send,
    ) -> PyResult<T> {
        Ok(py.detach(|| how(&mut self.lock()))?)
    }

    fn lock(&self) -> MutexGuard<'_, Searching> {
        self.searching.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Searching {
    fn begin(
        told: &Told,
        space: Space,
        candidates: Box<dyn Candidates>,
        directory: Option<&Path>,
    ) -> Result<Self, Failure> {
        let failed = |error: SearchError| Failure::search(&error);
        let (mut about, mut past, mut dir) = (told.about(space, unix_ms())?, Vec::new(), None);
        if let Some(path) = directory {
            if is_search(path) {
                let before = SearchAbout::read(path).map_err(|error| failed(error.into()))?;
                told::check_same(path, &before, &about)?;
                let (opened, lines) = SearchDir::open(path).map_err(failed)?;
                let trials = about.trials.max(before.trials);
                about = SearchAbout { trials, ..before };
                opened.rewrite(&about).map_err(failed)?;
                (past, dir) = (lines, Some(opened));
            } else {
                about.base = std::path::absolute(path).unwrap_or_default();
                dir = Some(SearchDir::create(path, SEARCH_TEXT, &about).map_err(failed)?);
            }
        }
        let mut table = SearchTable::new(about.clone());
        past.iter().try_for_each(|line| table.apply(line)).map_err(|error| failed(error.into()))?;
        let records: Vec<SearchRecord> = past.into_iter().map(|line| line.record).collect();
        let algorithm = told.algorithm()?;
        let core = Core::restore(told.config(&about), about.space.clone(), algorithm, candidates, &records);
        Ok(Self { core: core.map_err(|error| failed(error.into()))?, table, dir })
    }

    /// Lets the core decide, writes down what it says, and gives what Python is to do.
    fn decide(&mut self, how: impl FnOnce(&mut Core) -> Vec<SearchCommand>) -> Result<Vec<Command>, Failure> {
        let (mut records, mut commands) = (Vec::new(), Vec::new());
        for command in how(&mut self.core) {
            commands.push(match command {
                SearchCommand::Record(record) => {
                    records.push(record);
                    continue;
                }
                SearchCommand::Run { trial, from, to, priority } => {
                    let genes = self.core.trials().get(&trial).map(|trial| trial.genes.0.clone());
                    Command::Run(("run", trial.0, genes.unwrap_or_default(), from, to, priority))
                }
                SearchCommand::Cancel { trial } => Command::Cancel(("cancel", trial.0)),
                SearchCommand::Ended(end) => {
                    let (how, why) = end_words(end);
                    Command::Ended(("ended", how, why))
                }
            });
        }
        self.write(records)?;
        Ok(commands)
    }

    fn write(&mut self, records: Vec<SearchRecord>) -> Result<(), Failure> {
        if records.is_empty() {
            return Ok(());
        }
        let lines = match &mut self.dir {
            Some(dir) => dir.record(&records).map_err(|error| Failure::search(&error))?,
            None => {
                let at = unix_ms();
                records.into_iter().map(|record| EventLine { at, record }).collect()
            }
        };
        let applied = lines.iter().try_for_each(|line| self.table.apply(line));
        applied.map_err(|error| Failure::search(&error.into()))
    }
}

/// Candidates of which a Python function knows the cheap values.
struct PythonCandidates {
    space: Space,
    known: Option<Py<PyAny>>,
}

impl Candidates for PythonCandidates {
    fn describe(&self, genes: &Genes) -> Result<Described, String> {
        let known = match &self.known {
            None => Values::new(),
            Some(function) => {
                let called = Python::attach(|py| -> PyResult<Values> {
                    function.call1(py, (genes.0.clone(),))?.extract(py)
                });
                called.map_err(|error| error.to_string())?
            }
        };
        let archid = self.space.archid(genes);
        let model = genes.0.iter().map(u16::to_string).collect::<Vec<_>>().join("-");
        Ok(Described { archid, model, known })
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The points that no other is better than; less is better.
#[pyfunction]
pub(crate) fn pareto_front(points: Vec<Vec<f64>>) -> PyResult<Vec<usize>> {
    told::same_lengths(&points, None)?;
    Ok(pareto::first_front(&points))
}

/// The volume between the points and the reference; less is better.
#[pyfunction]
pub(crate) fn hypervolume(points: Vec<Vec<f64>>, reference: Vec<f64>) -> PyResult<f64> {
    told::same_lengths(&points, Some(reference.len()))?;
    Ok(pareto::hypervolume(&points, &reference))
}
