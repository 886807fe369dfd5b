//! What all requests share.

use crate::actions::Actions;
use crate::domain::{Domain, DomainInfo, JobsInfo};
use crate::error::ApiError;
use crate::gate::Gate;
use crate::hub::Hub;
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
        let tails = Tails::default();
        Self { runs, tails, actions, hub, domain: None, stores, searches, gate, streams }
    }

    pub(crate) fn domain_name(&self) -> Option<String> {
        self.domain_info().domain
    }

    pub(crate) fn domain_info(&self) -> DomainInfo {
        let none = || DomainInfo { domain: None, nodes: Vec::new(), events: Vec::new() };
        self.domain.as_ref().map_or_else(none, |domain| domain.info())
    }

    pub(crate) async fn jobs(&self, all: bool) -> Result<Value, ApiError> {
        let jobs = match &self.domain {
            Some(domain) => domain.jobs(all).await?,
            None => JobsInfo { jobs: Vec::new(), queues: Vec::new(), done: 0, more: false },
        };
        Ok(serde_json::to_value(jobs).unwrap_or_default())
    }
}
