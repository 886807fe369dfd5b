//! How a node measures its link to another.

use super::ask::ask;
use super::error::MeasureError;
use phalanx_fabric::{BlobId, Fabric, Peer};
use phalanx_types::NodeId;
use phalanx_wire::measure::{FromMeasured, LinkSpeed, MAX_MEASURED_BYTES, MeasureRefusal, ToMeasured};
use std::time::{Duration, Instant};

/// The number of round trips; the median counts.
const ROUND_TRIPS: usize = 21;
/// The time limit for a small request to the other end.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time limit of a transfer.
const TRANSFER: Duration = Duration::from_secs(5);
/// The first transfer: opens the bulk connection, and indicates how many bytes are needed.
const FIRST: u64 = 64 << 10;
/// A transfer that took this long is sufficient.
const ENOUGH: Duration = Duration::from_millis(100);

/// Measures the link to a node with transfers of at most `most` bytes.
pub(super) async fn measure(fabric: &Fabric, to: &NodeId, most: u64) -> Result<LinkSpeed, MeasureRefusal> {
    let Some(peer) = fabric.peer(to) else { return Err(other_end(to, "there is no link to it")) };
    let round_trip = round_trip(fabric, to).await?;
    let most = most.clamp(1, MAX_MEASURED_BYTES);
    let warm_up = transfer(fabric, &peer, FIRST.min(most)).await?;
    let mut bytes = next_size(FIRST.min(most), warm_up, most).unwrap_or(FIRST.min(most));
    loop {
        let took = transfer(fabric, &peer, bytes).await?;
        match next_size(bytes, took, most) {
            Some(next) => bytes = next,
            None => {
                let latency_s = (round_trip / 2).as_secs_f64().max(1e-9);
                return Ok(LinkSpeed {
                    to: to.clone(),
                    bytes_per_s: rate(bytes, took, round_trip),
                    latency_s,
                    bytes,
                });
            }
        }
    }
}

/// The size of the next transfer, if one is needed: one that probably takes long enough, at least twice the last.
fn next_size(bytes: u64, took: Duration, most: u64) -> Option<u64> {
    if took >= ENOUGH || bytes >= most {
        return None;
    }
    let needed = bytes as f64 * ENOUGH.as_secs_f64() / took.as_secs_f64().max(1e-6) * 1.25;
    Some((needed as u64).clamp(bytes * 2, bytes * 16).min(most))
}

/// Bytes per second, without the latency of the request and of the first byte.
fn rate(bytes: u64, took: Duration, round_trip: Duration) -> f64 {
    let moving = took.saturating_sub(round_trip).max(took / 2).as_secs_f64();
    bytes as f64 / moving.max(1e-9)
}

async fn round_trip(fabric: &Fabric, to: &NodeId) -> Result<Duration, MeasureRefusal> {
    let mut times = Vec::with_capacity(ROUND_TRIPS);
    for _ in 0..ROUND_TRIPS {
        let begun = Instant::now();
        match ask(fabric, to, &ToMeasured::Ping, PATIENCE).await {
            Ok(FromMeasured::Pong) => times.push(begun.elapsed()),
            answer => return Err(no_part(to, answer)),
        }
    }
    times.sort_unstable();
    Ok(times.get(ROUND_TRIPS / 2).copied().unwrap_or_default())
}

/// Fetches this many bytes; returns how long it took once they were ready.
async fn transfer(fabric: &Fabric, from: &Peer, bytes: u64) -> Result<Duration, MeasureRefusal> {
    let blob = match ask(fabric, from.id(), &ToMeasured::Hold { bytes }, PATIENCE).await {
        Ok(FromMeasured::Held { blob }) => blob,
        answer => return Err(no_part(from.id(), answer)),
    };
    let begun = Instant::now();
    let fetched = tokio::time::timeout(TRANSFER, fabric.fetch(from, blob, bytes)).await;
    let took = begun.elapsed();
    release(fabric, from.id(), blob).await;
    match fetched {
        Ok(Ok(_bytes)) => Ok(took),
        Ok(Err(error)) => Err(other_end(from.id(), &error.to_string())),
        Err(_) => Err(other_end(from.id(), &format!("{bytes} bytes did not come within {TRANSFER:?}"))),
    }
}

async fn release(fabric: &Fabric, node: &NodeId, blob: BlobId) {
    // The peer releases it by itself after a while.
    if let Err(error) = ask(fabric, node, &ToMeasured::Release { blob }, PATIENCE).await {
        tracing::debug!(%node, %error, "could not have a blob released");
    }
}

fn no_part(node: &NodeId, answer: Result<FromMeasured, MeasureError>) -> MeasureRefusal {
    match answer {
        Ok(_) => other_end(node, "it gave an answer to another question"),
        Err(MeasureError::Refused { reason, .. }) => other_end(node, &reason.to_string()),
        Err(error) => other_end(node, &error.to_string()),
    }
}

fn other_end(node: &NodeId, detail: &str) -> MeasureRefusal {
    MeasureRefusal::OtherEnd { node: node.clone(), detail: detail.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn transfers_grow_until_one_is_long_enough() {
        let most = 64 * MIB;
        // 10 MiB/s: the next transfer takes the required 100 ms, and a little more.
        assert_eq!(next_size(MIB / 2, ms(50), most), Some(MIB * 5 / 4));
        assert_eq!(next_size(MIB, ms(90), most), Some(2 * MIB));
        assert_eq!(next_size(MIB, Duration::ZERO, most), Some(16 * MIB));
        assert_eq!(next_size(48 * MIB, ms(10), most), Some(most));
        assert_eq!(next_size(most, ms(10), most), None);
        assert_eq!(next_size(MIB, ms(100), most), None);
    }

    #[test]
    fn the_way_there_is_not_counted_as_moving() {
        let about = |x: f64, y: f64| (x / y - 1.0).abs() < 1e-9;
        assert!(about(rate(10 * MIB, ms(150), ms(50)), 100.0 * MIB as f64));
        // At most half of the time counts as latency.
        assert!(about(rate(MIB, ms(100), ms(99)), 20.0 * MIB as f64));
        assert!(rate(MIB, Duration::ZERO, ms(1)).is_finite());
    }
}
