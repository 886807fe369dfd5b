//! `cargo xtask bench store`: the tensor store against Redis from the system's packages, in turn.
//!
//! ```text
//!   redis-benchmark  their client against both servers
//!   socket           1 MB values by a client that only writes and reads, both servers
//!   tail             the slowest 1 KB GETs beside ten GETs of 10 MB a second, both servers
//!   client           our clients for Rust and Python against redis-py, a copy in memory, and limits
//!   smartredis       its own client against both servers
//!   inference        16 clients of a model with batching against one by one
//!   trainer          a trainer fed by a stream against the same samples from a file, and the commands of a wait
//! ```

mod clients;
mod redis_benchmark;
mod servers;
mod trainer;

use super::parts::PartsArgs;
use super::rows::{Bar, Row};
use super::{json, median, number, release};
use crate::python::Environment;
use crate::tool::{present, tool};
use anyhow::{Context, ensure};
use clap::ValueEnum;
use serde_json::Value;
use servers::Servers;
use std::path::{Path, PathBuf};

pub(super) type StoreArgs = PartsArgs<Part>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Part {
    RedisBenchmark,
    Socket,
    Tail,
    Client,
    Smartredis,
    Inference,
    Trainer,
}

/// What is measured, and how often.
struct Bench {
    program: PathBuf,
    servers: Servers,
    rounds: u32,
    no_build: bool,
}

impl Bench {
    /// Our own benchmark of a server; gives its numbers.
    fn own(&self, part: &str, address: &str) -> anyhow::Result<Value> {
        let words = ["bench", "store", "--only", part, "--at", address, "--time", "4s", "--output", "json"];
        json(&tool(&self.program, &words).capture()?)
    }

    /// The Python that has both sides, and our package.
    fn python(&self) -> anyhow::Result<PathBuf> {
        let python = Environment::store_bench()?.install()?;
        if !self.no_build {
            let environment = python.parent().and_then(Path::parent).context("no environment")?;
            tool(&python, &["-m", "maturin", "develop", "--release", "--quiet"])
                .env("VIRTUAL_ENV", environment)
                .run()?;
        }
        Ok(python)
    }
}

pub(super) fn run(args: &StoreArgs) -> anyhow::Result<()> {
    for program in ["redis-server", "redis-benchmark"] {
        ensure!(present(program), "{program} is missing; on Debian `apt install redis` installs it");
    }
    let program = match args.no_build {
        true => crate::tool::target().join("release/phalanx"),
        false => release()?,
    };
    let servers = Servers::start(&program)?;
    let bench = Bench { program, servers, rounds: args.rounds, no_build: args.no_build };
    args.measure(|part| match part {
        Part::RedisBenchmark => redis_benchmark::measure(&bench),
        Part::Socket => socket(&bench),
        Part::Tail => tail(&bench),
        Part::Client => clients::measure(&bench),
        Part::Smartredis => clients::smartredis(&bench),
        Part::Inference => inference(&bench),
        Part::Trainer => trainer::measure(&bench),
    })
}

fn socket(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds {
        ours.push(bench.own("socket", bench.servers.ours())?);
        theirs.push(bench.own("socket", bench.servers.redis())?);
    }
    let mut rows = Vec::new();
    for clients in ["1_client", "4_clients"] {
        for verb in ["set", "get"] {
            let key = format!("socket_{verb}_1mb_{clients}_per_s");
            let what = format!("1 MB {}, {}", verb.to_uppercase(), clients.replace('_', " "));
            let (part, unit, more_is_better, bar) = ("socket", "1/s", true, Bar::TimesBetter(Some(1.5)));
            let peer = Some(("redis", median(&theirs, &key)?));
            rows.push(Row { part, what, unit, ours: median(&ours, &key)?, peer, more_is_better, bar });
        }
    }
    Ok(rows)
}

fn tail(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds {
        ours.push(bench.own("tail", bench.servers.ours())?);
        theirs.push(bench.own("tail", bench.servers.redis())?);
    }
    let row = |key, what: &str, bar| -> anyhow::Result<Row> {
        let (part, unit, more_is_better) = ("tail", "µs", false);
        let peer = Some(("redis", median(&theirs, key)?));
        Ok(Row { part, what: what.to_owned(), unit, ours: median(&ours, key)?, peer, more_is_better, bar })
    };
    Ok(vec![
        row("tail_p50_us", "1 KB GET beside 10 MB, p50", Bar::TimesBetter(None))?,
        row("tail_p999_us", "1 KB GET beside 10 MB, p99.9", Bar::AtMost(2000.0))?,
    ])
}

fn inference(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let runs = (0..bench.rounds).map(|_| bench.own("inference", bench.servers.ours()));
    let runs = runs.collect::<anyhow::Result<Vec<_>>>()?;
    let mut rows = Vec::new();
    for (model, parameters) in [("inference", "235,000"), ("inference_wide", "6.3 million")] {
        let median_of = |what: &str| median(&runs, &format!("{model}_{what}_per_s"));
        let ours = median_of("16_clients_batched")?;
        let sides = [("one by one", "1_client", Some(3.0)), ("16, unbatched", "16_clients", None)];
        for (peer, key, least) in sides {
            let (part, unit, more_is_better) = ("inference", "requests/s", true);
            let what = format!("{parameters} parameters: 16 clients, batched");
            let (peer, bar) = (Some((peer, median_of(key)?)), Bar::TimesBetter(least));
            rows.push(Row { part, what, unit, ours, peer, more_is_better, bar });
        }
    }
    Ok(rows)
}

/// A number of a run that must be there.
fn numbers(run: &Value, keys: [&str; 2]) -> anyhow::Result<(f64, f64)> {
    let [ours, theirs] = keys;
    Ok((number(run, ours)?, number(run, theirs)?))
}
