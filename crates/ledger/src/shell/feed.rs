//! Brings what one run has recorded into the ledger: rows and the position in the files in one transaction.
//!
//! ```text
//!   begin ─► position ─► records since then ─► rows, state, parameters, position ─► commit
//! ```
//! So every record arrives once and in order, whatever dies when, and however many processes do this at once.

mod files;
mod row;

use super::apply::{Applier, clear, remove};
use super::place::{Place, host};
use super::pool::{Ledger, Transacted};
use super::sql::{Sql, first};
use crate::core::fold::{Change, fold};
use crate::error::{LedgerError, SqlError, failed};
use crate::rows::Fed;
use crate::value::Value;
use files::{files_of, stamp_of, write_files};
use phalanx_records::history::{self, Position};
use phalanx_records::run_dir::{ANNOTATIONS, EVENTS, METRICS, RUN_FILE, Status, read_run, run_uid};
use phalanx_records::sha256;
use row::{COLUMNS, columns, insert, update, write_params};
use std::path::Path;

pub(super) use files::stamp;

pub(super) const STATE: &str = "state.json";

/// What the ledger knows of a run before it looks.
struct Known {
    id: i64,
    position: Position,
    run_file: String,
    state_file: String,
    row: Vec<Value>,
}

impl Ledger {
    /// Brings everything that a run has recorded into the ledger.
    ///
    /// # Errors
    /// The run cannot be read, or the ledger does not take it; what was taken stays.
    pub fn feed(&self, run: &Path) -> Result<Fed, LedgerError> {
        let place = Place::of(self.url(), run)?;
        // A process has made the directory and not begun yet.
        if !place.path.join(STATE).is_file() {
            return Ok(Fed::default());
        }
        let mut total = Fed::default();
        loop {
            let (fed, more) = self.feed_once(&place)?;
            total.entries += fed.entries;
            total.changed |= fed.changed;
            if !more {
                return Ok(total);
            }
        }
    }

    /// Brings at most one batch into the ledger, and says whether there may be more.
    pub(super) fn feed_once(&self, place: &Place) -> Result<(Fed, bool), LedgerError> {
        let uid = run_uid(&place.path)?;
        self.transaction(&uid, |sql| feed_batch(sql, self, place, &uid))
    }
}

fn feed_batch(
    sql: &mut dyn Sql,
    ledger: &Ledger,
    place: &Place,
    uid: &str,
) -> Result<Transacted<(Fed, bool)>, LedgerError> {
    let write = failed("write to");
    let uid = settle_uid(sql, ledger, place, uid)?;
    let mut known = known(sql, &uid).map_err(failed("read"))?;
    if let Some(known) = known.as_mut().filter(|known| went_back(&place.path, known.position)) {
        clear(sql, known.id).map_err(&write)?;
        (known.position, known.run_file, known.state_file) = Default::default();
    }
    let before = known.as_ref().map_or_else(Position::default, |known| known.position);
    // A process that was killed between cutting the metrics and saying so: only a cut makes them shorter. If they grow
    // again, the event that comes first says exactly which lines count.
    let cut = Some(len_of(&place.path, METRICS)).filter(|len| *len < before.metrics);
    let position = Position { metrics: cut.unwrap_or(before.metrics), ..before };
    let batch = history::read_from(&place.path, &position)?;
    // The state after the records, so that what it counts is among them; its stamp before it, so that a later state
    // is seen to be new.
    let state_file = stamp_of(&place.path.join(STATE));
    let info = read_run(&place.path)?;
    let text = std::fs::read_to_string(place.path.join(RUN_FILE)).unwrap_or_default();
    let row = columns(&info, place, &text);
    let run_file = format!("{} {}", text.len(), sha256(text.as_bytes()));
    let entries = batch.entries.len() as u64;
    let same = known.as_ref().is_some_and(|known| known.row == row && known.run_file == run_file);
    let (moved, more) = (batch.position != before, !batch.is_all);
    if same && !moved && known.as_ref().is_some_and(|known| known.state_file == state_file) {
        return Ok(Transacted::Nothing((Fed::default(), false)));
    }
    let id = match &known {
        Some(known) => {
            update(sql, known.id, &row).map_err(&write)?;
            known.id
        }
        None => insert(sql, &uid, &row).map_err(&write)?,
    };
    if known.as_ref().is_none_or(|known| known.run_file != run_file) {
        write_params(sql, id, &text).map_err(&write)?;
    }
    let changes: Vec<Change> = cut
        .map(|metrics_bytes| Change::Cut { metrics_bytes })
        .into_iter()
        .chain(fold(batch.entries))
        .collect();
    let lists = known.is_none() || info.state.state != Status::Running || changes.iter().any(touches_files);
    let mut applier = Applier::new(sql, id).map_err(&write)?;
    for change in changes {
        applier.apply(change).map_err(&write)?;
    }
    applier.finish().map_err(&write)?;
    if lists {
        write_files(sql, id, &files_of(&place.path)).map_err(&write)?;
    }
    write_position(sql, id, &batch.position, &state_file, &run_file).map_err(&write)?;
    Ok(Transacted::Commit((Fed { entries, changed: true }, more)))
}

