//! A run on nodes: this process drives, nodes compute.

use super::Who;
use super::go::{finished, until_ended};
use super::watch::Watch;
use crate::args::start_failure;
use crate::commands::artifacts::{place_of_finished, push_finished};
use crate::commands::live::live_failure;
use crate::failure::Failure;
use crate::output::Output;
use crate::own_program::own_program;
use crate::stop::StopSignals;
use phalanx_driver::DriverOptions;
use phalanx_driver::live::LiveNote;
use phalanx_fabric::{Fabric, FabricConfig, NodeKind};
use phalanx_nodes::{LocalNodes, LocalSpec, private_domain};
use phalanx_records::run_dir::RunDir;
use phalanx_train::config::Resolved;
use phalanx_train::{Compute, Task};
use std::net::{Ipv4Addr, SocketAddr};
use tokio::sync::watch;

/// Drives a run to its end, or until somebody asks to stop: once to save and go, twice to go at once.
pub(super) async fn drive(
    task: Task,
    dir: RunDir,
    resolved: &Resolved,
    who: &Who,
    mut watch: Watch,
    output: Output,
) -> Result<(), Failure> {
    let artifacts = place_of_finished()?;
    let mut stops = StopSignals::new()?;
    let path = dir.path().to_owned();
    let formation = &task.config().formation;
    // A timeline of one replica needs a node that makes it.
    let alone = formation.replicas == 1 && who.replicas.is_none() && !formation.is_staged();
    let local = if alone { 1 } else { formation.local };
    let is_private = local > 0;
    let cores = formation.cores;
    let domain = private_domain().map_err(Failure::infrastructure)?;
    let config = if local > 0 {
        let mut config = FabricConfig::new(domain.clone(), "driver", NodeKind::Main);
        config.bind = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        config.mdns = false;
        config.heartbeat = who.domain.heartbeat;
        config
    } else {
        who.domain.fabric("driver", NodeKind::Main)?
    };
    let fabric = Fabric::start(config).await.map_err(start_failure)?;
    let (named, key) = if local > 0 { (&domain, None) } else { (&who.domain.domain, who.domain.key_file()) };
    let note = LiveNote { domain: named.clone(), driver: fabric.id().clone(), key };
    let noted = note.write(&path).map_err(live_failure)?;
    let count = u32::try_from(local).unwrap_or(u32::MAX);
    let heartbeat = Some(who.domain.heartbeat);
    // Nodes that this process starts open its files in place.
    let run_files = task.config().files().into_iter().map(|(_, path)| path.to_owned()).collect();
    let local = LocalSpec::new(own_program(), domain, count);
    let spec = LocalSpec { heartbeat, cores, run_files, restart: true, ..local };
    let nodes = LocalNodes::start(&spec).map_err(Failure::infrastructure)?;
    let options = DriverOptions {
        config: resolved.to_toml(),
        private: is_private,
        trace: who.trace,
        compute: Compute::cpu(Some(1)),
    };
    let (stop, asked) = watch::channel(false);
    let handle = fabric.clone();
    let training = tokio::task::spawn_blocking(move || {
        watch = watch.feeding(dir.path());
        let result = phalanx_driver::drive(&handle, task, dir, options, asked, &mut watch);
        watch.finish();
        result
    });
    let summary = until_ended(training, &mut stops, &path, || stop.send_replace(true)).await?;
    drop(noted);
    fabric.shutdown().await;
    drop(nodes);
    finished(summary, &path, output)?;
    push_finished(artifacts, &path, output, &mut stops).await;
    Ok(())
}
