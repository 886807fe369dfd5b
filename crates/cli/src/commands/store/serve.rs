//! `phalanx store serve`.

use super::password;
use crate::commands::metrics::{MetricsArgs, StoreSource};
use crate::failure::Failure;
use crate::output::{Output, Render};
use crate::paths;
use crate::stop::StopSignals;
use anyhow::anyhow;
use clap::{Args, ValueEnum};
use phalanx_fabric::{DomainKey, service_names};
use phalanx_infer::StoredModels;
use phalanx_nodes::machine;
use phalanx_store::{Durability, Server, ServerConfig, ServerTls, StartError};
use phalanx_telemetry::MetricsServer;
use phalanx_types::{ByteSize, DomainName, NodeId};
use serde::Serialize;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Debug, Args)]
#[command(after_help = "The store speaks the Redis protocol: point SSDB at it, or any Redis client.
What it holds is in memory and ends with the process, unless --persist names a directory for it.

Examples:
  phalanx store serve
  phalanx store serve --bind 0.0.0.0:6780 --password-file secret --memory 64GiB
  phalanx store serve --persist data --durability every-write
  phalanx store serve --bind 0.0.0.0:6780 --domain lab   for members of a domain, phalanx://lab@HOST:6780
  phalanx store serve --memory 8GiB --spill scratch
  phalanx store serve --unix /tmp/store.sock      for programs on this machine
  SSDB=127.0.0.1:6780 python simulation.py        a SmartRedis program")]
pub(crate) struct ServeArgs {
    /// The address to listen at; beyond loopback a domain key or a password is needed.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:6780", env = "PHALANX_STORE_BIND")]
    bind: SocketAddr,
    /// A Unix socket to listen at, too.
    #[arg(long, value_name = "PATH")]
    unix: Option<PathBuf>,
    /// How much memory keys and values may take; beyond it large values go to disk with --persist or --spill, and
    /// writes are refused otherwise. Four fifths of the machine's when not given.
    #[arg(long, value_name = "SIZE")]
    memory: Option<ByteSize>,
    /// A directory in which everything is kept, so that it is there after a restart or a crash.
    #[arg(long, value_name = "DIR")]
    persist: Option<PathBuf>,
    /// When a write is acknowledged: on disk, or taken by the system and on disk within a second, or at some time.
    #[arg(long, value_name = "WHEN", default_value = "every-second", requires = "persist")]
    durability: DurabilityArg,
    /// A directory for large values that memory has no room for; they end with the store.
    #[arg(long, value_name = "DIR")]
    spill: Option<PathBuf>,
    /// How much the values of --spill may take; as much as the disk has when not given.
    #[arg(long, value_name = "SIZE", requires = "spill")]
    spill_limit: Option<ByteSize>,
    /// A file whose first line is the password that clients must give.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Speak TLS with a certificate of this domain; clients with the domain's key need no password.
    #[arg(long, value_name = "DOMAIN", conflicts_with = "tls_cert")]
    domain: Option<DomainName>,
    /// The domain's key; looked for where `phalanx domain new` puts it when not given.
    #[arg(long, value_name = "FILE", env = "PHALANX_KEY", requires = "domain")]
    key: Option<PathBuf>,
    /// Speak TLS with the certificate in this PEM file.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of the certificate.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Let every host that reaches the store use it without a password.
    #[arg(long)]
    expose_without_password: bool,
    /// The host that clients of a cluster are told, when it is not the address they connected to.
    #[arg(long, value_name = "HOST")]
    announce: Option<String>,
    /// How many threads serve clients; one for every two cores, at most four, when not given.
    #[arg(long, value_name = "N")]
    io_threads: Option<usize>,
    #[command(flatten)]
    metrics: MetricsArgs,
}

/// When a write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DurabilityArg {
    /// When it is on disk: it survives a crash of the machine.
    EveryWrite,
    /// When the system has it, and it is on disk within about a second: it survives a crash of the store.
    EverySecond,
    /// When the system has it: it survives a crash of the store.
    Never,
}

