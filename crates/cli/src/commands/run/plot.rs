//! `phalanx run plot`.

use super::curves::{CurveArgs, on_terminal, read_tables};
use crate::failure::Failure;
use crate::output::{Output, Render};
use clap::Args;
use phalanx_plots::Chart;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx run plot first
  phalanx run plot first --metric loss,val_acc --to first.svg
  phalanx run plot first second --log --smooth 0.9 --to both.png")]
pub(crate) struct PlotArgs {
    /// The runs: their directories, or their names in runs/.
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    #[command(flatten)]
    curves: CurveArgs,
}

#[derive(Debug, Serialize)]
struct Plotted {
    /// The picture, if one was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
    /// The points by metric and run.
    metrics: BTreeMap<String, BTreeMap<String, Vec<(f64, f64)>>>,
    #[serde(skip)]
    chart: Chart,
}

impl Render for Plotted {
    fn table(&self) -> String {
        match &self.file {
            Some(file) => format!("wrote {}", file.display()),
            None if self.chart.panels.is_empty() => "no metrics are recorded yet".to_owned(),
            None => on_terminal(&self.chart),
        }
    }

    fn is_coloured(&self) -> bool {
        self.file.is_none()
    }

    fn quiet(&self) -> String {
        self.file.as_ref().map(|file| file.display().to_string()).unwrap_or_default()
    }
}

pub(crate) fn run(args: &PlotArgs, output: Output) -> Result<(), Failure> {
    args.curves.check()?;
    let tables = read_tables(&args.runs)?;
    let names: Vec<&str> = tables.iter().map(|table| table.run.as_str()).collect();
    let chart = args.curves.chart(names.join(", "), &tables)?;
    args.curves.write(&chart)?;
    let lines = |panel: &phalanx_plots::Panel| {
        panel.lines.iter().map(|line| (line.label.clone(), line.points.clone())).collect()
    };
    let metrics = chart.panels.iter().map(|panel| (panel.title.clone(), lines(panel))).collect();
    output.print(&Plotted { file: args.curves.to.clone(), metrics, chart })
}
