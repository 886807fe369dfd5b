//! What can go wrong when a request is answered, and when a dashboard is started.

use crate::actions::Refusal;
use axum::http::StatusCode;
use phalanx_ledger::LedgerError;
use phalanx_records::run_dir::RunDirError;
use phalanx_search_results::follow::FollowError;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a request of the API cannot be answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("there is no {what} {name:?}")]
    NotFound { what: &'static str, name: String },
    #[error("{name} cannot be {value:?}: {expected}")]
    Parameter { name: &'static str, value: String, expected: &'static str },
    #[error("the body of the request cannot be understood")]
    Body(#[source] serde_json::Error),
    #[error("the search cannot be read")]
    Search(#[from] FollowError),
    #[error("records of the run cannot be read")]
    Records(#[from] RunDirError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("{what} needs the ledger, which is not used now; words are searched without it")]
    NeedsLedger { what: &'static str },
    #[error("the files of this run are not here, but at {place}")]
    Elsewhere { place: String },
    #[error("the run cannot be {action}: {why}")]
    Action { action: &'static str, why: Refusal },
    #[error("could not read {what}")]
    Read {
        what: &'static str,
        #[source]
        source: std::io::Error,
    },
    #[error("{what} is not known without a domain; start the dashboard where nodes are")]
    NoDomain { what: &'static str },
    #[error("{node} does not answer")]
    NoAnswer { node: String },
    #[error("too many streams are open")]
    TooMany,
    #[error("the server is ending")]
    Ending,
}

impl ApiError {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::NotFound { .. } => StatusCode::NOT_FOUND,
            Self::Parameter { .. } | Self::Body(_) => StatusCode::BAD_REQUEST,
            Self::Records(RunDirError::NotARun { .. }) => StatusCode::NOT_FOUND,
            Self::Records(_) | Self::Search(_) | Self::Read { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Ledger(error) if error.is_usage() => StatusCode::BAD_REQUEST,
            Self::Ledger(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::NeedsLedger { .. }
            | Self::Elsewhere { .. }
            | Self::Action { .. }
            | Self::NoDomain { .. } => StatusCode::CONFLICT,
            Self::NoAnswer { .. } => StatusCode::BAD_GATEWAY,
            Self::TooMany | Self::Ending => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl ApiError {
    /// What the user can do about it, if that is known.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Ledger(error) => error.hint(),
            Self::Records(error) => error.hint(),
            _ => None,
        }
    }
}

/// Why a dashboard cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    #[error(
        "a dashboard at {address} needs a domain with a key: other hosts reach it, and it speaks TLS then"
    )]
    Exposed { address: SocketAddr },
    #[error("could not listen at {address}")]
    Bind {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("the system gave no random numbers for a token")]
    Token,
    #[error("could not make a certificate")]
    Certificate(#[from] phalanx_fabric::KeyError),
    #[error("could not follow changes in {}", path.display())]
    Follow {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the dashboard's own name is not one of a node")]
    Name(#[from] phalanx_types::IdError),
}
