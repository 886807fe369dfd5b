//! What else is known about one run: events, files, parameters, tags, notes, nodes, formations.

use crate::error::{LedgerError, failed};
use crate::rows::{ArtifactRow, EventRow, FormationRow, NodeRow, NoteRow};
use crate::shell::pool::Ledger;
use crate::shell::sql::all;
use crate::value::{Row, Value};
use std::collections::BTreeMap;

impl Ledger {
    /// Events of a run after one, in their order.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn events(&self, uid: &str, after: Option<u64>, limit: usize) -> Result<Vec<EventRow>, LedgerError> {
        let find = "select seq, event.unix_ms, event.kind, json from event join run on run.id = event.run \
                    where run.uid = $1 and seq > $2 order by seq limit $3";
        let after = after.map_or(-1, |after| i64::try_from(after).unwrap_or(i64::MAX));
        let values = [uid.into(), Value::Int(after), Value::from(limit as u64)];
        let rows = self.with(|sql| all(sql, find, &values).map_err(failed("read")))?;
        Ok(rows.iter().map(event_row).collect())
    }

    /// The newest events of a run, newest first.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn last_events(&self, uid: &str, limit: usize) -> Result<Vec<EventRow>, LedgerError> {
        let find = "select seq, event.unix_ms, event.kind, json from event join run on run.id = event.run \
                    where run.uid = $1 order by seq desc limit $2";
        let values = [uid.into(), Value::from(limit as u64)];
        let rows = self.with(|sql| all(sql, find, &values).map_err(failed("read")))?;
        Ok(rows.iter().map(event_row).collect())
    }

    /// Files of a run, by path.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn artifacts(&self, uid: &str) -> Result<Vec<ArtifactRow>, LedgerError> {
        let find = "select path, url, size, sha256 from artifact join run on run.id = artifact.run \
                    where run.uid = $1 order by path";
        self.rows(find, uid, |row| ArtifactRow {
            path: row.required_text(0),
            url: row.text(1),
            size: row.maybe_count(2),
            sha256: row.text(3),
        })
    }

    /// The run file of a run, flattened.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn params(&self, uid: &str) -> Result<BTreeMap<String, String>, LedgerError> {
        let find = "select param.name, value from param join run on run.id = param.run where run.uid = $1";
        let rows = self.rows(find, uid, |row| (row.required_text(0), row.required_text(1)))?;
        Ok(rows.into_iter().collect())
    }

    /// The tags of a run.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn tags(&self, uid: &str) -> Result<BTreeMap<String, String>, LedgerError> {
        let find = "select tag.name, value from tag join run on run.id = tag.run where run.uid = $1";
        let rows = self.rows(find, uid, |row| (row.required_text(0), row.required_text(1)))?;
        Ok(rows.into_iter().collect())
    }

    /// The notes of a run, oldest first.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn notes(&self, uid: &str) -> Result<Vec<NoteRow>, LedgerError> {
        let find =
            "select unix_ms, text from note join run on run.id = note.run where run.uid = $1 order by n";
        self.rows(find, uid, |row| NoteRow { unix_ms: row.count(0), text: row.required_text(1) })
    }

    /// The nodes that took part in a run, by name.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn nodes(&self, uid: &str) -> Result<Vec<NodeRow>, LedgerError> {
        let find = "select node.name, joined_ms, lost_ms, node.reason from node join run on run.id = node.run \
                    where run.uid = $1 order by node.name";
        self.rows(find, uid, |row| NodeRow {
            name: row.required_text(0),
            joined_ms: row.count(1),
            lost_ms: row.maybe_count(2),
            reason: row.text(3),
        })
    }

    /// The formations of a run, oldest first.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn formations(&self, uid: &str) -> Result<Vec<FormationRow>, LedgerError> {
        let find = "select epoch, unix_ms, formation.step, json from formation join run on run.id = formation.run \
                    where run.uid = $1 order by unix_ms, epoch";
        self.rows(find, uid, |row| FormationRow {
            epoch: row.count(0),
            unix_ms: row.count(1),
            step: row.count(2),
            value: json(row, 3),
        })
    }

    pub(super) fn rows<T>(
        &self,
        find: &str,
        uid: &str,
        of: impl Fn(&Row) -> T,
    ) -> Result<Vec<T>, LedgerError> {
        let rows = self.with(|sql| all(sql, find, &[uid.into()]).map_err(failed("read")))?;
        Ok(rows.iter().map(of).collect())
    }
}

fn event_row(row: &Row) -> EventRow {
    EventRow { seq: row.count(0), unix_ms: row.count(1), event: row.required_text(2), value: json(row, 3) }
}

fn json(row: &Row, at: usize) -> serde_json::Value {
    serde_json::from_str(&row.required_text(at)).unwrap_or_default()
}
