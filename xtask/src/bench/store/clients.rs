//! Clients of programs: ours, redis-py and SmartRedis.

use super::{Bench, numbers};
use crate::bench::rows::{Bar, Row};
use crate::bench::{json, median};
use crate::tool::{root, tool};
use serde_json::Value;

fn script(bench: &Bench, part: &str) -> anyhow::Result<Value> {
    let script = root().join("xtask/bench/store_clients.py").to_string_lossy().into_owned();
    let rounds = bench.rounds.to_string();
    let words = [&script, part, bench.servers.ours(), bench.servers.redis(), &rounds];
    json(&tool(bench.python()?, &words).capture()?)
}

/// Times of one action on both sides.
fn row(what: &str, unit: &'static str, ours: f64, peer: (&'static str, f64), bar: Bar) -> Row {
    let (what, part, more_is_better) = (what.to_owned(), "client", false);
    Row { part, what, unit, ours, peer: Some(peer), more_is_better, bar }
}

pub(super) fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let python = script(bench, "client")?;
    let mut rows = Vec::new();
    for (size, name) in [("16mb", "16 MB"), ("193mb", "193 MB")] {
        for (verb, shown) in [("put", "put"), ("get", "get into an array")] {
            let (ours, theirs) =
                numbers(&python, [&format!("{verb}_{size}_ms"), &format!("redis_{verb}_{size}_ms")])?;
            let (_, copy) = numbers(&python, [&format!("{verb}_{size}_ms"), &format!("copy_{size}_ms")])?;
            let what = format!("Python, {name} {shown}");
            rows.push(row(&what, "ms", ours, ("redis-py", theirs), Bar::TimesBetter(Some(5.0))));
            rows.push(row(&what, "ms", ours, ("memory copy", copy), Bar::ShareOfTime(Some(1.5))));
        }
        let (view, whole) = numbers(&python, [&format!("view_{size}_us"), &format!("redis_get_{size}_ms")])?;
        let peer = ("redis-py", whole * 1000.0);
        rows.push(row(&format!("Python, view of {name}"), "µs", view, peer, Bar::AtMost(10.0)));
    }
    for verb in ["put", "get"] {
        let (ours, theirs) = numbers(&python, [&format!("{verb}_1kb_us"), &format!("redis_{verb}_1kb_us")])?;
        let peer = ("redis-py", theirs);
        rows.push(row(&format!("Python, 1 KB {verb}"), "µs", ours, peer, Bar::TimesBetter(Some(1.0))));
    }
    rows.extend(rust(bench)?);
    Ok(rows)
}

/// Our client for Rust against a copy in memory.
fn rust(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let runs = (0..bench.rounds).map(|_| bench.own("large", bench.servers.ours()));
    let runs = runs.collect::<anyhow::Result<Vec<_>>>()?;
    let mut rows = Vec::new();
    for (size, name) in [("16mb", "16 MB"), ("193mb", "193 MB")] {
        let copy = median(&runs, &format!("copy_{size}_gb_s"))?;
        for verb in ["put", "get"] {
            let rate = median(&runs, &format!("{verb}_{size}_gb_s"))?;
            // Rates: the copy's share of our time is the other way around.
            let peer = ("memory copy", 1.0 / copy);
            let what = format!("Rust, {name} {verb}");
            rows.push(row(&what, "s/GB", 1.0 / rate, peer, Bar::ShareOfTime(Some(1.5))));
        }
        let view = median(&runs, &format!("view_{size}_us"))?;
        let (part, what, unit) = ("client", format!("Rust, view of {name}"), "µs");
        let (peer, more_is_better, bar) = (None, false, Bar::AtMost(10.0));
        rows.push(Row { part, what, unit, ours: view, peer, more_is_better, bar });
    }
    Ok(rows)
}

pub(super) fn smartredis(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let run = script(bench, "smartredis")?;
    let actions = [
        ("put_dataset", "put_dataset of metadata"),
        ("get_dataset", "get_dataset of metadata"),
        ("append", "append_to_list"),
        ("length", "get_list_length"),
        ("exists", "key_exists"),
    ];
    let compare = |(key, what): (&str, &str)| -> anyhow::Result<Row> {
        let (ours, theirs) = numbers(&run, [&format!("{key}_us"), &format!("redis_{key}_us")])?;
        let row = row(what, "µs", ours, ("redis", theirs), Bar::TimesBetter(Some(1.0)));
        Ok(Row { part: "smartredis", ..row })
    };
    actions.into_iter().map(compare).collect()
}
