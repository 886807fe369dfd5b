//! A node's side: answers requests, one measurement at a time.

use super::ask::{encoded, most_bytes};
use super::{link, work};
use bytes::Bytes;
use phalanx_fabric::{BlobId, Fabric};
use phalanx_train::MakeCompute;
use phalanx_types::{ByteSize, NodeId, Parcel};
use phalanx_wire::codec;
use phalanx_wire::measure::{FromMeasured, LinkSpeed, MEASURE_SERVICE, MeasureRefusal, Speed, ToMeasured};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// How long bytes are held if the requester does not release them.
const HOLD: Duration = Duration::from_secs(30);
/// The most links that are remembered.
const MAX_LINKS: usize = 256;

/// Answers questions about the speed of this node and of its links, for as long as the fabric lives.
///
/// It computes with what `compute` makes, on a thread of its own.
pub fn serve(fabric: &Fabric, compute: MakeCompute) {
    let service = Arc::new(MeasureService {
        compute,
        turn: Arc::new(Semaphore::new(1)),
        making: Semaphore::new(1),
        known: Mutex::default(),
        held: Mutex::default(),
    });
    let handle = fabric.clone();
    fabric.serve(MEASURE_SERVICE, move |from, body| {
        let (service, fabric) = (service.clone(), handle.clone());
        async move {
            let question = codec::decode(&body).map_err(|error| error.to_string())?;
            let answer = service.answer(&fabric, from, question).await;
            encoded(&answer.unwrap_or_else(FromMeasured::Refused)).map_err(|error| error.to_string())
        }
    });
}

struct MeasureService {
    compute: MakeCompute,
    /// Held by the running measurement.
    turn: Arc<Semaphore>,
    known: Mutex<Measurements>,
    /// Held while a blob is created.
    making: Semaphore,
    /// The blob that is held, and for which node.
    held: Mutex<Option<(NodeId, BlobId)>>,
}

#[derive(Debug, Default)]
struct Measurements {
    speed: Option<Speed>,
    links: BTreeMap<NodeId, LinkSpeed>,
}

impl MeasureService {
    async fn answer(
        self: &Arc<Self>,
        fabric: &Fabric,
        from: NodeId,
        question: ToMeasured,
    ) -> Result<FromMeasured, MeasureRefusal> {
        match question {
            ToMeasured::Speed => self.speed(fabric, &from).await.map(FromMeasured::Speed),
            ToMeasured::Link { to, bytes } => {
                self.link(fabric, &from, &to, bytes).await.map(FromMeasured::Link)
            }
            ToMeasured::Known => {
                let known = lock(&self.known);
                let links = known.links.values().cloned().collect();
                Ok(FromMeasured::Known { speed: known.speed, links })
            }
            ToMeasured::Ping => Ok(FromMeasured::Pong),
            ToMeasured::Hold { bytes } => {
                let blob = self.hold(fabric, from, bytes).await?;
                Ok(FromMeasured::Held { blob })
            }
            ToMeasured::Release { blob } => {
                self.release(fabric, blob);
                Ok(FromMeasured::Released)
            }
        }
    }

    async fn speed(&self, fabric: &Fabric, from: &NodeId) -> Result<Speed, MeasureRefusal> {
        let turn = self.begin(fabric, from)?;
        let (done, measured) = oneshot::channel();
        let compute = self.compute.clone();
        let work = move || {
            // Whether or not the requester still waits, the next measurement may start only when this one is done.
            let measured = work::measure(&compute(None));
            drop(turn);
            // The requester may have gone.
            let _unheard = done.send(measured);
        };
        let thread = std::thread::Builder::new().name("measure".to_owned()).spawn(work);
        let failed = |detail: String| MeasureRefusal::Failed { detail };
        thread.map_err(|error| failed(format!("there is no thread to be had: {error}")))?;
        let measured = measured.await.map_err(|_gone| failed("the measurement panicked".to_owned()))?;
        let speed = measured.map_err(failed)?;
        lock(&self.known).speed = Some(speed);
        fabric.update_status(|status| status.resources.speed_gflops = Some(speed.gflops));
        tracing::info!(gflops = speed.gflops, threads = speed.threads, "measured the speed of this node");
        Ok(speed)
    }

