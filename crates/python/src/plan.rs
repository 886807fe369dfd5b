//! Plans: which nodes of a pool hold which part of a model.

use crate::errors::Failure;
use crate::inputs::{ModelInput, Setting, configuration};
use crate::train::json;
use crate::wait::{Caller, wait};
use phalanx::plan::{Plan, Pool, PoolNode, formation};
use pyo3::prelude::*;
use serde::Serialize;
use std::collections::BTreeSet;

/// A plan with the names of its nodes.
#[derive(Serialize)]
struct Told<'a> {
    #[serde(flatten)]
    plan: &'a Plan,
    bottleneck: String,
    nodes: Vec<&'a str>,
    /// Of every stage of every replica.
    tensors: Vec<Vec<BTreeSet<String>>>,
    picture: String,
}

/// A machine: its name, its memory in bytes, its speed in GFLOP/s, and the host that it is on.
type Machine = (String, u64, f64, String);

/// The machines there are: a text in TOML or JSON, or a list.
#[derive(FromPyObject)]
pub(crate) enum PoolInput {
    /// Of a pool file.
    #[pyo3(transparent)]
    Text(String),
    /// One by one.
    #[pyo3(transparent)]
    Machines(Vec<Machine>),
}

impl PoolInput {
    /// With speeds in billions of operations per second.
    fn pool(self) -> Result<Pool, Failure> {
        let text = match self {
            Self::Text(text) => text,
            Self::Machines(machines) => {
                let node = |(name, memory, speed, host): Machine| PoolNode {
                    host,
                    ..PoolNode::new(name, memory, speed)
                };
                return Ok(Pool::new(machines.into_iter().map(node).collect()));
            }
        };
        let read = if text.trim_start().starts_with('{') { Pool::from_json } else { Pool::from_toml };
        let mut pool = read(&text).map_err(|error| {
            Failure::input(format!("the pool file cannot be used: {error}"))
                .hint("`phalanx plan --help` shows one")
        })?;
        pool.nodes.iter_mut().for_each(|node| node.speed *= 1e-9);
        Ok(pool)
    }
}

/// Plans a formation of a model on a pool, as JSON.
#[pyfunction]
pub(crate) fn plan(
    py: Python<'_>,
    model: ModelInput,
    pool: PoolInput,
    settings: Vec<Setting>,
) -> PyResult<String> {
    let work = move |_: Caller| {
        let (config, pool) = (configuration(&settings)?, pool.pool()?);
        let found = model.find()?;
        let planned = formation(&found.graph, &config, pool).map_err(|error| Failure::training(&error))?;
        json(&Told {
            plan: &planned.plan,
            bottleneck: planned.plan.predicted.bottleneck.to_string(),
            nodes: planned.pool.nodes.iter().map(|node| node.name.as_str()).collect(),
            tensors: planned.tensor_names(&found.graph)?,
            picture: planned.picture(),
        })
    };
    wait(py, work)
}
