//! `phalanx dashboard`: a page about runs, nodes and jobs.

pub(crate) mod beside;

use crate::args::{DomainArgs, start_failure};
use crate::commands::ledger::ledger_failure;
use crate::commands::store::password;
use crate::commands::train::RUNS;
use crate::failure::Failure;
use crate::output::{Output, Render, reader_gone};
use crate::own_program::own_program;
use crate::paths;
use crate::stop::StopSignals;
use anyhow::anyhow;
use clap::Args;
use phalanx_dashboard::{Access, Config, Dashboard, Journals, Resume, StartError, StoreTarget};
use phalanx_fabric::{Fabric, NodeKind};
use phalanx_ledger::LedgerUrl;
use phalanx_records::run_dir::is_run;
use serde::Serialize;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[derive(Debug, Args)]
#[command(
    mut_arg("bind", |arg| arg.long("node-bind").help(
        "The address at which other nodes reach this one, which only looks."
    )),
    after_help = "On loopback every user of this machine can look, and act with --control. Other addresses need a
domain with a key: the page is served by TLS, and its address holds a token.

Examples:
  phalanx dashboard --open
  phalanx dashboard runs/2026-11-16-141502-3fa9        replay one run, also one copied from elsewhere
  phalanx dashboard --control                          and stop, resume and tag runs, cancel jobs
  phalanx dashboard --bind 0.0.0.0:7070 --domain lab   for other machines
  phalanx dashboard --store 127.0.0.1:6780             with a store and its streams
  ssh -L 7070:localhost:7070 server                    the page of another machine, without a key
  MLFLOW_TRACKING_URI=http://127.0.0.1:7070 python train.py   a program that logs with MLflow's client"
)]
pub(crate) struct DashboardArgs {
    /// A directory with runs, or one run; runs/ when not given.
    #[arg(value_name = "DIR")]
    runs: Option<PathBuf>,
    /// The address of the page; port 0 takes any that is free.
    #[arg(
        id = "page_bind",
        long = "bind",
        value_name = "ADDR:PORT",
        default_value = "127.0.0.1:7070",
        env = "PHALANX_DASHBOARD_BIND"
    )]
    page_bind: SocketAddr,
    /// Open the page in a browser.
    #[arg(long)]
    open: bool,
    /// Let viewers act: stop and resume runs of this host, tag runs, cancel jobs.
    #[arg(long)]
    control: bool,
    /// Another name under which browsers reach the page.
    #[arg(long, value_name = "HOST")]
    name: Vec<String>,
    /// A store to show with its streams; may be given several times. The store of the domain is found by itself.
    #[arg(long = "store", value_name = "ADDRESS", env = "PHALANX_STORE")]
    stores: Vec<String>,
    /// A file whose first line is the password of these stores.
    #[arg(long, value_name = "FILE")]
    store_password_file: Option<PathBuf>,
    /// Show runs only; join no domain.
    #[arg(long)]
    no_domain: bool,
    #[command(flatten)]
    domain: DomainArgs,
}

#[derive(Debug, Serialize)]
struct Started {
    url: String,
    /// With this address viewers may act, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    control_url: Option<String>,
    runs: PathBuf,
    pid: u32,
}

impl Render for Started {
    fn table(&self) -> String {
        let control =
            self.control_url.as_ref().map(|url| format!("\nto act       {url}")).unwrap_or_default();
        format!("dashboard of {} at {}{control}", self.runs.display(), self.url)
    }

    fn quiet(&self) -> String {
        self.url.clone()
    }
}

pub(crate) async fn run(args: DashboardArgs, output: Output) -> Result<(), Failure> {
    let runs = directory(args.runs.as_deref())?;
    let mut stops = StopSignals::new()?;
    let settings = args.domain.fabric("dashboard", NodeKind::Observer)?;
    let key = settings.key.clone();
    let fabric = match args.no_domain {
        true => None,
        false => Some(Fabric::start(settings).await.map_err(start_failure)?),
    };
    let password = password(args.store_password_file.as_deref())?;
    let target = |address| StoreTarget { address, password: password.clone() };
    let mut config = Config {
        ledger: LedgerUrl::for_runs(&runs).map_err(ledger_failure)?,
        all_runs: args.runs.is_none(),
        resume: Some(Resume::new(move || resume(&beside::domain_words()))),
        stores: args.stores.into_iter().map(target).collect(),
        control: args.control,
        journals: journals(&args.domain),
        domain: fabric.clone().map(|fabric| (fabric, args.domain.domain.to_string())),
        key,
        names: args.name,
        ..Config::new(&runs, args.page_bind)
    };
    // A single run has no room for others.
    if !is_run(&runs) {
        config.routes = phalanx_mlflow::router(&runs);
    }
    let dashboard = Dashboard::start(config).await.map_err(failure)?;
    let url = dashboard.url(Access::Read).unwrap_or_default();
    let control_url = dashboard.url(Access::Act).filter(|act| *act != url);
    output.print(&Started {
        url: url.clone(),
        control_url: control_url.clone(),
        runs,
        pid: std::process::id(),
    })?;
    if args.open {
        open_browser(control_url.as_ref().unwrap_or(&url));
    }
    tokio::select! {
        () = stops.next() => {}
        () = reader_gone() => {}
    }
    dashboard.stop().await;
    if let Some(fabric) = fabric {
        fabric.shutdown().await;
    }
    Ok(())
}

/// The journals of background main nodes of a domain; without a home directory there are none.
fn journals(domain: &DomainArgs) -> Option<Journals> {
    let dir = paths::job_journals(&domain.domain).ok()?;
    Some(Journals { domain: domain.domain.to_string(), dir })
}

/// The command that resumes a run, in the same domain; the run is added to it.
fn resume(domain: &[OsString]) -> Command {
    let mut command = own_program().command();
    command.args(["run", "resume"]).args(domain);
    command
}

/// The directory with the runs. The usual one is made, so that the first run is seen as soon as it starts.
fn directory(given: Option<&Path>) -> Result<PathBuf, Failure> {
    match given {
        Some(path) if path.is_dir() => Ok(path.to_owned()),
        Some(path) => {
            let named = Path::new(RUNS).join(path);
            let missing = || {
                Failure::usage(anyhow!("there is no directory {}", path.display()))
                    .hint("give a run directory, or a directory with runs")
            };
            if named.is_dir() { Ok(named) } else { Err(missing()) }
        }
        None => {
            std::fs::create_dir_all(RUNS).map_err(Failure::infrastructure)?;
            Ok(PathBuf::from(RUNS))
        }
    }
}

fn failure(error: StartError) -> Failure {
    match error {
        StartError::Exposed { .. } => Failure::usage(error)
            .hint("`phalanx domain new` makes a key; without one, use ssh -L 7070:localhost:7070"),
        StartError::Bind { .. } => {
            Failure::infrastructure(error).hint("give another --bind; port 0 takes any that is free")
        }
        error => Failure::infrastructure(error),
    }
}

/// Opens the page with the program that the desktop has for it.
fn open_browser(url: &str) {
    let mut command = Command::new("xdg-open");
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.spawn() {
        // Its end is of no interest, but it must not stay a zombie.
        Ok(mut child) => drop(std::thread::spawn(move || child.wait())),
        Err(error) => tracing::warn!(%error, "could not open a browser; open the address by hand"),
    }
}
