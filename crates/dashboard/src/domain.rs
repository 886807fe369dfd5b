//! The nodes and jobs of a domain, as the dashboard shows them.

use crate::error::ApiError;
use crate::hub::Hub;
use crate::runs::lock;
use bytes::BytesMut;
use phalanx_fabric::{Fabric, NodeEvent, NodeKind, NodeState, NodeStatus};
use phalanx_jobs::JobRef;
use phalanx_types::{JobId, NodeId};
use phalanx_wire::codec;
use phalanx_wire::infer::model_of;
use phalanx_wire::jobs::{JobAnswer, JobInfo, JobQuery, JobState, QUERY_SERVICE};
use phalanx_wire::usage::{Holder, NodeUse};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a main node may take to answer.
const ANSWER: Duration = Duration::from_secs(5);
/// How many events of nodes are kept, and how many jobs of a main node are shown.
const MOST_EVENTS: usize = 200;
const MOST_JOBS: u32 = 500;

/// A node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct NodeInfo {
    pub(crate) id: String,
    pub(crate) kind: String,
    pub(crate) state: String,
    /// Why it is lost.
    pub(crate) why: Option<String>,
    pub(crate) cores: u32,
    pub(crate) memory_bytes: u64,
    pub(crate) host: Option<String>,
    pub(crate) host_cores: Option<u32>,
    pub(crate) speed_gflops: Option<f64>,
    pub(crate) address: String,
    pub(crate) jobs_running: u32,
    pub(crate) jobs_done: u64,
    pub(crate) uses: Vec<UseInfo>,
    pub(crate) since_ms: u64,
    pub(crate) handles: Vec<String>,
    pub(crate) serves: Vec<String>,
    pub(crate) store: Option<String>,
}

/// A part of a node that is in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct UseInfo {
    pub(crate) kind: String,
    pub(crate) text: String,
    pub(crate) driver: Option<String>,
    pub(crate) cores: u32,
    pub(crate) memory_bytes: u64,
}

/// A node that appeared or left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct NodeChange {
    pub(crate) unix_ms: u64,
    pub(crate) node: String,
    pub(crate) event: String,
    pub(crate) why: Option<String>,
}

/// All that is known about a domain.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct DomainInfo {
    /// `None` without a domain.
    pub(crate) domain: Option<String>,
    pub(crate) nodes: Vec<NodeInfo>,
    /// The newest last.
    pub(crate) events: Vec<NodeChange>,
}

/// A job.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct JobRow {
    /// `17@main-4f2a`.
    pub(crate) job: String,
    pub(crate) main: String,
    pub(crate) kind: String,
    pub(crate) state: String,
    /// Why it waits or failed, or where it runs.
    pub(crate) why: String,
    pub(crate) node: Option<String>,
    /// From 0 to 1.
    pub(crate) progress: Option<f64>,
    pub(crate) priority: i32,
    pub(crate) attempts: u32,
    pub(crate) age_ms: u64,
}

/// A job of a main node that is gone.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct PastJob {
    pub(crate) job: String,
    pub(crate) kind: String,
    pub(crate) state: String,
    /// Why it failed, or will not end.
    pub(crate) why: String,
    /// The node that solved it.
    pub(crate) node: Option<String>,
    pub(crate) attempts: u64,
    pub(crate) submitted_ms: Option<u64>,
    pub(crate) ended_ms: Option<u64>,
}

/// Jobs of one kind in one state for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Queue {
    pub(crate) kind: String,
    pub(crate) state: String,
    pub(crate) why: String,
    pub(crate) jobs: usize,
}

/// The jobs of a domain.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct JobsInfo {
    pub(crate) jobs: Vec<JobRow>,
    /// Jobs of main nodes that are gone, from the ledger; the newest first.
    pub(crate) past: Vec<PastJob>,
    pub(crate) queues: Vec<Queue>,
    /// Solved so far, over all nodes.
    pub(crate) done: u64,
    /// Whether there are more than are listed.
    pub(crate) more: bool,
}

