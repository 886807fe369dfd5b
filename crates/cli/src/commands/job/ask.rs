//! Asking the main nodes of a domain about their jobs, and the journals of those that are gone.

use super::reference::JobRef;
use crate::args::{DomainArgs, start_failure};
use crate::failure::Failure;
use crate::paths;
use anyhow::anyhow;
use bytes::BytesMut;
use phalanx_fabric::{Fabric, NodeKind, RequestError};
use phalanx_jobs::{JournalHistory, Outcome, read_journal};
use phalanx_types::{JobId, NodeId};
use phalanx_wire::codec;
use phalanx_wire::fabric::ReplyError;
use phalanx_wire::jobs::{JobAnswer, JobQuery, QUERY_SERVICE};
use std::time::Duration;

const LOOK: Duration = Duration::from_secs(2);
const ANSWER: Duration = Duration::from_secs(5);

/// A look into a domain.
pub(super) struct Asker {
    fabric: Fabric,
    mains: Vec<NodeId>,
}

/// A main node that is gone, and what its journal tells.
pub(super) struct Past {
    pub(super) name: String,
    pub(super) history: JournalHistory,
}

impl Asker {
    pub(super) async fn start(domain: &DomainArgs) -> Result<Self, Failure> {
        let fabric =
            Fabric::start(domain.fabric("look", NodeKind::Observer)?).await.map_err(start_failure)?;
        fabric.settled(LOOK).await;
        let live = |s: &phalanx_fabric::NodeStatus| s.kind == NodeKind::Main && s.state.is_live();
        let mains = fabric.nodes().into_iter().filter(live).map(|s| s.id).collect();
        Ok(Self { fabric, mains })
    }

    pub(super) fn mains(&self) -> &[NodeId] {
        &self.mains
    }

    /// Asks a main node; `None` when it leaves before it answers, and is not among the live ones
    /// from then on: its journal knows as much. Drivers of training runs have no jobs to be asked about.
    pub(super) async fn ask(
        &mut self,
        main: &NodeId,
        query: &JobQuery,
    ) -> Result<Option<JobAnswer>, Failure> {
        let mut body = BytesMut::new();
        codec::encode_into(query, &mut body).map_err(Failure::infrastructure)?;
        match self.fabric.request(main, QUERY_SERVICE, body.freeze(), ANSWER).await {
            Ok(answer) => codec::decode(&answer).map(Some).map_err(Failure::infrastructure),
            Err(
                RequestError::NotConnected { .. }
                | RequestError::Lost { .. }
                | RequestError::Stopped { .. }
                | RequestError::Reply { source: ReplyError::NoService { .. }, .. },
            ) => {
                self.mains.retain(|known| known != main);
                Ok(None)
            }
            Err(error) => {
                let error = anyhow::Error::new(error).context(format!("could not ask main node {main}"));
                Err(Failure::infrastructure(error))
            }
        }
    }

    /// The one live main node a reference means, if any has the job.
    pub(super) async fn find(&mut self, job: &JobRef) -> Result<Option<NodeId>, Failure> {
        let mut found = Vec::new();
        let meant: Vec<NodeId> = self.mains.iter().filter(|m| job.may_be_at(m.as_str())).cloned().collect();
        for main in meant {
            if let Some(JobAnswer::Jobs { .. }) = self.ask(&main, &JobQuery::Show { job: job.job }).await? {
                found.push(main);
            }
        }
        match found.as_slice() {
            [] => Ok(None),
            [one] => Ok(Some(one.clone())),
            several => {
                let names: Vec<String> = several.iter().map(|m| format!("{}@{m}", job.job)).collect();
                let error = anyhow!("several main nodes have a job {}", job.job);
                Err(Failure::usage(error).hint(format!("name one of {}", names.join(", "))))
            }
        }
    }

    pub(super) async fn stop(self) {
        self.fabric.shutdown().await;
    }
}

/// The journals of background main nodes that are not among `live`, newest name last.
pub(super) fn past_mains(domain: &DomainArgs, live: &[NodeId]) -> Vec<Past> {
    let Ok(dir) = paths::job_journals(&domain.domain) else { return Vec::new() };
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut past: Vec<Past> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let name = path.file_name()?.to_str()?.strip_suffix(".journal")?.to_owned();
            if live.iter().any(|id| is_named(id, &name)) {
                return None;
            }
            let history = read_journal(&path)
                .inspect_err(|error| tracing::warn!(%error, "a journal is left out"))
                .ok()?;
            Some(Past { name, history })
        })
        .collect();
    past.sort_by(|a, b| a.name.cmp(&b.name));
    past
}

/// The solution of a job whose main node is there, when that keeps its journal in the usual place.
pub(super) fn kept_solution(domain: &DomainArgs, main: &NodeId, job: JobId) -> Option<String> {
    let dir = paths::job_journals(&domain.domain).ok()?;
    // Its id is its name and digits after a dash.
    let (name, _digits) = main.as_str().rsplit_once('-')?;
    let history = read_journal(&dir.join(format!("{name}.journal"))).ok()?;
    solution(history.jobs.get(&job)?.outcome.as_ref())
}

/// A solution as text.
pub(super) fn solution(outcome: Option<&Outcome>) -> Option<String> {
    match outcome? {
        Outcome::Solved(parcel) => Some(String::from_utf8_lossy(&parcel.bytes).into_owned()),
        Outcome::Failed(_) | Outcome::Cancelled | Outcome::Expired => None,
    }
}

/// Whether a node has this name: its id is longer by a dash and digits.
fn is_named(id: &NodeId, name: &str) -> bool {
    id.as_str().rsplit_once('-').is_some_and(|(own, _digits)| own == name)
}

impl Past {
    pub(super) fn outcome(&self, job: JobId) -> Option<&Outcome> {
        self.history.jobs.get(&job)?.outcome.as_ref()
    }
}
