//! What a caller may watch while files are moved.

use std::sync::Arc;

/// Something that happened while files are pushed or pulled.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transfer {
    /// It is known what is to be moved; `kept` files are where they should be already.
    Planned { files: usize, kept: usize, bytes: u64 },
    /// Bytes were moved, of files or of parts of them.
    Moved { bytes: u64 },
    /// A file is whole on the other side.
    Done { path: String },
}

/// Receives what happens; by default nobody does. It is called from several threads.
#[derive(Clone, Default)]
pub struct Progress(Option<Arc<dyn Fn(Transfer) + Send + Sync>>);

impl Progress {
    pub fn to(watch: impl Fn(Transfer) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(watch)))
    }

    pub(crate) fn tell(&self, transfer: Transfer) {
        if let Some(watch) = &self.0 {
            watch(transfer);
        }
    }
}

impl std::fmt::Debug for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Progress").field(&self.0.is_some()).finish()
    }
}
