//! Measures the speed of nodes and links, and the cost of models.
//!
//! ```text
//!   asker ──Speed──► node                       trains a fixed model for a while, on a thread of its own
//!         ──Link───► node ──Ping, Hold──► node  round trips, then a blob of growing size
//! ```
//! Every question is a request of the fabric. A node measures one thing at a time, and nothing while it trains or runs
//! jobs. It keeps its results: [`ask_known`] returns them without measuring again. [`order`] says which links to
//! measure; [`pool_of`] turns the results into the planner's pool.

mod ask;
pub mod costs;
mod error;
mod hop;
mod host;
mod known;
mod link;
pub mod order;
mod serve;
#[cfg(test)]
mod tests;
mod work;

pub use ask::{DEADLINE, Known, ask_known, ask_link, ask_speed};
pub use error::{CostError, MeasureError};
pub use hop::{Hop, measure_hop};
pub use host::{host_names, this_host};
pub use known::{BOUNDLESS, KnownNode, USUAL_GFLOPS, pool_of};
pub use phalanx_wire::measure::{LinkSpeed, MeasureRefusal, Speed};
pub use serve::serve;
pub use work::measure as measure_here;
