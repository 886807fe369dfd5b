//! Threads, sockets and memory around the core.

mod api;
mod buffer;
mod channel;
mod completion;
mod connect;
mod engine;
mod execute;
mod numeric;
mod ring;
mod shared;
mod timeline;
mod tuning_log;

pub use api::{Ops, OpsOptions, Stall};
pub use buffer::{Operation, OutputTensor, RawTensor};
pub use completion::{OpHandle, Outcome};
