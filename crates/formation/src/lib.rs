//! Decides which nodes of a heterogeneous pool hold which part of a model: replicas × stages → nodes.
//!
//! Pure: the same model, pool, options and seed give the same plan. There is no clock; a caller with limited time stops
//! the search through `keep_going`.
//!
//! # What is minimised
//!
//! The seconds of a step of `batch` samples, under the memory of every node:
//!
//! ```text
//! (step + exchange / every) * (1 + moving / move_horizon)
//! ```
//!
//! *step* is the slowest replica's time for its share of the batch, but at least the time that any host's cores need
//! for all of their nodes. Shares are such that replicas finish together. A replica in exact mode processes `M`
//! micro-batches with one forward and one backward in turn; `evaluate/timing.rs` has the formula. It is a lower bound
//! of the simulated schedule: on average 0.2 % below it where links are short compared with stages, 3 % where latency
//! is ten times a forward pass. In asynchronous mode the pipeline neither fills nor drains: the time is that of the
//! slowest stage or link, or a round trip for as many micro-batches as are in flight.
//!
//! *exchange* averages the parameters of all replicas, each range around a ring of the nodes that hold it, all rings at
//! once over each node's one link. *moving* is the time to fetch parameters that nodes do not hold yet.
//!
//! A stage needs `kept_per_parameter_byte` for its parameters, its buffers, the activations of as many micro-batches as
//! there are stages from it to the end (or as are in flight), and the base memory of a process.
//!
//! # How it is found
//!
//! - [`greedy`]: nodes by speed or memory, dealt to replicas with as few stages as the model fits into.
//! - [`genetic`]: a population that begins with plain formations; nodes move, replicas split and merge, cuts shift.
//! - [`exact`]: all ways to order nodes into replicas, except those that dynamic programming over the cuts proves
//!   too slow. Its plan is optimal.
//! - [`plan()`]: exact for small pools, genetic for others. [`predict`] only evaluates a given formation.

mod cuts;
mod evaluate;
mod explain;
mod finish;
mod model;
mod options;
mod picture;
mod plan;
mod planner;
mod pool;
mod reason;
mod search;
mod shortfall;

pub use model::{CutCost, ModelCost, OpCost, Work};
pub use options::{Effort, Exchange, Held, Mode, Options};
pub use picture::{StageRow, picture};
pub use plan::{Bottleneck, LeftOut, Method, Plan, Prediction, ReplicaPlan, Shape, ShapeStage, StagePlan};
pub use planner::{exact, genetic, greedy, plan, predict};
pub use pool::{Link, Pool, PoolError, PoolNode};
pub use reason::{Because, Choice, WhyLeftOut};
pub use shortfall::Shortfall;
