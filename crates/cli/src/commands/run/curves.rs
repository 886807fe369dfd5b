//! Curves of runs: which are drawn, where to, and how.

use crate::commands::train::train_failure;
use crate::failure::Failure;
use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use phalanx_plots::{Cells, Chart, Line, Panel, Size, XAxis};
use phalanx_records::RunTable;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// Rows of a panel in a terminal.
const PANEL_ROWS: usize = 12;
/// Columns, where the output is no terminal.
const COLUMNS: usize = 80;
/// Metrics that are drawn when none is named, if runs have them.
const USUAL: [&str; 3] = ["loss", "val_loss", "val_acc"];

/// How curves are drawn.
#[derive(Debug, Args)]
pub(super) struct CurveArgs {
    /// The metrics to draw; loss, val_loss and val_acc when not given.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(super) metric: Vec<String>,
    /// Write a picture here: FILE.svg or FILE.png.
    #[arg(long, value_name = "FILE")]
    pub(super) to: Option<PathBuf>,
    /// What the x axis shows.
    #[arg(long, value_enum, default_value = "step")]
    x: X,
    /// Draw values on a logarithmic axis.
    #[arg(long)]
    log: bool,
    /// Smooth curves: the weight of earlier values, from 0 to below 1.
    #[arg(long, value_name = "WEIGHT", default_value_t = 0.0, value_parser = weight)]
    smooth: f64,
    /// The width of a picture in pixels.
    #[arg(long, value_name = "PIXELS", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(200..=10_000))]
    width: u32,
    /// The height of a picture in pixels; 320 for each metric when not given.
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(120..=10_000))]
    height: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum X {
    Step,
    /// Seconds since the first recorded step of a run.
    Time,
}

fn weight(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(weight) if (0.0..1.0).contains(&weight) => Ok(weight),
        _ => Err("expected a number from 0 to below 1, like 0.9".to_owned()),
    }
}

/// The format of a picture, by the name of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Svg,
    Png,
}

fn format_of(path: &Path) -> Result<Format, Failure> {
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    match extension.as_deref() {
        Some("svg") => Ok(Format::Svg),
        Some("png") => Ok(Format::Png),
        _ => Err(Failure::usage(anyhow!("pictures are .svg or .png files, {} is neither", path.display()))),
    }
}

/// Reads the metrics of runs.
pub(super) fn read_tables(runs: &[PathBuf]) -> Result<Vec<RunTable>, Failure> {
    let read = |run: &PathBuf| RunTable::read(&super::run_path(run)).map_err(train_failure);
    runs.iter().map(read).collect()
}

impl CurveArgs {
    /// Refuses what cannot be drawn, before anything is read.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.to.as_deref().map_or(Ok(()), |path| format_of(path).map(|_known| ()))
    }

    /// The chart of some runs: a panel for each metric, a curve for each run.
    ///
    /// # Errors
    /// A metric was asked for that no run has.
    pub(super) fn chart(&self, title: String, tables: &[RunTable]) -> Result<Chart, Failure> {
        let has = |metric: &str| tables.iter().any(|table| table.metrics().any(|name| name == metric));
        let metrics: Vec<&str> = if self.metric.is_empty() {
            USUAL.into_iter().filter(|metric| has(metric)).collect()
        } else {
            self.metric.iter().map(String::as_str).collect()
        };
        if let Some(unknown) = metrics.iter().find(|metric| !has(metric)) {
            let mut known: Vec<&str> = tables.iter().flat_map(RunTable::metrics).collect();
            known.sort_unstable();
            known.dedup();
            let error = anyhow!("no values of {unknown:?} are recorded");
            return Err(Failure::usage(error)
                .hint_if((!known.is_empty()).then(|| format!("there are {}", known.join(", ")))));
        }
        let panel = |metric: &&str| Panel {
            title: (*metric).to_owned(),
            lines: tables.iter().map(|table| self.line(table, metric)).collect(),
        };
        let x = match self.x {
            X::Step => XAxis::Step,
            X::Time => XAxis::Seconds,
        };
        Ok(Chart {
            title,
            x,
            log: self.log,
            smoothing: self.smooth,
            panels: metrics.iter().map(panel).collect(),
        })
    }

    fn line(&self, table: &RunTable, metric: &str) -> Line {
        let begin = table.rows().iter().find_map(|row| row.unix_ms).unwrap_or(0);
        let points = table.column(metric).filter_map(|(row, value)| {
            let x = match self.x {
                X::Step => row.step as f64,
                X::Time => (row.unix_ms? as f64 - begin as f64) / 1e3,
            };
            Some((x, value))
        });
        Line { label: table.run.clone(), points: points.collect() }
    }

    /// Writes the picture, if one was asked for.
    pub(super) fn write(&self, chart: &Chart) -> Result<(), Failure> {
        let Some(path) = &self.to else { return Ok(()) };
        let panels = u32::try_from(chart.panels.len()).unwrap_or(u32::MAX).clamp(1, 30);
        let size = Size { width: self.width, height: self.height.unwrap_or(40 + 320 * panels) };
        let picture = match format_of(path)? {
            Format::Svg => chart.svg(size).map(String::into_bytes),
            Format::Png => chart.png(size),
        };
        let picture = picture.map_err(Failure::work)?;
        let written = std::fs::write(path, picture);
        written
            .with_context(|| format!("could not write {}", path.display()))
            .map_err(Failure::infrastructure)
    }
}

/// The chart as a picture for standard output.
pub(super) fn on_terminal(chart: &Chart) -> String {
    chart.terminal(plot_size(), wants_colour())
}

/// The size of a picture on standard output.
pub(crate) fn plot_size() -> Cells {
    let out = std::io::stdout();
    let columns = rustix::termios::tcgetwinsize(&out).map_or(COLUMNS, |size| usize::from(size.ws_col).max(1));
    Cells { columns: if out.is_terminal() { columns } else { COLUMNS }, rows: PANEL_ROWS }
}

/// Whether a picture on standard output has colours.
pub(crate) fn wants_colour() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty())
}
