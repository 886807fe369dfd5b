//! Searches of a search file, on nodes: the same as `phalanx search run`.
//!
//! ```text
//!   Python thread: wait ◄── news, how it ended ── thread `search`: drive ── jobs ──► nodes
//! ```
//! The search goes on by itself; Python looks now and then what is new, so that Ctrl-C is seen.

use super::progress::{SearchNews, TrialNews, end_words, trial_views};
use crate::errors::Failure;
use crate::inputs::DomainInput;
use crate::logs;
use crate::train::json;
use crate::wait::check_fork;
use phalanx::Error;
use phalanx::jobs::{MainNode, MainOptions};
use phalanx::nodes::{
    Background, Domain, LocalNodes, LocalSpec, NodeKind, Program, node_program, private_domain,
};
use phalanx::search::{
    CheckedModel, EventLine, Exporter, Overrides, ResultsWriter, SearchDir, SearchEnd, SearchObserver,
    SearchPlan, SearchRecord, SearchTable, drive,
};
use phalanx_records::run_dir::new_id;
use phalanx_search_driver::{RESULTS, SEARCH_FILE, SearchError, is_search};
use pyo3::prelude::*;
use serde::Serialize;
use std::net::{Ipv4Addr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::sync::watch;

/// Where searches without a directory of their own are kept, as on the command line.
const SEARCHES: &str = "searches";

/// Which nodes, as `phalanx._nodes.Placement` has it.
#[derive(FromPyObject)]
struct NodesInput {
    local: Option<u32>,
    program: Vec<String>,
    domain: Option<DomainInput>,
}

/// What Python says of a search, as `phalanx._search_nodes.Told` has it.
#[derive(FromPyObject)]
pub(crate) struct SearchInput {
    /// A search file, or `ready:cnn`.
    file: PathBuf,
    directory: Option<PathBuf>,
    placement: NodesInput,
    allow_exec: bool,
    trials: Option<u64>,
    algorithm: Option<String>,
    seed: Option<u64>,
    workers: Option<usize>,
    /// Where the data of a ready search file is.
    data: Option<PathBuf>,
}

/// A search on nodes that goes on in the background. It is asked to stop when this value goes away.
#[pyclass(frozen)]
pub(crate) struct NodeSearch {
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    directory: PathBuf,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// What Python has not been told.
    news: Option<SearchNews>,
    done: Option<Result<String, Failure>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, how: impl FnOnce(&mut State)) {
        how(&mut self.lock());
        self.changed.notify_all();
    }
}

#[pymethods]
impl NodeSearch {
    /// Begins a search, or goes on with the one that is in the directory.
    #[new]
    fn new(py: Python<'_>, search: SearchInput) -> PyResult<Self> {
        check_fork()?;
        logs::listen(py)?;
        py.detach(|| Self::begin(search)).map_err(PyErr::from)
    }

    /// Waits for news: `(False, progress)`, `(True, what it came to)`, both as JSON, or `None` after `seconds`.
    fn wait(&self, py: Python<'_>, seconds: f64) -> PyResult<Option<(bool, String)>> {
        let limit = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let heard = py.detach(|| {
            let nothing = |state: &mut State| state.news.is_none() && state.done.is_none();
            let waited = self.shared.changed.wait_timeout_while(self.shared.lock(), limit, nothing);
            let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
            match state.news.take() {
                Some(news) => json(&news).map(|text| Some((false, text))),
                None => state.done.take().transpose().map(|done| done.map(|text| (true, text))),
            }
        });
        logs::deliver(py)?;
        Ok(heard?)
    }

    /// Ends the search soon: what is being trained is dropped, everything else is recorded.
    fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Where it is recorded.
    #[getter]
    fn directory(&self) -> String {
        self.directory.display().to_string()
    }
}

impl Drop for NodeSearch {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

impl NodeSearch {
    fn begin(search: SearchInput) -> Result<Self, Failure> {
        let id = new_id(SystemTime::now());
        let directory = search.directory.clone().unwrap_or_else(|| Path::new(SEARCHES).join(&id));
        let name = directory.file_name().map_or(id, |name| name.to_string_lossy().into_owned());
        let failed = |error: SearchError| Failure::search(&error);
        let said = Overrides {
            trials: search.trials,
            algorithm: search.algorithm,
            seed: search.seed,
            workers: search.workers,
            data: search.data,
        };
        let told = SearchPlan::load(&search.file, &name, &said).map_err(failed)?;
        let nodes = search.placement;
        if told.runs_programs() && nodes.local.is_some() && !search.allow_exec {
            let why = "the trials of this search are programs, which nodes do not run by themselves";
            return Err(Failure::input(why).hint("say `allow_exec=True`"));
        }
        let (plan, dir, past) = open(told, &directory, &said)?;
        let (stop, asked) = watch::channel(false);
        let shared = Arc::<Shared>::default();
        let told = Arc::clone(&shared);
        let work = move || {
            let now = SearchNews { of: plan.about().trials, ..SearchNews::default() };
            let mut observer = Observer { shared: Arc::clone(&told), now };
            let searching = || searched(&plan, dir, past, nodes, asked, &mut observer);
            let done = catch_unwind(AssertUnwindSafe(searching));
            let done = done.unwrap_or_else(|_panic| Err(Failure::bug("the search panicked".to_owned())));
            told.tell(|state| state.done = Some(done));
        };
        let thread = std::thread::Builder::new().name("search".to_owned()).spawn(work);
        thread.map_err(|error| Failure::bug(format!("could not start a thread: {error}")))?;
        Ok(Self { shared, stop, directory })
    }
}

/// A new search in the directory, or the one that is there if it is the same.
fn open(
    told: SearchPlan,
    directory: &Path,
    said: &Overrides,
) -> Result<(SearchPlan, SearchDir, Vec<EventLine>), Failure> {
    let failed = |error: SearchError| Failure::search(&error);
    if !is_search(directory) {
        told.check().map_err(failed)?;
        let dir = SearchDir::create(directory, told.text(), told.about()).map_err(failed)?;
        return Ok((told, dir, Vec::new()));
    }
    let plan = SearchPlan::of_dir(directory, said).map_err(failed)?;
    let (now, before) = (told.about(), plan.about());
    let differs = [
        (SEARCH_FILE, told.text() != plan.text()),
        ("algorithm", now.algorithm != before.algorithm),
        ("seed", now.seed != before.seed),
    ];
    let names: Vec<&str> = differs.iter().filter(|(_, differs)| *differs).map(|(name, _)| *name).collect();
    if !names.is_empty() {
        let reason =
            format!("{} holds another search; what differs: {}", directory.display(), names.join(", "));
        return Err(Failure::input(reason).hint("search as before, or in another directory"));
    }
    let (dir, past) = SearchDir::open(directory).map_err(failed)?;
    dir.rewrite(plan.about()).map_err(failed)?;
    Ok((plan, dir, past))
}

/// What came of a search.
#[derive(Serialize)]
struct Searched<'a> {
    ended: &'static str,
    why: Option<String>,
    objectives: &'a [phalanx::search::Objective],
    trials: serde_json::Value,
    hypervolumes: Vec<f64>,
    models: Vec<CheckedModel>,
}

