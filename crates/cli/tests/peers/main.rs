//! Nodes on separate networks, and hostile peers.

mod hostile;
mod network;

use phalanx_testkit::Sandbox;

fn sandbox() -> Sandbox {
    Sandbox::new(env!("CARGO_BIN_EXE_phalanx"))
}
