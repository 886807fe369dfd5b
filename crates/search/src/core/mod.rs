//! The decisions of a search.

pub mod algorithm;
pub mod control;
pub mod dice;
pub mod objective;
pub mod pareto;
pub mod record;
pub mod space;
pub mod template;
