//! What the ledger answers about searches.

use super::place::{SearchPlace, is_beside, path_of};
use crate::error::{LedgerError, failed};
use crate::rows::SearchRow;
use crate::shell::place::host;
use crate::shell::pool::{Ledger, Transacted};
use crate::shell::sql::{Sql, all, first};
use crate::url::LedgerUrl;
use crate::value::{Row, Value};
use phalanx_search_results::SearchTable;
use phalanx_types::nearest;

const COLUMNS: &str = "id, root, dir, uid, name, host, kind, algorithm, state, reason, started_ms, changed_ms, wanted, \
                       events, (select count(*) from trial where trial.search = search.id)";

fn search_row(url: &LedgerUrl, row: &Row) -> SearchRow {
    let (root, dir, host_of) = (row.required_text(1), row.required_text(2), row.required_text(5));
    SearchRow {
        id: row.int(0).unwrap_or(-1),
        here: host_of == host() || is_beside(&root),
        path: path_of(url, &root, &dir),
        search: dir,
        root,
        uid: row.required_text(3),
        name: row.required_text(4),
        host: host_of,
        kind: row.required_text(6),
        algorithm: row.required_text(7),
        state: row.required_text(8),
        reason: row.text(9),
        started_ms: row.count(10),
        changed_ms: row.maybe_count(11),
        of: row.count(12),
        events: row.count(13),
        trials: row.count(14),
    }
}

impl Ledger {
    /// All searches, the newest last.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn searches(&self) -> Result<Vec<SearchRow>, LedgerError> {
        let find = format!("select {COLUMNS} from search where events is not null order by started_ms, id");
        let rows = self.with(|sql| all(sql, &find, &[]).map_err(failed("read")))?;
        Ok(rows.iter().map(|row| search_row(self.url(), row)).collect())
    }

    /// The search with this name: that of its directory, or its uid.
    ///
    /// # Errors
    /// There is none or several, or the ledger cannot be read.
    pub fn search(&self, name: &str) -> Result<SearchRow, LedgerError> {
        let all = self.searches()?;
        let mut found: Vec<&SearchRow> =
            all.iter().filter(|row| row.search == name || row.uid == name).collect();
        match (found.pop(), found.len()) {
            (Some(only), 0) => Ok(only.clone()),
            (Some(_), _) => {
                let same = all.iter().filter(|row| row.search == name);
                let uids = same.map(|row| format!("{} on {}", row.uid, row.host)).collect();
                Err(LedgerError::AmbiguousSearch { id: name.to_owned(), uids })
            }
            (None, _) => {
                let nearest = nearest(name, all.iter().map(|row| row.search.as_str()));
                Err(LedgerError::NoSearch { id: name.to_owned(), nearest: nearest.map(str::to_owned) })
            }
        }
    }

    /// The trials of a search, as its records said when they were read last; `None` if it was forgotten.
    ///
    /// # Errors
    /// The ledger cannot be read, or was written by a newer program.
    pub fn search_table(&self, search: &SearchRow) -> Result<Option<SearchTable>, LedgerError> {
        let place = SearchPlace { root: search.root.clone(), dir: search.search.clone() };
        // No record comes in between the two queries.
        self.transaction(&place.key(), |sql| Ok(Transacted::Nothing(table_of(sql, search.id)?)))
    }

    /// How many records of a search were taken; `None` if it was forgotten.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn search_events(&self, search: &SearchRow) -> Result<Option<u64>, LedgerError> {
        let find = "select events from search where id = $1";
        let row = self.with(|sql| first(sql, find, &[Value::Int(search.id)]).map_err(failed("read")))?;
        Ok(row.and_then(|row| row.maybe_count(0)))
    }
}

fn table_of(sql: &mut dyn Sql, search: i64) -> Result<Option<SearchTable>, LedgerError> {
    let malformed = |source| LedgerError::MalformedSearch { source };
    let find = "select about, json from search where id = $1 and events is not null";
    let Some(row) = first(sql, find, &[Value::Int(search)]).map_err(failed("read"))? else {
        return Ok(None);
    };
    let about = serde_json::from_str(row.str(0).unwrap_or_default()).map_err(malformed)?;
    let state = serde_json::from_str(row.str(1).unwrap_or_default()).map_err(malformed)?;
    let mut rows = Vec::new();
    let mut result = Ok(());
    let mut take = |row: &Row| match serde_json::from_str(row.str(0).unwrap_or_default()) {
        Ok(trial) => rows.push(trial),
        Err(error) => result = Err(malformed(error)),
    };
    let find = "select json from trial where search = $1 order by id";
    sql.query(find, &[Value::Int(search)], &mut take).map_err(failed("read"))?;
    result?;
    Ok(Some(SearchTable::of_parts(about, state, rows)))
}
