//! What black-box tests share: real processes with deadlines, network namespaces, raw peers.
//!
//! Nothing here waits a fixed time: every wait is for an event, under a deadline that only a
//! failing test reaches. Processes and namespaces end with the values that stand for them.

mod ended;
mod netns;
mod process;
mod raw;
mod replay;
mod sandbox;
mod watch;

pub use ended::is_alive;
pub use netns::{Bridge, Cable, Namespace};
pub use process::{DEADLINE, Process, eventually};
pub use raw::{Credentials, Raw, TlsRaw, Wire, hello, prove, tls};
pub use replay::Replayed;
pub use sandbox::{Host, Node, Sandbox};
pub use watch::NodeWatch;
