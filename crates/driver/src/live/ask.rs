//! The client side of live queries.

use super::error::LiveError;
use bytes::{Bytes, BytesMut};
use phalanx_fabric::Fabric;
use phalanx_types::{NodeId, Parcel};
use phalanx_wire::codec;
use phalanx_wire::live::{FromLive, LIVE_SERVICE, LiveOutputs, LiveRun, LiveSamples, MAX_LIVE_BYTES, ToLive};
use std::time::Duration;

/// Time limit of a query that needs no computation.
const DEADLINE: Duration = Duration::from_secs(10);

/// Samples as the model takes them.
#[derive(Debug, Clone)]
pub struct Samples {
    x: Bytes,
    count: usize,
    batch: usize,
}

impl Samples {
    /// At most `batch` samples are computed at once, and no more than the run's own batch.
    pub fn new(x: &[f32], count: usize, batch: usize) -> Self {
        Self { x: Bytes::copy_from_slice(bytemuck::cast_slice(x)), count, batch }
    }
}

/// What the model makes of samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outputs {
    /// Steps that the model had done.
    pub step: u64,
    /// The shape of all outputs together.
    pub shape: Vec<usize>,
    bytes: Bytes,
}

impl Outputs {
    pub fn values(&self) -> impl Iterator<Item = f32> {
        let (values, _rest) = self.bytes.as_chunks::<4>();
        values.iter().map(|bytes| f32::from_le_bytes(*bytes))
    }
}

/// Asks a node which run it drives.
///
/// # Errors
/// It drives none, or does not answer in time.
pub async fn about(fabric: &Fabric, driver: &NodeId) -> Result<LiveRun, LiveError> {
    match ask(fabric, driver, &ToLive::About, DEADLINE).await? {
        FromLive::About(run) => Ok(run),
        _ => Err(LiveError::Senseless { driver: driver.clone() }),
    }
}

/// Computes the outputs for samples with the model of a run, between two of its steps, within `wait`.
///
/// # Errors
/// The run has ended, no answer comes in time, or the samples are not what the model takes.
pub async fn predict(
    fabric: &Fabric,
    driver: &NodeId,
    samples: &Samples,
    wait: Duration,
) -> Result<Outputs, LiveError> {
    let bytes = samples.x.len() as u64;
    let blob = fabric.hold(Parcel::from_bytes(samples.x.clone()));
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let question = ToLive::Predict {
        samples: LiveSamples { count: number(samples.count), batch: number(samples.batch), bytes, blob },
        wait_ms: u32::try_from(wait.as_millis()).unwrap_or(u32::MAX),
    };
    let answer = ask(fabric, driver, &question, wait + DEADLINE).await;
    fabric.release(blob);
    match answer? {
        FromLive::Outputs(outputs) => take(fabric, driver, outputs).await,
        _ => Err(LiveError::Senseless { driver: driver.clone() }),
    }
}

async fn take(fabric: &Fabric, driver: &NodeId, outputs: LiveOutputs) -> Result<Outputs, LiveError> {
    let LiveOutputs { step, shape, bytes, blob } = outputs;
    let senseless = || LiveError::Senseless { driver: driver.clone() };
    let elements = shape.iter().try_fold(4u64, |bytes, size| bytes.checked_mul(*size));
    if elements != Some(bytes) || bytes > MAX_LIVE_BYTES {
        return Err(senseless());
    }
    let peer = fabric.peer(driver).ok_or_else(|| LiveError::NoLink { driver: driver.clone() })?;
    let fetched = fabric.fetch(&peer, blob, bytes).await?;
    let released = ask(fabric, driver, &ToLive::Taken { blob }, DEADLINE).await;
    if let Err(error) = released {
        tracing::debug!(%driver, %error, "could not say that outputs were fetched");
    }
    let shape: Option<Vec<usize>> = shape.iter().map(|size| usize::try_from(*size).ok()).collect();
    Ok(Outputs { step, shape: shape.ok_or_else(senseless)?, bytes: fetched })
}

/// Sends a query to a driver; a refusal is an error.
async fn ask(
    fabric: &Fabric,
    driver: &NodeId,
    question: &ToLive,
    deadline: Duration,
) -> Result<FromLive, LiveError> {
    let mut body = BytesMut::new();
    codec::encode_into(question, &mut body).map_err(LiveError::Encode)?;
    let answer = fabric.request(driver, LIVE_SERVICE, body.freeze(), deadline).await?;
    let answer = codec::decode(&answer);
    match answer.map_err(|source| LiveError::Malformed { driver: driver.clone(), source })? {
        FromLive::Refused(reason) => Err(LiveError::Refused { driver: driver.clone(), reason }),
        answer => Ok(answer),
    }
}
