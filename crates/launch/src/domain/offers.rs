//! What nodes of the domain offer to ranks, and reserving it.

use crate::core::placement::{NodeOffer, PlaceWait};
use crate::host::PROGRAMS;
use bytes::BytesMut;
use phalanx_fabric::{Fabric, NodeState, NodeStatus, StreamKey, StreamSocket};
use phalanx_types::{Needs, NodeId};
use phalanx_wire::codec;
use phalanx_wire::launch::{LAUNCH_SERVICE, Reserve, ReserveReply};
use phalanx_wire::usage;
use std::fmt::Display;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// How long a node may wait for cores to become free.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long a node may take to answer, beside that.
const ANSWER: Duration = Duration::from_secs(10);

/// The machine that a node is on, or the node where that is not known.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Machine {
    Known(u64),
    Of(NodeId),
}

impl Machine {
    pub(super) fn of(offers: &[NodeOffer], node: &NodeId) -> Self {
        let known = offers.iter().find(|offer| offer.node == *node).and_then(|offer| offer.machine);
        known.map_or_else(|| Machine::Of(node.clone()), Machine::Known)
    }
}

/// The nodes that this one has a link to.
pub(super) fn offers(fabric: &Fabric) -> Vec<NodeOffer> {
    let offer = |status: NodeStatus| {
        let peer = fabric.peer(&status.id)?;
        let resources = &status.resources;
        let capacity = Needs { cores: resources.cores, memory: resources.memory };
        Some(NodeOffer {
            machine: resources.host.as_ref().map(|host| host.boot),
            free: usage::free(capacity, &status.uses).cores,
            runs_programs: status.handles.iter().any(|kind| kind == PROGRAMS),
            launcher: peer.local_ip(),
            node: status.id,
        })
    };
    let running = |status: &NodeStatus| status.kind.solves() && status.state == NodeState::Running;
    // Of a node that has just been linked only the kind is known, until its status comes.
    let known = |status: &NodeStatus| status.resources.cores > 0;
    fabric.nodes().into_iter().filter(running).filter(known).filter_map(offer).collect()
}

/// Reserves cores of a node, for as long as the stream is open.
pub(super) async fn reserve(fabric: &Fabric, node: &NodeId, cores: u32) -> Result<StreamSocket, PlaceWait> {
    let failed =
        |error: &dyn Display| PlaceWait::Failed { node: node.clone(), detail: error.to_string().into() };
    let peer = fabric.peer(node).ok_or_else(|| failed(&"there is no link to it"))?;
    let key = random_key();
    let stream = fabric.open_stream(&peer, key).await.map_err(|error| failed(&error))?;
    let ask = Reserve { stream: key.0, cores, patience_ms: PATIENCE.as_millis() as u32 };
    let mut body = BytesMut::new();
    codec::encode_into(&ask, &mut body).map_err(|error| failed(&error))?;
    let reply = fabric.request(node, LAUNCH_SERVICE, body.freeze(), PATIENCE + ANSWER).await;
    match codec::decode(&reply.map_err(|error| failed(&error))?).map_err(|error| failed(&error))? {
        ReserveReply::Reserved => Ok(stream),
        ReserveReply::Shortage(shortage) => Err(PlaceWait::Shortage { node: node.clone(), shortage }),
        ReserveReply::NoStream { detail } => Err(PlaceWait::Failed { node: node.clone(), detail }),
    }
}

/// A key that no other stream has. The standard library seeds its hashers from the operating system.
fn random_key() -> StreamKey {
    let mut key = [0; 16];
    for half in key.chunks_exact_mut(8) {
        half.copy_from_slice(&RandomState::new().hash_one(std::process::id()).to_le_bytes());
    }
    StreamKey(key)
}
