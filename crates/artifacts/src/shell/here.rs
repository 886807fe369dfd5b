//! The same for programs that have no runtime, or are in the middle of one: on a thread of its own, with a runtime of its
//! own.

use super::files::blocking;
use super::progress::Progress;
use super::pull::Pulled;
use super::push::{Pushed, Selection};
use super::store::ArtifactStore;
use crate::error::ArtifactError;
use crate::url::ArtifactUrl;
use phalanx_records::run_dir::RunDir;
use std::path::{Path, PathBuf};

/// Pushes the run in a directory; see [`ArtifactStore::push`].
///
/// # Errors
/// There is no run, a process trains it, or it cannot be pushed.
pub fn push_run(
    url: &ArtifactUrl,
    run: &Path,
    selection: Selection,
    progress: &Progress,
) -> Result<Pushed, ArtifactError> {
    on_a_thread(run, async {
        let path = run.to_owned();
        let dir = blocking(move || Ok(RunDir::open(path)?)).await?;
        ArtifactStore::open_for_writing(url).await?.push(&dir, selection, progress).await
    })
}

/// Pulls a run by its identity or name; see [`ArtifactStore::pull`]. `dir_of` gives its directory from its name.
///
/// # Errors
/// There is none, or it cannot be pulled.
pub fn pull_run(
    url: &ArtifactUrl,
    id: &str,
    dir_of: impl FnOnce(&str) -> PathBuf + Send,
    progress: &Progress,
) -> Result<Pulled, ArtifactError> {
    on_a_thread(Path::new(id), async {
        let store = ArtifactStore::open(url).await?;
        let manifest = store.find(id).await?;
        store.pull(&manifest, &dir_of(&manifest.name), progress).await
    })
}

fn on_a_thread<T: Send>(
    what: &Path,
    work: impl Future<Output = Result<T, ArtifactError>> + Send,
) -> Result<T, ArtifactError> {
    let failed = |source| ArtifactError::Local { what: "start to move", path: what.to_owned(), source };
    let body = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        runtime.block_on(work)
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("artifacts".to_owned()).spawn_scoped(scope, body);
        thread.map_err(failed)?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
