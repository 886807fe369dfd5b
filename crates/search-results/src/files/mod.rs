//! The files of a search's results: each is written as a whole or not at all, as often as wanted, also while the search
//! goes on. `docs/search-results.md` has their columns.

mod columns;
mod csv;
mod json;
mod pictures;
mod state;
mod status;

pub use pictures::{front_plot, hypervolume_plot, pareto_file_name};

use crate::table::SearchTable;
use phalanx_plots::DrawError;
use std::path::{Path, PathBuf};

/// Why results could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteResultsError {
    #[error("could not make the directory {}", path.display())]
    Directory { path: PathBuf, source: std::io::Error },
    #[error("could not write {}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("could not draw {}", path.display())]
    Draw { path: PathBuf, source: DrawError },
}

/// Writes the results of one search to a directory.
#[derive(Debug)]
pub struct ResultsWriter {
    dir: PathBuf,
    /// Tables of this many iterations are written and will not change: their records are past.
    settled: usize,
}

impl ResultsWriter {
    /// A writer to this directory, which is made when something is written. Its first tables are written anew, whatever
    /// lies there.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), settled: 0 }
    }

    /// Writes all files, and gives the paths of those that may have changed.
    ///
    /// # Errors
    /// A file cannot be written; those before it were.
    pub fn write(&mut self, table: &SearchTable) -> Result<Vec<PathBuf>, WriteResultsError> {
        let mut written = self.write_tables(table)?;
        written.extend(self.write_plots(table)?);
        Ok(written)
    }

    /// Writes the tables: CSV and JSON.
    ///
    /// # Errors
    /// A file cannot be written; those before it were.
    pub fn write_tables(&mut self, table: &SearchTable) -> Result<Vec<PathBuf>, WriteResultsError> {
        let mut written = Vec::new();
        let iterations = table.iterations();
        for iteration in iterations.iter().skip(self.settled) {
            let name = format!("search_state_{}.csv", iteration.number + 1);
            written.push(self.put(&name, state::search_state(table, iteration).as_bytes())?);
            let name = format!("pareto_models_iter_{}.json", iteration.number + 1);
            written.push(self.put(&name, json::front_of_iteration(table, iteration).as_bytes())?);
        }
        self.settled = iterations.len().saturating_sub(1);
        let files = [
            ("pareto.json", json::pareto(table)),
            ("front.json", json::front(table)),
            ("models.json", json::models(table)),
            ("status.csv", status::status(table)),
            ("hypervolume.csv", state::hypervolume(table)),
        ];
        for (name, text) in files {
            written.push(self.put(name, text.as_bytes())?);
        }
        Ok(written)
    }

    /// Draws the plots: SVG and PNG.
    ///
    /// # Errors
    /// A file cannot be drawn or written; those before it were.
    pub fn write_plots(&self, table: &SearchTable) -> Result<Vec<PathBuf>, WriteResultsError> {
        let mut written = Vec::new();
        let size = pictures::SIZE;
        let failed = |name: &str| {
            let path = self.dir.join(name);
            move |source| WriteResultsError::Draw { path, source }
        };
        for (x, y) in pictures::pairs(table.about()) {
            let (plot, name) = (front_plot(table, x, y), pareto_file_name(&x.name, &y.name));
            let svg = plot.svg(size).map_err(failed(&name))?;
            written.push(self.put(&format!("{name}.svg"), svg.as_bytes())?);
            let png = plot.png(size).map_err(failed(&name))?;
            written.push(self.put(&format!("{name}.png"), &png)?);
        }
        let plot = hypervolume_plot(table);
        let svg = plot.svg(size).map_err(failed("hypervolume.svg"))?;
        written.push(self.put("hypervolume.svg", svg.as_bytes())?);
        let png = plot.png(size).map_err(failed("hypervolume.png"))?;
        written.push(self.put("hypervolume.png", &png)?);
        Ok(written)
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, WriteResultsError> {
        let directory = |source| WriteResultsError::Directory { path: self.dir.clone(), source };
        std::fs::create_dir_all(&self.dir).map_err(directory)?;
        let path = self.dir.join(name);
        match replace(&path, bytes) {
            Ok(()) => Ok(path),
            Err(source) => Err(WriteResultsError::Write { path, source }),
        }
    }
}

/// Writes a temporary file next to the target and renames it. Two processes may write the same results at once: each
/// has its own temporary file.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
    let moved = std::fs::write(&beside, bytes).and_then(|()| std::fs::rename(&beside, path));
    if moved.is_err() {
        let _nothing_to_remove = std::fs::remove_file(&beside);
    }
    moved
}
