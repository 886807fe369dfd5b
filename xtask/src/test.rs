//! `cargo xtask test`: everything, the cheapest first.

use crate::links;
use crate::purity;
use crate::python::{Environment, Installing};
use crate::tool::{cargo, present, tool};
use crate::watch::{self, LIMIT_S};
use anyhow::{Context, ensure};
use clap::Args;
use std::process::Command;

#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// Install nothing; fail if something is missing.
    #[arg(long)]
    no_install: bool,
    /// Leave out what needs Python: its package, and that PyTorch sees in a trained model what was seen here.
    #[arg(long)]
    no_python: bool,
    /// Leave out what needs a browser or npm: the tests of the dashboard's page, and those with a server of Azure's.
    #[arg(long)]
    no_browser: bool,
    /// Seconds that one test may take before it and all its processes are killed.
    #[arg(long, value_name = "SECONDS", default_value_t = LIMIT_S, value_parser = clap::value_parser!(u64).range(61..))]
    limit: u64,
}

const NO_PYTHON: &str =
    "could not install Python's frameworks; --no-python leaves out the tests that need them";

pub(crate) fn run(args: &TestArgs) -> anyhow::Result<()> {
    if !args.no_install {
        install(args)?;
    }
    // Before cargo may replace this program by a newer one.
    let runner = watch::runner(args.limit)?;
    cargo(&["fmt", "--all", "--check"]).run()?;
    purity::check()?;
    links::check()?;
    // It takes about as long as what follows, and another part of the machine.
    let frameworks = if args.no_python { None } else { Some(frameworks(args).context(NO_PYTHON)?) };
    cargo(&["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]).run()?;
    cargo(&["doc", "--workspace", "--no-deps", "--document-private-items"])
        .env("RUSTDOCFLAGS", "--deny warnings")
        .run()?;
    let mut tests = cargo(&["test", "--workspace", "--config", &runner]).env("PHALANX_REQUIRE_REDIS", "1");
    let installed = |[torch, tensorflow, clients, tools]: [Installing; 4]| {
        anyhow::Ok([torch.wait()?, tensorflow.wait()?, clients.wait()?, tools.wait()?])
    };
    let frameworks = frameworks.map(installed).transpose().context(NO_PYTHON)?;
    if let Some([torch, ..]) = &frameworks {
        tests = tests.env("PHALANX_TORCH_PYTHON", torch).env("PHALANX_REQUIRE_TORCH", "1");
    }
    tests.run()?;
    let mut azurite = None;
    if !args.no_browser {
        crate::browser::check(args.no_install)?;
        azurite = Some(crate::browser::azurite(args.no_install)?);
    }
    if let Some([torch, tensorflow, clients, tools]) = &frameworks {
        crate::python::check_store(clients)?;
        crate::python::check_tools(tools, azurite.as_deref())?;
        crate::python::check_package(torch)?;
        crate::python::check_installing(tensorflow)?;
    }
    // A second build of the cores with mistakes in them, to see that the simulators find each.
    cargo(&[
        "test",
        "--package",
        "phalanx-sim",
        "--package",
        "phalanx-search",
        "--no-default-features",
        "--test",
        "seeded_bugs",
        "--target-dir",
        "target/seeded-bugs",
        "--config",
        &runner,
    ])
    .env("RUSTFLAGS", "--cfg seeded_bugs")
    .run()
}

/// Begins to install PyTorch, TensorFlow, clients of the store and tools that open runs, if they are not there.
fn frameworks(args: &TestArgs) -> anyhow::Result<[Installing; 4]> {
    let begin = |environment: Environment| {
        ensure!(!args.no_install || environment.is_ready(), "nothing may be installed");
        environment.begin()
    };
    let environments = [
        Environment::torch()?,
        Environment::tensorflow()?,
        Environment::store_clients()?,
        Environment::tools()?,
    ];
    let [torch, tensorflow, clients, tools] = environments.map(begin);
    Ok([torch?, tensorflow?, clients?, tools?])
}

/// Tests make network namespaces, for which they need `ip`, use servers of Redis and PostgreSQL, and an environment of Python.
fn install(args: &TestArgs) -> anyhow::Result<()> {
    let mut packages = Vec::new();
    if !present("ip") && !std::path::Path::new("/usr/sbin/ip").exists() {
        packages.push("iproute2");
    }
    if !present("redis-server") {
        packages.push("redis-server");
    }
    if !has_postgres() {
        packages.push("postgresql");
    }
    if !args.no_python && !makes_environments() {
        packages.extend(["python3", "python3-venv"]);
    }
    if !args.no_browser {
        packages.extend(crate::browser::missing_packages());
    }
    if packages.is_empty() {
        return Ok(());
    }
    let install = || -> anyhow::Result<()> {
        tool("apt-get", &["update", "--quiet"]).run()?;
        let options = ["install", "--yes", "--quiet", "--no-install-recommends"];
        tool("apt-get", &[&options, &packages[..]].concat()).run()
    };
    let names = packages.join(", ");
    install().with_context(|| format!("could not install {names}; install it by hand, or run as root"))
}

/// Whether there is a server of PostgreSQL, and not only its client.
fn has_postgres() -> bool {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    versions.into_iter().any(|version| version.path().join("bin/initdb").is_file())
}

/// Some systems have a Python, but pack the part that makes environments on its own.
fn makes_environments() -> bool {
    Command::new("python3").args(["-c", "import ensurepip, venv"]).output().is_ok_and(|o| o.status.success())
}
