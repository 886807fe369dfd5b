//! Samples: two vectors, files, or a source of your own.
//!
//! ```
//! use phalanx::data::Dataset;
//!
//! let x = vec![0.0, 0.1, 0.9, 1.0];
//! let classes = vec![0usize, 1];
//! let data = Dataset::from_f32(x, &[2], classes)?;
//! assert_eq!(data.fixed_len()?, 2);
//! # Ok::<(), phalanx::Error>(())
//! ```
//! [`Dataset::open`] reads npy, npz, idx, CSV, safetensors and parquet files and folders of images, as run files name
//! them. [`Source`] is what to implement for samples from anywhere else; [`conformance`] is a suite that every source
//! should pass.

pub use phalanx_data::conformance;
pub use phalanx_data::{
    Batch, Columns, Crop, DataError, Dataset, Extent, Format, LabelCheck, LabelSchema, Labels, Loaded,
    Loader, LoaderOptions, Meaning, Origin, Rows, Schema, Sides, Source, SourceSpec, Target, Transform,
};
