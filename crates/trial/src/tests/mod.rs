//! Trials on real nodes in one process, each with links of its own.

mod hostile;
mod place;
mod programs;
mod training;
