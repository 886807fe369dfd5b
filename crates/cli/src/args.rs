//! The command line as types; the doc comments are the help texts.

use crate::commands;
use crate::failure::Failure;
use crate::output::Output;
use crate::paths;
use anyhow::{Context, anyhow};
use clap::{Args, Parser, Subcommand};
use phalanx_fabric::{DomainKey, FabricConfig, NodeKind};
use phalanx_types::DomainName;
use std::net::SocketAddr;
use std::path::PathBuf;
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
    /// Log more; twice for everything.
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Join a domain as a computing node and solve jobs until stopped.
    Node(commands::node::NodeArgs),
    /// Show who is in a domain, what they can do and what they are doing.
    Nodes(commands::nodes::NodesArgs),
    /// Connect nodes of networks that cannot reach each other.
    Relay(commands::relay::RelayArgs),
    /// Make and show the keys of domains.
    Domain(commands::domain::DomainCommand),
    /// Submit jobs and see what became of them.
    Job(commands::job::JobCommand),
    /// Measure this machine.
    Bench(commands::bench::BenchCommand),
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
    #[arg(long, value_name = "HOST:PORT", env = "PHALANX_CONNECT", value_delimiter = ',')]
    pub(crate) connect: Vec<String>,
    /// A relay to meet nodes of other networks at.
    #[arg(long, value_name = "HOST:PORT", env = "PHALANX_RELAY", value_delimiter = ',')]
    pub(crate) relay: Vec<String>,
    /// The address to listen at; every interface with a key, loopback without one.
    #[arg(long, value_name = "ADDR:PORT", env = "PHALANX_BIND")]
    pub(crate) bind: Option<SocketAddr>,
    /// How long a node may be silent before it counts as lost.
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

impl DomainArgs {
    /// The key file that was named, or the usual one when it exists.
    pub(crate) fn load_key(&self) -> Result<Option<DomainKey>, Failure> {
        let usual = paths::domain_key(&self.domain).ok().filter(|path| path.exists());
        let Some(path) = self.key.clone().or(usual) else { return Ok(None) };
        let key = DomainKey::load(&path)
            .with_context(|| format!("could not use the key of domain {}", self.domain))
            .map_err(|error| Failure::usage(error).hint("`phalanx domain new` makes a key"))?;
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

/// An error of starting a node, with what to do about it.
pub(crate) fn start_failure(error: impl Into<anyhow::Error>) -> Failure {
    let error = error.into();
    let key_required = error
        .chain()
        .any(|cause| matches!(cause.downcast_ref(), Some(phalanx_fabric::StartError::KeyRequired { .. })));
    if key_required {
        return Failure::usage(error)
            .hint("`phalanx domain new` makes a key; without one a node stays on loopback");
    }
    Failure::infrastructure(error)
}
