//! Counts allocations.

use phalanx_testkit::Counting;
pub(crate) use phalanx_testkit::peak_of;

#[global_allocator]
static COUNTING: Counting = Counting;
