//! The row of a run and its parameters, from the state and the run file.

use super::STATE;
use crate::core::flatten::flatten;
use crate::error::SqlError;
use crate::shell::place::{Place, host};
use crate::shell::sql::{Sql, first};
use crate::value::Value;
use phalanx_records::run_dir::RunInfo;
use std::time::UNIX_EPOCH;

/// The columns of a run that its files say.
pub(super) const COLUMNS: [&str; 21] = [
    "kind",
    "name",
    "experiment",
    "state",
    "reason",
    "waiting",
    "model",
    "seed",
    "started_ms",
    "ended_ms",
    "host",
    "root",
    "dir",
    "steps",
    "total_steps",
    "loss",
    "val_loss",
    "val_acc",
    "samples_per_s",
    "wall_s",
    "params_hash",
];

pub(super) fn columns(info: &RunInfo, place: &Place, run_file: &str) -> Vec<Value> {
    let state = &info.state;
    let raw: serde_json::Value = std::fs::read(place.path.join(STATE))
        .ok()
        .and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or_default();
    let extra = |key: &str| raw.get(key).and_then(|value| value.as_str()).map(str::to_owned);
    let params = flatten(run_file);
    let param = |name: &str| params.iter().find(|param| param.name == name);
    let seed =
        param("train.seed").or_else(|| param("seed")).and_then(|param| param.num).map(|seed| seed as i64);
    let experiment = extra("experiment").or_else(|| param("experiment").map(|param| param.value.clone()));
    vec![
        extra("kind").unwrap_or_else(|| "training".to_owned()).into(),
        extra("name").unwrap_or_else(|| info.id.clone()).into(),
        experiment.into(),
        state.state.to_string().into(),
        state.reason.clone().into(),
        state.waiting.clone().into(),
        state.model.clone().into(),
        seed.into(),
        unix_ms(&state.started).into(),
        state.ended.as_deref().and_then(unix_ms).into(),
        host().into(),
        place.root.as_str().into(),
        place.dir.as_str().into(),
        state.steps.into(),
        state.total_steps.into(),
        state.loss.map(f64::from).into(),
        state.val_loss.into(),
        state.val_acc.into(),
        state.samples_per_s.into(),
        state.wall_s.into(),
        state.params_hash.clone().into(),
    ]
}

fn unix_ms(stamp: &str) -> Option<u64> {
    let time = humantime::parse_rfc3339_weak(stamp).ok()?;
    u64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()
}

pub(super) fn insert(sql: &mut dyn Sql, uid: &str, row: &[Value]) -> Result<i64, SqlError> {
    let places: Vec<String> = (2..=COLUMNS.len() + 1).map(|at| format!("${at}")).collect();
    let text = format!(
        "insert into run (uid, {}) values ($1, {}) returning id",
        COLUMNS.join(", "),
        places.join(", ")
    );
    let values: Vec<Value> = std::iter::once(Value::from(uid)).chain(row.iter().cloned()).collect();
    Ok(first(sql, &text, &values)?.and_then(|row| row.int(0)).unwrap_or(0))
}

pub(super) fn update(sql: &mut dyn Sql, id: i64, row: &[Value]) -> Result<(), SqlError> {
    let sets: Vec<String> =
        COLUMNS.iter().enumerate().map(|(at, column)| format!("{column} = ${}", at + 1)).collect();
    let text = format!("update run set {} where id = ${}", sets.join(", "), COLUMNS.len() + 1);
    let values: Vec<Value> = row.iter().cloned().chain([Value::Int(id)]).collect();
    sql.execute(&text, &values).map(|_one| ())
}

pub(super) fn write_params(sql: &mut dyn Sql, id: i64, text: &str) -> Result<(), SqlError> {
    sql.execute("delete from param where run = $1", &[Value::Int(id)])?;
    for param in flatten(text) {
        let values = [Value::Int(id), param.name.into(), param.value.into(), param.num.into()];
        sql.execute("insert into param (run, name, value, num) values ($1, $2, $3, $4)", &values)?;
    }
    Ok(())
}
