//! What all requests share.

use crate::actions::Actions;
use crate::domain::{Domain, DomainInfo, JobsInfo, PastJob};
use crate::error::ApiError;
use crate::gate::Gate;
use crate::hub::Hub;
use crate::past_jobs::{Journals, past_jobs};
use crate::searches::Searches;
use crate::source::Runs;
use crate::stores::Stores;
use crate::tail::Tails;
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// The most streams of live changes at once.
const MOST_STREAMS: usize = 256;

#[derive(Debug)]
pub(crate) struct App {
    pub(crate) runs: Arc<Runs>,
    pub(crate) tails: Tails,
    pub(crate) actions: Arc<Actions>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) domain: Option<Arc<Domain>>,
    pub(crate) journals: Option<Journals>,
    pub(crate) stores: Arc<Stores>,
    pub(crate) searches: Searches,
    pub(crate) gate: Gate,
    pub(crate) streams: Arc<Semaphore>,
}

impl App {
    /// Without a domain.
    pub(crate) fn new(
        runs: Arc<Runs>,
        actions: Arc<Actions>,
        hub: Arc<Hub>,
        stores: Arc<Stores>,
        searches: Searches,
        gate: Gate,
    ) -> Self {
        let streams = Arc::new(Semaphore::new(MOST_STREAMS));
        let (tails, domain, journals) = (Tails::default(), None, None);
        Self { runs, tails, actions, hub, domain, journals, stores, searches, gate, streams }
    }

    pub(crate) fn domain_name(&self) -> Option<String> {
        self.domain_info().domain
    }

    pub(crate) fn domain_info(&self) -> DomainInfo {
        let none = || DomainInfo { domain: None, nodes: Vec::new(), events: Vec::new() };
        self.domain.as_ref().map_or_else(none, |domain| domain.info())
    }

    /// The jobs of the domain, and with `all` those that have ended, also of main nodes that are gone.
    pub(crate) async fn jobs(self: Arc<Self>, all: bool) -> Result<Value, ApiError> {
        let mut jobs = match &self.domain {
            Some(domain) => domain.jobs(all).await?,
            None => JobsInfo { jobs: Vec::new(), past: Vec::new(), queues: Vec::new(), done: 0, more: false },
        };
        if all {
            // On a thread for that: it reads journals and the ledger.
            let past = tokio::task::spawn_blocking(move || self.past_jobs()).await;
            jobs.past = past.unwrap_or_else(|_panicked| Ok(Vec::new()))?;
        }
        Ok(serde_json::to_value(jobs).unwrap_or_default())
    }

    fn past_jobs(&self) -> Result<Vec<PastJob>, ApiError> {
        // Without a ledger nothing is known about them; the page says that there is none.
        let Some(ledger) = self.runs.ledger() else { return Ok(Vec::new()) };
        let domain = self.domain.as_deref();
        let live: Vec<String> =
            domain.map(Domain::mains).unwrap_or_default().iter().map(ToString::to_string).collect();
        past_jobs(&ledger, self.journals.as_ref(), domain.map(Domain::name), &live)
    }
}
