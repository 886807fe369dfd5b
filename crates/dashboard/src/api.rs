//! What the endpoints answer.

use crate::app::App;
use crate::endpoints::Call;
use crate::error::ApiError;
use crate::files;
use crate::live::Seen;
use crate::runs::{Records, RunsQuery};
use crate::view::{Axis, Curve, Window};
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

fn dir(app: &App, call: &Call) -> Result<PathBuf, ApiError> {
    app.runs.dir(call.value("id").unwrap_or_default())
}

pub(crate) fn about(app: &App, _call: &Call) -> Result<Value, ApiError> {
    Ok(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "directory": app.runs.root().display().to_string(),
        "domain": app.domain_name(),
        "one_run": app.runs.one_run(),
    }))
}

pub(crate) fn runs(app: &App, call: &Call) -> Result<Value, ApiError> {
    let number = |name, usual: usize| -> Result<usize, ApiError> {
        Ok(call.number(name)?.map_or(usual, |n| usize::try_from(n).unwrap_or(usize::MAX)))
    };
    let query = RunsQuery {
        words: call.value("q").unwrap_or_default().split_whitespace().map(str::to_owned).collect(),
        sort: call.value("sort").unwrap_or("-started").to_owned(),
        limit: number("limit", 200)?.min(10_000),
        offset: number("offset", 0)?,
    };
    Ok(to_json(&app.runs.runs(&query)?))
}

pub(crate) fn run(app: &App, call: &Call) -> Result<Value, ApiError> {
    let summary = app.runs.run(call.value("id").unwrap_or_default())?;
    let (seen, notes) = app.views.with(&dir(app, call)?, |view| (Seen::all(view), view.notes.clone()))?;
    Ok(json!({ "run": to_json(&summary), "notes": to_json(&notes), "position": seen.to_string() }))
}

pub(crate) fn annotate(app: &App, call: &Call) -> Result<Value, ApiError> {
    let annotation: Annotation = serde_json::from_value(call.body.clone()).map_err(ApiError::Body)?;
    let dir = dir(app, call)?;
    phalanx_records::run_dir::annotate(&dir, &annotation)?;
    app.runs.forget(&dir);
    run(app, call)
}

pub(crate) fn series(app: &App, call: &Call) -> Result<Value, ApiError> {
    Ok(json!({ "series": to_json(&app.views.series(&dir(app, call)?)?) }))
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
    let buckets = call.number("buckets")?.and_then(|n| usize::try_from(n).ok()).unwrap_or(600);
    let window = Window { axis, from: call.number("from")?, to: call.number("to")?, buckets };
    let dir = dir(app, call)?;
    let names: Vec<&str> = call.value("series").unwrap_or("loss").split(',').take(MOST_CURVES).collect();
    // One look at the records, so that all curves and the position belong together.
    let (curves, seen): (Vec<Option<Curve>>, Seen) = app
        .views
        .with(&dir, |view| (names.iter().map(|name| view.curve(name, &window)).collect(), Seen::all(view)))?;
    let curves: Vec<Curve> = curves.into_iter().flatten().collect();
    Ok(json!({ "curves": to_json(&curves), "position": seen.to_string() }))
}

pub(crate) fn events(app: &App, call: &Call) -> Result<Value, ApiError> {
    let after = call.number("after")?.and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    let limit = call.number("limit")?.and_then(|n| usize::try_from(n).ok()).unwrap_or(1000).min(10_000);
    let (total, events) = app.views.with(&dir(app, call)?, |view| {
        let events: Vec<_> = view.events.iter().skip(after).take(limit).cloned().collect();
        (view.events.len(), events)
    })?;
    Ok(json!({ "total": total, "events": to_json(&events) }))
}

pub(crate) fn formation(app: &App, call: &Call) -> Result<Value, ApiError> {
    files::formation(&dir(app, call)?)
}

pub(crate) fn config(app: &App, call: &Call) -> Result<Value, ApiError> {
    Ok(json!({ "values": to_json(&files::config(&dir(app, call)?)?) }))
}

pub(crate) fn checkpoints(app: &App, call: &Call) -> Result<Value, ApiError> {
    Ok(json!({ "checkpoints": to_json(&files::list_checkpoints(&dir(app, call)?)) }))
}

pub(crate) fn files(app: &App, call: &Call) -> Result<Value, ApiError> {
    Ok(json!({ "files": to_json(&files::list_files(&dir(app, call)?)) }))
}

pub(crate) fn nodes(app: &App, _call: &Call) -> Result<Value, ApiError> {
    Ok(to_json(&app.domain_info()))
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