/// Searches to the end and writes the results; gives what it came to as JSON.
fn searched(
    plan: &SearchPlan,
    dir: SearchDir,
    past: Vec<EventLine>,
    nodes: NodesInput,
    asked: watch::Receiver<bool>,
    observer: &mut Observer,
) -> Result<String, Failure> {
    let failed = |error: SearchError| Failure::search(&error);
    let (dir, table, end) = on_nodes(plan, dir, past, nodes, asked, observer)?;
    let written = ResultsWriter::new(dir.path().join(RESULTS)).write(&table);
    written.map_err(|error| failed(error.into()))?;
    let models = match end == SearchEnd::Finished && !plan.runs_programs() {
        true => Exporter::new().front(dir.path(), &table).map_err(failed)?,
        false => Vec::new(),
    };
    let (ended, why) = end_words(end);
    let hypervolumes = table.hypervolume().iter().map(|point| point.hypervolume).collect();
    let objectives = &table.about().objectives;
    json(&Searched { ended, why, objectives, trials: trial_views(&table), hypervolumes, models })
}

fn on_nodes(
    plan: &SearchPlan,
    dir: SearchDir,
    past: Vec<EventLine>,
    nodes: NodesInput,
    asked: watch::Receiver<bool>,
    observer: &mut Observer,
) -> Result<(SearchDir, SearchTable, SearchEnd), Failure> {
    let background = Background::start("search-io").map_err(Error::from)?;
    let domain = match nodes.domain {
        Some(domain) => domain.domain()?,
        None => {
            let private = Domain::named(private_domain().map_err(Error::from)?);
            private.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
        }
    };
    let mut config = domain.fabric("search", NodeKind::Main);
    config.mdns &= nodes.local.is_none();
    let main = background.block_on(MainNode::start(config, MainOptions::default()));
    let main = main.map_err(|error| Failure::machine(&error))?;
    let own = nodes.local.map(|count| {
        let program = program(nodes.program)?;
        let spec = LocalSpec {
            restart: true,
            allow_exec: plan.runs_programs(),
            ..LocalSpec::new(program, domain.name().clone(), count)
        };
        LocalNodes::start(&spec).map_err(|error| Failure::from(Error::from(error)))
    });
    let own = own.transpose()?;
    let driven = background.block_on(drive(&main, plan, dir, past, asked, observer));
    background.block_on(main.shutdown());
    drop(own);
    driven.map_err(|error| Failure::search(&error))
}

/// The program that nodes of this machine are started from.
fn program(words: Vec<String>) -> Result<Program, Failure> {
    let mut words = words.into_iter();
    match words.next() {
        Some(file) => Ok(words.fold(Program::new(file), Program::argument)),
        None => Ok(Program::new(node_program().map_err(Error::from)?)),
    }
}

/// Keeps what is new for the thread that waits.
struct Observer {
    shared: Arc<Shared>,
    /// How far the search is, without the newest result.
    now: SearchNews,
}

impl Observer {
    /// Has Python told how far the search is. A result that it was not told yet stays, if there is no newer one.
    fn tell(&self, reached: Option<TrialNews>) {
        let now = self.now.clone();
        self.shared.tell(|state| {
            let before = state.news.take().and_then(|news| news.last);
            state.news = Some(SearchNews { last: reached.or(before), ..now });
        });
    }
}

impl SearchObserver for Observer {
    fn on_lines(&mut self, table: &SearchTable, lines: &[EventLine]) {
        let reached = lines.iter().rev().find_map(|line| match &line.record {
            SearchRecord::TrialReached { trial, .. } => TrialNews::of(table, *trial),
            _ => None,
        });
        self.now = SearchNews::of(table, self.now.waiting.take());
        self.tell(reached);
    }

    fn on_waiting(&mut self, why: Option<&str>) {
        self.now.waiting = why.map(str::to_owned);
        self.tell(None);
    }
}
