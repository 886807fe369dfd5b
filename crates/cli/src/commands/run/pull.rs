//! `phalanx run pull`.

use crate::commands::artifacts::{MovedBar, artifact_failure, place, until_stopped};
use crate::commands::ledger::bring_in;
use crate::commands::train::RUNS;
use crate::failure::Failure;
use crate::output::{Output, Render, summary};
use clap::Args;
use phalanx_artifacts::{ArtifactStore, Pulled};
use phalanx_types::ByteSize;
use serde::Serialize;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx run pull first --from s3://models/team
  phalanx run pull 4be0643f1d98573b97cdca98a65347dd --from /mnt/archive copy-of-first

Every file is checked by its hash before it gets its name. A pull that was ended goes on where it was.")]
pub(crate) struct PullArgs {
    /// The run: its identity, or its name if only one run was pushed under it.
    run: String,
    /// Where from: a directory, s3://BUCKET/PREFIX, az://CONTAINER/PREFIX or gs://BUCKET/PREFIX; what PHALANX_ARTIFACTS
    /// names when not given.
    #[arg(long, value_name = "URL")]
    from: Option<String>,
    /// The directory of the run; its name in runs/ when not given.
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Shown(Pulled);

impl Render for Shown {
    fn table(&self) -> String {
        let pulled = &self.0;
        summary([
            ("run", pulled.run.display().to_string()),
            ("from", pulled.url.clone()),
            ("manifest", pulled.manifest.clone()),
            ("files", format!("{}, {}", pulled.files, ByteSize(pulled.bytes))),
            ("received", format!("{}, {}", pulled.received_files, ByteSize(pulled.received_bytes))),
        ])
    }

    fn quiet(&self) -> String {
        self.0.run.display().to_string()
    }
}

pub(crate) async fn run(args: PullArgs, output: Output) -> Result<(), Failure> {
    let url = place("--from", args.from.as_deref())?;
    let bar = MovedBar::new(output);
    let progress = bar.progress();
    let store = ArtifactStore::open(&url).await.map_err(artifact_failure)?;
    let work = async {
        let manifest = store.find(&args.run).await?;
        let dir = args.dir.clone().unwrap_or_else(|| Path::new(RUNS).join(&manifest.name));
        store.pull(&manifest, &dir, &progress).await
    };
    let pulled = until_stopped(work, "pull it again: what is there is not received twice").await?;
    drop(bar);
    bring_in(&pulled.run);
    output.print(&Shown(pulled))
}
