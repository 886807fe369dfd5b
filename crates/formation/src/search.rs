//! Ways to find a formation.

mod build;
mod exact;
mod genetic;
mod greedy;
mod limits;
mod mutate;
mod polish;
mod symmetry;
mod tight;

pub(crate) use build::{Builder, Found};
pub(crate) use exact::exact;
pub(crate) use genetic::genetic;
pub(crate) use greedy::greedy;
pub(crate) use limits::{check, no_fit, smallest_part};
pub(crate) use mutate::{Change, changed};

/// Asked now and then whether to go on.
pub(crate) type KeepGoing<'a> = &'a mut dyn FnMut() -> bool;
