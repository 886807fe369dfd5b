//! What a main node's core is told, as one value, so that it can be recorded and replayed.

use super::{MainCommand, MainCore, WorkerKey};
use crate::core::job::{JobSpec, Outcome};
use crate::core::recorded;
use phalanx_recording::{Digest, Replay};
use phalanx_types::{Epoch, JobId, LeaseId, Needs, NodeId, Outbox, Parcel, SessionId, Time};
use phalanx_wire::jobs::{Done, Held, Join, KeptSolution, MissingInput, Progress, Report};
use phalanx_wire::usage::{self, NodeUse};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use std::fmt;

/// Something that happened to a main node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MainEvent {
    /// The user submitted jobs; they get the next ids in this order.
    Submitted {
        #[serde(with = "recorded::specs")]
        specs: Vec<JobSpec>,
    },
    /// The user wants these jobs to end.
    Cancelled { jobs: Vec<JobId> },
    /// The user wants every job to end.
    AllCancelled,
    /// A link to a computing node is up.
    WorkerUp { worker: WorkerKey, node: NodeId },
    /// A link to a computing node is gone; `goodbye` when the node left on purpose.
    WorkerLost { worker: WorkerKey, goodbye: bool },
    /// A computing node answered the invitation.
    Joined {
        worker: WorkerKey,
        #[serde(with = "RecordedJoin")]
        join: Join,
    },
    /// A computing node reported.
    Reported {
        worker: WorkerKey,
        #[serde(with = "RecordedReport")]
        report: Report,
    },
    /// A large solution was fetched, or could not be.
    Taken {
        worker: WorkerKey,
        lease: LeaseId,
        #[serde(with = "recorded::fetched")]
        result: Result<Parcel, String>,
    },
    /// The user dropped handles to kept solutions.
    Released { jobs: Vec<JobId> },
    /// The user wants the bytes of a kept solution.
    Wanted { job: JobId },
    /// A kept solution was fetched for the user, or could not be.
    Brought {
        worker: WorkerKey,
        job: JobId,
        #[serde(with = "recorded::fetched")]
        result: Result<Parcel, String>,
    },
    /// Everything that had arrived was fed: time for deadlines, recalls and offers.
    TurnEnded,
}

/// A [`Join`] as it is recorded.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Join")]
struct RecordedJoin {
    session: SessionId,
    epoch: Epoch,
    kinds: Vec<SmolStr>,
    capacity: Needs,
    window: u32,
    taken: Vec<NodeUse>,
    held: Vec<Held>,
    #[serde(with = "recorded::done")]
    done: Vec<Done>,
    #[serde(with = "recorded::solutions")]
    kept: Vec<KeptSolution>,
}

/// A [`Report`] as it is recorded.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Report")]
struct RecordedReport {
    epoch: Epoch,
    number: u64,
    window: u32,
    draining: bool,
    taken: Vec<NodeUse>,
    asks: Vec<LeaseId>,
    started: Vec<LeaseId>,
    progress: Vec<Progress>,
    #[serde(with = "recorded::done")]
    done: Vec<Done>,
    handed_back: Vec<LeaseId>,
    #[serde(with = "recorded::solutions")]
    kept: Vec<KeptSolution>,
    missing: Vec<MissingInput>,
}

impl MainCore {
    /// Tells the core what happened.
    pub fn on(&mut self, now: Time, event: MainEvent, out: &mut Outbox<MainCommand>) {
        match event {
            MainEvent::Submitted { specs } => {
                for spec in specs {
                    self.on_submit(now, spec);
                }
            }
            MainEvent::Cancelled { jobs } => {
                for job in jobs {
                    self.on_cancel(job, out);
                }
            }
            MainEvent::AllCancelled => {
                self.on_cancel_all(out);
            }
            MainEvent::WorkerUp { worker, node } => self.on_worker_up(worker, node, out),
            MainEvent::WorkerLost { worker, goodbye } => self.on_worker_lost(worker, goodbye, out),
            MainEvent::Joined { worker, join } => self.on_join(now, worker, join, out),
            MainEvent::Reported { worker, report } => self.on_report(now, worker, report, out),
            MainEvent::Taken { worker, lease, result } => self.on_taken(worker, lease, result, out),
            MainEvent::Released { jobs } => self.on_release(&jobs, out),
            MainEvent::Wanted { job } => self.on_wanted(job, out),
            MainEvent::Brought { worker, job, result } => self.on_brought(worker, job, result, out),
            MainEvent::TurnEnded => {
                self.on_tick(now, out);
                self.dispatch(now, out);
            }
        }
    }
}

