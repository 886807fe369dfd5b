//! What the endpoints answer.

use crate::actions::{Actions, Refusal};
use crate::app::App;
use crate::endpoints::Call;
use crate::error::ApiError;
use crate::files;
use crate::runs::{Records, RunsQuery};
use crate::tail::Seen;
use phalanx_ledger::{Axis, Window};
use phalanx_records::history::end_of;
use phalanx_records::run_dir::Annotation;
use serde::Serialize;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

/// The most curves in one answer.
const MOST_CURVES: usize = 64;

fn to_json(value: &impl Serialize) -> Value {
    // Only maps with keys that are not text fail, and there are none.
    serde_json::to_value(value).unwrap_or_default()
}

fn id(call: &Call) -> &str {
    call.value("id").unwrap_or_default()
}

fn dir(app: &App, call: &Call) -> Result<PathBuf, ApiError> {
    app.runs.dir(id(call))
}

/// The directory of a run, or `None` if its files are elsewhere.
fn dir_if_here(app: &App, call: &Call) -> Result<Option<PathBuf>, ApiError> {
    match dir(app, call) {
        Err(ApiError::Elsewhere { .. }) => Ok(None),
        found => found.map(Some),
    }
}

pub(crate) fn about(app: &App, _call: &Call) -> Result<Value, ApiError> {
    Ok(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "directory": app.runs.files().root().display().to_string(),
        "domain": app.domain_name(),
        "one_run": app.runs.files().one_run(),
        "note": app.runs.note(),
        "resumes": app.actions.resumes(),
    }))
}

fn number(call: &Call, name: &'static str, usual: usize) -> Result<usize, ApiError> {
    Ok(call.number(name)?.map_or(usual, |n| usize::try_from(n).unwrap_or(usize::MAX)))
}

pub(crate) fn runs(app: &App, call: &Call) -> Result<Value, ApiError> {
    let query = RunsQuery {
        sort: call.value("sort").unwrap_or("-started").to_owned(),
        limit: number(call, "limit", 200)?.min(10_000),
        offset: number(call, "offset", 0)?,
        ..RunsQuery::default()
    };
    let query = query.search(call.value("q").unwrap_or_default());
    let page = app.runs.ask(|records| records.runs(&query))?;
    Ok(json!({ "total": page.total, "runs": to_json(&page.runs), "note": app.runs.note() }))
}

pub(crate) fn run(app: &App, call: &Call) -> Result<Value, ApiError> {
    let (run, notes) = app.runs.ask(|records| Ok((records.run(id(call))?, records.notes(id(call))?)))?;
    let dir = dir_if_here(app, call)?;
    let seen = dir.as_ref().map(|dir| end_of(dir)).transpose()?.map(Seen::from).unwrap_or_default();
    let failed = dir.and_then(|dir| app.actions.failure(&dir));
    Ok(json!({
        "run": to_json(&run),
        "notes": to_json(&notes),
        "position": seen.to_string(),
        "resume_failed": failed,
    }))
}

pub(crate) fn annotate(app: &App, call: &Call) -> Result<Value, ApiError> {
    let annotation: Annotation = serde_json::from_value(call.body.clone()).map_err(ApiError::Body)?;
    let dir = dir(app, call)?;
    phalanx_records::run_dir::annotate(&dir, &annotation)?;
    app.runs.changed(&dir);
    run(app, call)
}

pub(crate) fn stop(app: &App, call: &Call) -> Result<Value, ApiError> {
    let dir = dir(app, call)?;
    let refused = |why: Refusal| ApiError::Action { action: "stopped", why };
    let pid = Actions::stop(&dir, &app.runs.files().run(id(call))?.state).map_err(refused)?;
    Ok(json!({ "pid": pid }))
}

pub(crate) fn resume(app: &App, call: &Call) -> Result<Value, ApiError> {
    let dir = dir(app, call)?;
    let refused = |why: Refusal| ApiError::Action { action: "resumed", why };
    let pid = app.actions.resume(&dir, &app.runs.files().run(id(call))?.state).map_err(refused)?;
    Ok(json!({ "pid": pid }))
}

