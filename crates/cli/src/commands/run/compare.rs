//! `phalanx run compare`.

use super::curves::{CurveArgs, on_terminal, read_tables};
use super::settings::{Setting, settings};
use crate::commands::train::train_failure;
use crate::failure::Failure;
use crate::output::{Output, Render, listing_of};
use anyhow::Context;
use clap::Args;
use phalanx_plots::Chart;
use phalanx_records::RunTable;
use phalanx_records::run_dir::{RUN_FILE, RunInfo, read_run};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx run compare first second
  phalanx run compare first second third --metric val_acc --to compared.png")]
pub(crate) struct CompareArgs {
    /// The runs: their directories, or their names in runs/.
    #[arg(required = true, num_args = 2..)]
    runs: Vec<PathBuf>,
    #[command(flatten)]
    curves: CurveArgs,
}

#[derive(Debug, Serialize)]
struct Compared {
    runs: Vec<RunInfo>,
    /// The settings that are not the same in all runs.
    settings: Vec<Difference>,
    metrics: Vec<FinalMetric>,
    /// The picture, if one was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
    #[serde(skip)]
    chart: Chart,
}

/// A setting, in the order of the runs; `None` where a run does not have it.
#[derive(Debug, Serialize)]
struct Difference {
    key: String,
    runs: Vec<Option<Setting>>,
}

/// A metric, in the order of the runs; `None` where a run does not have it.
#[derive(Debug, Serialize)]
struct FinalMetric {
    name: String,
    last: Vec<Option<f64>>,
    least: Vec<Option<f64>>,
    greatest: Vec<Option<f64>>,
}

impl FinalMetric {
    fn new(name: &str, tables: &[RunTable]) -> Self {
        let values = |table: &RunTable| -> Vec<f64> { table.column(name).map(|(_, value)| value).collect() };
        let each =
            |pick: fn(&[f64]) -> Option<f64>| tables.iter().map(|table| pick(&values(table))).collect();
        Self {
            name: name.to_owned(),
            last: each(|values| values.last().copied()),
            least: each(|values| {
                values.iter().copied().filter(|value| !value.is_nan()).min_by(f64::total_cmp)
            }),
            greatest: each(|values| {
                values.iter().copied().filter(|value| !value.is_nan()).max_by(f64::total_cmp)
            }),
        }
    }
}

impl Render for Compared {
    fn table(&self) -> String {
        let names: Vec<String> = self.runs.iter().map(|run| run.id.clone()).collect();
        let header = |first: &'static str| -> Vec<&str> {
            std::iter::once(first).chain(names.iter().map(String::as_str)).collect()
        };
        let setting = |setting: &Option<Setting>| match setting {
            Some(setting) if setting.source.is_empty() => setting.value.clone(),
            Some(setting) => format!("{} ({})", setting.value, setting.source),
            None => "-".to_owned(),
        };
        let settings = self.settings.iter().map(|difference| {
            std::iter::once(difference.key.clone()).chain(difference.runs.iter().map(setting)).collect()
        });
        let number = |value: &Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.6}"));
        let metrics = self.metrics.iter().map(|metric| {
            std::iter::once(metric.name.clone()).chain(metric.last.iter().map(number)).collect()
        });
        let states = std::iter::once("state".to_owned());
        let states = states.chain(self.runs.iter().map(|run| run.state.state.to_string())).collect();
        let steps = std::iter::once("steps".to_owned());
        let steps = steps.chain(self.runs.iter().map(|run| run.state.progress())).collect();
        let metrics = listing_of(&header("last value"), [states, steps].into_iter().chain(metrics));
        let settings = if self.settings.is_empty() {
            "the runs have the same settings".to_owned()
        } else {
            listing_of(&header("setting"), settings)
        };
        let picture = match &self.file {
            Some(file) => format!("wrote {}", file.display()),
            None => on_terminal(&self.chart),
        };
        format!("{settings}\n\n{metrics}\n\n{picture}")
    }

    fn is_coloured(&self) -> bool {
        self.file.is_none()
    }

    fn quiet(&self) -> String {
        self.settings.iter().map(|difference| difference.key.as_str()).collect::<Vec<_>>().join("\n")
    }
}

fn differences(all: &[BTreeMap<String, Setting>]) -> Vec<Difference> {
    let keys: BTreeSet<&String> = all.iter().flat_map(BTreeMap::keys).collect();
    let of = |key: &String| -> Vec<Option<Setting>> { all.iter().map(|run| run.get(key).cloned()).collect() };
    let differ = |runs: &[Option<Setting>]| {
        let value = |setting: &Option<Setting>| setting.as_ref().map(|setting| setting.value.clone());
        runs.windows(2).any(|pair| value(&pair[0]) != value(&pair[1]))
    };
    let all = keys.into_iter().map(|key| Difference { key: key.clone(), runs: of(key) });
    all.filter(|difference| differ(&difference.runs)).collect()
}

pub(crate) fn run(args: &CompareArgs, output: Output) -> Result<(), Failure> {
    args.curves.check()?;
    let tables = read_tables(&args.runs)?;
    let mut runs = Vec::new();
    let mut all = Vec::new();
    for given in &args.runs {
        let path = super::run_path(given);
        runs.push(read_run(&path).map_err(train_failure)?);
        let file = path.join(RUN_FILE);
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("could not read {}", file.display()));
        all.push(settings(&text.map_err(Failure::infrastructure)?));
    }
    let title: Vec<&str> = tables.iter().map(|table| table.run.as_str()).collect();
    let chart = args.curves.chart(title.join(", "), &tables)?;
    args.curves.write(&chart)?;
    let names: BTreeSet<&str> = tables.iter().flat_map(RunTable::metrics).collect();
    let metrics = names.into_iter().map(|name| FinalMetric::new(name, &tables)).collect();
    output.print(&Compared {
        runs,
        settings: differences(&all),
        metrics,
        file: args.curves.to.clone(),
        chart,
    })
}
