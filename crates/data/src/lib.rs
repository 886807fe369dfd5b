//! Data loading: samples from files of many formats, read into batches of `f32`.
//!
//! Owns formats, the order of samples in a pass, shards, augmentation and prefetching. Knows nothing about models,
//! networks or devices. Everything random depends only on a seed, the pass and the index of the sample, so a pass is
//! the same whatever the batch size, the threads or the shard.
//!
//! ```text
//! SourceSpec -> dyn Source -> Dataset --read--> Batch --Transform--> Batch
//!                                \------- Loader: a thread that does both, a few batches ahead
//! ```
//!
//! [`Source`] is the trait behind all samples: arrays in memory, files, image folders, and types of
//! your own. [`Dataset`] is the handle through which they are read; it numbers classes and checks
//! every label that is read against a [`LabelCheck`].
//!
//! Files are not trusted: declared sizes are checked against the actual bytes before anything is allocated, and a bad
//! file is an error that names the place.

mod array;
mod arrays;
mod batch;
pub mod conformance;
mod crop;
mod dataset;
mod draw;
mod element;
mod error;
mod formats;
mod inflate;
mod labels;
mod limit;
mod loader;
mod map;
mod names;
mod order;
mod shard;
mod source;
mod spec;
mod tensor_files;
mod transform;
mod vectors;

pub use batch::Batch;
pub use crop::{Crop, Sides};
pub use dataset::{Dataset, Target};
pub use element::{Inexact, convert_elements};
pub use error::{DataError, Fault, Origin, TransformError};
pub use labels::LabelCheck;
pub use limit::{Limit, memory};
pub use loader::{Loaded, Loader, LoaderOptions, PassBatches, Position};
pub use map::{map as map_file, map_open};
pub use order::Order;
pub use phalanx_types::BatchPart;
pub use shard::Shard;
pub use source::{Extent, LabelSchema, Meaning, Rows, Schema, Source};
pub use spec::{Columns, Format, SourceSpec};
pub use tensor_files::{WriteTensorsError, npy_header, read_tensors, read_tensors_within, write_tensors};
pub use transform::{Prepared, Transform};
pub use vectors::Labels;
