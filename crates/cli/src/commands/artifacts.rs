//! Artifacts in other places: what the commands that move them share, and the push at the end of a training.

use crate::commands::train::train_failure;
use crate::failure::Failure;
use crate::output::Output;
use crate::stop::StopSignals;
use anyhow::anyhow;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use phalanx_artifacts::{
    ARTIFACTS_VARIABLE, ArtifactError, ArtifactUrl, Progress, Pushed, Selection, Transfer, push_run,
};
use phalanx_records::with_causes;
use phalanx_types::ByteSize;
use std::io::{IsTerminal, Write};
use std::path::Path;

/// An error of artifacts with its exit code and what to do about it.
pub(crate) fn artifact_failure(error: ArtifactError) -> Failure {
    if let ArtifactError::Records(error) = error {
        return train_failure(*error);
    }
    let hint = error.hint();
    let failure = if error.is_usage() { Failure::usage(error) } else { Failure::infrastructure(error) };
    failure.hint_if(hint)
}

/// The place that a flag or the environment names.
pub(crate) fn place(flag: &str, given: Option<&str>) -> Result<ArtifactUrl, Failure> {
    let named = match given {
        Some(text) => ArtifactUrl::parse(text).map(Some),
        None => ArtifactUrl::from_env(),
    };
    named.map_err(artifact_failure)?.ok_or_else(|| {
        Failure::usage(anyhow!("no place for artifacts is named")).hint(format!(
            "give {flag} or set {ARTIFACTS_VARIABLE}: file:///DIR, s3://BUCKET/PREFIX, az://…, gs://…"
        ))
    })
}

/// Waits for something that may be interrupted without harm.
pub(crate) async fn until_stopped<T>(
    work: impl Future<Output = Result<T, ArtifactError>>,
    what_remains: &str,
) -> Result<T, Failure> {
    let mut stops = StopSignals::new()?;
    tokio::select! {
        done = work => done.map_err(artifact_failure),
        () = stops.next() => {
            Err(Failure::work(anyhow!("interrupted")).hint(what_remains.to_owned()))
        }
    }
}

/// A bar on a terminal.
#[derive(Debug)]
pub(crate) struct MovedBar(Option<ProgressBar>);

impl MovedBar {
    pub(crate) fn new(output: Output) -> Self {
        let bar = (output != Output::Quiet && std::io::stderr().is_terminal()).then(|| {
            let style = ProgressStyle::with_template(
                "{wide_bar} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left  {msg}",
            );
            let style = style.unwrap_or_else(|_bad| ProgressStyle::default_bar());
            ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr()).with_style(style)
        });
        Self(bar)
    }

    pub(crate) fn progress(&self) -> Progress {
        let Some(bar) = self.0.clone() else { return Progress::default() };
        Progress::to(move |transfer| match transfer {
            Transfer::Planned { bytes, .. } => bar.inc_length(bytes),
            Transfer::Moved { bytes } => bar.inc(bytes),
            Transfer::Done { path } => bar.set_message(path),
            _ => {}
        })
    }
}

impl Drop for MovedBar {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// Where the environment wants finished runs to go, checked before anything is trained.
pub(crate) fn place_of_finished() -> Result<Option<ArtifactUrl>, Failure> {
    ArtifactUrl::from_env().map_err(artifact_failure)
}

/// Pushes a finished run, all but its checkpoints. That it cannot be is a warning: the training is done.
pub(crate) async fn push_finished(
    url: Option<ArtifactUrl>,
    run: &Path,
    output: Output,
    stops: &mut StopSignals,
) {
    let Some(url) = url else { return };
    let bar = MovedBar::new(output);
    let (progress, path) = (bar.progress(), run.to_owned());
    let (tell, told) = tokio::sync::oneshot::channel();
    // A thread of its own: what it is busy with holds up nothing else.
    let work = move || {
        // Nobody listens after an interruption.
        let _told = tell.send(push(&url, &path, &progress));
    };
    let started = std::thread::Builder::new().name("artifact-push".to_owned()).spawn(work);
    let ended = tokio::select! {
        ended = told, if started.is_ok() => ended.ok(),
        () = stops.next(), if started.is_ok() => None,
        else => None,
    };
    drop(bar);
    let again = format!("`phalanx run push {}` repeats it", run.display());
    match ended {
        Some(Ok(pushed)) if output != Output::Quiet => {
            let size = ByteSize(pushed.files.iter().map(|file| file.size).sum());
            // Nobody who does not listen is worth an error.
            drop(writeln!(
                std::io::stderr(),
                "pushed {} files, {size}, to {}",
                pushed.files.len(),
                pushed.url
            ));
        }
        Some(Ok(_pushed)) => {}
        Some(Err(error)) => tracing::warn!("the run was not pushed: {}; {again}", with_causes(&error)),
        None => tracing::warn!("the push of the run did not end; {again}"),
    }
}

fn push(url: &ArtifactUrl, run: &Path, progress: &Progress) -> Result<Pushed, ArtifactError> {
    let pushed = push_run(url, run, Selection::WithoutCheckpoints, progress);
    if pushed.is_ok() {
        crate::commands::ledger::bring_in(run);
    }
    pushed
}
