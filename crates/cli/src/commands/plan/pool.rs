//! The nodes of a plan: of a file, or of the domain. Here, as in the costs of a model, a speed counts billions of
//! operations per second.

use crate::args::{DomainArgs, start_failure};
use crate::failure::Failure;
use anyhow::{Context, anyhow};
use phalanx_fabric::{Fabric, NodeKind, NodeState, NodeStatus};
use phalanx_formation::{Link, Pool};
use phalanx_measure::costs::Here;
use phalanx_measure::{Known as Measured, KnownNode, LinkSpeed, ask_known, ask_speed, pool_of};
use phalanx_types::DomainName;
use std::path::Path;
use std::time::Duration;

/// How long to look for nodes.
const PATIENCE: Duration = Duration::from_secs(2);

/// The nodes there are, and what is to be said about them.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) pool: Pool,
    /// Where they come from, in words.
    pub(super) from: String,
    pub(super) notes: Vec<String>,
}

pub(super) fn of_file(path: &Path) -> Result<Known, Failure> {
    let told = || format!("could not read the pool file {}", path.display());
    let text = std::fs::read_to_string(path).with_context(told).map_err(Failure::usage)?;
    let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    let pool = if is_json || text.trim_start().starts_with('{') {
        Pool::from_json(&text)
    } else {
        Pool::from_toml(&text)
    };
    let pool = pool.with_context(told).map_err(|error| {
        Failure::usage(error)
            .hint("`phalanx plan --help` shows one; `phalanx nodes --measure --write` makes one")
    })?;
    Ok(Known { pool: in_giga(pool), from: format!("the nodes of {}", path.display()), notes: Vec::new() })
}

/// Files are read with speeds in operations per second; costs are in billions of them.
fn in_giga(mut pool: Pool) -> Pool {
    pool.nodes.iter_mut().for_each(|node| node.speed *= 1e-9);
    pool
}

/// `own` is what this machine does, as far as that was measured.
pub(super) async fn of_domain(domain: &DomainArgs, own: Here) -> Result<Known, Failure> {
    let config = domain.fabric("plan", NodeKind::Observer)?;
    let fabric = Fabric::start(config).await.map_err(start_failure)?;
    fabric.settled(PATIENCE).await;
    let found = ask_all(&fabric, &domain.domain, own).await;
    fabric.shutdown().await;
    found
}

async fn ask_all(fabric: &Fabric, domain: &DomainName, own: Here) -> Result<Known, Failure> {
    let computing = |s: &NodeStatus| s.kind == NodeKind::Computing && s.state == NodeState::Running;
    let (busy, free): (Vec<_>, Vec<_>) =
        fabric.nodes().into_iter().filter(computing).partition(|status| status.drivers().next().is_some());
    let trains = |status: &NodeStatus| {
        let drivers: Vec<String> = status.drivers().map(ToString::to_string).collect();
        format!("{} is not counted: it trains for {}", status.id, drivers.join(", "))
    };
    let mut notes: Vec<String> = busy.iter().map(trains).collect();
    if free.is_empty() {
        let what = if busy.is_empty() { "is no computing node" } else { "are only nodes that train already" };
        return Err(Failure::infrastructure(anyhow!("there {what} in domain {domain}"))
            .hint("`phalanx node` starts one; --nodes FILE plans for nodes that are not there"));
    }
    let mut measured = Vec::new();
    for status in &free {
        measured.push(ask(fabric, status, &mut notes).await);
    }
    let pool = assemble(&free, &measured, own, &mut notes);
    Ok(Known { pool, from: format!("the nodes of domain {domain}"), notes })
}

/// What a node has measured; its speed is measured now if it was not before.
async fn ask(fabric: &Fabric, status: &NodeStatus, notes: &mut Vec<String>) -> Measured {
    let mut known = ask_known(fabric, &status.id).await.unwrap_or_default();
    if known.speed.is_none() && status.resources.speed_gflops.is_none() {
        match ask_speed(fabric, &status.id).await {
            Ok(speed) => known.speed = Some(speed),
            Err(error) => notes.push(format!(
                "{} could not be measured and is taken for the slowest of the others: {error}",
                status.id
            )),
        }
    }
    known
}

fn assemble(nodes: &[NodeStatus], measured: &[Measured], own: Here, notes: &mut Vec<String>) -> Pool {
    let speeds: Vec<Option<f64>> = nodes
        .iter()
        .zip(measured)
        .map(|(status, known)| known.speed.map(|s| s.gflops).or(status.resources.speed_gflops).map(f64::from))
        .collect();
    let known = |(status, gflops): (&NodeStatus, Option<f64>)| KnownNode {
        id: status.id.clone(),
        resources: status.resources.clone(),
        gflops,
    };
    let known: Vec<KnownNode> = nodes.iter().zip(speeds).map(known).collect();
    let links = nodes.iter().zip(measured).flat_map(|(status, known)| {
        let link = |link: &LinkSpeed| {
            ((status.id.clone(), link.to.clone()), Link::new(link.bytes_per_s, link.latency_s))
        };
        known.links.iter().map(link)
    });
    let pool = pool_of(&known, &links.collect(), &own);
    if is_guessed(&pool) {
        notes.push(
            "links between hosts that were not measured are taken for Gigabit; `phalanx nodes --measure` measures them"
                .to_owned(),
        );
    }
    pool
}

/// Whether nothing is known of a link between two hosts.
fn is_guessed(pool: &Pool) -> bool {
    let count = pool.nodes.len();
    let known = |a: usize, b: usize| pool.links.contains_key(&(a, b)) || pool.links.contains_key(&(b, a));
    let apart = |a: usize, b: usize| pool.nodes[a].host != pool.nodes[b].host;
    (0..count).any(|a| (a + 1..count).any(|b| apart(a, b) && !known(a, b)))
}