pub(crate) fn series(app: &App, call: &Call) -> Result<Value, ApiError> {
    Ok(json!({ "series": to_json(&app.runs.ask(|records| records.series(id(call)))?) }))
}

pub(crate) fn curves(app: &App, call: &Call) -> Result<Value, ApiError> {
    let axis = match call.value("x") {
        None | Some("step") => Axis::Step,
        Some("time") => Axis::Time,
        Some(other) => {
            let (name, expected) = ("x", "step or time is expected");
            return Err(ApiError::Parameter { name, value: other.to_owned(), expected });
        }
    };
    let buckets = call.number("buckets")?.and_then(|n| usize::try_from(n).ok());
    let window = Window { axis, from: call.number("from")?, to: call.number("to")?, buckets };
    let names = names(call.value("series").unwrap_or("loss"));
    let names: Vec<&str> = names.iter().map(String::as_str).take(MOST_CURVES).collect();
    let (curves, seen) = app.runs.ask(|records| records.curves(id(call), &names, window))?;
    Ok(json!({ "curves": to_json(&curves), "position": seen.to_string() }))
}

/// Names with commas between, or as a JSON array, if there are commas in names.
fn names(text: &str) -> Vec<String> {
    let array = text.starts_with('[').then(|| serde_json::from_str(text).ok()).flatten();
    array.unwrap_or_else(|| text.split(',').map(str::to_owned).collect())
}

pub(crate) fn events(app: &App, call: &Call) -> Result<Value, ApiError> {
    let (after, limit) = (number(call, "after", 0)?, number(call, "limit", 1000)?.min(10_000));
    let page = app.runs.ask(|records| records.events(id(call), after, limit))?;
    Ok(json!({ "total": page.total, "events": to_json(&page.events), "position": page.seen.to_string() }))
}

pub(crate) fn formation(app: &App, call: &Call) -> Result<Value, ApiError> {
    match dir_if_here(app, call)? {
        Some(dir) => files::formation(&dir),
        None => Ok(json!({ "epochs": [] })),
    }
}

pub(crate) fn config(app: &App, call: &Call) -> Result<Value, ApiError> {
    Ok(json!({ "values": to_json(&app.runs.ask(|records| records.config(id(call)))?) }))
}

pub(crate) fn checkpoints(app: &App, call: &Call) -> Result<Value, ApiError> {
    let found = dir_if_here(app, call)?.map(|dir| files::list_checkpoints(&dir)).unwrap_or_default();
    Ok(json!({ "checkpoints": to_json(&found) }))
}

pub(crate) fn files(app: &App, call: &Call) -> Result<Value, ApiError> {
    let found = dir_if_here(app, call)?.map(|dir| files::list_files(&dir)).unwrap_or_default();
    Ok(json!({ "files": to_json(&found) }))
}

pub(crate) fn nodes(app: &App, _call: &Call) -> Result<Value, ApiError> {
    Ok(to_json(&app.domain_info()))
}

pub(crate) fn stores(app: &App, _call: &Call) -> Result<Value, ApiError> {
    Ok(json!({ "stores": to_json(&app.stores.info()) }))
}

pub(crate) fn description(_app: &App, _call: &Call) -> Result<Value, ApiError> {
    Ok(crate::openapi::description())
}

type Later = Pin<Box<dyn Future<Output = Result<Value, ApiError>> + Send>>;

pub(crate) fn jobs(app: Arc<App>, call: Call) -> Later {
    Box::pin(async move { app.jobs(call.value("all") == Some("1")).await })
}

pub(crate) fn cancel(app: Arc<App>, call: Call) -> Later {
    Box::pin(async move {
        let job = call.body["job"].as_str().unwrap_or_default().to_owned();
        let domain = app.domain.clone().ok_or(ApiError::NoDomain { what: "a job" })?;
        Ok(json!({ "cancelled": domain.cancel(&job).await? }))
    })
}