impl From<DurabilityArg> for Durability {
    fn from(durability: DurabilityArg) -> Self {
        match durability {
            DurabilityArg::EveryWrite => Self::EveryWrite,
            DurabilityArg::EverySecond => Self::EverySecond,
            DurabilityArg::Never => Self::Never,
        }
    }
}

#[derive(Debug, Serialize)]
struct Started {
    address: String,
    unix: Option<PathBuf>,
    memory_bytes: u64,
    password: bool,
    tls: bool,
    /// Where Prometheus finds its numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<String>,
    pid: u32,
}

impl Render for Started {
    fn table(&self) -> String {
        let unix = self.unix.as_ref().map(|path| format!(" and {}", path.display())).unwrap_or_default();
        let password = if self.password { "with a password" } else { "without a password" };
        let tls = if self.tls { ", TLS beyond loopback" } else { "" };
        let metrics = self.metrics.as_ref().map(|url| format!(", metrics at {url}")).unwrap_or_default();
        let memory = ByteSize(self.memory_bytes);
        format!("store at {}{unix}, {memory}, {password}{tls}{metrics}", self.address)
    }

    fn quiet(&self) -> String {
        self.address.clone()
    }
}

pub(crate) async fn run(args: ServeArgs, output: Output) -> Result<(), Failure> {
    let tls = tls(&args)?;
    let config = ServerConfig {
        bind: Some(args.bind),
        tls,
        unix: args.unix,
        memory: args.memory.unwrap_or_else(|| machine().memory),
        password: password(args.password_file.as_deref())?,
        expose_without_password: args.expose_without_password,
        announced_host: args.announce,
        io_threads: args.io_threads.unwrap_or(0),
        persist: args.persist,
        durability: args.durability.into(),
        spill: args.spill,
        spill_limit: args.spill_limit.unwrap_or(ByteSize(0)),
        runner: Some(Arc::new(StoredModels::default())),
        ..ServerConfig::default()
    };
    let (memory, has_password, has_tls) = (config.memory, config.password.is_some(), config.tls.is_some());
    let mut stops = StopSignals::new()?;
    let server = Server::start(config).await.map_err(failure)?;
    let metrics = args.metrics.serve(StoreSource::new(server.client())).await?;
    output.print(&Started {
        metrics: metrics.as_ref().map(MetricsServer::url),
        address: server.address().map(|address| address.to_string()).unwrap_or_default(),
        unix: server.unix_path().map(PathBuf::from),
        memory_bytes: memory.0,
        password: has_password,
        tls: has_tls,
        pid: std::process::id(),
    })?;
    tokio::select! {
        () = stops.next() => {}
        () = server.stopped() => {}
    }
    server.shutdown().await;
    Ok(())
}

fn tls(args: &ServeArgs) -> Result<Option<ServerTls>, Failure> {
    if let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) {
        return ServerTls::from_files(certificate, key).map(Some).map_err(Failure::usage);
    }
    let Some(domain) = &args.domain else { return Ok(None) };
    let path = args.key.clone().map_or_else(|| paths::domain_key(domain), Ok)?;
    let key = DomainKey::load(&path)
        .map_err(|error| Failure::usage(error).hint(format!("`phalanx domain new {domain}` makes a key")))?;
    if key.domain() != domain {
        return Err(Failure::usage(anyhow!("this is the key of domain {}, not of {domain}", key.domain())));
    }
    let id = NodeId::with_suffix("store", 0).map_err(Failure::usage)?;
    let config = key.service_tls(&id, &service_names()).map_err(Failure::infrastructure)?;
    Ok(Some(ServerTls::for_members(config)))
}

fn failure(error: StartError) -> Failure {
    let hint = error.hint();
    let wrong_input = matches!(error, StartError::Exposed { .. } | StartError::EmptyPassword);
    let failure = if wrong_input { Failure::usage(error) } else { Failure::infrastructure(error) };
    failure.hint_if(hint)
}
