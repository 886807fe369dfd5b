//! One module for each command.

pub(crate) mod artifacts;
pub(crate) mod bench;
pub(crate) mod dashboard;
pub(crate) mod domain;
pub(crate) mod eval;
pub(crate) mod export;
pub(crate) mod fuse;
pub(crate) mod infer;
pub(crate) mod job;
pub(crate) mod launch;
pub(crate) mod ledger;
mod live;
mod metrics;
pub(crate) mod model;
pub(crate) mod node;
mod node_store;
pub(crate) mod nodes;
pub(crate) mod plan;
pub(crate) mod predict;
pub(crate) mod relay;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod search;
pub(crate) mod simulate;
pub(crate) mod store;
pub(crate) mod train;
mod trained;
