//! What models compute: against PyTorch, against their definition, against differences, however they run.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod differences;
mod execution;
mod files;
mod fusion;
mod models;
mod operators;
mod pipelines;
mod random;
mod stages;
mod together;