/// A domain that the dashboard looks at.
#[derive(Debug)]
pub(crate) struct Domain {
    fabric: Fabric,
    name: String,
    events: Mutex<VecDeque<NodeChange>>,
}

impl Domain {
    pub(crate) fn new(fabric: Fabric, name: String) -> Self {
        Self { fabric, name, events: Mutex::default() }
    }

    /// Tells the hub of changes until the domain is left.
    pub(crate) async fn follow(self: Arc<Self>, hub: Arc<Hub>) {
        let mut watch = self.fabric.watch();
        while let Some(event) = watch.next().await {
            let status = event.status();
            if !self.shows(status) {
                continue;
            }
            let kind = match &event {
                NodeEvent::Appeared(_) => Some("appeared"),
                NodeEvent::Gone(_) => Some(status.state.name()),
                NodeEvent::Changed(_) => None,
            };
            if let Some(kind) = kind {
                let mut events = lock(&self.events);
                let (node, event, why) = (status.id.to_string(), kind.to_owned(), why(&status.state));
                events.push_back(NodeChange { unix_ms: now_ms(), node, event, why });
                if events.len() > MOST_EVENTS {
                    events.pop_front();
                }
            }
            hub.domain_changed();
        }
    }

    fn shows(&self, status: &NodeStatus) -> bool {
        status.id != *self.fabric.id() && status.kind != NodeKind::Observer
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn info(&self) -> DomainInfo {
        let nodes = self.fabric.nodes();
        DomainInfo {
            domain: Some(self.name.clone()),
            nodes: nodes.iter().filter(|status| self.shows(status)).map(node).collect(),
            events: lock(&self.events).iter().cloned().collect(),
        }
    }

    /// The jobs of all main nodes; those that have ended only when `all`.
    pub(crate) async fn jobs(&self, all: bool) -> Result<JobsInfo, ApiError> {
        let (mut jobs, mut more) = (Vec::new(), false);
        for main in self.mains() {
            let query = JobQuery::List { after: JobId(0), limit: MOST_JOBS, all };
            if let Some(JobAnswer::Jobs { jobs: of_main, more: others }) = self.ask(&main, &query).await? {
                more |= others;
                jobs.extend(of_main.iter().map(|info| job(main.as_str(), info)));
            }
        }
        let done = self.fabric.nodes().iter().map(|status| status.jobs_done).sum();
        Ok(JobsInfo { queues: queues(&jobs), jobs, past: Vec::new(), done, more })
    }

    /// Cancels a job; says whether it was there and had not ended.
    pub(crate) async fn cancel(&self, name: &str) -> Result<bool, ApiError> {
        let missing = || ApiError::NotFound { what: "job", name: name.to_owned() };
        let job: JobRef = name.parse().map_err(|_text: String| missing())?;
        let mut cancelled = 0;
        for main in self.mains().into_iter().filter(|main| job.may_be_at(main.as_str())) {
            let query = JobQuery::Cancel { jobs: vec![job.job] };
            if let Some(JobAnswer::Cancelled { jobs }) = self.ask(&main, &query).await? {
                cancelled += jobs;
            }
        }
        Ok(cancelled > 0)
    }

    /// The main nodes that are there.
    pub(crate) fn mains(&self) -> Vec<NodeId> {
        let nodes = self.fabric.nodes().into_iter();
        nodes.filter(|status| status.kind.asks() && status.state.is_live()).map(|status| status.id).collect()
    }

    /// `None` from a driver, which has no jobs, and from a node that is leaving.
    async fn ask(&self, main: &NodeId, query: &JobQuery) -> Result<Option<JobAnswer>, ApiError> {
        let unclear = || ApiError::NoAnswer { node: main.to_string() };
        let mut body = BytesMut::new();
        codec::encode_into(query, &mut body).map_err(|_too_long| unclear())?;
        match self.fabric.request(main, QUERY_SERVICE, body.freeze(), ANSWER).await {
            Ok(answer) => codec::decode(&answer).map(Some).map_err(|_nonsense| unclear()),
            Err(error) => {
                tracing::debug!(%error, %main, "asked for jobs in vain");
                Ok(None)
            }
        }
    }
}

pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn why(state: &NodeState) -> Option<String> {
    match state {
        NodeState::Lost(reason) => Some(reason.to_string()),
        NodeState::Running | NodeState::Draining | NodeState::Stopped => None,
    }
}

fn node(status: &NodeStatus) -> NodeInfo {
    let host = status.resources.host.as_ref();
    NodeInfo {
        id: status.id.to_string(),
        kind: status.kind.to_string(),
        state: status.state.name().to_owned(),
        why: why(&status.state),
        cores: status.resources.cores,
        memory_bytes: status.resources.memory.0,
        host: host.map(|host| host.name.to_string()),
        host_cores: host.map(|host| host.cores),
        speed_gflops: status.resources.speed_gflops.map(f64::from).filter(|speed| speed.is_finite()),
        address: status.addresses.first().map(ToString::to_string).unwrap_or_default(),
        jobs_running: status.jobs_running,
        jobs_done: status.jobs_done,
        uses: status.uses.iter().map(part).collect(),
        since_ms: status.since_unix_ms,
        handles: status.handles.iter().map(ToString::to_string).collect(),
        serves: status.handles.iter().filter_map(|kind| model_of(kind)).map(str::to_owned).collect(),
        store: status.store.as_ref().and_then(|store| store.addresses.first()).map(ToString::to_string),
    }
}

fn part(part: &NodeUse) -> UseInfo {
    let (kind, driver) = match &part.holder {
        Holder::Jobs { .. } => ("jobs", None),
        Holder::Run { driver, .. } => ("run", Some(driver)),
        Holder::WaitingRun { driver, .. } => ("waiting run", Some(driver)),
        Holder::Others { .. } => ("others", None),
        Holder::Rank { launcher } => ("rank", Some(launcher)),
        Holder::WaitingRank { launcher } => ("waiting rank", Some(launcher)),
        Holder::Store => ("store", None),
    };
    UseInfo {
        kind: kind.to_owned(),
        text: part.holder.to_string(),
        driver: driver.map(ToString::to_string),
        cores: part.cores,
        memory_bytes: part.memory.0,
    }
}

fn job(main: &str, info: &JobInfo) -> JobRow {
    let (node, progress) = match &info.state {
        JobState::Running { node, progress, .. } => {
            (Some(node.to_string()), progress.as_ref().map(|(permille, _)| f64::from(*permille) / 1000.0))
        }
        JobState::Leased { node } => (Some(node.to_string()), None),
        _ => (None, None),
    };
    JobRow {
        job: format!("{}@{main}", info.job),
        main: main.to_owned(),
        kind: info.kind.to_string(),
        state: info.state.name().to_owned(),
        why: info.state.why(),
        node,
        progress,
        priority: info.priority,
        attempts: info.attempts,
        age_ms: info.age_ms,
    }
}

/// Counts jobs by kind, state and, if they wait or failed, reason.
fn queues(jobs: &[JobRow]) -> Vec<Queue> {
    let mut counts: BTreeMap<(&str, &str, &str), usize> = BTreeMap::new();
    for job in jobs {
        let why = if matches!(&*job.state, "waiting" | "failed") { &*job.why } else { "" };
        *counts.entry((&job.kind, &job.state, why)).or_default() += 1;
    }
    let queue = |((kind, state, why), jobs): ((&str, &str, &str), usize)| Queue {
        kind: kind.to_owned(),
        state: state.to_owned(),
        why: why.to_owned(),
        jobs,
    };
    counts.into_iter().map(queue).collect()
}
