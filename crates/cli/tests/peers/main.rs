//! Nodes on networks of their own, and peers that mean harm.

mod hostile;
mod network;

use phalanx_testkit::Sandbox;

fn sandbox() -> Sandbox {
    Sandbox::new(env!("CARGO_BIN_EXE_phalanx"))
}
