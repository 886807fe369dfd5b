//! `--metrics`: numbers of nodes, drivers and stores for Prometheus.

mod node;
mod run;
mod store;

pub(crate) use node::NodeSource;
pub(crate) use run::RunSource;
pub(crate) use store::StoreSource;

use crate::failure::Failure;
use clap::Args;
use phalanx_telemetry::{MetricsAddress, MetricsServer, Source};
use std::sync::Arc;

#[derive(Debug, Clone, Args)]
pub(crate) struct MetricsArgs {
    /// Serve numbers for Prometheus at /metrics of this port; on loopback when no address is given.
    #[arg(long, value_name = "[ADDR:]PORT")]
    metrics: Option<MetricsAddress>,
}

impl MetricsArgs {
    pub(crate) fn is_wanted(&self) -> bool {
        self.metrics.is_some()
    }

    /// Serves, if it is wanted, for as long as the server lives.
    pub(crate) async fn serve(&self, source: impl Source) -> Result<Option<MetricsServer>, Failure> {
        let Some(address) = self.metrics else { return Ok(None) };
        let server = MetricsServer::start(address, Arc::new(source)).await;
        server.map(Some).map_err(Failure::infrastructure)
    }
}