impl Replay for MainCore {
    const CORE: &'static str = "main node";
    type Config = MainCore;
    type Event = MainEvent;
    type Command = MainCommand;

    fn new(config: MainCore) -> Self {
        config
    }

    fn feed(&mut self, now: Time, event: MainEvent, out: &mut Outbox<MainCommand>) {
        self.on(now, event, out);
    }

    fn digest(command: &MainCommand, digest: &mut Digest<'_>) {
        let mut lease = |tag: u64, worker: &WorkerKey, lease: &LeaseId| {
            digest.words(tag, worker.0, lease.job.0 ^ u64::from(lease.number).rotate_right(16));
        };
        // What every job comes to, by numbers; what is rare, by its encoding.
        match command {
            MainCommand::Offer { worker, lease: of } => lease(1, worker, of),
            MainCommand::Ack { worker, lease: of } => lease(2, worker, of),
            MainCommand::Finished { job, outcome: Outcome::Solved(_), .. } => digest.words(3, job.0, 0),
            rare => digest.value(rare),
        }
    }

    fn snapshot(&self) -> Option<impl Serialize + '_> {
        Some(self)
    }
}

impl fmt::Display for WorkerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link {}", self.0)
    }
}

impl fmt::Display for MainEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MainEvent::Submitted { specs } => match specs.first() {
                Some(first) if specs.len() == 1 => write!(f, "1 job submitted: {}", first.kind),
                first => {
                    let kind = first.map_or("", |spec| spec.kind.as_str());
                    write!(f, "{} jobs submitted: {kind}", specs.len())
                }
            },
            MainEvent::Cancelled { jobs } => write!(f, "user cancels {}", Listed(jobs)),
            MainEvent::AllCancelled => f.write_str("user cancels all jobs"),
            MainEvent::WorkerUp { worker, node } => write!(f, "{node} is linked ({worker})"),
            MainEvent::WorkerLost { worker, goodbye: true } => write!(f, "{worker} left on purpose"),
            MainEvent::WorkerLost { worker, goodbye: false } => write!(f, "{worker} is lost"),
            MainEvent::Joined { worker, join } => write!(
                f,
                "{worker} joins: {} cores{}, window {}, {} leases held, {} done",
                join.capacity.cores,
                Taken(&join.taken),
                join.window,
                join.held.len(),
                join.done.len()
            ),
            MainEvent::Reported { worker, report } => write_report(f, *worker, report),
            MainEvent::Taken { worker, lease, result: Ok(_) } => {
                write!(f, "solution of {lease} was fetched from {worker}")
            }
            MainEvent::Taken { worker, lease, result: Err(reason) } => {
                write!(f, "solution of {lease} could not be fetched from {worker}: {reason}")
            }
            MainEvent::Released { jobs } => write!(f, "user drops the solutions of {}", Listed(jobs)),
            MainEvent::Wanted { job } => write!(f, "user wants the solution of job {job}"),
            MainEvent::Brought { worker, job, result: Ok(_) } => {
                write!(f, "kept solution of job {job} was fetched from {worker}")
            }
            MainEvent::Brought { worker, job, result: Err(reason) } => {
                write!(f, "kept solution of job {job} could not be fetched from {worker}: {reason}")
            }
            MainEvent::TurnEnded => f.write_str("end of turn"),
        }
    }
}

