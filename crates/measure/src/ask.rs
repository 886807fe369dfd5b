//! Requests for measurements.

use super::error::MeasureError;
use bytes::{Bytes, BytesMut};
use phalanx_fabric::Fabric;
use phalanx_types::{ByteSize, NodeId};
use phalanx_wire::codec::{self, CodecError};
use phalanx_wire::measure::{
    FromMeasured, LinkSpeed, MAX_MEASURED_BYTES, MEASURE_SERVICE, Speed, ToMeasured,
};
use serde::Serialize;
use std::time::Duration;

/// How long a measurement may take.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// A measurement may use this fraction (1 of 16) of a node's memory.
const PART_OF_MEMORY: u64 = 16;

/// The measurements of a node since it started.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Known {
    pub speed: Option<Speed>,
    pub links: Vec<LinkSpeed>,
}

/// Asks a node to measure its training speed, which it then announces too.
///
/// # Errors
/// The node does not answer within [`DEADLINE`], is busy, or is lost.
pub async fn ask_speed(fabric: &Fabric, node: &NodeId) -> Result<Speed, MeasureError> {
    match ask(fabric, node, &ToMeasured::Speed, DEADLINE).await? {
        FromMeasured::Speed(speed) if speed.makes_sense() => Ok(speed),
        _ => Err(MeasureError::Senseless { node: node.clone() }),
    }
}

/// The most bytes that a node with this memory holds for a measurement; [`MAX_MEASURED_BYTES`] if the node does not
/// report its memory.
pub(super) fn most_bytes(memory: ByteSize) -> u64 {
    match memory.0 {
        0 => MAX_MEASURED_BYTES,
        bytes => (bytes / PART_OF_MEMORY).clamp(1, MAX_MEASURED_BYTES),
    }
}

/// Asks a node to measure its link to another: the time to fetch bytes from there.
///
/// # Errors
/// The node does not answer within [`DEADLINE`], is busy, is lost, or has no link to the other.
pub async fn ask_link(fabric: &Fabric, node: &NodeId, to: &NodeId) -> Result<LinkSpeed, MeasureError> {
    let own = |id: &NodeId| fabric.nodes().into_iter().find(|status| status.id == *id);
    let most = [node, to].into_iter().filter_map(own).map(|status| most_bytes(status.resources.memory));
    let bytes = most.fold(MAX_MEASURED_BYTES, u64::min);
    let question = ToMeasured::Link { to: to.clone(), bytes };
    match ask(fabric, node, &question, DEADLINE).await? {
        FromMeasured::Link(link) if link.to == *to && link.makes_sense() => Ok(link),
        _ => Err(MeasureError::Senseless { node: node.clone() }),
    }
}

/// Asks for a node's existing measurements, without measuring anything.
///
/// # Errors
/// The node does not answer within [`DEADLINE`] or is lost.
pub async fn ask_known(fabric: &Fabric, node: &NodeId) -> Result<Known, MeasureError> {
    match ask(fabric, node, &ToMeasured::Known, DEADLINE).await? {
        FromMeasured::Known { speed, links } => {
            let speed = speed.filter(Sensible::makes_sense);
            let links = links.into_iter().filter(Sensible::makes_sense).collect();
            Ok(Known { speed, links })
        }
        _ => Err(MeasureError::Senseless { node: node.clone() }),
    }
}

/// Sends a request to a node; a refusal is an error.
pub(super) async fn ask(
    fabric: &Fabric,
    node: &NodeId,
    question: &ToMeasured,
    deadline: Duration,
) -> Result<FromMeasured, MeasureError> {
    let body = encoded(question).map_err(MeasureError::Encode)?;
    let answer = fabric.request(node, MEASURE_SERVICE, body, deadline).await?;
    let answer = codec::decode(&answer);
    match answer.map_err(|source| MeasureError::Malformed { node: node.clone(), source })? {
        FromMeasured::Refused(reason) => Err(MeasureError::Refused { node: node.clone(), reason }),
        answer => Ok(answer),
    }
}

pub(super) fn encoded<T: Serialize>(message: &T) -> Result<Bytes, CodecError> {
    let mut out = BytesMut::new();
    codec::encode_into(message, &mut out)?;
    Ok(out.freeze())
}

/// Checks a peer's numbers, which are not trusted.
trait Sensible {
    fn makes_sense(&self) -> bool;
}

impl Sensible for Speed {
    fn makes_sense(&self) -> bool {
        self.gflops.is_finite() && self.gflops > 0.0
    }
}

impl Sensible for LinkSpeed {
    fn makes_sense(&self) -> bool {
        let positive = |x: f64| x.is_finite() && x > 0.0;
        positive(self.bytes_per_s) && positive(self.latency_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_nodes_are_measured_with_little() {
        assert_eq!(most_bytes(ByteSize(64 << 20)), 4 << 20);
        assert_eq!(most_bytes(ByteSize(1 << 40)), MAX_MEASURED_BYTES);
        assert_eq!((most_bytes(ByteSize(0)), most_bytes(ByteSize(1))), (MAX_MEASURED_BYTES, 1));
    }

    #[test]
    fn unusable_numbers_are_refused() {
        let speed = |gflops| Speed { gflops, threads: 1, millis: 250 }.makes_sense();
        assert!(speed(0.5));
        assert!(![0.0, -1.0, f32::NAN, f32::INFINITY].into_iter().any(speed));
        let to: NodeId = "b".parse().unwrap();
        let link = |bytes_per_s, latency_s| {
            LinkSpeed { to: to.clone(), bytes_per_s, latency_s, bytes: 1 }.makes_sense()
        };
        assert!(link(1e6, 1e-4));
        assert!(!link(0.0, 1e-4) && !link(f64::INFINITY, 1e-4) && !link(1e6, f64::NAN) && !link(1e6, -1.0));
    }
}
