//! What a viewer that also has the files asks: which run a directory is, how far the ledger has read it, how many there
//! are.

use super::place::{host, root_of};
use super::pool::Ledger;
use super::query::{RUN, check_columns, condition};
use super::sql::first;
use crate::core::filter::Statement;
use crate::error::{LedgerError, failed};
use crate::rows::{Detail, RunQuery, RunRow};
use phalanx_records::history::Position;
use std::path::Path;

impl Ledger {
    /// How many runs a query asks for, whatever its limit and offset.
    ///
    /// # Errors
    /// The query names a column that no run has, or the ledger cannot be read.
    pub fn count(&self, query: &RunQuery) -> Result<u64, LedgerError> {
        self.with(|sql| {
            check_columns(sql, query)?;
            let mut statement = Statement::new("select count(*) from run");
            condition(&mut statement, query, self.url(), sql.dialect());
            let row = first(sql, &statement.sql, &statement.values).map_err(failed("read"))?;
            Ok(row.map_or(0, |row| row.count(0)))
        })
    }

    /// The run of this host in a directory; `None` if the ledger has not seen it.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn run_in(&self, run: &Path) -> Result<Option<RunRow>, LedgerError> {
        let (Some(runs), Some(name)) = (run.parent(), run.file_name()) else { return Ok(None) };
        self.with(|sql| {
            let mut statement = Statement::new(RUN);
            statement.push(" where root = ").bind(root_of(self.url(), runs)).push(" and dir = ");
            statement
                .bind(name.to_string_lossy().into_owned())
                .push(" and (root = '' or host = ")
                .bind(host());
            statement.push(") order by id desc limit 1");
            let row = first(sql, &statement.sql, &statement.values).map_err(failed("read"))?;
            row.map(|row| self.run_row(sql, &row, Detail { tags: true, ..Detail::default() })).transpose()
        })
    }

    /// A run by its whole uid.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn run_of_uid(&self, uid: &str) -> Result<Option<RunRow>, LedgerError> {
        self.with(|sql| {
            let mut statement = Statement::new(RUN);
            statement.push(" where uid = ").bind(uid);
            let row = first(sql, &statement.sql, &statement.values).map_err(failed("read"))?;
            row.map(|row| self.run_row(sql, &row, Detail { tags: true, ..Detail::default() })).transpose()
        })
    }

    /// How far the files of a run are in the ledger; `None` if nothing is.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn position(&self, uid: &str) -> Result<Option<Position>, LedgerError> {
        let find = "select events, metrics, annotations from position join run on run.id = position.run \
                    where run.uid = $1 and stale = 0";
        let row = self.with(|sql| first(sql, find, &[uid.into()]).map_err(failed("read")))?;
        Ok(row.map(|row| Position { events: row.count(0), metrics: row.count(1), annotations: row.count(2) }))
    }

    /// How many events of a run there are.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn event_count(&self, uid: &str) -> Result<u64, LedgerError> {
        let find = "select count(*) from event join run on run.id = event.run where run.uid = $1";
        let row = self.with(|sql| first(sql, find, &[uid.into()]).map_err(failed("read")))?;
        Ok(row.map_or(0, |row| row.count(0)))
    }
}
