//! Ranks as threads of one process: every kind and type against values computed plainly, in any order.
#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

#[path = "ops/harness.rs"]
mod harness;
#[path = "ops/kinds.rs"]
mod kinds;
#[path = "ops/losses.rs"]
mod losses;
#[path = "ops/orders.rs"]
mod orders;
#[path = "ops/sets.rs"]
mod sets;
