//! Training, and going on with it.

use crate::arrays;
use crate::embedded::{Embedded, NodeInput};
use crate::errors::Failure;
use crate::history::History;
use crate::inputs::{DomainInput, ModelInput, Setting, configuration, overrides};
use crate::model::Model;
use crate::own_loss::PythonLoss;
use crate::wait::{Caller, wait, wait_with};
use phalanx::nodes::Program;
use phalanx::records::End;
use phalanx::train::Stop;
use phalanx::train::config::RunFile;
use phalanx::{Dataset, Error, Nodes, Trained, Training};
use phalanx_records::run_dir::{RUN_FILE, RunDir};
use pyo3::prelude::*;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Who computes, as `phalanx._nodes.Placement` has it.
#[derive(FromPyObject)]
pub(crate) struct PlacementInput {
    local: Option<usize>,
    /// The words that start the command line.
    program: Vec<String>,
    domain: Option<DomainInput>,
}

impl PlacementInput {
    fn nodes(self) -> Result<Option<Nodes>, Failure> {
        if let Some(domain) = self.domain {
            return Ok(Some(Nodes::Domain(domain.domain()?)));
        }
        let Some(count) = self.local else { return Ok(None) };
        let mut words = self.program.into_iter();
        let Some(file) = words.next() else {
            return Ok(Some(Nodes::Local(count)));
        };
        let program = words.fold(Program::new(file), Program::argument);
        Ok(Some(Nodes::Processes { count, program }))
    }
}

/// Samples and labels.
type Arrays<'py> = (Bound<'py, PyAny>, Option<Bound<'py, PyAny>>);

/// A trained model, a summary as JSON, and numbers by name.
type Outcome = (Model, String, BTreeMap<String, Vec<f64>>);

/// What a training needs besides model and data.
#[derive(FromPyObject)]
pub(crate) struct Options {
    settings: Vec<Setting>,
    loss: Option<(String, Py<PyAny>)>,
    run_dir: Option<PathBuf>,
    placement: PlacementInput,
    /// Is called with the progress as JSON.
    progress: Option<Py<PyAny>>,
    /// A node that this process embeds meanwhile.
    node: Option<NodeInput>,
}

/// Trains a model on arrays.
#[pyfunction]
#[pyo3(signature = (model, train, valid, options))]
pub(crate) fn train(
    py: Python<'_>,
    model: ModelInput,
    train: Arrays<'_>,
    valid: Option<Arrays<'_>>,
    options: Options,
) -> PyResult<Outcome> {
    let data = arrays::dataset(&train.0, train.1.as_ref())?;
    let valid = valid.map(|(x, y)| arrays::dataset(&x, y.as_ref())).transpose()?;
    let Options { settings, loss, run_dir, placement, progress, node } = options;
    let loss = loss.map(|(name, function)| PythonLoss::new(name, function));
    let own = loss.clone();
    let prepare = move || {
        let training = training(model, data, valid, &settings)?;
        let training = match &own {
            Some(own) => training.loss(own.own_loss()),
            None => training,
        };
        placed(training, placement, run_dir)
    };
    run(py, prepare, loss, node, progress.as_ref())
}

fn training(
    model: ModelInput,
    data: Dataset,
    valid: Option<Dataset>,
    settings: &[Setting],
) -> Result<Training, Failure> {
    let config = configuration(settings)?;
    let found = model.find()?;
    let training = Training::new(found.graph, data).weights(found.weights).configure(|all| *all = config);
    Ok(match valid {
        Some(valid) => training.valid(valid),
        None => training,
    })
}

fn placed(
    training: Training,
    placement: PlacementInput,
    run_dir: Option<PathBuf>,
) -> Result<Training, Failure> {
    let training = match placement.nodes()? {
        Some(nodes) => training.nodes(nodes),
        None => training,
    };
    Ok(match run_dir {
        Some(dir) => training.run_dir(dir),
        None => training,
    })
}

/// Goes on with the run of a directory, to more passes or steps if `settings` say so.
#[pyfunction]
#[pyo3(signature = (run_dir, options))]
pub(crate) fn resume(py: Python<'_>, run_dir: PathBuf, options: Options) -> PyResult<Outcome> {
    let Options { settings, placement, progress, .. } = options;
    let prepare = move || {
        let training = Training::of_config(continued(&run_dir, &settings)?);
        placed(training, placement, Some(run_dir))
    };
    run(py, prepare, None, None, progress.as_ref())
}

/// What a run is told from now on, which its directory keeps.
fn continued(path: &Path, settings: &[Setting]) -> Result<phalanx::train::config::RunConfig, Failure> {
    let dir = RunDir::open(path).map_err(Error::from)?;
    let file = RunFile::load(&dir.file(RUN_FILE), &overrides(settings));
    let file = file.map_err(|error| Failure::config(&error))?;
    dir.write(RUN_FILE, file.resolved.to_toml().as_bytes()).map_err(Error::from)?;
    Ok(file.config)
}

fn run(
    py: Python<'_>,
    prepare: impl FnOnce() -> Result<Training, Failure> + Send + 'static,
    loss: Option<PythonLoss>,
    node: Option<NodeInput>,
    progress: Option<&Py<PyAny>>,
) -> PyResult<Outcome> {
    let (stop, history) = (Stop::new(), History::default());
    let (asked, told, own) = (stop.clone(), history.clone(), loss.clone());
    let work = move |caller: Caller| {
        let _connected = own.as_ref().map(|own| own.connect(caller));
        let training = prepare()?.stop(&asked).observe(move |event| told.add(event));
        let _embedded = node.map(|node| Embedded::start(node, own.clone())).transpose()?;
        Ok(phalanx::train(training)?)
    };
    let mut tick = |py: Python<'_>| show(py, &history, progress);
    let trained = wait_with(py, work, &stop, &mut tick)?;
    let summary = summary(&trained)?;
    Ok((Model::new(trained.into_model(), loss), summary, history.series()))
}

fn show(py: Python<'_>, history: &History, progress: Option<&Py<PyAny>>) -> PyResult<()> {
    let (Some(function), Some(news)) = (progress, history.news()) else { return Ok(()) };
    function.call1(py, (json(&news)?,))?;
    Ok(())
}

/// A summary, with how the run ended.
#[derive(Serialize)]
struct Told<'a> {
    #[serde(flatten)]
    summary: &'a phalanx::records::Summary,
    finished: bool,
}

fn summary(trained: &Trained) -> Result<String, Failure> {
    let summary = trained.summary();
    json(&Told { summary, finished: summary.end == End::Finished })
}

pub(crate) fn json(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure::bug(error.to_string()))
}

/// The state of the run in a directory as JSON.
#[pyfunction]
pub(crate) fn read_run(py: Python<'_>, run_dir: PathBuf) -> PyResult<String> {
    let work = move |_: Caller| {
        let run = phalanx::records::read_run(&run_dir).map_err(Error::from)?;
        json(&run.state)
    };
    wait(py, work)
}
