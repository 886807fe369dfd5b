//! `phalanx relay`: connects nodes of networks that cannot reach each other.

use crate::args::load_key;
use crate::failure::Failure;
use crate::output::{Output, Render};
use crate::paths;
use crate::stop::StopSignals;
use anyhow::{Context, anyhow};
use clap::Args;
use phalanx_fabric::{Relay, RelayConfig, RelayToken, read_private};
use phalanx_types::DomainName;
use serde::Serialize;
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(
    after_help = "A relay sees who talks to whom, never what they say: nodes authenticate each other through it,
end to end. It needs only the relay token, which does not let it join the domain.

Examples:
  phalanx relay --bind 0.0.0.0:7700 --domain lab        on a machine that has the domain's key
  phalanx relay --bind 0.0.0.0:7700 --token-file token  with what `phalanx domain show lab --relay-token` prints
  phalanx node --domain lab --relay relay.example:7700  on one node of each side; the others take it over"
)]
pub(crate) struct RelayArgs {
    /// The address to listen at.
    #[arg(long, value_name = "ADDR:PORT", default_value = "0.0.0.0:7700")]
    bind: SocketAddr,
    /// A domain to serve, whose key is on this machine; may be given several times.
    #[arg(long, required_unless_present_any = ["token_file", "key"])]
    domain: Vec<DomainName>,
    /// A domain key file to take the token from; may be given several times.
    #[arg(long, value_name = "FILE")]
    key: Vec<PathBuf>,
    /// A file with relay tokens, one a line, that only you may read; may be given several times.
    #[arg(long, value_name = "FILE")]
    token_file: Vec<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Started {
    address: String,
    domains: usize,
    pid: u32,
}

impl Render for Started {
    fn table(&self) -> String {
        let s = if self.domains == 1 { "" } else { "s" };
        format!("relaying {} domain{s} at {}", self.domains, self.address)
    }

    fn quiet(&self) -> String {
        self.address.clone()
    }
}

fn tokens(args: &RelayArgs) -> Result<Vec<RelayToken>, Failure> {
    let mut tokens = Vec::new();
    for file in &args.token_file {
        let text = read_private(file).map_err(|error| {
            let hint = error.hint();
            let error = anyhow::Error::new(error).context("could not use a file of relay tokens");
            Failure::usage(error).hint_if(hint)
        })?;
        let text = String::from_utf8_lossy(&text);
        for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
            let token = line.parse().with_context(|| format!("bad relay token in {}", file.display()));
            tokens.push(token.map_err(Failure::usage)?);
        }
    }
    let named = args.domain.iter().map(paths::domain_key).collect::<Result<Vec<_>, _>>()?;
    for file in args.key.iter().chain(&named) {
        let key = load_key(file, || format!("could not use the key in {}", file.display()))?;
        tokens.push(key.relay_token());
    }
    if tokens.is_empty() {
        let error = anyhow!("there is no relay token in the files of --token-file");
        return Err(Failure::usage(error).hint("`phalanx domain show NAME --relay-token` prints one"));
    }
    Ok(tokens)
}

pub(crate) async fn run(args: RelayArgs, output: Output) -> Result<(), Failure> {
    let tokens = tokens(&args)?;
    let domains = tokens.len();
    let mut stops = StopSignals::new()?;
    let relay = Relay::start(RelayConfig { bind: args.bind, tokens }).await.map_err(|error| {
        Failure::infrastructure(error).hint("give another --bind; port 0 takes any that is free")
    })?;
    output.print(&Started { address: relay.address().to_string(), domains, pid: std::process::id() })?;
    stops.next().await;
    relay.shutdown().await;
    Ok(())
}
