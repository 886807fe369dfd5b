//! A client of the tensor store: tensors, datasets and lists by name.
//!
//! ```text
//!   Store ──► Keys (prefixes)      which key a name means
//!         ──► Backend              how a tensor lies in the server: our store, or a plain Redis or Valkey
//!         ──► Memory               large values through shared memory, on the server's host
//!         ──► Connection           one socket, replies in order;  Cluster: one for each node
//! ```
//! Calls block; the client may be used by many threads, which take turns. Names and layouts are SmartRedis's own, so
//! both see each other's data. A lost connection is opened again, and a command is repeated where doing it twice is
//! doing it once. In a cluster commands follow their keys to other nodes, and to a replica that takes over.

mod address;
mod backend;
mod cluster;
mod connection;
mod dataset;
mod dial;
mod domain;
mod error;
mod keys;
mod lists;
mod memory;
mod metadata;
mod node_link;
mod patience;
mod reading;
mod redirect;
mod slot_map;
mod store;
mod stream;
mod summary;
mod tensors;
mod tls;
mod url;
mod views;

pub use address::{AddressError, StoreAddress};
pub use dataset::Dataset;
pub use error::StoreError;
pub use keys::Keys;
pub use metadata::{MetaError, MetaValues};
pub use patience::{Interrupt, Interruption};
pub use store::{Store, StoreOptions};
pub use stream::{
    PassAnswer, Producer, ProducerOptions, ReadOptions, StreamError, StreamField, StreamInfo, StreamReader,
    StreamSamples, StreamTrainer, StreamWatch, TrainerAnswer, WaitObserver,
};
pub use summary::StoreSummary;
pub use tensors::KeyKind;
