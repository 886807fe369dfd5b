//! One replica of a model among others.

mod exchange;
mod together;

pub use exchange::Exchange;
pub use together::Together;
