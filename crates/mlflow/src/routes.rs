//! The routes.

use crate::artifacts::{self, Upload};
use crate::error::MlflowError;
use crate::messages::{
    CreateExperiment, CreateRun, DeleteTag, ListArtifacts, LogBatch, LogKeyValue, LogMetric, MetricHistory,
    OfExperiment, OfRun, SearchExperiments, SearchRuns, UpdateRun,
};
use crate::run::{self, Recorded};
use crate::tracking::Tracking;
use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use futures_core::Stream;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// The most bytes of a request that is no artifact. MLflow's clients send at most a megabyte at once.
const REQUEST_BYTES: usize = 8 << 20;
/// Parts of an artifact between the disk and the network.
const BLOCKS: usize = 4;

type Shared = State<Arc<Tracking>>;
type Answer = Result<Json<Value>, MlflowError>;

/// MLflow's tracking routes over the run directories in `runs`. Who may use them is for the server to decide that
/// mounts them: they read and write runs.
pub fn router(runs: impl Into<PathBuf>) -> Router {
    let tracking = Arc::new(Tracking::new(runs.into()));
    let mut router = Router::new();
    // The page of MLflow's own user interface uses the second prefix.
    for prefix in ["/api/2.0", "/ajax-api/2.0"] {
        router = router.nest(prefix, api());
    }
    router.with_state(tracking)
}

fn api() -> Router<Arc<Tracking>> {
    let mlflow = Router::new()
        .route("/experiments/create", post(create_experiment))
        .route("/experiments/get", get(get_experiment))
        .route("/experiments/get-by-name", get(get_experiment))
        .route("/experiments/search", get(search_experiments_query).post(search_experiments))
        .route("/experiments/list", get(search_experiments_query))
        .route("/runs/create", post(create_run))
        .route("/runs/get", get(get_run))
        .route("/runs/update", post(update_run))
        .route("/runs/delete", post(delete_run))
        .route("/runs/restore", post(restore_run))
        .route("/runs/search", post(search_runs))
        .route("/runs/log-metric", post(log_metric))
        .route("/runs/log-parameter", post(log_param))
        .route("/runs/set-tag", post(set_tag))
        .route("/runs/delete-tag", post(delete_tag))
        .route("/runs/log-batch", post(log_batch))
        .route("/metrics/get-history", get(history))
        .route("/artifacts/list", get(list_run_artifacts))
        .route("/logged-models/search", post(no_models))
        .fallback(no_route)
        .layer(DefaultBodyLimit::max(REQUEST_BYTES));
    let files = Router::new()
        .route("/artifacts", get(list_artifacts))
        .route("/artifacts/", get(list_artifacts))
        .route("/artifacts/{*path}", get(get_artifact).put(put_artifact).delete(delete_artifact))
        .fallback(no_route);
    Router::new().nest("/mlflow", mlflow).nest("/mlflow-artifacts", files)
}

/// Clients ask for models beside the artifacts of a run; there are none.
async fn no_models() -> Json<Value> {
    Json(json!({ "models": [] }))
}

async fn no_route(uri: Uri) -> MlflowError {
    MlflowError::Route { path: uri.path().to_owned() }
}

/// Does what blocks on a thread for it.
async fn blocking<T: Send + 'static>(
    tracking: Arc<Tracking>,
    work: impl FnOnce(&Tracking) -> Result<T, MlflowError> + Send + 'static,
) -> Result<T, MlflowError> {
    tokio::task::spawn_blocking(move || work(&tracking)).await.map_err(|_ended| MlflowError::GivenUp)?
}

/// Reads a request. Clients do not always name its type, so that only the body counts.
fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, MlflowError> {
    let body = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body).map_err(|error| MlflowError::Invalid(error.to_string()))
}

fn run_answer(run: &Recorded) -> Json<Value> {
    Json(json!({ "run": run.to_json() }))
}

async fn create_experiment(State(tracking): Shared, body: Bytes) -> Answer {
    let asked: CreateExperiment = read(&body)?;
    let made =
        blocking(tracking, move |tracking| tracking.create_experiment(&asked.name, asked.tags)).await?;
    Ok(Json(json!({ "experiment_id": made.experiment_id })))
}

