//! The one place that turns errors into exceptions of `phalanx.errors`.

use phalanx::Error;
use phalanx::artifacts::ArtifactError;
use phalanx::ledger::LedgerError;
use phalanx::records::Blame;
use phalanx_ops::{OpFailure, OpsError};
use phalanx_search_driver::SearchError;
use phalanx_store::StartError;
use phalanx_store_client::{StoreError, StreamError};
use phalanx_streams::StreamRefusal;
use phalanx_types::Class;
use pyo3::prelude::*;

/// An error on its way to Python: which exception it becomes, why, and what to do about it.
#[derive(Debug)]
pub(crate) struct Failure {
    exception: &'static str,
    reason: String,
    hint: Option<String>,
    /// What a handler of a signal raised during a wait is raised as it is.
    raised: Option<Box<PyErr>>,
}

impl Failure {
    fn new(exception: &'static str, reason: String, hint: Option<String>) -> Self {
        Self { exception, reason, hint, raised: None }
    }

    /// Something that was given cannot be used.
    pub(crate) fn input(reason: impl Into<String>) -> Self {
        Self::new("InputError", reason.into(), None)
    }

    /// A setting cannot be used.
    pub(crate) fn config(error: &phalanx::train::config::ConfigError) -> Self {
        Self::new("ConfigError", with_causes(error), error.hint())
    }

    /// No nodes hold the run.
    pub(crate) fn training(error: &dyn std::error::Error) -> Self {
        Self::new("TrainingError", with_causes(error), None)
    }

    /// A node could not join its domain, or the network failed.
    pub(crate) fn machine(error: &dyn std::error::Error) -> Self {
        Self::new("MachineError", with_causes(error), None)
    }

    /// An operation of ranks did not happen.
    pub(crate) fn operation(error: &OpsError) -> Self {
        let exception = match error {
            OpsError::Failed(failure) => match failure {
                OpFailure::Mismatch { .. } => "MismatchError",
                OpFailure::Stalled { .. } => "StallError",
                OpFailure::ShutDown { .. } => "RankShutDown",
                OpFailure::NoSet { .. } => "OperandError",
                _ => "OperationError",
            },
            OpsError::PeerLost { .. } => "PeerLost",
            OpsError::ShutDown { .. } => "RankShutDown",
            OpsError::Duplicate { .. } => "DuplicateName",
            OpsError::NotInSet { .. }
            | OpsError::NoRank { .. }
            | OpsError::Length { .. }
            | OpsError::Unsupported { .. } => "OperandError",
            OpsError::Forked { .. } => "ForkError",
            OpsError::Rendezvous(_) => "MachineError",
            _ => "OperationError",
        };
        Self::new(exception, with_causes(error), error.hint().map(str::to_owned))
    }

    /// The store did not do what was asked.
    pub(crate) fn store(error: &StoreError) -> Self {
        if let StoreError::Interrupted { source } = error {
            let raised = Python::attach(|py| Some(Box::new(source.downcast_ref::<PyErr>()?.clone_ref(py))));
            return Self { raised, ..Self::new("PhalanxError", with_causes(error), None) };
        }
        let exception = match error {
            StoreError::Address(_)
            | StoreError::Room { .. }
            | StoreError::Tls { .. }
            | StoreError::TlsFile { .. }
            | StoreError::DomainKey(_)
            | StoreError::OtherDomain { .. }
            | StoreError::NoKey { .. }
            | StoreError::TooLarge { .. } => "InputError",
            StoreError::Connect { .. }
            | StoreError::Lost { .. }
            | StoreError::NoNode { .. }
            | StoreError::NoStore { .. }
            | StoreError::Discovery { .. }
            | StoreError::Down { .. } => "StoreLost",
            StoreError::Missing { .. } => "StoreKeyError",
            StoreError::TimedOut { .. } => "StoreTimeout",
            StoreError::Full { .. } => "StoreFull",
            _ => "StoreError",
        };
        Self::new(exception, with_causes(error), error.hint().map(str::to_owned))
    }

