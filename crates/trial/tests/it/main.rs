//! Trials on real nodes in one process, each with links of its own.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

mod hostile;
mod place;
mod programs;
mod training;
