//! Live queries: any node of the domain asks the model of a run while it is being trained. Computed by the first
//! replica between two steps.
//!
//! ```text
//!   asker ──Predict──► service ──► driver ──Compute──► first stage … last stage
//!         ◄─Outputs──    hold  ◄──  fetch ◄────────────Computed────────┘
//! ```
//! A question waits here until it is answered: when a group breaks, the next one is asked.

use super::Driver;
use bytes::{Bytes, BytesMut};
use phalanx_fabric::{BlobId, Fabric, FrameKind};
use phalanx_protocol::driver::DriverEvent;
use phalanx_train::{Task, fixed_batch, sample_shape};
use phalanx_types::{Epoch, NodeId, Parcel};
use phalanx_wire::codec;
use phalanx_wire::live::{
    FromLive, LIVE_SERVICE, LiveOutputs, LiveRefusal, LiveRun, LiveSamples, MAX_LIVE_BYTES, ToLive,
};
use phalanx_wire::train::{AskRef, StateRef, ToReplica};
use phalanx_wire::train_reason::QueryRefusal;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

/// Questions that are worked on at the same time; the others wait.
const TURNS: usize = 4;
/// How long outputs are held for a client that does not say that it has fetched them.
const HOLD: Duration = Duration::from_secs(60);
/// The most bytes of outputs that are computed or held at one time. Further queries wait, also while a client does not
/// fetch its outputs.
const ROOM: u64 = TURNS as u64 * MAX_LIVE_BYTES;
/// The unit in which room is given out, in bytes.
const PIECE: u64 = 1 << 10;

/// Questions that are not answered yet.
pub(super) struct Live {
    heard: (mpsc::UnboundedSender<Ask>, mpsc::UnboundedReceiver<Ask>),
    waiting: BTreeMap<u64, Ask>,
    next: u64,
}

/// One question.
struct Ask {
    samples: LiveSamples,
    /// The samples, held for the node that computes them.
    x: BlobId,
    /// Bytes of what the model makes of them.
    outputs: u64,
    answer: oneshot::Sender<Result<Outputs, LiveRefusal>>,
}

struct Outputs {
    step: u64,
    shape: Vec<u64>,
    bytes: Bytes,
}

impl Live {
    /// Answers questions for as long as it lives.
    pub(super) fn serve(fabric: &Fabric, task: &Task, run: LiveRun) -> Self {
        let heard = mpsc::unbounded_channel();
        let values = |shape: Vec<usize>| shape.iter().product::<usize>() as u64;
        let output = task.graph.outputs.first().map(|output| task.graph.shape(*output).at(1));
        let service = Arc::new(Service {
            run,
            asks: heard.0.clone(),
            turns: Semaphore::new(TURNS),
            room: Arc::new(Semaphore::new((ROOM / PIECE) as usize)),
            sample: 4 * sample_shape(&task.graph).map_or(0, values),
            output: 4 * output.map_or(0, values),
            fixed: fixed_batch(&task.graph),
            outputs: Mutex::default(),
        });
        let handle = fabric.clone();
        fabric.serve(LIVE_SERVICE, move |from, body| {
            let (service, fabric) = (service.clone(), handle.clone());
            async move {
                let question = codec::decode(&body).map_err(|error| error.to_string())?;
                let answer = service.on_question(&fabric, &from, question).await;
                let mut out = BytesMut::new();
                let answer = answer.unwrap_or_else(FromLive::Refused);
                codec::encode_into(&answer, &mut out).map_err(|error| error.to_string())?;
                Ok(out.freeze())
            }
        });
        Self { heard, waiting: BTreeMap::new(), next: 0 }
    }

    /// The number of the next query.
    pub(super) async fn hear(&mut self) -> Option<u64> {
        let ask = self.heard.1.recv().await?;
        self.waiting.retain(|_, ask| !ask.answer.is_closed());
        self.next += 1;
        self.waiting.insert(self.next, ask);
        Some(self.next)
    }

    /// A query cannot be answered.
    pub(super) fn refuse(&mut self, query: u64, refusal: &QueryRefusal) {
        if let Some(ask) = self.waiting.remove(&query) {
            let detail = refusal.to_string().into();
            // The client may be gone.
            drop(ask.answer.send(Err(LiveRefusal::Failed { detail })));
        }
    }

    /// The run is over: clients that still wait are told so.
    pub(super) fn close(&mut self) {
        self.heard.1.close();
        while self.heard.1.try_recv().is_ok() {}
        self.waiting.clear();
    }
}

struct Service {
    run: LiveRun,
    asks: mpsc::UnboundedSender<Ask>,
    turns: Semaphore,
    /// For outputs, in pieces.
    room: Arc<Semaphore>,
    /// Bytes of one sample, and of what the model makes of it.
    sample: u64,
    output: u64,
    /// The batch that the model is made for, if it takes no other.
    fixed: Option<usize>,
    /// Outputs that askers have not fetched yet.
    outputs: Mutex<BTreeMap<BlobId, Held>>,
}

impl Service {
    async fn on_question(
        self: &Arc<Self>,
        fabric: &Fabric,
        from: &NodeId,
        question: ToLive,
    ) -> Result<FromLive, LiveRefusal> {
        match question {
            ToLive::About => Ok(FromLive::About(self.run.clone())),
            ToLive::Predict { samples, wait_ms } => {
                self.check(&samples)?;
                let wait = Duration::from_millis(u64::from(wait_ms));
                let predicted = tokio::time::timeout(wait, self.predict(fabric, from, samples)).await;
                let (Outputs { step, shape, bytes }, room) =
                    predicted.map_err(|_late| LiveRefusal::Late { wait_ms })??;
                let len = bytes.len() as u64;
                let blob = self.hold(fabric, bytes, room);
                Ok(FromLive::Outputs(LiveOutputs { step, shape, bytes: len, blob }))
            }
            ToLive::Taken { blob } => {
                drop(self.lock().remove(&blob));
                Ok(FromLive::Released)
            }
        }
    }

