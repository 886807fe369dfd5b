//! Why a request is refused, as MLflow's clients understand it.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use phalanx_records::run_dir::RunDirError;
use serde_json::json;

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MlflowError {
    #[error("there is no {what} {name:?}")]
    NotFound { what: &'static str, name: String },
    #[error("there already is an experiment {name:?}")]
    ExperimentExists { name: String },
    #[error("parameter {key:?} is {old:?} already and cannot become {new:?}")]
    ParamChanged { key: String, old: String, new: String },
    #[error("{0}")]
    Invalid(String),
    #[error("{path:?} is no path of an artifact")]
    Path { path: String },
    #[error("there is no route {path:?}")]
    Route { path: String },
    #[error("could not {what}")]
    Io { what: &'static str, source: std::io::Error },
    #[error("the run cannot be recorded")]
    Run(#[from] RunDirError),
    #[error("the request was given up")]
    GivenUp,
}

impl MlflowError {
    pub(crate) fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { what, source }
    }

    /// The status, and the word by which clients tell errors apart.
    fn code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::NotFound { .. } => (StatusCode::NOT_FOUND, "RESOURCE_DOES_NOT_EXIST"),
            Self::Route { .. } => (StatusCode::NOT_FOUND, "ENDPOINT_NOT_FOUND"),
            Self::ExperimentExists { .. } => (StatusCode::BAD_REQUEST, "RESOURCE_ALREADY_EXISTS"),
            Self::ParamChanged { .. } | Self::Invalid(_) | Self::Path { .. } => {
                (StatusCode::BAD_REQUEST, "INVALID_PARAMETER_VALUE")
            }
            Self::Io { .. } | Self::Run(_) | Self::GivenUp => {
                (StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL_ERROR")
            }
        }
    }
}

impl IntoResponse for MlflowError {
    fn into_response(self) -> Response {
        let (status, code) = self.code();
        let message = phalanx_records::with_causes(&self);
        (status, Json(json!({ "error_code": code, "message": message }))).into_response()
    }
}
