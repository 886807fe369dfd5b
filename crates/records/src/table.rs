//! The metrics of a run as a table: a row for each step, a column for each metric.

mod csv;
mod parquet;

pub use csv::write_csv;
pub use parquet::write_parquet;

use crate::history::{Entry, Position, read_from};
use crate::run_dir::{RunDirError, is_run};
use std::collections::BTreeMap;
use std::path::Path;

/// Why metrics could not be written as a table.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteTableError {
    #[error("could not write the table")]
    Io(#[from] std::io::Error),
    #[error("could not write Parquet")]
    Parquet(#[from] ::parquet::errors::ParquetError),
}

/// The metrics of a run, by column.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunTable {
    /// The name of the run.
    pub run: String,
    rows: Vec<Row>,
    /// For each metric its values by step, in the order of steps.
    columns: BTreeMap<String, Vec<(u64, f64)>>,
}

/// What a row of a [`RunTable`] is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    pub step: u64,
    /// Counted from 1, like epochs.
    pub pass: u64,
    /// Milliseconds since 1970; older runs did not record it.
    pub unix_ms: Option<u64>,
}

impl RunTable {
    /// Reads the metrics of a run, which may be running.
    ///
    /// # Errors
    /// There is no run, or its metrics cannot be read.
    pub fn read(run: &Path) -> Result<Self, RunDirError> {
        if !is_run(run) {
            return Err(RunDirError::NotARun { path: run.to_owned() });
        }
        let name = run.canonicalize().unwrap_or_else(|_gone| run.to_owned());
        let name = name.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let mut table = Self { run: name, ..Self::default() };
        let mut position = Position::default();
        loop {
            let batch = read_from(run, &position)?;
            if batch.position == position {
                return Ok(table);
            }
            position = batch.position;
            for entry in batch.entries {
                table.add_entry(&entry);
            }
        }
    }

    /// The steps with their times, in order.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The names of the metrics, sorted.
    pub fn metrics(&self) -> impl Iterator<Item = &str> {
        self.columns.keys().map(String::as_str)
    }

    /// The values of a metric, with their rows; empty if there are none.
    pub fn column(&self, metric: &str) -> impl Iterator<Item = (Row, f64)> {
        let values = self.columns.get(metric).map_or(&[][..], Vec::as_slice);
        values.iter().filter_map(|(step, value)| Some((self.row(*step)?, *value)))
    }

    fn row(&self, step: u64) -> Option<Row> {
        let at = self.rows.binary_search_by_key(&step, |row| row.step).ok()?;
        Some(self.rows[at])
    }

    /// The value of a metric after a step.
    fn value(&self, metric: &str, step: u64) -> Option<f64> {
        let values = self.columns.get(metric)?;
        let at = values.binary_search_by_key(&step, |(step, _)| *step).ok()?;
        Some(values[at].1)
    }

    fn add_entry(&mut self, entry: &Entry) {
        match entry {
            Entry::Step(metrics) | Entry::Valid(metrics) => {
                let of = Row { step: metrics.step, pass: metrics.pass, unix_ms: metrics.unix_ms };
                self.add(of, metrics.values.iter().map(|(name, value)| (name.as_str(), *value)));
            }
            Entry::Cut { step, .. } => self.cut_after(*step),
            Entry::Event(_) | Entry::Annotation { .. } => {}
        }
    }

    /// Adds values to the row of their step. A value that comes again counts in the place of the earlier one.
    fn add<'a>(&mut self, of: Row, values: impl Iterator<Item = (&'a str, f64)>) {
        if let Err(at) = self.rows.binary_search_by_key(&of.step, |row| row.step) {
            self.rows.insert(at, of);
        }
        for (name, value) in values {
            if !self.columns.contains_key(name) {
                self.columns.insert(name.to_owned(), Vec::new());
            }
            let Some(column) = self.columns.get_mut(name) else { continue };
            match column.binary_search_by_key(&of.step, |(step, _)| *step) {
                Ok(at) => column[at].1 = value,
                Err(at) => column.insert(at, (of.step, value)),
            }
        }
    }

    fn cut_after(&mut self, last: u64) {
        self.rows.retain(|row| row.step <= last);
        for column in self.columns.values_mut() {
            column.retain(|(step, _)| *step <= last);
        }
        self.columns.retain(|_, column| !column.is_empty());
    }
}

/// All metrics of some runs, sorted.
fn all_metrics(tables: &[RunTable]) -> Vec<&str> {
    let mut names: Vec<&str> = tables.iter().flat_map(RunTable::metrics).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests;
