//! What the driver of a run and the nodes that train it say to each other.
//!
//! Files and states never ride in these messages: they name blobs, which the receiver fetches when it wants them.

use crate::bulk::BlobId;
use crate::detail::Detail;
use crate::group_end::RankEnds;
use crate::train_reason::{BreakReason, QueryRefusal, RankFailure, RunRefusal};
use phalanx_types::{ByteSize, Epoch, NodeId, RunId};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Driver → node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToReplica {
    /// Open this run and say that you are ready.
    Enlist { run: RunId, enlist: Enlist },
    /// Take over this state, or the one that every run begins with.
    Restore { run: RunId, state: Option<StateRef> },
    /// Get your end of a group ready. `layout` says who holds which part of the model, when not all hold all of it.
    Prepare { run: RunId, epoch: Epoch, rank: u32, ranks: u32, layout: Option<Layout> },
    /// All ends are there: go on together. `start` says with what, when not all hold all of the model.
    Connect {
        run: RunId,
        epoch: Epoch,
        seats: Vec<SeatRef>,
        recorded: Recorded,
        start: Option<Start>,
        /// A pass that begins no later than the step that the group begins with.
        pass: PassStart,
    },
    /// Send what you hold of a part of the model to a node of the group that is about to begin.
    Give { run: RunId, epoch: Epoch, give: Give },
    /// The group is over.
    Abort { run: RunId, epoch: Epoch, reason: BreakReason },
    /// Tell the group at the next boundary between steps.
    Ask { run: RunId, epoch: Epoch, wish: Asked },
    /// Say all that the model is.
    Snapshot { run: RunId },
    /// A part of the state of the group that you have come to is here.
    Part { run: RunId, epoch: Epoch, holder: NodeId, part: PartRef },
    /// A state was taken over; it need not be held any longer.
    Taken { run: RunId, blob: BlobId },
    /// You are not needed any more.
    Dismiss { run: RunId },
    /// Say at the next boundary between steps what the model makes of samples that the driver holds.
    Compute { run: RunId, epoch: Epoch, ask: AskRef },
}

impl ToReplica {
    /// The run that it is about.
    pub fn run(&self) -> RunId {
        match self {
            ToReplica::Enlist { run, .. }
            | ToReplica::Restore { run, .. }
            | ToReplica::Prepare { run, .. }
            | ToReplica::Connect { run, .. }
            | ToReplica::Give { run, .. }
            | ToReplica::Abort { run, .. }
            | ToReplica::Ask { run, .. }
            | ToReplica::Snapshot { run }
            | ToReplica::Part { run, .. }
            | ToReplica::Taken { run, .. }
            | ToReplica::Dismiss { run }
            | ToReplica::Compute { run, .. } => *run,
        }
    }
}

/// Samples of somebody who asks what the model makes of them: 32-bit floats, little-endian.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskRef {
    /// Given by the driver.
    pub number: u64,
    pub samples: u32,
    /// How many are computed at once.
    pub batch: u32,
    pub bytes: u64,
    pub blob: BlobId,
}

/// Who holds which part of the model. Ranks are counted through the stages of the first replica, then the next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    pub replicas: Vec<ReplicaLayout>,
}

/// One replica of the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaLayout {
    /// How many of a full batch are its.
    pub samples: u32,
    /// How many of those are computed at once.
    pub micro: u32,
    /// From the first operators to the last.
    pub stages: Vec<Ops>,
}

/// Operators that follow each other: those from `start` to before `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ops {
    pub start: u32,
    pub end: u32,
}

/// With what a group of stages begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Steps that are done.
    pub step: u64,
    /// The norm of the gradients of the last of them, as bits, for whoever has not applied it yet.
    pub norm: Option<u64>,
    /// What this node has to get from others; the rest it holds, or makes from the seed.
    pub gets: Vec<Get>,
}

/// A part of the state that comes from elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Get {
    pub ops: Ops,
    pub from: Source,
}

/// Where a part of the state comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    Node(NodeId),
    /// The driver holds it.
    Driver(StateRef),
}

/// What a node is to send to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Give {
    pub ops: Ops,
    pub step: u64,
    /// As in [`Start`].
    pub norm: Option<u64>,
    pub to: NodeId,
}

/// A part of the state that a node holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldRef {
    pub ops: Ops,
    pub step: u64,
    /// The norm of the gradients of its last step, as bits.
    pub norm: Option<u64>,
    /// It has the gradients of the step after, but does not know whether all had theirs.
    pub pending: bool,
}

