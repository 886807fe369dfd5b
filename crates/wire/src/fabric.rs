//! What members of a domain say to each other on a control connection.

use crate::detail::{Bounded, Detail};
use crate::node::NodeStatus;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

/// A message between two members, apart from those of the mechanisms above.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FabricMessage {
    /// Shows that the sender lives, when it has had nothing else to say.
    Heartbeat,
    /// The sender's own status, on every change.
    Status(NodeStatus),
    /// Everyone the sender knows of, once at the start and when it learns of somebody new.
    Known(Vec<NodeStatus>),
    /// The sender leaves on purpose.
    Goodbye,
    /// Asks the side that dialed to open the bulk connection.
    OpenBulk,
    Publish {
        topic: SmolStr,
        body: Bytes,
    },
    Request {
        id: u64,
        service: SmolStr,
        deadline_ms: u64,
        body: Bytes,
    },
    Reply {
        id: u64,
        result: Result<Bytes, ReplyError>,
    },
}

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    #[error("the node offers no service {service:?}")]
    NoService { service: SmolStr },
    #[error("the service refused: {message}")]
    Refused {
        #[serde(with = "Bounded::<{ Detail::MAX }>")]
        message: String,
    },
    #[error("the answer has {len} bytes, more than a message may have")]
    TooLong { len: u64 },
}