    /// Holds outputs for the client, for a while.
    fn hold(self: &Arc<Self>, fabric: &Fabric, bytes: Bytes, room: OwnedSemaphorePermit) -> BlobId {
        let held = Held::new(fabric, bytes, Some(room));
        let blob = held.blob;
        self.lock().insert(blob, held);
        let service = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(HOLD).await;
            drop(service.lock().remove(&blob));
        });
        blob
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<BlobId, Held>> {
        self.outputs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, samples: &LiveSamples) -> Result<(), LiveRefusal> {
        let count = u64::from(samples.count);
        if let Some(fixed) = self.fixed {
            let detail = format!("the model is made for batches of {fixed}, use its checkpoint").into();
            return Err(LiveRefusal::Failed { detail });
        }
        let (want, got) = (count.saturating_mul(self.sample), samples.bytes);
        if want != got || count == 0 {
            return Err(LiveRefusal::Size { want, got });
        }
        let bytes = got.max(count.saturating_mul(self.output));
        if bytes > MAX_LIVE_BYTES { Err(LiveRefusal::TooMuch { bytes }) } else { Ok(()) }
    }

    async fn predict(
        &self,
        fabric: &Fabric,
        from: &NodeId,
        samples: LiveSamples,
    ) -> Result<(Outputs, OwnedSemaphorePermit), LiveRefusal> {
        let outputs = u64::from(samples.count).saturating_mul(self.output);
        // Room comes before the turn: a query that waits for room must not occupy a turn.
        let pieces = u32::try_from(outputs.min(ROOM).div_ceil(PIECE)).unwrap_or(u32::MAX);
        let room = self.room.clone().acquire_many_owned(pieces).await.map_err(|_closed| LiveRefusal::Over)?;
        let failed = |detail: String| LiveRefusal::Failed { detail: detail.into() };
        let _turn = self.turns.acquire().await.map_err(|_closed| LiveRefusal::Over)?;
        let peer = fabric.peer(from).ok_or_else(|| failed(format!("there is no link to {from}")))?;
        let x = fabric.fetch(&peer, samples.blob, samples.bytes).await;
        let x = x.map_err(|error| failed(format!("could not fetch the samples: {error}")))?;
        let held = Held::new(fabric, x, None);
        let (answer, answered) = oneshot::channel();
        let ask = Ask { samples, x: held.blob, outputs, answer };
        self.asks.send(ask).map_err(|_over| LiveRefusal::Over)?;
        Ok((answered.await.unwrap_or(Err(LiveRefusal::Over))?, room))
    }
}

/// Bytes that the fabric holds for as long as this value lives.
struct Held {
    fabric: Fabric,
    blob: BlobId,
    /// Given back with them.
    _room: Option<OwnedSemaphorePermit>,
}

impl Held {
    fn new(fabric: &Fabric, bytes: Bytes, room: Option<OwnedSemaphorePermit>) -> Self {
        Self { fabric: fabric.clone(), blob: fabric.hold(Parcel::from_bytes(bytes)), _room: room }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.fabric.release(self.blob);
    }
}

impl Driver<'_> {
    /// Hands a query to a node of the present group; says when its client waits no longer.
    pub(super) fn forward_query(&mut self, query: u64, node: &NodeId, epoch: Epoch) -> Option<DriverEvent> {
        let Some(ask) = self.live.waiting.get(&query).filter(|ask| !ask.answer.is_closed()) else {
            self.live.waiting.remove(&query);
            return Some(DriverEvent::QueryDropped { query });
        };
        let LiveSamples { count, batch, bytes, .. } = ask.samples;
        let ask = AskRef { number: query, samples: count, batch, bytes, blob: ask.x };
        self.send(node, &ToReplica::Compute { run: self.run, epoch, ask });
        None
    }

    /// Fetches the answer to a query and hands it to the client. A query whose answer cannot be fetched is asked again.
    pub(super) fn fetch_answer(&mut self, query: u64, node: &NodeId, shape: Vec<u64>, outputs: StateRef) {
        let StateRef { step, bytes, blob } = outputs;
        let taken = ToReplica::Taken { run: self.run, blob };
        let Some(ask) = self.live.waiting.remove(&query) else { return self.send(node, &taken) };
        let Some(peer) = self.peers.get(node).cloned() else { return drop(self.live.heard.0.send(ask)) };
        if bytes != ask.outputs {
            let detail = format!("{node} has {bytes} bytes of outputs, not {}", ask.outputs).into();
            // The client may be gone.
            drop(ask.answer.send(Err(LiveRefusal::Failed { detail })));
            return self.send(node, &taken);
        }
        let (fabric, again) = (self.fabric.clone(), self.live.heard.0.clone());
        tokio::spawn(async move {
            match fabric.fetch(&peer, blob, bytes).await {
                // The client may be gone.
                Ok(bytes) => drop(ask.answer.send(Ok(Outputs { step, shape, bytes }))),
                Err(error) => {
                    tracing::debug!(from = %peer.id(), %error, "could not fetch outputs");
                    // A run that has ended says so itself.
                    drop(again.send(ask));
                }
            }
            if let Err(error) = peer.send(FrameKind::Train, &taken) {
                tracing::debug!(to = %peer.id(), %error, "could not tell a replica");
            }
        });
    }
}
