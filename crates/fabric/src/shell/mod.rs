//! Sockets, files and timers: carries out what the core decides.

mod accept;
mod access;
mod bulk;
mod dial;
mod driver;
mod fabric;
mod handshake;
mod inner;
mod link;
mod link_io;
mod mdns;
mod refusal;
mod relay;
mod requests;
mod start;
mod stream;
mod streams;
mod topics;
mod unfinished;
mod watch;

pub use fabric::{Fabric, Unreached};
pub use link::{LinkEvent, Peer};
pub use relay::{Relay, RelayConfig, RelayError};
pub use streams::{StreamKey, StreamSocket};
pub use topics::{Published, Subscription};
pub use watch::NodeWatch;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex whose holders never leave its data half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
