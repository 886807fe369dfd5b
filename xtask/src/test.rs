//! `cargo xtask test`: everything, the cheapest first.

use crate::purity;
use crate::tool::{cargo, present, tool};
use anyhow::Context;
use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// Install nothing; fail if something is missing.
    #[arg(long)]
    no_install: bool,
}

pub(crate) fn run(args: &TestArgs) -> anyhow::Result<()> {
    if !args.no_install {
        install()?;
    }
    cargo(&["fmt", "--all", "--check"]).run()?;
    purity::check()?;
    cargo(&["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]).run()?;
    cargo(&["doc", "--workspace", "--no-deps", "--document-private-items"])
        .env("RUSTDOCFLAGS", "--deny warnings")
        .run()?;
    cargo(&["test", "--workspace"]).run()?;
    // A second build of the cores with mistakes in them, to see that the simulator finds each.
    cargo(&[
        "test",
        "--package",
        "phalanx-sim",
        "--test",
        "seeded_bugs",
        "--target-dir",
        "target/seeded-bugs",
    ])
    .env("RUSTFLAGS", "--cfg seeded_bugs")
    .run()
}

/// Tests make network namespaces, for which they need `ip`.
fn install() -> anyhow::Result<()> {
    if present("ip") || std::path::Path::new("/usr/sbin/ip").exists() {
        return Ok(());
    }
    let install = || -> anyhow::Result<()> {
        tool("apt-get", &["update", "--quiet"]).run()?;
        tool("apt-get", &["install", "--yes", "--quiet", "--no-install-recommends", "iproute2"]).run()
    };
    install().context("could not install iproute2; install it by hand, or run as root")
}
