//! Benchmarks that consist of parts.

use super::rows::{self, Row};
use super::{load, say};
use clap::{Args, ValueEnum};

/// What of a benchmark is measured, and how often.
#[derive(Debug, Args)]
pub(super) struct PartsArgs<P: ValueEnum + PartialEq + Send + Sync + 'static> {
    /// What to measure; may be given several times, all when not given.
    #[arg(long, value_name = "PART")]
    only: Vec<P>,
    /// How many times each side is measured, in turn; medians are compared.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rounds: u32,
    /// Measure what was built and installed before.
    #[arg(long)]
    pub(super) no_build: bool,
}

impl<P: ValueEnum + PartialEq + Send + Sync + 'static> PartsArgs<P> {
    /// Measures the parts and prints all rows, and how busy the machine was.
    pub(super) fn measure(
        &self,
        mut measure: impl FnMut(&P) -> anyhow::Result<Vec<Row>>,
    ) -> anyhow::Result<()> {
        let before = load();
        let mut rows = Vec::new();
        for part in P::value_variants() {
            if !self.only.is_empty() && !self.only.contains(part) {
                continue;
            }
            let measured = measure(part)?;
            // At once: a later part may fail.
            measured.iter().for_each(|row| say(&row.line().to_string()));
            rows.extend(measured);
        }
        rows::print(&rows);
        say(&format!("load of the machine: {before} before, {} after", load()));
        Ok(())
    }
}
