//! How ranks find each other.
//!
//! ```text
//!   process ── prove the secret, Join (where it listens) ──► server: of `phalanx launch`, or of rank 0
//!   process ◄── Formed (epoch, rank, where all listen), then one exchange of bytes ── server
//!   rank 0  ◄── Newcomers: processes wait to become ranks ── server
//! ```

mod arrivals;
mod auth;
mod client;
mod environment;
mod frame;
mod mesh;
mod server;

pub use auth::Secret;
pub use environment::{Meeting, RendezvousError};
pub use server::RendezvousServer;

pub(crate) use arrivals::Arrivals;
pub(crate) use client::{Formed, meet};
pub(crate) use mesh::{Lane, Mesh};
