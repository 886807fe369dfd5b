//! Artifacts of runs: files of a run directory, in a directory, S3, Azure or Google Cloud.
//!
//! ```text
//! <prefix>/<uid>/model.safetensors …        the files of a run, by their paths in the run directory
//! <prefix>/<uid>/manifest-<n>.json          names, sizes and hashes; created last, so that it stands for a whole push
//! <prefix>/name/<name>/<uid>                finds a run by its name
//! <prefix>/lease/<name>/<version>           claims, see `core/lease.rs`
//! ```
//! What is sent, believed and won is decided in `core`, which opens nothing. `shell` reads and writes files and speaks to
//! stores through the `object_store` crate, over HTTP connections of its own (`shell/http.rs`).

mod core;
mod error;
mod shell;
mod url;

pub use core::manifest::{Manifest, ManifestFault, ManifestFile};
pub use core::path::{FilePath, PathFault};
pub use error::{ArtifactError, StoreError};
pub use shell::claim::{Claim, Claimed};
pub use shell::here::{pull_run, push_run};
pub use shell::progress::{Progress, Transfer};
pub use shell::pull::Pulled;
pub use shell::push::{Pushed, PushedFile, Selection};
pub use shell::store::ArtifactStore;
pub use url::{ARTIFACTS_VARIABLE, ArtifactUrl, Cloud};
