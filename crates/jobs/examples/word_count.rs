//! A handler of your own: counts words, on as many nodes as you start.
//!
//! `cargo run --package phalanx-jobs --example word_count`

use phalanx_fabric::{FabricConfig, NodeKind};
use phalanx_jobs::{ComputingNode, HandlerError, Handlers, JobSpec, MainNode, MainOptions, Outcome};
use phalanx_types::{DomainName, Parcel, Resources};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let domain = DomainName::new("word-count")?;
    let mut config = FabricConfig::new(domain.clone(), "counter", NodeKind::Computing);
    config.resources = Resources { cores: 2, ..Resources::default() };
    let handlers = Handlers::new().with("count", |job: &phalanx_jobs::JobContext| {
        let text =
            std::str::from_utf8(&job.payload().bytes).map_err(|e| HandlerError::failed(e.to_string()))?;
        Ok(Parcel::from_bytes(text.split_whitespace().count().to_string()))
    });
    let node = ComputingNode::start(config, handlers).await?;
    let stopper = node.stopper();
    let computing = tokio::spawn(node.run());

    let main =
        MainNode::start(FabricConfig::new(domain, "main", NodeKind::Main), MainOptions::default()).await?;
    let job = main.submit(JobSpec::new("count", Parcel::from_bytes("many unequal soldiers"))).await?;
    if let Outcome::Solved(solution) = job.await? {
        tracing::info!(words = %String::from_utf8_lossy(&solution.bytes), "solved");
        assert_eq!(&solution.bytes[..], b"3");
    }
    main.shutdown().await;
    stopper.drain();
    computing.await??;
    Ok(())
}
