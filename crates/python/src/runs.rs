//! The index of runs: which there are, and their curves; runs that are kept elsewhere.

use crate::errors::Failure;
use crate::train::json;
use crate::wait::{Caller, wait};
use phalanx::artifacts::{self, ArtifactUrl, Selection};
use phalanx::ledger::{Detail, RunQuery, Window, of_runs};
use pyo3::prelude::*;
use std::path::PathBuf;

/// The runs of a directory for which a filter holds, as JSON.
#[pyfunction]
pub(crate) fn find_runs(
    py: Python<'_>,
    runs: PathBuf,
    filter: Option<String>,
    sort: Option<String>,
    limit: Option<usize>,
) -> PyResult<String> {
    let work = move |_: Caller| {
        let query = RunQuery::parse(filter.as_deref(), sort.as_deref()).map_err(|e| Failure::ledger(&e))?;
        let query = RunQuery { limit, with: Detail::FULL, ..query };
        let found = of_runs(&runs).and_then(|ledger| ledger.runs(&query));
        json(&found.map_err(|error| Failure::ledger(&error))?)
    };
    wait(py, work)
}

/// Steps and values of a series, every one as it was recorded.
type Points = (Vec<u64>, Vec<f64>);

/// All points of a series of a run.
#[pyfunction]
pub(crate) fn run_curve(py: Python<'_>, runs: PathBuf, uid: String, series: String) -> PyResult<Points> {
    let work = move |_: Caller| {
        let read = of_runs(&runs).and_then(|ledger| ledger.curve(&uid, &series, Window::default()));
        let curve = read.map_err(|error| Failure::ledger(&error))?;
        // Without a number of buckets each of them is one point.
        Ok(curve.buckets.iter().map(|bucket| (bucket.from, bucket.last)).unzip())
    };
    wait(py, work)
}

/// Pushes a run to a place, or to that which the environment names. Gives what it came to as JSON.
#[pyfunction]
pub(crate) fn push_run(
    py: Python<'_>,
    run: PathBuf,
    url: Option<String>,
    checkpoints: bool,
) -> PyResult<String> {
    let work = move |_: Caller| {
        let named = match &url {
            Some(url) => ArtifactUrl::parse(url).map(Some),
            None => ArtifactUrl::from_env(),
        };
        let named = named.map_err(|error| Failure::artifacts(&error))?;
        let url = named.ok_or_else(|| {
            Failure::input(format!("no place is named: give a URL, or set {}", artifacts::ARTIFACTS_VARIABLE))
        })?;
        let selection = if checkpoints { Selection::All } else { Selection::WithoutCheckpoints };
        json(&artifacts::push(&url, &run, selection).map_err(|error| Failure::artifacts(&error))?)
    };
    wait(py, work)
}
