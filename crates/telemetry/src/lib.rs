//! Numbers of a running process for Prometheus and other collectors.
//!
//! ```text
//!   node, driver, store ──► Source::collect ──► Exposition (OpenMetrics text) ──► MetricsServer: GET /metrics
//! ```
//! The server reads nothing but the head of a request, answers one request on a connection, and serves a bounded number
//! of connections, each for a bounded time: collectors need no more, and strangers get no more.

mod exposition;
mod process;
mod server;

pub use exposition::{Exposition, Kind, Sample};
pub use process::add_process;
pub use server::{MetricsAddress, MetricsError, MetricsServer, Source};
