use super::link::{LinkId, Side};
use bytes::Bytes;
use phalanx_account::core::ClaimId;
use phalanx_jobs::core::{BatchId, Run, RunKey};
use phalanx_types::{JobId, LeaseId, NodeId, SessionId};
use phalanx_wire::bulk::BlobId;

/// What can happen. `life` names the process it is meant for: a later one ignores it.
#[derive(Debug, Clone)]
pub(super) enum Event {
    Submit {
        job: usize,
    },
    UserCancels {
        job: usize,
    },
    /// The user wants the bytes of a kept solution.
    UserWants {
        job: usize,
    },
    /// The user drops a kept solution.
    UserReleases {
        job: usize,
    },
    Connect {
        main: usize,
        worker: usize,
    },
    Deliver {
        link: LinkId,
        to: Side,
        bytes: Bytes,
    },
    /// The worker left on purpose; comes after all it sent before.
    Goodbye {
        link: LinkId,
    },
    LinkDown {
        link: LinkId,
        side: Side,
    },
    /// A frozen worker has been silent for too long.
    HeartbeatMissed {
        link: LinkId,
        freeze: u64,
    },
    Main {
        main: usize,
        life: u64,
        event: MainEvent,
    },
    Worker {
        worker: usize,
        life: u64,
        event: WorkerEvent,
    },
    Fault {
        index: usize,
    },
    PartitionHeals {
        index: usize,
    },
    Thaw {
        worker: usize,
        freeze: u64,
    },
    StartWorker {
        worker: usize,
    },
    StartMain {
        main: usize,
    },
    /// A run would like to train on a worker.
    TrainingArrives {
        index: usize,
    },
    /// The end of the chaos phase.
    Heal,
}

/// Something within the process of a main node.
#[derive(Debug, Clone)]
pub(super) enum MainEvent {
    Settle,
    Wake,
    Taken { link: LinkId, lease: LeaseId, blob: BlobId },
    Brought { link: LinkId, job: JobId, blob: BlobId },
}

/// Something within the process of a computing node.
#[derive(Debug, Clone)]
pub(super) enum WorkerEvent {
    Settle,
    Wake,
    Fetched { link: LinkId, key: RunKey },
    InputFetched { session: SessionId, input: JobId, node: NodeId, blob: BlobId },
    RunEnds { batch: BatchId, key: RunKey },
    Progress { key: RunKey },
    TakenBack { batch: BatchId, runs: Vec<Run> },
    TrainingTries { index: usize, waits: Option<ClaimId> },
    TrainingEnds { claim: ClaimId },
}
