//! Tensors that programs exchange: a store, and its clients.
//!
//! [`Server`] serves a store inside this program; `phalanx store serve` does so as a process of its own. [`Store`] is a
//! client: of either, of a plain Redis or Valkey, and of a cluster.

pub use phalanx_store::{Server, ServerConfig, StartError};
pub use phalanx_store_client::{
    AddressError, Dataset, KeyKind, Keys, MetaError, MetaValues, PassAnswer, Producer, ProducerOptions,
    ReadOptions, Store, StoreAddress, StoreError, StoreOptions, StreamError, StreamField, StreamInfo,
    StreamReader, StreamSamples, StreamTrainer, StreamWatch, TrainerAnswer,
};
pub use phalanx_streams::{
    Cursor, PartialBatch, ReadMode, ReaderEnding, ReaderSettings, Retention, StreamRefusal, StreamSettings,
    StreamWait,
};
