//! Helpers for black-box tests: real processes with deadlines, network namespaces, raw peers.
//!
//! There are no fixed sleeps: every wait is for an event, under a deadline that only a failing test reaches. Processes
//! and namespaces end when their values are dropped.

mod ended;
mod memory;
mod netns;
mod process;
mod raw;
mod replay;
mod runs;
mod sandbox;
mod turn;
mod watch;

pub use ended::is_alive;
pub use memory::{Counting, peak_of};
pub use netns::{Bridge, Cable, Namespace};
pub use process::{DEADLINE, Process, eventually, signal};
pub use raw::{Credentials, Raw, TlsRaw, Wire, hello, prove, tls};
pub use replay::Replayed;
pub use runs::{chaos_seed, digits, digits_data, example, keys, metrics, read_json};
pub use sandbox::{Host, Node, Sandbox};
pub use watch::NodeWatch;
