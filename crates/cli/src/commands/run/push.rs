//! `phalanx run push`.

use super::run_path;
use crate::commands::artifacts::{MovedBar, place, until_stopped};
use crate::commands::ledger::bring_in;
use crate::commands::train::train_failure;
use crate::failure::Failure;
use crate::output::{Output, Render, summary};
use clap::Args;
use phalanx_artifacts::{ArtifactStore, Pushed, Selection};
use phalanx_records::run_dir::RunDir;
use phalanx_types::ByteSize;
use serde::Serialize;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx run push first --to s3://models/team
  phalanx run push runs/2026-11-16-141502-3fa9 --to /mnt/archive
  PHALANX_ARTIFACTS=az://runs phalanx run push first

Credentials and servers come from the usual variables: AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, AZURE_STORAGE_ACCOUNT_NAME,
GOOGLE_APPLICATION_CREDENTIALS and so on. A push that was ended goes on where it was.")]
pub(crate) struct PushArgs {
    /// The run: its directory, or its name in runs/.
    run: PathBuf,
    /// Where to: a directory, s3://BUCKET/PREFIX, az://CONTAINER/PREFIX or gs://BUCKET/PREFIX; what PHALANX_ARTIFACTS
    /// names when not given.
    #[arg(long, value_name = "URL")]
    to: Option<String>,
    /// Leave the checkpoints out, which are large and of use only to go on.
    #[arg(long)]
    no_checkpoints: bool,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Shown(Pushed);

impl Render for Shown {
    fn table(&self) -> String {
        let Pushed { uid, name, url, manifest, sent_files, sent_bytes, files } = &self.0;
        let bytes = ByteSize(files.iter().map(|file| file.size).sum());
        summary([
            ("run", format!("{name} ({uid})")),
            ("url", url.clone()),
            ("manifest", manifest.clone()),
            ("files", format!("{}, {bytes}", files.len())),
            ("sent", format!("{sent_files}, {}", ByteSize(*sent_bytes))),
        ])
    }

    fn quiet(&self) -> String {
        self.0.url.clone()
    }
}

pub(crate) async fn run(args: PushArgs, output: Output) -> Result<(), Failure> {
    let url = place("--to", args.to.as_deref())?;
    // Held, so that nobody trains it meanwhile.
    let dir = RunDir::open(run_path(&args.run)).map_err(train_failure)?;
    let selection = if args.no_checkpoints { Selection::WithoutCheckpoints } else { Selection::All };
    let bar = MovedBar::new(output);
    let progress = bar.progress();
    let work = async {
        let store = ArtifactStore::open_for_writing(&url).await?;
        store.push(&dir, selection, &progress).await
    };
    let pushed = until_stopped(work, "push it again: what was sent is not sent twice").await;
    drop(bar);
    // Events of files that were sent are there also if others failed.
    bring_in(dir.path());
    output.print(&Shown(pushed?))
}