async fn get_experiment(State(tracking): Shared, Query(asked): Query<OfExperiment>) -> Answer {
    let found = blocking(tracking, move |tracking| match asked.experiment_name.as_str() {
        "" => tracking.experiments().by_id(&asked.experiment_id),
        name => tracking.experiments().by_name(name),
    });
    Ok(Json(json!({ "experiment": found.await?.to_json() })))
}

async fn search_experiments_query(State(tracking): Shared, Query(asked): Query<SearchExperiments>) -> Answer {
    all_experiments(tracking, asked).await
}

async fn search_experiments(State(tracking): Shared, body: Bytes) -> Answer {
    all_experiments(tracking, read(&body)?).await
}

async fn all_experiments(tracking: Arc<Tracking>, asked: SearchExperiments) -> Answer {
    if !asked.filter.is_empty() {
        return Err(MlflowError::Invalid(
            "experiments are not filtered here: leave the filter out".to_owned(),
        ));
    }
    let mut all = blocking(tracking, |tracking| tracking.experiments().all()).await?;
    all.reverse();
    let all: Vec<Value> = all.iter().map(crate::experiments::Experiment::to_json).collect();
    Ok(Json(json!({ "experiments": all })))
}

async fn create_run(State(tracking): Shared, body: Bytes) -> Answer {
    let asked: CreateRun = read(&body)?;
    Ok(run_answer(&blocking(tracking, move |tracking| tracking.create_run(asked)).await?))
}

async fn get_run(State(tracking): Shared, Query(asked): Query<OfRun>) -> Answer {
    Ok(run_answer(&blocking(tracking, move |tracking| tracking.get_run(asked.id())).await?))
}

async fn update_run(State(tracking): Shared, body: Bytes) -> Answer {
    let asked: UpdateRun = read(&body)?;
    let run = blocking(tracking, move |tracking| tracking.update_run(&asked)).await?;
    Ok(Json(json!({ "run_info": run.to_json()["info"] })))
}

async fn delete_run(State(tracking): Shared, body: Bytes) -> Answer {
    set_deleted(tracking, read(&body)?, true).await
}

async fn restore_run(State(tracking): Shared, body: Bytes) -> Answer {
    set_deleted(tracking, read(&body)?, false).await
}

async fn set_deleted(tracking: Arc<Tracking>, asked: OfRun, deleted: bool) -> Answer {
    blocking(tracking, move |tracking| tracking.set_deleted(asked.id(), deleted)).await?;
    Ok(Json(json!({})))
}

async fn search_runs(State(tracking): Shared, body: Bytes) -> Answer {
    let asked: SearchRuns = read(&body)?;
    let (found, next) = blocking(tracking, move |tracking| tracking.search(&asked)).await?;
    let mut answer = json!({ "runs": found.iter().map(Recorded::to_json).collect::<Vec<_>>() });
    if let Some(next) = next {
        answer["next_page_token"] = next.into();
    }
    Ok(Json(answer))
}

async fn log(tracking: Arc<Tracking>, batch: LogBatch) -> Answer {
    blocking(tracking, move |tracking| tracking.log(&batch)).await?;
    Ok(Json(json!({})))
}

async fn log_batch(State(tracking): Shared, body: Bytes) -> Answer {
    log(tracking, read(&body)?).await
}

async fn log_metric(State(tracking): Shared, body: Bytes) -> Answer {
    let LogMetric { run, point } = read(&body)?;
    log(tracking, LogBatch { run, metrics: vec![point], params: Vec::new(), tags: Vec::new() }).await
}

async fn log_param(State(tracking): Shared, body: Bytes) -> Answer {
    let LogKeyValue { run, pair } = read(&body)?;
    log(tracking, LogBatch { run, metrics: Vec::new(), params: vec![pair], tags: Vec::new() }).await
}

async fn set_tag(State(tracking): Shared, body: Bytes) -> Answer {
    let LogKeyValue { run, pair } = read(&body)?;
    log(tracking, LogBatch { run, metrics: Vec::new(), params: Vec::new(), tags: vec![pair] }).await
}

