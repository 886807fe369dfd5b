//! MLflow's tracking routes: a program with `MLFLOW_TRACKING_URI` logs its runs into run directories, with the client
//! that it has.
//!
//! ```text
//!   mlflow client ──► router ──► Tracking (files) ──► runs/<name>/: run.toml, state.json, mlflow.json, metrics.jsonl,
//!                                                     events.jsonl, annotations.jsonl, artifacts/
//! ```
//! A run of MLflow is a run directory like any other: its parameters are the settings of `run.toml`, its tags are
//! annotations, its identity is the `uid` of its events. The ledger, plots and exports read it without knowing MLflow.

mod artifacts;
mod error;
mod experiments;
mod filter;
mod messages;
mod routes;
mod run;
mod tracking;

pub use error::MlflowError;
pub use routes::router;