/// What a node is told of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enlist {
    /// The resolved run file.
    pub config: String,
    /// The files that it names, for nodes that do not have them.
    pub files: Vec<FileRef>,
    /// Whether to say what was done when.
    pub trace: bool,
    /// What the data are that all nodes are to have.
    pub data: DataRef,
    /// How much of the node it asks for.
    pub share: ShareAsk,
}

/// How much of a node a run asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareAsk {
    /// All cores of the node when not given.
    pub cores: Option<u32>,
    /// The memory that the run file asks for.
    pub memory: Option<ByteSize>,
    /// What training is estimated to need, for runs that do not ask. The node claims no more of it than it has.
    pub estimate: ByteSize,
}

/// What nodes must agree on of data that each opens by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataRef {
    /// Samples to learn from, and to validate with.
    pub samples: u64,
    pub validation: u64,
    /// The classes in the order of their numbers, where the data name them.
    pub classes: Option<Vec<String>>,
    /// The stream to learn from, where it is one.
    pub stream: Option<StreamRef>,
}

/// How the nodes of a run join it as readers of its stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamRef {
    /// The name under which the run reads.
    pub reader: String,
    /// The host of the driver: an address of a store may mean its own host only.
    pub host: [u8; 16],
}

/// A file of the run, as the driver has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRef {
    /// The key of the run file that names it.
    pub key: String,
    /// Where the driver has it.
    pub path: String,
    pub bytes: u64,
    pub sha256: [u8; 32],
    pub blob: BlobId,
}

/// Parameters, buffers and the optimizer's state after some steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateRef {
    pub step: u64,
    pub bytes: u64,
    pub blob: BlobId,
}

/// One of the parts that together are a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartRef {
    pub part: u32,
    pub parts: u32,
    pub state: StateRef,
}

/// What need not be reported again, each by the last step of which it was reported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    pub step: u64,
    pub validated: u64,
    pub saved: u64,
}

/// Where a pass over the data begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassStart {
    /// Counted from 0.
    pub pass: u64,
    /// Steps of the run before it.
    pub step: u64,
}

/// A pass over a stream that the store has sealed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedPass {
    /// Counted from 0.
    pub pass: u64,
    /// Steps of the run before it.
    pub start: u64,
    /// Steps that it has.
    pub steps: u64,
    /// Samples that it has.
    pub samples: u64,
    /// Its first sample, by order of arrival.
    pub base: u64,
    /// Samples that had arrived when it was sealed.
    pub horizon: u64,
}

/// One rank of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeatRef {
    pub node: NodeId,
    /// How the others reach its ends of the group.
    pub ends: RankEnds,
    /// Steps that its state has behind it, if it holds one.
    pub step: Option<u64>,
}

/// What the driver wants to happen at a boundary between steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Asked {
    Reform,
    Stop,
}

/// Node → driver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromReplica {
    /// The run is open here; `step` is what is still held of it.
    Enlisted {
        run: RunId,
        step: Option<u64>,
    },
    /// This node cannot train it.
    Refused {
        run: RunId,
        refusal: RunRefusal,
    },
    Restored {
        run: RunId,
        step: u64,
    },
    Prepared {
        run: RunId,
        epoch: Epoch,
        /// How the others reach its ends of the group.
        ends: RankEnds,
    },
    /// Not in the group any more; `step` is what is held of the run.
    Left {
        run: RunId,
        epoch: Epoch,
        step: Option<u64>,
        why: LeftWhy,
        /// What it holds of a model of which not all hold all.
        holds: Vec<HoldRef>,
    },
    /// Steps that were done since the last report; from the first rank only.
    Steps {
        run: RunId,
        epoch: Epoch,
        steps: Vec<StepReport>,
    },
    /// What the model is worth on the validation data after some steps; from the first rank only.
    Validated {
        run: RunId,
        epoch: Epoch,
        step: u64,
        sums: ValidSums,
    },
    /// The state after some steps; from the first rank only, or from every stage of the first replica.
    Snapshot {
        run: RunId,
        epoch: Epoch,
        /// The part of the model that it is of, unless it is all of it.
        ops: Option<Ops>,
        state: StateRef,
    },
    /// A part of the state, for whoever has come new to the group.
    Part {
        run: RunId,
        epoch: Epoch,
        part: PartRef,
    },
    /// What this rank did when, for whoever wants to look.
    Spans {
        run: RunId,
        epoch: Epoch,
        rank: u32,
        spans: Vec<Span>,
    },
    /// This rank waits for another, for so long already.
    Waits {
        run: RunId,
        epoch: Epoch,
        on: u32,
        millis: u64,
    },
    /// What the model made of samples that somebody asked about.
    Computed {
        run: RunId,
        /// That of the question.
        number: u64,
        /// Of all outputs together.
        shape: Vec<u64>,
        outputs: StateRef,
    },
    /// A question cannot be answered.
    NotComputed {
        run: RunId,
        number: u64,
        refusal: QueryRefusal,
    },
    /// The next pass over the stream cannot begin yet, and why. All ranks have done the steps before.
    StreamWaits {
        run: RunId,
        epoch: Epoch,
        /// Steps that are done.
        step: u64,
        wait: Detail,
        /// The pass that these steps end with: no report that the driver has may name it.
        ended: Option<SealedPass>,
    },
    /// The stream has no more samples: the run ends after this step, which all ranks have done.
    StreamEnded {
        run: RunId,
        epoch: Epoch,
        step: u64,
        /// The pass that ends with it.
        ended: Option<SealedPass>,
    },
}