    async fn link(
        &self,
        fabric: &Fabric,
        from: &NodeId,
        to: &NodeId,
        bytes: u64,
    ) -> Result<LinkSpeed, MeasureRefusal> {
        let _turn = self.begin(fabric, from)?;
        let link = link::measure(fabric, to, bytes.min(self.most(fabric))).await?;
        let mut known = lock(&self.known);
        if known.links.len() < MAX_LINKS || known.links.contains_key(to) {
            known.links.insert(to.clone(), link.clone());
        }
        Ok(link)
    }

    /// Takes the turn, if this node is idle enough to measure.
    fn begin(&self, fabric: &Fabric, from: &NodeId) -> Result<OwnedSemaphorePermit, MeasureRefusal> {
        idle(fabric, from)?;
        self.turn.clone().try_acquire_owned().map_err(|_taken| MeasureRefusal::Measures)
    }

    /// Holds bytes: for one node at a time, one blob at a time.
    async fn hold(
        self: &Arc<Self>,
        fabric: &Fabric,
        node: NodeId,
        bytes: u64,
    ) -> Result<BlobId, MeasureRefusal> {
        idle(fabric, &node)?;
        let most = self.most(fabric);
        if bytes > most {
            let detail = format!("it holds {} at most", ByteSize(most));
            return Err(MeasureRefusal::Failed { detail });
        }
        // Nothing else is created or held meanwhile, so that no peer can make this node use more memory.
        let _making = self.making.try_acquire().map_err(|_taken| MeasureRefusal::Measures)?;
        self.let_go(fabric, &node)?;
        let len = usize::try_from(bytes).unwrap_or(0);
        let made = tokio::task::spawn_blocking(move || Bytes::from(vec![0x5a; len])).await;
        let made = made.map_err(|error| MeasureRefusal::Failed { detail: error.to_string() })?;
        let blob = fabric.hold(Parcel::from_bytes(made));
        *lock(&self.held) = Some((node, blob));
        let (service, fabric) = (self.clone(), fabric.clone());
        tokio::spawn(async move {
            tokio::time::sleep(HOLD).await;
            service.release(&fabric, blob);
        });
        Ok(blob)
    }

    /// Releases what was held for this node before, or for a node that is gone.
    fn let_go(&self, fabric: &Fabric, node: &NodeId) -> Result<(), MeasureRefusal> {
        let mut held = lock(&self.held);
        if held.as_ref().is_some_and(|(other, _)| other != node && fabric.peer(other).is_some()) {
            return Err(MeasureRefusal::Measures);
        }
        held.take().into_iter().for_each(|(_, before)| fabric.release(before));
        Ok(())
    }

    /// The most bytes that this node takes for a measurement.
    fn most(&self, fabric: &Fabric) -> u64 {
        let own = fabric.nodes().into_iter().find(|status| status.id == *fabric.id());
        most_bytes(own.map(|status| status.resources.memory).unwrap_or_default())
    }

    fn release(&self, fabric: &Fabric, blob: BlobId) {
        let mut held = lock(&self.held);
        if held.as_ref().is_some_and(|(_, held)| *held == blob) {
            *held = None;
            fabric.release(blob);
        }
    }
}

/// Whether a measurement would neither disturb other work nor be disturbed. A driver knows when its node is idle.
fn idle(fabric: &Fabric, from: &NodeId) -> Result<(), MeasureRefusal> {
    let own = fabric.nodes().into_iter().find(|status| status.id == *fabric.id());
    let Some(own) = own else { return Ok(()) };
    match (own.drivers().find(|driver| *driver != from), own.jobs_running) {
        (Some(driver), _) => Err(MeasureRefusal::Trains { driver: driver.clone() }),
        (None, jobs @ 1..) => Err(MeasureRefusal::RunsJobs { jobs }),
        (None, 0) => Ok(()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
