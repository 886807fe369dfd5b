//! Databases, files and threads of the ledger.

mod apply;
mod catch_up;
mod feed;
mod feeder;
mod journals;
mod lookup;
mod place;
mod pool;
mod postgres;
mod query;
mod schema;
mod searches;
mod sql;
mod sqlite;
mod upkeep;

pub use feeder::{Feeder, FeederHandle};
pub use pool::Ledger;
pub use schema::SCHEMA;
pub use upkeep::set_aside;

/// Parts that tests take apart.
#[cfg(test)]
pub(crate) mod testing {
    use super::pool::Connect;
    pub(crate) use super::pool::connect;
    pub(crate) use super::schema::make_old;
    pub(crate) use super::sql::{PointRow, Sql};
    use crate::error::SqlError;
    use crate::{Ledger, LedgerError, LedgerUrl};

    /// A ledger over connections that something stands before.
    pub(crate) fn open_with(
        url: &LedgerUrl,
        wrap: impl Fn(Box<dyn Sql>) -> Result<Box<dyn Sql>, SqlError> + Send + Sync + 'static,
    ) -> Result<Ledger, LedgerError> {
        let connect: Connect = Box::new(move |url| {
            wrap(connect(url)?).map_err(|source| LedgerError::Open { at: url.to_string(), source })
        });
        Ledger::open_by(url, connect)
    }
}
