//! Groups of threads over real sockets and shared memory, with simulated host ids.
#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

#[path = "group/background.rs"]
mod background;
#[path = "group/compressed.rs"]
mod compressed;
#[path = "group/failures.rs"]
mod failures;
#[path = "group/harness.rs"]
mod harness;
#[path = "group/join.rs"]
mod join;
#[path = "group/kinds.rs"]
mod kinds;
#[path = "group/membership.rs"]
mod membership;
