//! Search methods for formations.

mod build;
mod exact;
mod genetic;
mod greedy;
mod limits;
mod mutate;
mod patience;
mod polish;
mod symmetry;
mod tight;

pub(crate) use build::{Builder, Found, better};
pub(crate) use exact::exact;
pub(crate) use genetic::genetic;
pub(crate) use greedy::greedy;
pub(crate) use limits::{check, no_fit, smallest_part};
pub(crate) use mutate::{Change, changed};
pub(crate) use patience::Patience;
pub(crate) use symmetry::alike_beside;