/// Why a node is not in the group any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeftWhy {
    Broken {
        reason: BreakReason,
    },
    Reformed,
    Ended,
    /// The run cannot go on: something is not finite, the model cannot be run, or the data are wrong.
    Failed(RankFailure),
}

/// What all ranks did in a step together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// How many steps are done with this one.
    pub step: u64,
    /// Of the group that did it, whose ranks these are.
    pub epoch: Epoch,
    pub pass: u64,
    pub loss: f32,
    pub lr: f32,
    pub grad_norm: f32,
    /// Which samples were computed: a sum over numbers that stand for them.
    pub seen: u64,
    /// What the parameters were before it, in short; 0 when nobody looked.
    pub hash: u64,
    /// Bytes that the first rank gave to others in it.
    pub sent: u64,
    /// From the end of the step before to the end of this one.
    pub took_us: u32,
    pub ranks: Vec<RankReport>,
    /// The pass that it is of, where the samples come from a stream.
    pub sealed: Option<SealedPass>,
}

impl StepReport {
    /// Samples that all ranks computed.
    pub fn samples(&self) -> u64 {
        self.ranks.iter().map(|rank| u64::from(rank.samples)).sum()
    }

    /// From the end of the step before to the end of this one.
    pub fn took(&self) -> Duration {
        Duration::from_micros(u64::from(self.took_us))
    }
}

/// What one rank did in a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankReport {
    pub samples: u32,
    pub compute_us: u32,
    /// The part of the exchange in which it did not compute.
    pub exchange_us: u32,
    /// For the others, in the step before.
    pub wait_us: u32,
    /// What a stage of a pipeline has to say besides.
    pub stage: Option<StageReport>,
}

/// What a stage of a pipeline did in a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageReport {
    pub replica: u32,
    pub stage: u32,
    /// Bytes it holds for parameters, gradients and their sums, activations and what optimizers keep; where several
    /// steps are done together also for what they can be taken back to, and for parameters of batches on their way.
    /// What its process takes besides, of which a plan counts 24 MiB, is not in it.
    pub memory: u64,
    /// Bytes of activations and gradients that it sent; where several steps are done together, on average.
    pub sent: u64,
    /// Microseconds that it waited for activations and gradients.
    pub idle_us: u32,
    /// Updates between the forward and the backward of a batch, at most.
    pub staleness: u32,
}

/// Sums over the validation data.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ValidSums {
    pub samples: u64,
    pub loss: f64,
    /// By metric, as the run file orders them: the sum and what it is divided by.
    pub metrics: Vec<(f64, u64)>,
}

/// Something that a rank did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    pub what: Activity,
    pub step: u64,
    /// Since the group began.
    pub start_us: u64,
    pub len_us: u32,
}

/// What a rank may be doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Activity {
    /// Waiting for samples.
    Data,
    /// Forward and backward.
    Compute,
    /// The exchange of one bucket, beside computing.
    Bucket {
        number: u32,
    },
    /// Waiting for the exchange.
    Exchange,
    /// Waiting for what all ranks say of the step.
    Vote,
    Update,
    Validate,
    Snapshot,
    /// Computing what somebody asked about.
    Answer,
}