    /// A stream did not do what was asked.
    pub(crate) fn stream(error: &StreamError) -> Self {
        let exception = match error {
            StreamError::Store(error) => return Self::store(error),
            StreamError::TimedOut { .. } | StreamError::NotThere { .. } | StreamError::NotRecorded { .. } => {
                "StoreTimeout"
            }
            StreamError::Refused(StreamRefusal::UnknownStream) => "StoreKeyError",
            StreamError::Name(_) | StreamError::Upload { .. } => "InputError",
            _ => "StoreError",
        };
        Self::new(exception, with_causes(error), error.hint().map(str::to_owned))
    }

    /// The index of runs did not answer.
    pub(crate) fn ledger(error: &LedgerError) -> Self {
        let exception = if error.is_usage() { "InputError" } else { "MachineError" };
        Self::new(exception, with_causes(error), error.hint())
    }

    /// A run could not be pushed or pulled.
    pub(crate) fn artifacts(error: &ArtifactError) -> Self {
        let exception = if error.is_usage() { "InputError" } else { "MachineError" };
        Self::new(exception, with_causes(error), error.hint())
    }

    /// A search could not begin, or its directory not be written.
    pub(crate) fn search(error: &SearchError) -> Self {
        let exception = if error.blame() == Blame::Input { "InputError" } else { "MachineError" };
        Self::new(exception, with_causes(error), error.hint())
    }

    /// A store could not be served.
    pub(crate) fn serving(error: &StartError) -> Self {
        let exception = match error {
            StartError::NoAddress | StartError::EmptyPassword | StartError::Exposed { .. } => "InputError",
            _ => "MachineError",
        };
        let hint = match error {
            StartError::Exposed { .. } => Some("give a `password`".to_owned()),
            StartError::Bind { .. } => Some("give another address; port 0 takes any that is free".to_owned()),
            StartError::Persist { .. }
            | StartError::PersistedRecord { .. }
            | StartError::PersistedStream { .. }
            | StartError::PersistedValue { .. } => error.hint().map(str::to_owned),
            _ => None,
        };
        Self::new(exception, with_causes(error), hint)
    }

    /// The process has not met other ranks, or has left them.
    pub(crate) fn not_a_rank() -> Self {
        let reason = "this process is not a rank".to_owned();
        Self::new("NotInitialized", reason, Some("call `init()` first".to_owned()))
    }

    /// The process was forked after the library was used in its parent.
    pub(crate) fn forked() -> Self {
        Self::new(
            "ForkError",
            "this process was forked from one that had used Phalanx, whose threads it does not have"
                .to_owned(),
            Some("start processes with `multiprocessing.get_context(\"spawn\")`".to_owned()),
        )
    }

    /// A mistake of the library itself.
    pub(crate) fn bug(what: String) -> Self {
        Self::new(
            "InternalError",
            format!("a mistake in Phalanx: {what}"),
            Some("please report it with what led to it".to_owned()),
        )
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// An error and its causes in one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exception = match (error.class(), error.blame()) {
            (Class::Bug, _) => "InternalError",
            (_, Blame::Input) => "InputError",
            (_, Blame::Work) => "TrainingError",
            (_, Blame::Machine) => "MachineError",
        };
        let hint = match &error {
            Error::NoNodes { nodes } => Some(format!("say `local={nodes}` or `nodes=\"a domain\"`")),
            other => other.hint(),
        };
        Self::new(exception, with_causes(&error), hint)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        if let Some(raised) = failure.raised {
            return *raised;
        }
        Python::attach(|py| {
            let exception = py
                .import("phalanx.errors")
                .and_then(|module| module.getattr(failure.exception)?.call1((failure.reason, failure.hint)));
            exception.map_or_else(|error| error, PyErr::from_value)
        })
    }
}
