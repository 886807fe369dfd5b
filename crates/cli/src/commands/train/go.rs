//! A run in this process: training on threads of its own, signals here.

use super::watch::Watch;
use crate::commands::artifacts::{place_of_finished, push_finished};
use crate::failure::Failure;
use crate::output::{Output, Render, summary};
use crate::stop::StopSignals;
use anyhow::anyhow;
use phalanx_driver::DriverError;
use phalanx_protocol::progress::End;
use phalanx_rank::Trainer;
use phalanx_records::run_dir::{RunDir, checkpoints};
use phalanx_records::{Blame, Summary};
use phalanx_train::{Compute, Task};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::task::JoinHandle;

/// An error of the trainer with its exit code and what to do about it.
pub(crate) fn train_failure(error: impl Into<DriverError>) -> Failure {
    let error = error.into();
    let hint = error.hint();
    let failure = match error.blame() {
        Blame::Input => Failure::usage(error),
        Blame::Work => Failure::work(error),
        Blame::Machine => Failure::infrastructure(error),
    };
    failure.hint_if(hint)
}

impl Render for Summary {
    fn table(&self) -> String {
        let number = |x: Option<f64>| x.map_or("-".to_owned(), |x| format!("{x:.4}"));
        summary([
            ("run", place(self)),
            ("steps", self.steps.to_string()),
            ("loss", number(self.loss.map(f64::from))),
            ("validation loss", number(self.val_loss)),
            ("validation accuracy", self.val_acc.map_or("-".to_owned(), |x| format!("{:.2} %", x * 100.0))),
            ("samples/s", format!("{:.0}", self.samples_per_s)),
            ("wall", format!("{:.1} s", self.wall_s)),
            ("parameters", self.params_hash.clone()),
        ])
    }

    fn quiet(&self) -> String {
        place(self)
    }
}

/// Where a run is recorded.
fn place(summary: &Summary) -> String {
    summary.run_dir.as_ref().map_or_else(|| "-".to_owned(), |dir| dir.display().to_string())
}

/// Trains to the end, or until somebody asks to stop: once to save and go, twice to go at once.
pub(crate) async fn go(
    task: Task,
    compute: Compute,
    dir: RunDir,
    mut watch: Watch,
    output: Output,
) -> Result<(), Failure> {
    let artifacts = place_of_finished()?;
    let mut stops = StopSignals::new()?;
    let path = dir.path().to_owned();
    let stop = Arc::new(AtomicBool::new(false));
    let asked = stop.clone();
    let training = tokio::task::spawn_blocking(move || {
        watch = watch.feeding(dir.path());
        let result =
            Trainer::new(task, compute, dir, &mut watch).and_then(|trainer| trainer.run(&asked, &mut watch));
        watch.finish();
        result
    });
    let summary = until_ended(training, &mut stops, &path, || stop.swap(true, Ordering::Relaxed)).await?;
    finished(summary, &path, output)?;
    push_finished(artifacts, &path, output, &mut stops).await;
    Ok(())
}

/// Waits for the end of a training. `ask_to_stop` says whether it was asked before.
pub(super) async fn until_ended(
    mut training: JoinHandle<Result<Summary, impl Into<DriverError>>>,
    stops: &mut StopSignals,
    path: &Path,
    ask_to_stop: impl Fn() -> bool,
) -> Result<Summary, Failure> {
    loop {
        tokio::select! {
            ended = &mut training => return ended.map_err(Failure::infrastructure)?.map_err(train_failure),
            () = stops.next() => {
                if ask_to_stop() {
                    return Err(stopped_at_once(path));
                }
                tracing::warn!("stopping after this step; ask again to stop at once");
            }
        }
    }
}

/// Says what a run came to.
pub(super) fn finished(summary: Summary, path: &Path, output: Output) -> Result<(), Failure> {
    output.print(&summary)?;
    match summary.end {
        End::Finished => Ok(()),
        End::Interrupted => Err(stopped(summary.steps, path)),
    }
}

/// Says that a run was finished before, and what it came to.
pub(super) fn nothing_left(summary: Summary, output: Output) -> Result<(), Failure> {
    if output != Output::Quiet {
        let path = place(&summary);
        let told = format!(
            "the run in {path} is finished, all {} steps are done; `phalanx run resume {path}` goes further with --epochs \
             or --steps",
            summary.steps
        );
        // Nobody who does not listen is worth an error.
        drop(writeln!(std::io::stderr(), "{told}"));
    }
    output.print(&summary)
}

/// Stopped as it was asked to: what was done is saved, if there was anything.
fn stopped(steps: u64, path: &Path) -> Failure {
    let place = path.display();
    if steps == 0 {
        return Failure::work(anyhow!("stopped before the first step: there was nothing to save"))
            .hint(format!("`phalanx run resume {place}` begins again"));
    }
    Failure::work(anyhow!("stopped at step {steps}; everything is saved"))
        .hint(format!("`phalanx run resume {place}` goes on"))
}

/// Stopped without waiting for anything to be saved.
fn stopped_at_once(path: &Path) -> Failure {
    let place = path.display();
    Failure::work(anyhow!("stopped at once")).hint(match checkpoints(path).last() {
        Some((step, _)) => {
            format!("`phalanx run resume {place}` goes on from the last checkpoint, that of step {step}")
        }
        None => format!("there is no checkpoint: `phalanx run resume {place}` begins again"),
    })
}
