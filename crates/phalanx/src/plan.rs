//! Plans: which nodes of a pool of unequal machines hold which part of a model, and what a step would cost.
//!
//! ```
//! use phalanx::model::zoo;
//! use phalanx::plan::{Pool, PoolNode, formation};
//! use phalanx::train::config::{FormationConfig, RunConfig};
//!
//! let graph = zoo::build("mlp", &zoo::ZooOptions::default())?;
//! let nodes = ["slow", "fast"].map(|name| {
//!     let speed = if name == "fast" { 30.0 } else { 10.0 };
//!     PoolNode { host: name.to_owned(), ..PoolNode::new(name, 1 << 30, speed) }
//! });
//! let mut config = RunConfig::default();
//! config.formation = FormationConfig { stages: None, ..FormationConfig::default() };
//! let planned = formation(&graph, &config, Pool::new(nodes.to_vec()))?;
//! println!("{}", planned.picture());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use phalanx_formation::{
    Bottleneck, Effort, Exchange, LeftOut, Link, Method, Mode, ModelCost, Options, Plan, Pool, PoolError,
    PoolNode, Prediction, ReplicaPlan, Shape, Shortfall, StagePlan, exact, genetic, greedy, picture, predict,
};
pub use phalanx_measure::costs;

use crate::error::Error;
use phalanx_graph::Graph;
use phalanx_train::config::RunConfig;
use phalanx_wire::train::Ops;
use std::collections::BTreeSet;

/// A plan with what it was made of.
#[derive(Debug, Clone)]
pub struct Planned {
    /// Who holds what, and why.
    pub plan: Plan,
    /// What every operator of the model costs.
    pub cost: ModelCost,
    /// The nodes there are.
    pub pool: Pool,
}

impl Planned {
    /// The plan as a picture for people.
    pub fn picture(&self) -> String {
        picture(&self.plan, &self.cost, &self.pool)
    }

    /// The names of the parameters and buffers that every stage of every replica holds.
    ///
    /// # Errors
    /// `graph` is not the model of this plan.
    pub fn tensor_names(&self, graph: &Graph) -> Result<Vec<Vec<BTreeSet<String>>>, Error> {
        let names = |stage: &StagePlan| {
            let (start, end) = (stage.ops.start as u32, stage.ops.end as u32);
            Ok(phalanx_rank::names_of(graph, Ops { start, end })?)
        };
        let of_replica = |replica: &ReplicaPlan| replica.stages.iter().map(names).collect();
        self.plan.replicas.iter().map(of_replica).collect()
    }
}

/// Plans a formation for a model on a pool; `config.formation` and `config.train` say what is wanted of it. Operations
/// of the model are counted, not measured, and speeds of nodes are in billions of operations per second.
///
/// # Errors
/// No formation on these nodes holds the run.
pub fn formation(graph: &Graph, config: &RunConfig, pool: Pool) -> Result<Planned, Shortfall> {
    let cost = costs::counted(graph);
    let options = costs::options(config, graph, &costs::Here::default());
    let plan = phalanx_formation::plan(&cost, &pool, &options, &mut || true)?;
    Ok(Planned { plan, cost, pool })
}
