//! What `phalanx launch` and the nodes that run its ranks say to each other.
//!
//! ```text
//!   launcher ── opens a stream, then asks LAUNCH_SERVICE: Reserve ──► node: claims cores
//!            ◄── ReserveReply ──
//!            ── on the stream: ToRankHost::Start, then signals ─────► node: runs the rank
//!            ◄── FromRankHost: output, at last how the rank ended ──
//! ```
//! The stream is the rank: when either end closes it, the rank ends and its cores are free.

use crate::detail::Detail;
use crate::usage::Shortage;
use serde::{Deserialize, Serialize};

/// The service of nodes that run ranks.
pub const LAUNCH_SERVICE: &str = "launch";

/// The longest piece of output in one message.
pub const MAX_OUTPUT: usize = 64 << 10;

/// Asks a node for cores for one rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserve {
    /// The key of the stream that the launcher has opened.
    pub stream: [u8; 16],
    /// The cores of the rank.
    pub cores: u32,
    /// How long the node may wait for the cores to become free.
    pub patience_ms: u32,
}

/// The answer to [`Reserve`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReserveReply {
    /// The cores are reserved for as long as the stream is open.
    Reserved,
    /// The cores are not free.
    Shortage(Shortage),
    /// The stream was not there.
    NoStream { detail: Detail },
}

/// From the launcher to a node, on the stream of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToRankHost {
    /// Start the rank. The first message.
    Start(RankProgram),
    /// Send the rank and its children a signal.
    Signal(RankSignal),
}

/// A program and what it finds when it starts. Names are bytes, as the system has them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankProgram {
    /// The program and its arguments.
    pub command: Vec<Vec<u8>>,
    /// Variables beside those of the node.
    pub variables: Vec<(Vec<u8>, Vec<u8>)>,
    /// Variables that are set only if the node has none of the name.
    pub defaults: Vec<(Vec<u8>, Vec<u8>)>,
    /// Where it runs.
    pub directory: Vec<u8>,
}

/// A signal that a launcher sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RankSignal {
    /// SIGTERM: end, in your own time.
    Terminate,
    /// SIGKILL.
    Kill,
}

/// From a node to the launcher, on the stream of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromRankHost {
    /// A line of the rank's standard output, at most [`MAX_OUTPUT`] bytes.
    Out(Vec<u8>),
    /// The same of its standard error.
    Err(Vec<u8>),
    /// It ended with a code. One of the last three is the last message.
    Exited { code: i32 },
    /// It was ended by a signal.
    Signaled { signal: i32 },
    /// It could not be started.
    NotStarted { detail: Detail },
}
