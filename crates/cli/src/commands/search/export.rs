//! `phalanx search export`.

use super::show::trial_id;
use super::{Which, search_failure};
use crate::failure::Failure;
use crate::output::{Output, Render, listing};
use anyhow::anyhow;
use clap::Args;
use phalanx_search::core::record::TrialId;
use phalanx_search_driver::{CheckedModel, Exporter};
use phalanx_search_results::SearchFollower;
use serde::Serialize;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx search export                          the front of the newest search
  phalanx search export first --trial t7 --trial t12 --to models/")]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    which: Which,
    /// These trials instead of the front: t7, or 7.
    #[arg(long, value_parser = trial_id)]
    trial: Vec<TrialId>,
    /// Where to; results/models/ of the search when not given. Every trial gets a directory.
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Exported(Vec<CheckedModel>);

impl Render for Exported {
    fn table(&self) -> String {
        let percent =
            |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{:.2} %", value * 100.0));
        let rows = self.0.iter().map(|model| {
            [
                model.trial.to_string(),
                model.archid.clone(),
                percent(model.recorded_accuracy),
                percent(model.onnx_accuracy),
                model.run_by.clone(),
                model.onnx.display().to_string(),
            ]
        });
        listing(["trial", "archid", "recorded", "onnx", "run by", "file"], rows)
    }

    fn quiet(&self) -> String {
        self.0.iter().map(|model| model.onnx.display().to_string()).collect::<Vec<_>>().join("\n")
    }
}

pub(crate) fn run(args: &ExportArgs, output: Output) -> Result<(), Failure> {
    let path = args.which.path()?;
    let follower = SearchFollower::open(&path).map_err(search_failure)?;
    let table = follower.table();
    let trials = match args.trial.as_slice() {
        [] => table.front().trials,
        named => named.to_vec(),
    };
    if trials.is_empty() {
        return Err(Failure::usage(anyhow!("nothing is on the front of {} yet", path.display()))
            .hint("name trials with --trial; `phalanx search status` lists them"));
    }
    let models = Exporter::new().trials(&path, table, &trials, args.to.as_deref()).map_err(search_failure)?;
    output.print(&Exported(models))
}
