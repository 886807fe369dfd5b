//! The store on sockets: threads that read requests, execute them where they arrived, and write replies.
//!
//! ```text
//! listener ──▶ IO thread ──▶ connection ──▶ Hub (one short lock) ──▶ Keyspace
//!                               ▲  messages of other clients, by mailbox  │
//!                               └─────────────────────────────────────────┘
//! ```

mod clock;
mod config;
mod connection;
mod error;
mod executed;
mod handle;
mod hang_up;
mod held_replies;
mod housekeeping;
mod hub;
mod io_thread;
mod key_versions;
mod listen;
mod long_replies;
mod mailbox;
mod model_run;
mod persist;
mod server;
mod shards;
mod sharing;
mod spill;
mod tls;

pub use config::ServerConfig;
pub use error::StartError;
pub use handle::StoreClient;
pub use model_run::{ModelAnswer, ModelDone, ModelFailure, ModelResult, ModelRunner};
pub use server::{Server, ShardMembers};
pub use shards::{PeerAccess, ShardConfig};
pub use tls::{ServerTls, TlsFilesError};
