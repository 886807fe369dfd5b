//! The tables, and how a database of an older schema becomes one of the newest.

use super::sql::{Sql, all, first};
use crate::core::filter::Dialect;
use crate::error::{LedgerError, SqlError};
use crate::rows::Migrated;
use crate::url::LedgerUrl;
use crate::value::Value;
use std::time::{SystemTime, UNIX_EPOCH};

/// The newest schema.
pub const SCHEMA: u32 = MIGRATIONS.len() as u32;

/// What makes each schema of the one before. `{id}`, `{ref}` and `{tight}` are words that differ between databases.
const MIGRATIONS: [&str; 4] = [
    "
create table run (id {id}, uid text not null unique, kind text not null, name text not null, experiment text,
    state text not null, reason text, waiting text, model text not null, seed bigint, started_ms bigint,
    ended_ms bigint, host text not null, root text not null, dir text not null, steps bigint not null,
    total_steps bigint, loss double precision, val_loss double precision, val_acc double precision,
    samples_per_s double precision, wall_s double precision not null, params_hash text);
create index run_place on run (root, dir);
create index run_name on run (name);
create table position (run bigint primary key, events bigint not null, metrics bigint not null,
    annotations bigint not null, state_file text not null, run_file text not null, stale bigint not null);
create table series (id {id}, run bigint not null, name text not null, points bigint not null,
    next_ord bigint not null, first_step bigint not null, last_step bigint not null, last_ms bigint,
    last double precision, least double precision, most double precision, unique (run, name));
create index series_name on series (name);
create table point (series bigint not null, step bigint not null, ord bigint not null, unix_ms bigint,
    value double precision, primary key (series, step, ord)) {tight};
create table param (run bigint not null, name text not null, value text not null, num double precision,
    primary key (run, name)) {tight};
create index param_name on param (name);
create table tag (run bigint not null, name text not null, value text not null, num double precision,
    primary key (run, name)) {tight};
create index tag_name on tag (name);
create table note (run bigint not null, n bigint not null, unix_ms bigint not null, text text not null,
    primary key (run, n)) {tight};
create table event (run bigint not null, seq bigint not null, unix_ms bigint not null, kind text not null,
    json text not null, primary key (run, seq));
create table schema (version bigint primary key, unix_ms bigint not null, program text not null);
",
    "
create table node (run bigint not null, name text not null, joined_ms bigint not null, lost_ms bigint, reason text,
    primary key (run, name)) {tight};
create table formation (run bigint not null, epoch bigint not null, unix_ms bigint not null, step bigint not null,
    json text not null, primary key (run, epoch, unix_ms)) {tight};
create table job (run bigint not null, id text not null, kind text not null, state text not null, reason text,
    node text, submitted_ms bigint, started_ms bigint, ended_ms bigint, primary key (run, id)) {tight};
create table artifact (run bigint not null, path text not null, url text, size bigint, sha256 text,
    primary key (run, path)) {tight};
create table trial (run bigint not null, id bigint not null, model_id text, genes text not null, state text not null,
    rung bigint, node text, parent bigint, started_ms bigint, ended_ms bigint, error text,
    primary key (run, id)) {tight};
create table value (run bigint not null, trial bigint not null, objective text not null,
    budget double precision not null, value double precision, primary key (run, trial, objective, budget)) {tight};
create table round (run bigint not null, n bigint not null, unix_ms bigint not null, clients bigint not null,
    json text not null, primary key (run, n)) {tight};
create table entity (run bigint not null, name text not null, kind text not null, state text not null,
    json text not null, primary key (run, name)) {tight};
create table lease (name text primary key, owner text not null, until_ms bigint not null, version bigint not null);
-- Nodes, formations and artifacts of runs that are there already come with the next look at their files.
update position set stale = 1;
",
    "
-- Jobs belong to the journal of a main node, not to a run; nothing was in the table before.
drop table job;
create table journal (id {id}, host text not null, dir text not null, name text not null, domain text not null,
    session text not null, main text, epoch bigint not null, bytes bigint not null, last bigint not null,
    checksum bigint not null, unix_ms bigint not null, stamp text not null, unique (session, dir, name));
create index journal_place on journal (dir, name);
create table job (journal bigint not null, id bigint not null, kind text not null, state text not null, reason text,
    node text, priority bigint not null, attempts bigint not null, submitted_ms bigint, ended_ms bigint,
    primary key (journal, id)) {tight};
",
    "
-- Trials belong to a search, which has a directory of its own; nothing was in these tables before.
drop table trial;
drop table value;
create table search (id {id}, host text not null, root text not null, dir text not null, uid text not null,
    name text not null, kind text not null, algorithm text not null, state text not null, reason text,
    started_ms bigint not null, changed_ms bigint, wanted bigint not null, about text not null, json text not null,
    events bigint, stamp text not null, unique (root, dir, uid));
create table trial (search bigint not null, id bigint not null, archid text not null, model text not null,
    state text not null, node text, priority bigint, budget double precision not null, target double precision,
    seconds double precision not null, error text, proposed_ms bigint not null, started_ms bigint, ended_ms bigint,
    json text not null, primary key (search, id)) {tight};
create table value (search bigint not null, trial bigint not null, name text not null,
    budget double precision not null, value double precision, primary key (search, trial, name, budget)) {tight};
",
];

