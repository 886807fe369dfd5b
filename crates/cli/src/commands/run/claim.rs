//! `phalanx run claim` and `phalanx run release`: who of several does something.

use crate::commands::artifacts::{artifact_failure, place, until_stopped};
use crate::escape::one_line;
use crate::failure::Failure;
use crate::output::{Output, Render};
use crate::times::rfc3339;
use anyhow::anyhow;
use clap::Args;
use phalanx_artifacts::{ArtifactStore, Claim, Claimed};
use serde::Serialize;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx run claim nightly --to s3://models/team --for 2h && phalanx train nightly.toml
  phalanx run release nightly --to s3://models/team

Of all who claim a name at once exactly one succeeds; the others end with exit code 1. Clocks of the hosts may differ by
a few seconds.")]
pub(crate) struct ClaimArgs {
    /// What to claim: any name that those who share the place agree on.
    name: String,
    #[command(flatten)]
    whose: Whose,
    /// How long it is held, if it is not released.
    #[arg(long = "for", value_name = "TIME", default_value = "1h", value_parser = humantime::parse_duration)]
    lasts: Duration,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: phalanx run release nightly --to s3://models/team")]
pub(crate) struct ReleaseArgs {
    /// What was claimed.
    name: String,
    #[command(flatten)]
    whose: Whose,
}

#[derive(Debug, Args)]
struct Whose {
    /// The shared place: a directory, s3://BUCKET/PREFIX, az://CONTAINER/PREFIX or gs://BUCKET/PREFIX; what
    /// PHALANX_ARTIFACTS names when not given.
    #[arg(long, value_name = "URL")]
    to: Option<String>,
    /// Who claims; the name of this host when not given.
    #[arg(long)]
    owner: Option<String>,
}

impl Whose {
    fn owner(&self) -> String {
        let host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        self.owner.clone().unwrap_or_else(host)
    }
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Shown(Claim);

impl Render for Shown {
    fn table(&self) -> String {
        format!("{} is held by {} until {}", self.0.name, self.0.owner, until(&self.0))
    }

    fn quiet(&self) -> String {
        self.0.owner.clone()
    }
}

fn until(claim: &Claim) -> String {
    rfc3339(claim.until_ms)
}

pub(crate) async fn claim(args: ClaimArgs, output: Output) -> Result<(), Failure> {
    let url = place("--to", args.whose.to.as_deref())?;
    let owner = args.whose.owner();
    let work = async {
        let store = ArtifactStore::open_for_writing(&url).await?;
        store.claim(&args.name, &owner, args.lasts).await
    };
    match until_stopped(work, "it may have been claimed: `phalanx run release` gives it back").await? {
        Claimed::Won(claim) => output.print(&Shown(claim)),
        Claimed::Held(claim) => {
            let (name, owner, until) = (&claim.name, &claim.owner, until(&claim));
            let owner = one_line(owner);
            Err(Failure::work(anyhow!("{name} is held by {owner} until {until}")))
        }
    }
}

pub(crate) async fn release(args: ReleaseArgs) -> Result<(), Failure> {
    let url = place("--to", args.whose.to.as_deref())?;
    let store = ArtifactStore::open(&url).await.map_err(artifact_failure)?;
    store.release(&args.name, &args.whose.owner()).await.map_err(artifact_failure)
}
