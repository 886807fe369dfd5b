//! The rows of a search and of its trials.

use super::place::{SearchPlace, is_beside};
use crate::core::bounded;
use crate::error::{LedgerError, SqlError, failed};
use crate::shell::place::host;
use crate::shell::sql::{Sql, all, first};
use crate::value::Value;
use phalanx_search::core::record::SearchEnd;
use phalanx_search_results::{SearchAbout, SearchTable, TrialRow};

/// A search as the ledger knows it.
pub(super) struct Known {
    pub(super) id: i64,
    pub(super) host: String,
    /// How many records were taken; `None` if everything has to be made anew.
    pub(super) events: Option<u64>,
    /// What its files were like when they were read.
    pub(super) stamp: String,
}

/// Tells searches apart that were in one place, one after the other.
fn uid(about: &SearchAbout) -> String {
    format!("{}-{}", plain(&about.id), about.started)
}

/// The row of the search at a place. Rows of another search that was there are removed; one of the same path on another
/// host stays.
pub(super) fn look(
    sql: &mut dyn Sql,
    place: &SearchPlace,
    about: &SearchAbout,
) -> Result<Option<Known>, LedgerError> {
    let find = "select id, host, events, stamp, uid from search where root = $1 and dir = $2";
    let uid = uid(about);
    let mut found = None;
    for row in
        all(sql, find, &[place.root.as_str().into(), place.dir.as_str().into()]).map_err(failed("read"))?
    {
        let (id, events) = (row.int(0).unwrap_or(-1), row.maybe_count(2));
        let known = Known { id, host: row.required_text(1), events, stamp: row.required_text(3) };
        if row.str(4) == Some(uid.as_str()) {
            found = Some(known);
        } else if is_beside(&place.root) || known.host == host() {
            remove(sql, known.id).map_err(failed("write to"))?;
        }
    }
    Ok(found)
}

/// Writes the search and its trials that changed after so many records, or all.
pub(super) fn write(
    sql: &mut dyn Sql,
    place: &SearchPlace,
    table: &SearchTable,
    (id, since): (Option<i64>, Option<u64>),
    stamp: &str,
) -> Result<(), SqlError> {
    let id = match id {
        Some(id) => id,
        None => insert(sql, place, table.about())?,
    };
    if since.is_none() {
        clear(sql, id)?;
    }
    for row in table.rows().filter(|row| since.is_none_or(|since| row.changed > since)) {
        write_trial(sql, id, row)?;
    }
    let about = table.about();
    let (state, reason) = state_of(table.end());
    let update = "update search set host = $1, name = $2, kind = $3, algorithm = $4, state = $5, reason = $6, \
                  started_ms = $7, changed_ms = $8, wanted = $9, about = $10, json = $11, events = $12, stamp = $13 \
                  where id = $14";
    let values: [Value; 14] = [
        host().into(),
        plain(&about.name).into(),
        plain(&about.kind).into(),
        plain(&about.algorithm).into(),
        state.into(),
        reason.map(|why| plain(&why)).into(),
        about.started.into(),
        table.last_at().into(),
        about.trials.into(),
        json(about).into(),
        json(&table.state()).into(),
        table.events().into(),
        stamp.into(),
        Value::Int(id),
    ];
    sql.execute(update, &values).map(|_one| ())
}

fn insert(sql: &mut dyn Sql, place: &SearchPlace, about: &SearchAbout) -> Result<i64, SqlError> {
    let insert = "insert into search (host, root, dir, uid, name, kind, algorithm, state, started_ms, wanted, about, \
                  json, stamp) values ($1, $2, $3, $4, '', '', '', '', 0, 0, '', '', '') returning id";
    let values = [host().into(), place.root.as_str().into(), place.dir.as_str().into(), uid(about).into()];
    Ok(first(sql, insert, &values)?.and_then(|row| row.int(0)).unwrap_or(-1))
}

fn write_trial(sql: &mut dyn Sql, search: i64, row: &TrialRow) -> Result<(), SqlError> {
    let upsert = "insert into trial (search, id, archid, model, state, node, priority, budget, target, seconds, error, \
                  proposed_ms, started_ms, ended_ms, json) \
                  values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15) \
                  on conflict (search, id) do update set state = excluded.state, node = excluded.node, \
                  priority = excluded.priority, budget = excluded.budget, target = excluded.target, \
                  seconds = excluded.seconds, error = excluded.error, started_ms = excluded.started_ms, \
                  ended_ms = excluded.ended_ms, json = excluded.json";
    let trial: Value = row.trial.0.into();
    let values: [Value; 15] = [
        Value::Int(search),
        trial.clone(),
        plain(&row.archid).into(),
        plain(&row.model).into(),
        row.status.name().into(),
        row.node.as_deref().map(plain).into(),
        // Deeper rungs are trained first.
        row.rung.map(u64::from).into(),
        row.budget().into(),
        row.target.into(),
        row.seconds().into(),
        row.why.as_deref().map(plain).into(),
        row.proposed.into(),
        row.started.into(),
        row.ended.into(),
        json(row).into(),
    ];
    sql.execute(upsert, &values)?;
    sql.execute("delete from value where search = $1 and trial = $2", &[Value::Int(search), trial.clone()])?;
    // What follows from the candidate alone is known before any training.
    let known = row.known.iter().map(|(name, value)| (0.0, name, *value));
    let measured = row
        .results
        .iter()
        .flat_map(|result| result.values.iter().map(|(name, value)| (result.budget, name, *value)));
    for (budget, name, value) in known.chain(measured) {
        let insert = "insert into value (search, trial, name, budget, value) values ($1, $2, $3, $4, $5) \
                      on conflict (search, trial, name, budget) do nothing";
        let values = [Value::Int(search), trial.clone(), plain(name).into(), budget.into(), value.into()];
        sql.execute(insert, &values)?;
    }
    Ok(())
}

/// Removes the trials of a search.
fn clear(sql: &mut dyn Sql, search: i64) -> Result<(), SqlError> {
    sql.execute("delete from value where search = $1", &[Value::Int(search)])?;
    sql.execute("delete from trial where search = $1", &[Value::Int(search)]).map(|_some| ())
}

/// Removes a search.
pub(super) fn remove(sql: &mut dyn Sql, search: i64) -> Result<(), SqlError> {
    clear(sql, search)?;
    sql.execute("delete from search where id = $1", &[Value::Int(search)]).map(|_one| ())
}

fn state_of(end: Option<&SearchEnd>) -> (&'static str, Option<String>) {
    match end {
        None => ("not ended", None),
        Some(SearchEnd::Finished) => ("finished", None),
        Some(SearchEnd::Stopped) => ("stopped", None),
        Some(SearchEnd::Failed { why }) => ("failed", Some(why.clone())),
    }
}

/// A text as every database takes it.
fn plain(text: &str) -> String {
    bounded(text.replace('\0', "\u{fffd}"))
}

/// Names, numbers and lists, which are always JSON.
fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