/// Tables whose rows belong to a run by a column of this name.
pub(super) const OF_RUN: [&str; 10] =
    ["position", "param", "tag", "note", "event", "node", "formation", "artifact", "entity", "round"];

fn words(dialect: Dialect, text: &str) -> String {
    let (id, tight) = match dialect {
        Dialect::Sqlite => ("integer primary key", "without rowid"),
        Dialect::Postgres => ("bigint generated by default as identity primary key", ""),
    };
    text.replace("{id}", id).replace("{tight}", tight)
}

/// The schema of a database; 0 if it has none yet.
pub(super) fn version(sql: &mut dyn Sql) -> Result<u32, SqlError> {
    let row = match sql.dialect() {
        Dialect::Sqlite => first(sql, "pragma user_version", &[])?,
        Dialect::Postgres => {
            let there = "select 1 from pg_tables where schemaname = 'phalanx' and tablename = 'schema'";
            if first(sql, there, &[])?.is_none() {
                return Ok(0);
            }
            first(sql, "select max(version) from schema", &[])?
        }
    };
    Ok(row.and_then(|row| row.int(0)).and_then(|version| u32::try_from(version).ok()).unwrap_or(0))
}

/// Brings a database to the newest schema, with a copy first if there is anything in it.
pub(super) fn migrate(sql: &mut dyn Sql, url: &LedgerUrl) -> Result<Option<Migrated>, LedgerError> {
    let open = |source| LedgerError::Open { at: url.to_string(), source };
    let from = version(sql).map_err(open)?;
    if from == SCHEMA {
        return Ok(None);
    }
    if from > SCHEMA {
        return Err(LedgerError::Newer { at: url.to_string(), found: from, known: SCHEMA });
    }
    let failed = |source| LedgerError::Migrate { from, to: SCHEMA, source };
    let copy = if from == 0 { None } else { Some(copy(sql, url, from).map_err(failed)?) };
    sql.begin("schema").map_err(open)?;
    match apply(sql, from) {
        Ok(true) => {
            sql.commit().map_err(failed)?;
            Ok(Some(Migrated { from, to: SCHEMA, copy }))
        }
        // Another process was faster.
        Ok(false) => sql.rollback().map(|()| None).map_err(failed),
        Err(error) => {
            // The first error says why.
            let _ended = sql.rollback();
            Err(failed(error))
        }
    }
}

/// Runs the missing migrations; `false` if none is missing any more.
fn apply(sql: &mut dyn Sql, from: u32) -> Result<bool, SqlError> {
    if version(sql)? != from {
        return Ok(false);
    }
    for (at, migration) in MIGRATIONS.iter().enumerate().skip(from as usize) {
        let version = at as u32 + 1;
        let dialect = sql.dialect();
        sql.script(&words(dialect, migration))?;
        let values =
            [Value::from(u64::from(version)), Value::from(now_ms()), env!("CARGO_PKG_VERSION").into()];
        sql.execute("insert into schema (version, unix_ms, program) values ($1, $2, $3)", &values)?;
        if dialect == Dialect::Sqlite {
            sql.script(&format!("pragma user_version = {version}"))?;
        }
    }
    Ok(true)
}

/// Copies everything as it is, and says where to.
fn copy(sql: &mut dyn Sql, url: &LedgerUrl, from: u32) -> Result<String, SqlError> {
    match url {
        LedgerUrl::Sqlite(path) => {
            let mut name = path.as_os_str().to_owned();
            name.push(format!(".schema{from}-{}", now_ms()));
            let name = name.to_string_lossy().into_owned();
            sql.execute("vacuum into $1", &[Value::from(name.as_str())])?;
            Ok(name)
        }
        LedgerUrl::Postgres(_) => {
            let name = format!("phalanx_schema{from}_{}", now_ms());
            let tables = all(sql, "select tablename from pg_tables where schemaname = 'phalanx'", &[])?;
            let mut script = format!("begin; create schema {name};");
            for table in tables.iter().filter_map(|row| row.text(0)).filter(|name| is_plain(name)) {
                script.push_str(&format!("create table {name}.{table} as table phalanx.{table};"));
            }
            script.push_str("commit");
            match sql.script(&script) {
                Ok(()) => Ok(name),
                Err(error) => {
                    // The first error says why.
                    let _ended = sql.rollback();
                    Err(error)
                }
            }
        }
    }
}

/// Whether a name of the server's own catalogue can stand in SQL as it is.
pub(super) fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Makes a database of an old schema, for tests of migrations.
#[cfg(test)]
pub(crate) fn make_old(sql: &mut dyn Sql, version: u32) {
    sql.begin("schema").unwrap();
    for (at, migration) in MIGRATIONS.iter().enumerate().take(version as usize) {
        let dialect = sql.dialect();
        sql.script(&words(dialect, migration)).unwrap();
        let values = [Value::Int(at as i64 + 1), Value::Int(0), "old".into()];
        sql.execute("insert into schema (version, unix_ms, program) values ($1, $2, $3)", &values).unwrap();
        if dialect == Dialect::Sqlite {
            sql.script(&format!("pragma user_version = {}", at + 1)).unwrap();
        }
    }
    sql.commit().unwrap();
}
