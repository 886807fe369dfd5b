//! `phalanx run show`.

use super::list::state_and_why;
use super::run_path;
use crate::commands::train::train_failure;
use crate::failure::Failure;
use crate::output::{Output, Render, summary};
use clap::Args;
use phalanx_records::run_dir::{Best, RUN_FILE, RunInfo, newest_usable, read_run};
use phalanx_train::Damage;
use serde::Serialize;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Example: phalanx run show runs/2026-11-16-141502-3fa9")]
pub(crate) struct ShowArgs {
    /// The run: its directory, or its name in runs/.
    run: PathBuf,
}

#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    run: RunInfo,
    /// The step of the newest checkpoint.
    checkpoint: Option<u64>,
    /// Newer checkpoints that cannot be used, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    damaged: Vec<String>,
    best: Option<Best>,
    /// The resolved run file.
    config: String,
}

impl Render for Shown {
    fn table(&self) -> String {
        let state = &self.run.state;
        let number = |x: Option<f64>| x.map_or("-".to_owned(), |x| format!("{x:.4}"));
        let percent = |x: Option<f64>| x.map_or("-".to_owned(), |x| format!("{:.2} %", x * 100.0));
        let mut rows = vec![
            ("run", self.run.path.display().to_string()),
            ("state", state_and_why(&self.run)),
            ("model", state.model.clone()),
            ("steps", state.progress()),
            ("loss", number(state.loss.map(f64::from))),
            ("validation loss", number(state.val_loss)),
            ("validation accuracy", percent(state.val_acc)),
            ("samples/s", state.samples_per_s.map_or("-".to_owned(), |x| format!("{x:.0}"))),
            ("wall", format!("{:.1} s", state.wall_s)),
            ("started", state.started.clone()),
        ];
        rows.extend(state.ended.iter().map(|ended| ("ended", ended.clone())));
        rows.extend(self.best.map(|best| {
            (
                "best",
                format!("step {}: loss {:.4}, accuracy {}", best.step, best.val_loss, percent(best.val_acc)),
            )
        }));
        rows.extend(self.checkpoint.map(|step| ("checkpoint", format!("step {step}"))));
        rows.extend(self.damaged.iter().map(|damage| ("damaged", damage.clone())));
        rows.extend(state.params_hash.iter().map(|hash| ("parameters", hash.clone())));
        format!("{}\n\n{}", summary(rows), self.config)
    }

    fn quiet(&self) -> String {
        state_and_why(&self.run)
    }
}

pub(crate) fn run(args: ShowArgs, output: Output) -> Result<(), Failure> {
    let path = run_path(&args.run);
    let run = read_run(&path).map_err(train_failure)?;
    // A run that has none yet, or cannot be read to the last bit, is shown without.
    let (newest, damaged) = match newest_usable(&path) {
        Ok((checkpoint, unusable)) => (Some(checkpoint.manifest), unusable),
        Err(_) => (None, Vec::new()),
    };
    let damaged: Vec<String> = damaged.into_iter().map(|wrong| Damage::from(wrong).to_string()).collect();
    let config = std::fs::read_to_string(path.join(RUN_FILE)).unwrap_or_default();
    let (checkpoint, best) = (newest.as_ref().map(|m| m.step), newest.and_then(|m| m.best));
    output.print(&Shown { run, checkpoint, damaged, best, config })
}
