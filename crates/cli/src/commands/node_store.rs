//! The store of `phalanx node`.

use crate::commands::store::{DurabilityArg, password};
use crate::failure::Failure;
use clap::Args;
use phalanx_fabric::DomainKey;
use phalanx_infer::StoredModels;
use phalanx_nodes::{Node, NodeStore, NodeStoreError, NodeStoreSpec};
use phalanx_store::ShardPlace;
use phalanx_types::ByteSize;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Debug, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct NodeStoreArgs {
    /// Serve a store; members of the domain reach it as phalanx://DOMAIN.
    #[arg(long)]
    store: bool,
    /// How much the store may hold, of the node's memory; a quarter of it when not given.
    #[arg(long, value_name = "SIZE", requires = "store")]
    store_memory: Option<ByteSize>,
    /// The address of the store; that of the node with any free port when not given.
    #[arg(long, value_name = "ADDR:PORT", requires = "store")]
    store_bind: Option<SocketAddr>,
    /// Which part of the domain's store this node has, when several nodes share it: 1/3, 2/3 and 3/3 on three nodes.
    #[arg(long, value_name = "I/N", requires = "store")]
    store_shard: Option<ShardPlace>,
    /// A directory in which everything is kept, so that it is there after a restart or a crash.
    #[arg(long, value_name = "DIR", requires = "store")]
    store_persist: Option<PathBuf>,
    /// When a write is acknowledged that is kept.
    #[arg(long, value_name = "WHEN", default_value = "every-second", requires = "store_persist")]
    store_durability: DurabilityArg,
    /// A directory for large values that memory has no room for; they end with the node.
    #[arg(long, value_name = "DIR", requires = "store")]
    store_spill: Option<PathBuf>,
    /// How much the values of --store-spill may take; as much as the disk has when not given.
    #[arg(long, value_name = "SIZE", requires = "store_spill")]
    store_spill_limit: Option<ByteSize>,
    /// A file whose first line is the password for clients of the store that have no domain key.
    #[arg(long, value_name = "FILE", requires = "store")]
    store_password_file: Option<PathBuf>,
}

impl NodeStoreArgs {
    /// Starts the store, if one is wanted.
    pub(crate) async fn start(
        &self,
        node: &Node,
        key: Option<DomainKey>,
    ) -> Result<Option<NodeStore>, Failure> {
        if !self.store {
            return Ok(None);
        }
        let spec = NodeStoreSpec {
            bind: self.store_bind,
            memory: self.store_memory,
            key,
            shard: self.store_shard,
            password: password(self.store_password_file.as_deref())?,
            runner: Some(Arc::new(StoredModels::default())),
            persist: self.store_persist.clone(),
            durability: self.store_durability.into(),
            spill: self.store_spill.clone(),
            spill_limit: self.store_spill_limit.unwrap_or(ByteSize(0)),
        };
        node.serve_store(spec).await.map(Some).map_err(failure)
    }
}

fn failure(error: NodeStoreError) -> Failure {
    let hint = error.hint();
    let is_usage = matches!(
        error,
        NodeStoreError::Memory(_) | NodeStoreError::Taken { .. } | NodeStoreError::OtherParts { .. }
    );
    let failure = if is_usage { Failure::usage(error) } else { Failure::infrastructure(error) };
    failure.hint_if(hint)
}