fn write_report(f: &mut fmt::Formatter<'_>, worker: WorkerKey, report: &Report) -> fmt::Result {
    write!(f, "{worker} reports: window {}{}", report.window, Taken(&report.taken))?;
    if report.draining {
        f.write_str(", draining")?;
    }
    let done: Vec<LeaseId> = report.done.iter().map(|done| done.lease).collect();
    let lists = [
        ("asks for", &report.asks),
        ("started", &report.started),
        ("done", &done),
        ("handed back", &report.handed_back),
    ];
    for (what, leases) in lists.into_iter().filter(|(_, leases)| !leases.is_empty()) {
        write!(f, ", {what} {}", Listed(leases))?;
    }
    Ok(())
}

/// What training has of a node, if it has anything.
struct Taken<'a>(&'a [NodeUse]);

impl fmt::Display for Taken<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        let Needs { cores, memory } = usage::sum(self.0);
        write!(f, ", training has {cores} cores and {memory} of the node")
    }
}

/// A list of which only the beginning is written out.
struct Listed<'a, T>(&'a [T]);

impl<T: fmt::Display> fmt::Display for Listed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        for (i, item) in self.0.iter().take(SHOWN).enumerate() {
            write!(f, "{}{item}", if i == 0 { "" } else { " " })?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

impl fmt::Display for MainCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MainCommand::Invite { worker } => write!(f, "invite {worker}: a new link"),
            MainCommand::Offer { worker, lease } => {
                write!(f, "offer {lease} to {worker}: the first job waiting, the least loaded node with room")
            }
            MainCommand::Ack { worker, lease } => {
                write!(f, "acknowledge {lease} to {worker}: it was dealt with")
            }
            MainCommand::Keep { worker, lease } => {
                write!(f, "have {worker} keep the solution of {lease}: other jobs may take it")
            }
            MainCommand::Drop { worker, job } => {
                write!(f, "have {worker} drop the solution of job {job}: nothing refers to it")
            }
            MainCommand::Bring { worker, job, .. } => {
                write!(f, "fetch the kept solution of job {job} from {worker}: the user waits for it")
            }
            MainCommand::Delivered { job, result: Ok(_) } => {
                write!(f, "give the user the solution of job {job}")
            }
            MainCommand::Delivered { job, result: Err(reason) } => {
                write!(f, "tell the user that there is no solution of job {job}: {reason}")
            }
            MainCommand::Freed { job } => {
                write!(f, "free the solution of job {job}: nothing refers to it")
            }
            MainCommand::Go { worker, lease } => {
                write!(
                    f,
                    "let {worker} start {lease}: a node was lost with this job, and the lease is current"
                )
            }
            MainCommand::Cancel { worker, lease } => {
                write!(f, "cancel {lease} at {worker}: the job has ended or is leased elsewhere")
            }
            MainCommand::Recall { worker, lease } => {
                write!(f, "recall {lease} from {worker}: it has not started and another node is idle")
            }
            MainCommand::Take { worker, lease, head, .. } => {
                let len = head.body_len().unwrap_or(u64::MAX);
                write!(
                    f,
                    "fetch the solution of {lease} from {worker}: {len} bytes are too many for a message"
                )
            }
            MainCommand::Attempt { job, attempts } => {
                write!(f, "count {attempts} attempts for job {job}: a run was lost, failed, or came back")
            }
            MainCommand::Finished { job, outcome, .. } => match outcome {
                Outcome::Solved(_) => write!(f, "finish job {job}: solved"),
                Outcome::Kept { len } => {
                    write!(f, "finish job {job}: solved, {len} bytes stay at their node")
                }
                Outcome::Failed(reason) => write!(f, "finish job {job}: failed, {reason}"),
                Outcome::Cancelled => write!(f, "finish job {job}: cancelled"),
                Outcome::Expired => write!(f, "finish job {job}: expired"),
            },
            MainCommand::Explain { kind, reason, .. } => write!(f, "say why {kind} jobs wait: {reason}"),
            MainCommand::CutOff { worker, why } => write!(f, "cut off {worker}: {why}"),
        }
    }
}
