//! Why nodes could not start.

use phalanx_jobs::NodeError;
use phalanx_types::Class;

/// Why nodes could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodesError {
    #[error("could not start a local node")]
    Spawn(#[source] std::io::Error),
    #[error("a local node ended before it had joined")]
    Ended,
    #[error("could not start a thread")]
    Thread(#[source] std::io::Error),
    #[error("could not start a runtime")]
    Runtime(#[source] std::io::Error),
    #[error(transparent)]
    Node(#[from] NodeError),
    #[error("there is no `phalanx` program beside {} or on PATH", beside)]
    NoProgram { beside: String },
}

impl NodesError {
    pub fn class(&self) -> Class {
        Class::Fatal
    }

    /// What the user can do about it, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoProgram { .. } => {
                Some("name it with PHALANX_NODE_PROGRAM, or let nodes be threads of this process".to_owned())
            }
            _ => None,
        }
    }
}
