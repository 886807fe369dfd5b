//! The command line as types; the doc comments are the help texts.

use crate::commands;
use crate::failure::Failure;
use crate::output::Output;
use crate::paths;
use anyhow::anyhow;
use clap::{Args, Parser, Subcommand};
use phalanx_fabric::{DomainKey, FabricConfig, NodeKind, StartError};
use phalanx_types::{DomainName, NodeId};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Train machine-learning models on many unequal machines as if they were one.
#[derive(Debug, Parser)]
#[command(
    name = "phalanx",
    version,
    propagate_version = true,
    max_term_width = 100,
    args_override_self = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// How results are printed on standard output.
    #[arg(long, global = true, value_enum, default_value = "table", env = "PHALANX_OUTPUT")]
    pub(crate) output: Output,
    /// Show what happens on a page in the browser meanwhile, as `phalanx dashboard` does; at 127.0.0.1:7070 when no
    /// address is given.
    #[arg(long, global = true, value_name = "ADDR:PORT", num_args = 0..=1, require_equals = true,
        default_missing_value = "127.0.0.1:7070", help_heading = "Dashboard")]
    pub(crate) dashboard: Option<SocketAddr>,
    /// Log more; twice for everything.
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Join a domain as a computing node and solve jobs until stopped.
    Node(Box<commands::node::NodeArgs>),
    /// Show who is in a domain, what they can do and what they are doing.
    Nodes(commands::nodes::NodesArgs),
    /// Connect nodes of networks that cannot reach each other.
    Relay(commands::relay::RelayArgs),
    /// Make and show the keys of domains.
    Domain(commands::domain::DomainCommand),
    /// Submit jobs and see what became of them.
    Job(commands::job::JobCommand),
    /// Train a model as a run file says.
    Train(Box<commands::train::TrainArgs>),
    /// Find the best models of a space: candidates are trained on nodes, the best of them in full.
    Search(commands::search::SearchCommand),
    /// Say which nodes would hold which part of a model, and what a step would cost.
    Plan(Box<commands::plan::PlanArgs>),
    /// See and find the runs there are, tag them, and go on with one.
    Run(commands::run::RunCommand),
    /// See and repair the index of runs.
    Ledger(commands::ledger::LedgerCommand),
    /// Measure a trained model on some data.
    Eval(Box<commands::eval::EvalArgs>),
    /// Write down what a trained model says about samples.
    Predict(Box<commands::predict::PredictArgs>),
    /// Ask a model that nodes serve what it says about samples.
    Infer(Box<commands::infer::InferArgs>),
    /// Write a trained model as ONNX or safetensors.
    Export(commands::export::ExportArgs),
    /// Combine the stages of a run's checkpoint into one model.
    Fuse(commands::fuse::FuseArgs),
    /// See what models are made of.
    Model(commands::model::ModelCommand),
    /// Start ranks of a program of your own on this machine.
    Launch(commands::launch::LaunchArgs),
    /// Serve tensors, models and data to programs on other machines.
    Store(commands::store::StoreCommand),
    /// Show runs, nodes and jobs on a page in the browser, live or replayed.
    Dashboard(Box<commands::dashboard::DashboardArgs>),
    /// Measure this machine.
    Bench(commands::bench::BenchCommand),
    /// Repeat what a recorded main node or driver decided, and why.
    Replay(commands::replay::ReplayArgs),
    /// Run the real protocols on simulated nodes.
    Simulate(commands::simulate::SimulateCommand),
}

/// Which domain, and how to reach it.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Domain")]
pub(crate) struct DomainArgs {
    /// The domain to join; nodes of one user on one host find each other by it.
    #[arg(long, default_value = "default", env = "PHALANX_DOMAIN")]
    pub(crate) domain: DomainName,
    /// The domain's key; looked for where `phalanx domain new` puts it when not given.
    #[arg(long, value_name = "FILE", env = "PHALANX_KEY")]
    pub(crate) key: Option<PathBuf>,
    /// Any one member of the domain; the others are learned from it.
    #[arg(long, value_name = "HOST:PORT", env = "PHALANX_CONNECT", value_delimiter = ',', value_parser = host_port)]
    pub(crate) connect: Vec<String>,
    /// A relay to meet nodes of other networks at.
    #[arg(long, value_name = "HOST:PORT", env = "PHALANX_RELAY", value_delimiter = ',', value_parser = host_port)]
    pub(crate) relay: Vec<String>,
    /// The address to listen at; when not given, every interface with a key, loopback without one.
    #[arg(long, value_name = "ADDR:PORT", env = "PHALANX_BIND")]
    pub(crate) bind: Option<SocketAddr>,
    /// How long a node may be silent before it counts as lost; 10ms to 1h.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration, env = "PHALANX_HEARTBEAT")]
    pub(crate) heartbeat: Duration,
    /// Do not look for nodes on the local network.
    #[arg(long)]
    pub(crate) no_mdns: bool,
}

