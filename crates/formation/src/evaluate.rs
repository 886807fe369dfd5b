//! The objective: the cost of a formation.

mod exchange;
mod moving;
mod problem;
mod score;
mod shares;
#[cfg(test)]
mod simulated;
mod timing;

pub(crate) use exchange::{exchange, lower_bound as exchange_lower_bound};
pub(crate) use moving::moving;
pub(crate) use problem::{Problem, StageRange};
pub(crate) use score::{Formation, Score, evaluate, shortest_pause};
pub(crate) use timing::{Limit, Line, Timed, lines, own, pipeline_seconds, trips, way};