/// What a run is called in the ledger: its uid, or another one if it is a copy of a run that is there, too. Rows of
/// a run that was in this directory before are removed.
fn settle_uid(sql: &mut dyn Sql, ledger: &Ledger, place: &Place, uid: &str) -> Result<String, LedgerError> {
    let read = failed("read");
    let find = "select host, root, dir from run where uid = $1";
    let uid = match first(sql, find, &[uid.into()]).map_err(&read)? {
        Some(row)
            if (row.required_text(1), row.required_text(2)) != (place.root.clone(), place.dir.clone()) =>
        {
            let other = Place::path_of(ledger.url(), &row.required_text(1), &row.required_text(2));
            let elsewhere = row.required_text(0) != host() && !row.required_text(1).is_empty();
            let moved = !elsewhere && run_uid(&other).ok().as_deref() != Some(uid);
            if moved { uid.to_owned() } else { place.uid_of_copy(uid) }
        }
        _ => uid.to_owned(),
    };
    let before = "select id from run where root = $1 and dir = $2 and uid <> $3 and (host = $4 or root = '')";
    let values = [place.root.as_str().into(), place.dir.as_str().into(), uid.as_str().into(), host().into()];
    let replaced = super::sql::all(sql, before, &values).map_err(&read)?;
    for row in replaced {
        remove(sql, row.int(0).unwrap_or(-1)).map_err(failed("write to"))?;
    }
    Ok(uid)
}

fn known(sql: &mut dyn Sql, uid: &str) -> Result<Option<Known>, SqlError> {
    let find = format!(
        "select id, coalesce(events, 0), coalesce(metrics, 0), coalesce(annotations, 0), coalesce(run_file, ''), \
         coalesce(state_file, ''), coalesce(stale, 1), {} from run left join position on position.run = run.id \
         where uid = $1",
        COLUMNS.join(", ")
    );
    let Some(row) = first(sql, &find, &[uid.into()])? else { return Ok(None) };
    let position = Position { events: row.count(1), metrics: row.count(2), annotations: row.count(3) };
    let mut known = Known {
        id: row.int(0).unwrap_or(0),
        position,
        run_file: row.required_text(4),
        state_file: row.required_text(5),
        row: row.0.iter().skip(7).cloned().collect(),
    };
    if row.int(6) != Some(0) {
        clear(sql, known.id)?;
        (known.position, known.run_file, known.state_file) = Default::default();
    }
    Ok(Some(known))
}

/// Whether files that only grow are shorter than they were: an older copy took their place.
fn went_back(run: &Path, position: Position) -> bool {
    len_of(run, EVENTS) < position.events || len_of(run, ANNOTATIONS) < position.annotations
}

fn len_of(run: &Path, name: &str) -> u64 {
    std::fs::metadata(run.join(name)).map_or(0, |file| file.len())
}

fn write_position(
    sql: &mut dyn Sql,
    id: i64,
    position: &Position,
    state_file: &str,
    run_file: &str,
) -> Result<(), SqlError> {
    let upsert = "insert into position (run, events, metrics, annotations, state_file, run_file, stale) \
                  values ($1, $2, $3, $4, $5, $6, 0) on conflict (run) do update set events = excluded.events, \
                  metrics = excluded.metrics, annotations = excluded.annotations, state_file = excluded.state_file, \
                  run_file = excluded.run_file, stale = 0";
    let values = [
        Value::Int(id),
        position.events.into(),
        position.metrics.into(),
        position.annotations.into(),
        state_file.into(),
        run_file.into(),
    ];
    sql.execute(upsert, &values).map(|_one| ())
}

/// Events after which there may be other files.
fn touches_files(change: &Change) -> bool {
    matches!(change, Change::Event { kind, .. } if kind == "saved" || kind == "ended")
}