/// Reads a duration as people write it: `30s`, `5ms`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}; expected something like 30s or 5ms"))
}

/// Reads an address of a host that need not be known yet.
fn host_port(text: &str) -> Result<String, String> {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(text.to_owned()),
        _ => Err("expected a host and a port, like n1.example:7000".to_owned()),
    }
}

/// Reads the name of a node, to which digits are added.
pub(crate) fn node_name(text: &str) -> Result<String, String> {
    let told = |error: phalanx_types::IdError| error.to_string();
    NodeId::new(text).and_then(|_name| NodeId::with_suffix(text, 0)).map_err(told)?;
    Ok(text.to_owned())
}

impl DomainArgs {
    /// Whether anything says which domain is meant.
    pub(crate) fn is_default(&self) -> bool {
        let named = self.key.is_some() || !self.connect.is_empty() || !self.relay.is_empty();
        self.domain.as_str() == "default" && !named
    }

    /// The key file that was named, or the usual one when it exists.
    pub(crate) fn key_file(&self) -> Option<PathBuf> {
        let usual = || paths::domain_key(&self.domain).ok().filter(|path| path.exists());
        self.key.clone().or_else(usual)
    }

    fn load_key(&self) -> Result<Option<DomainKey>, Failure> {
        let Some(path) = self.key_file() else { return Ok(None) };
        let key = load_key(&path, || format!("could not use the key of domain {}", self.domain))?;
        if *key.domain() != self.domain {
            let (have, file) = (key.domain(), path.display());
            let error = anyhow!("the key in {file} is of domain {have}, not {}", self.domain);
            return Err(
                Failure::usage(error).hint(format!("use --domain {have}, or the key of {}", self.domain))
            );
        }
        Ok(Some(key))
    }

    /// How a node of this kind joins.
    pub(crate) fn fabric(&self, name: &str, kind: NodeKind) -> Result<FabricConfig, Failure> {
        let mut config = FabricConfig::new(self.domain.clone(), name, kind);
        config.key = self.load_key()?;
        config.connect = self.connect.clone();
        config.relays = self.relay.clone();
        config.bind = self.bind;
        config.heartbeat = self.heartbeat;
        config.mdns = !self.no_mdns;
        if config.key.is_none() && !config.relays.is_empty() {
            return Err(Failure::usage(anyhow!("a relay needs a domain with a key"))
                .hint(format!("`phalanx domain new {}` makes one; copy it to every node", self.domain)));
        }
        Ok(config)
    }
}

/// Reads a key file; says what can be done if it cannot be used.
pub(crate) fn load_key(path: &Path, context: impl FnOnce() -> String) -> Result<DomainKey, Failure> {
    DomainKey::load(path).map_err(|error| {
        let hint = error.hint().unwrap_or_else(|| "`phalanx domain new` makes a key".to_owned());
        Failure::usage(anyhow::Error::new(error).context(context())).hint(hint)
    })
}

/// An error of starting a node, with what to do about it.
pub(crate) fn start_failure(error: impl Into<anyhow::Error>) -> Failure {
    let error = error.into();
    let Some(start) = error.chain().find_map(|cause| cause.downcast_ref::<StartError>()) else {
        return Failure::infrastructure(error);
    };
    let wrong_input = matches!(
        start,
        StartError::KeyRequired { .. }
            | StartError::RelayNeedsKey
            | StartError::WrongKey { .. }
            | StartError::Name { .. }
            | StartError::Heartbeat(_)
    );
    let hint = start.hint().or(match start {
        StartError::WrongKey { .. } => Some("--key and --domain must be of the same domain"),
        StartError::Name { .. } => Some("give another --name"),
        StartError::Heartbeat(_) => Some("give another --heartbeat, like 2s"),
        StartError::Bind { .. } => Some("give another --bind; port 0 takes any that is free"),
        StartError::Directory { .. } => Some("set PHALANX_RUNTIME_DIR to a directory of your own"),
        _ => None,
    });
    let failure = if wrong_input { Failure::usage(error) } else { Failure::infrastructure(error) };
    failure.hint_if(hint)
}
