//! The results of a synthetic search.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod control;
mod files;
mod filter;
mod parts;
mod synthetic;
mod table;