async fn delete_tag(State(tracking): Shared, body: Bytes) -> Answer {
    let DeleteTag { run, key } = read(&body)?;
    blocking(tracking, move |tracking| tracking.delete_tag(run.id(), &key)).await?;
    Ok(Json(json!({})))
}

async fn history(State(tracking): Shared, Query(asked): Query<MetricHistory>) -> Answer {
    let points =
        blocking(tracking, move |tracking| tracking.history(asked.run.id(), &asked.metric_key)).await?;
    Ok(Json(json!({ "metrics": points.iter().map(run::point_json).collect::<Vec<_>>() })))
}

/// A run's artifacts by MLflow's older route.
async fn list_run_artifacts(
    State(tracking): Shared,
    Query(of): Query<OfRun>,
    Query(asked): Query<ListArtifacts>,
) -> Answer {
    let path = format!("{}/{}", of.id(), asked.path);
    let root = format!("mlflow-artifacts:/{}", of.id());
    let files = blocking(tracking, move |tracking| list(tracking, &path)).await?;
    Ok(Json(json!({ "root_uri": root, "files": files })))
}

async fn list_artifacts(State(tracking): Shared, Query(asked): Query<ListArtifacts>) -> Answer {
    let files = blocking(tracking, move |tracking| list(tracking, &asked.path)).await?;
    Ok(Json(json!({ "files": files })))
}

fn list(tracking: &Tracking, path: &str) -> Result<Vec<Value>, MlflowError> {
    let (id, below) = artifacts::split(path)?;
    artifacts::list(&run::artifacts(&tracking.dir(id)?), &below)
}

async fn put_artifact(State(tracking): Shared, Path(path): Path<String>, body: Body) -> Answer {
    let begin = move |tracking: &Tracking| {
        let (id, below) = artifacts::split(&path)?;
        Upload::begin(&run::artifacts(&tracking.dir(id)?), &below)
    };
    let mut upload = blocking(tracking.clone(), begin).await?;
    let mut body = body;
    while let Some(frame) = body.frame().await {
        // A client that is gone leaves nothing behind.
        let Ok(data) = frame.map_err(|_gone| MlflowError::GivenUp)?.into_data() else { continue };
        let written = move |_: &Tracking| upload.write(&data).map(|()| upload);
        upload = blocking(tracking.clone(), written).await?;
    }
    blocking(tracking, move |_| upload.finish()).await?;
    Ok(Json(json!({})))
}

async fn delete_artifact(State(tracking): Shared, Path(path): Path<String>) -> Answer {
    let remove = move |tracking: &Tracking| {
        let (id, below) = artifacts::split(&path)?;
        artifacts::remove(&run::artifacts(&tracking.dir(id)?), &below)
    };
    blocking(tracking, remove).await?;
    Ok(Json(json!({})))
}

async fn get_artifact(State(tracking): Shared, Path(path): Path<String>) -> Result<Response, MlflowError> {
    let open = move |tracking: &Tracking| {
        let (id, below) = artifacts::split(&path)?;
        artifacts::open(&run::artifacts(&tracking.dir(id)?), &below)
    };
    let (mut file, size) = blocking(tracking, open).await?;
    let (send, blocks) = mpsc::channel(BLOCKS);
    tokio::task::spawn_blocking(move || {
        loop {
            let block = artifacts::read_block(&mut file).map(Bytes::from);
            let is_end = block.as_ref().is_ok_and(Bytes::is_empty);
            let failed = block.is_err();
            if is_end || send.blocking_send(block).is_err() || failed {
                return;
            }
        }
    });
    let mut response = Body::from_stream(Blocks(blocks)).into_response();
    // Whatever a client stored, a browser downloads it and does not run it.
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::CONTENT_LENGTH, HeaderValue::from(size)),
    ];
    response.headers_mut().extend(headers.map(|(name, value)| (Some(name), value)));
    Ok(response)
}

/// Parts of a file as they are read.
struct Blocks(mpsc::Receiver<Result<Bytes, std::io::Error>>);

impl Stream for Blocks {
    type Item = Result<Bytes, std::io::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}
