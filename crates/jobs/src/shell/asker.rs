//! Asks the main nodes of a domain about their jobs, and the journals of those that are gone.

use super::journal::{JournalHistory, read_journal};
use crate::core::Outcome;
use crate::job_ref::JobRef;
use bytes::BytesMut;
use phalanx_fabric::{Fabric, FabricConfig, NodeKind, NodeStatus, RequestError, StartError};
use phalanx_types::{Class, JobId, NodeId};
use phalanx_wire::codec::{self, CodecError};
use phalanx_wire::fabric::ReplyError;
use phalanx_wire::jobs::{JobAnswer, JobQuery, QUERY_SERVICE};
use std::path::Path;
use std::time::Duration;

/// How long to look for main nodes.
const LOOK: Duration = Duration::from_secs(2);
/// How long a main node may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Why main nodes could not be asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    #[error("could not join the domain")]
    Start(#[from] StartError),
    #[error(transparent)]
    Codec(#[from] CodecError),
    #[error("could not ask main node {main}")]
    Request { main: NodeId, source: RequestError },
    #[error("several main nodes have a job {job}")]
    Several { job: JobId, mains: Vec<NodeId> },
}

impl AskError {
    pub fn class(&self) -> Class {
        match self {
            Self::Request { source, .. } => source.class(),
            Self::Codec(_) => Class::Peer,
            Self::Start(_) | Self::Several { .. } => Class::Fatal,
        }
    }
}

/// A look into a domain, at the jobs of its main nodes.
#[derive(Debug)]
pub struct Asker {
    fabric: Fabric,
    mains: Vec<NodeId>,
}

impl Asker {
    /// Joins as an observer and looks for main nodes.
    ///
    /// # Errors
    /// The domain cannot be joined.
    pub async fn start(mut config: FabricConfig) -> Result<Self, AskError> {
        config.kind = NodeKind::Observer;
        let fabric = Fabric::start(config).await?;
        fabric.settled(LOOK).await;
        let live = |s: &NodeStatus| s.kind.asks() && s.state.is_live();
        let mains = fabric.nodes().into_iter().filter(live).map(|s| s.id).collect();
        Ok(Self { fabric, mains })
    }

    /// The main nodes that are there.
    pub fn mains(&self) -> &[NodeId] {
        &self.mains
    }

    /// Asks a main node; `None` when it leaves before it answers, and is not among the live ones from then on: its
    /// journal knows as much. Drivers of training runs have no jobs to be asked about.
    ///
    /// # Errors
    /// It does not answer, or says what cannot be understood.
    pub async fn ask(&mut self, main: &NodeId, query: &JobQuery) -> Result<Option<JobAnswer>, AskError> {
        let mut body = BytesMut::new();
        codec::encode_into(query, &mut body)?;
        match self.fabric.request(main, QUERY_SERVICE, body.freeze(), ANSWER).await {
            Ok(answer) => Ok(codec::decode(&answer).map(Some)?),
            Err(
                RequestError::NotConnected { .. }
                | RequestError::Lost { .. }
                | RequestError::Stopped { .. }
                | RequestError::Reply { source: ReplyError::NoService { .. }, .. },
            ) => {
                self.mains.retain(|known| known != main);
                Ok(None)
            }
            Err(source) => Err(AskError::Request { main: main.clone(), source }),
        }
    }

    /// The one live main node a reference means, if any has the job.
    ///
    /// # Errors
    /// Several have it, or one does not answer.
    pub async fn find(&mut self, job: &JobRef) -> Result<Option<NodeId>, AskError> {
        let mut found = Vec::new();
        let meant: Vec<NodeId> = self.mains.iter().filter(|m| job.may_be_at(m.as_str())).cloned().collect();
        for main in meant {
            if let Some(JobAnswer::Jobs { .. }) = self.ask(&main, &JobQuery::Show { job: job.job }).await? {
                found.push(main);
            }
        }
        match found.len() {
            0 | 1 => Ok(found.pop()),
            _ => Err(AskError::Several { job: job.job, mains: found }),
        }
    }

    /// Leaves the domain.
    pub async fn stop(self) {
        self.fabric.shutdown().await;
    }
}

/// A main node that is gone, and what its journal tells.
#[derive(Debug)]
pub struct PastMain {
    /// Its name: its id was longer by a dash and digits.
    pub name: String,
    /// What its journal tells.
    pub history: JournalHistory,
}

impl PastMain {
    /// How a job ended, if it did.
    pub fn outcome(&self, job: JobId) -> Option<&Outcome> {
        self.history.jobs.get(&job)?.outcome.as_ref()
    }
}

/// The journals in a directory of main nodes that are not among `live`, in the order of their names.
pub fn past_mains(journals: &Path, live: &[NodeId]) -> Vec<PastMain> {
    let Ok(entries) = std::fs::read_dir(journals) else { return Vec::new() };
    let mut past: Vec<PastMain> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let name = path.file_name()?.to_str()?.strip_suffix(".journal")?.to_owned();
            if live.iter().any(|id| is_named(id, &name)) {
                return None;
            }
            let history = read_journal(&path)
                .inspect_err(|error| tracing::warn!(%error, "a journal is left out"))
                .ok()?;
            if history.main.as_ref().is_some_and(|main| live.contains(main)) {
                return None;
            }
            Some(PastMain { name, history })
        })
        .collect();
    past.sort_by(|a, b| a.name.cmp(&b.name));
    past
}

/// The outcome of a job whose main node is there, when that keeps its journal in this directory.
pub fn kept_outcome(journals: &Path, main: &NodeId, job: JobId) -> Option<Outcome> {
    // Its id is its name and digits after a dash.
    let (name, _digits) = main.as_str().rsplit_once('-')?;
    let mut history = read_journal(&journals.join(format!("{name}.journal"))).ok()?;
    history.jobs.remove(&job)?.outcome
}

/// Whether a node has this name: its id is longer by a dash and digits.
fn is_named(id: &NodeId, name: &str) -> bool {
    id.as_str().rsplit_once('-').is_some_and(|(own, _digits)| own == name)
}
