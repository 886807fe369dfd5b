//! Every key in every formation: it acts, it has nothing to act on, or it is refused.

use super::super::{data, formation, model, sync, train};
use super::*;

/// The effect of a key in a formation.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    /// The run differs.
    Acts,
    /// It is accepted, but has nothing to act on, or makes no difference.
    Idle,
    /// An error with this text.
    Refused(&'static str),
}

use Fate::{Acts, Idle, Refused};

/// What `[formation]` says in each of the columns of [`rows`].
const FORMATIONS: [&[(&str, &str)]; 4] =
    [&[], &[("replicas", "4")], &[("stages", "3")], &[("stages", "3"), ("replicas", "2")]];

/// A run file without formation.
const BASE: [(&str, &str); 8] = [
    ("model.zoo", "\"digits-cnn\""),
    ("data.train.file", "\"digits.npz\""),
    ("data.train.x", "\"x_train\""),
    ("data.train.y", "\"y_train\""),
    ("train.loss", "\"cross_entropy\""),
    ("train.optimizer", "\"sgd\""),
    ("train.epochs", "3"),
    ("train.batch", "48"),
];

#[derive(Debug, Clone)]
struct Row {
    key: &'static str,
    /// A value that is not the default.
    value: &'static str,
    /// Keys that it requires.
    with: &'static [(&'static str, &'static str)],
    /// Keys of [`BASE`] that it replaces.
    without: &'static [&'static str],
    /// In one process, in replicas, in stages with planned replicas, and in replicas of stages.
    fates: [Fate; 4],
}

fn row(key: &'static str, value: &'static str, fates: [Fate; 4]) -> Row {
    Row { key, value, with: &[], without: &[], fates }
}

fn rows() -> Vec<Row> {
    let mut rows = everywhere();
    rows.extend(of_formation());
    rows.extend(of_sync());
    rows
}

const STREAM: &[(&str, &str)] = &[("data.train.stream", "\"s\"")];
const GROW: &[(&str, &str)] = &[("data.train.stream", "\"s\""), ("data.train.mode", "\"grow\"")];
const ONCE: &[(&str, &str)] =
    &[("data.train.stream", "\"s\""), ("data.train.mode", "\"once\""), ("train.epochs", "1")];
const RESERVOIR: &[(&str, &str)] =
    &[("data.train.stream", "\"s\""), ("data.train.mode", "\"reservoir\""), ("data.train.capacity", "9")];

/// Keys that do not depend on the formation.
fn everywhere() -> Vec<Row> {
    let of_stream =
        |key, value, with| Row { with, without: &["data.train.file"], ..row(key, value, [Acts; 4]) };
    let onnx = |key, value| Row {
        with: &[("model.onnx", "\"a.onnx\"")],
        without: &["model.zoo"],
        ..row(key, value, [Acts; 4])
    };
    let mut rows = vec![
        Row { without: &["model.zoo"], ..row("model.onnx", "\"a.onnx\"", [Acts; 4]) },
        Row { without: &["model.zoo"], ..row("model.toml", "\"a.toml\"", [Acts; 4]) },
        onnx("model.dims", "{ seq = 4 }"),
        Row { without: &["train.epochs"], ..row("train.steps", "9", [Acts; 4]) },
        Row { without: &["train.loss"], ..row("train.own_loss", "\"mine\"", [Acts; 4]) },
        Row { without: &["data.train.file"], ..row("data.train.stream", "\"s\"", [Acts; 4]) },
        of_stream("data.train.store", "\"n1:6780\"", STREAM),
        of_stream("data.train.mode", "\"grow\"", STREAM),
        of_stream("data.train.min_samples", "99", GROW),
        of_stream("data.train.new_samples", "99", GROW),
        of_stream("data.train.window", "99", ONCE),
        of_stream("data.train.steps", "99", RESERVOIR),
        of_stream("data.train.capacity", "99", RESERVOIR),
        row("data.train.private", "\"s\"", [Refused("still to come"); 4]),
    ];
    let plain = [
        ("name", "\"first\""),
        ("model.zoo", "\"mlp\""),
        ("model.input", "[1, 9, 9]"),
        ("model.classes", "11"),
        ("model.weights", "\"a.safetensors\""),
        ("model.dropout", "0.25"),
        ("model.limit", "\"3GiB\""),
        ("data.train.file", "\"other.npz\""),
        ("data.train.x", "\"pixels\""),
        ("data.train.y", "\"digit\""),
        ("data.train.labels_file", "\"labels.npy\""),
        ("data.train.format", "\"csv\""),
        ("data.train.header", "true"),
        ("data.train.size", "[8, 9]"),
        ("data.valid", "{ file = \"v.npz\" }"),
        ("data.limit", "\"3GiB\""),
        ("data.shuffle", "false"),
        ("data.drop_last", "true"),
        ("data.reshape", "[1, 8, 8]"),
        ("data.crop", "6"),
        ("data.flip", "true"),
        ("data.scale", "0.0625"),
        ("data.mean", "0.5"),
        ("data.std", "[0.5]"),
        ("data.one_hot", "10"),
        ("train.loss", "\"mse\""),
        ("train.optimizer", "\"adamw\""),
        ("train.lr", "0.5"),
        ("train.schedule", "\"cosine\""),
        ("train.epochs", "4"),
        ("train.batch", "16"),
        ("train.seed", "7"),
        ("train.accumulate", "2"),
        ("train.clip_norm", "1.5"),
        ("train.clip_value", "0.5"),
        ("train.validate_every", "\"2 epochs\""),
        ("train.checkpoint_every", "\"5s\""),
        ("train.keep", "5"),
        ("train.threads", "2"),
        ("train.recompute", "true"),
        ("train.metrics", "[\"mae\"]"),
    ];
    rows.extend(plain.map(|(key, value)| row(key, value, [Acts; 4])));
    rows
}

fn of_formation() -> Vec<Row> {
    const UNCUT: Fate = Refused("the model is not cut into stages");
    const OF_STAGES: [Fate; 4] = [UNCUT, UNCUT, Acts, Acts];
    const PAUSES: Fate = Refused("pauses when the nodes cannot hold the model");
    const COUNTED: Fate = Refused("the planner decides how many replicas there are");
    const SHARED: Fate = Refused("the planner decides which replica gets how many samples");
    let flows = &[("formation.mode", "\"asynchronous\""), ("formation.stages", "3")];
    vec![
        row("formation.replicas", "3", [Acts; 4]),
        row("formation.stages", "2", [Acts; 4]),
        row("formation.local", "4", [Acts; 4]),
        row("formation.min_replicas", "2", [Refused("at most `formation.replicas`"), Acts, PAUSES, PAUSES]),
        row("formation.max_replicas", "8", [Idle, Acts, COUNTED, COUNTED]),
        row("formation.patience", "\"5s\"", [Idle, Acts, Acts, Acts]),
        row("formation.batch", "\"per_replica\"", [Idle, Acts, COUNTED, Acts]),
        row("formation.shares", "\"equal\"", [Idle, Acts, SHARED, SHARED]),
        row("formation.mode", "\"asynchronous\"", OF_STAGES),
        row("formation.micro_batches", "4", OF_STAGES),
        // Without its mode it is refused in every formation.
        row("formation.in_flight", "4", [Refused("only asynchronous stages"); 4]),
        Row { with: flows, ..row("formation.in_flight", "4", [Acts; 4]) },
        row("formation.ahead", "5", OF_STAGES),
        Row { with: flows, ..row("formation.ahead", "5", [Refused("`formation.in_flight` says"); 4]) },
        row("formation.compress", "\"f16\"", OF_STAGES),
        // Replicas hold each other's state; it acts when one is left.
        row("formation.copies", "7", [UNCUT, UNCUT, Acts, Idle]),
        row("formation.cuts", "[\"conv2d_2\"]", OF_STAGES),
        row("formation.measure", "false", OF_STAGES),
        row("formation.cores", "1", [Acts; 4]),
        row("formation.memory", "\"1GiB\"", [Refused("this one is in one process"), Acts, Acts, Acts]),
    ]
}

fn of_sync() -> Vec<Row> {
    const WITH_REPLICAS: [Fate; 4] = [Idle, Acts, Acts, Acts];
    const WHOLE: Fate = Refused("only replicas that hold the whole model compare");
    const NOT_OUTER: [Fate; 4] = [Refused("has an outer optimizer"); 4];
    let parameters = &[("sync.exchange", "\"parameters\"")];
    let outer = &[("sync.exchange", "\"outer\"")];
    vec![
        row("sync.exchange", "\"parameters\"", WITH_REPLICAS),
        row("sync.every", "5", [Refused("1 with `sync.exchange = \"gradients\"`"); 4]),
        Row { with: parameters, ..row("sync.every", "5", WITH_REPLICAS) },
        row("sync.compress", "\"f16\"", WITH_REPLICAS),
        // Stages do that anyway.
        row("sync.batch_norm", "\"local\"", [Idle, Acts, Idle, Idle]),
        row(
            "sync.scale_lr",
            "\"linear\"",
            [Idle, Acts, Refused("the planner decides how many replicas"), Acts],
        ),
        row("sync.outer_lr", "0.5", NOT_OUTER),
        row("sync.outer_momentum", "0.5", NOT_OUTER),
        Row { with: outer, ..row("sync.outer_lr", "0.5", WITH_REPLICAS) },
        Row { with: outer, ..row("sync.outer_momentum", "0.5", WITH_REPLICAS) },
        row("sync.verify", "7", [Idle, Acts, WHOLE, WHOLE]),
        Row { with: parameters, ..row("sync.average_optimizer", "true", WITH_REPLICAS) },
    ]
}

/// A run file of dotted keys, one on each line; later ones replace earlier ones.
fn text(lines: &[(String, &str)]) -> String {
    let is_last = |at: usize| lines[at + 1..].iter().all(|(key, _)| *key != lines[at].0);
    let kept = lines.iter().enumerate().filter(|(at, _)| is_last(*at));
    kept.map(|(_, (key, value))| format!("{key} = {value}\n")).collect()
}

fn lines(row: &Row, formation: &[(&str, &'static str)]) -> Vec<(String, &'static str)> {
    let base = BASE.iter().filter(|(key, _)| !row.without.contains(key));
    let base = base.map(|(key, value)| ((*key).to_owned(), *value));
    let formation = formation.iter().map(|(key, value)| (format!("formation.{key}"), *value));
    let with = row.with.iter().map(|(key, value)| ((*key).to_owned(), *value));
    base.chain(formation).chain(with).collect()
}

#[test]
fn every_key_acts_or_is_idle_or_is_refused_in_every_formation() {
    for row in rows() {
        for (formation, fate) in FORMATIONS.iter().zip(row.fates) {
            let plain = lines(&row, formation);
            let said = text(&[&plain[..], &[(row.key.to_owned(), row.value)]].concat());
            let read = parse(&said, &[]);
            match (fate, read) {
                (Acts | Idle, Ok(file)) => {
                    // A key that replaces another has nothing to be compared with.
                    let without = parse(&text(&plain), &[]).ok();
                    assert_ne!(
                        without.map(|file| file.config),
                        Some(file.config),
                        "nothing follows from\n{said}"
                    );
                }
                (Refused(words), Err(error)) => {
                    let error = error.to_string();
                    let line = 1 + said.lines().position(|line| line.starts_with(row.key)).unwrap();
                    for part in [words, &format!("`{}`", row.key), &format!("at conf/run.toml:{line}:")] {
                        assert!(error.contains(part), "{part:?} is not in {error:?} of\n{said}");
                    }
                }
                (fate, read) => panic!("{fate:?}, not {read:?}:\n{said}"),
            }
        }
    }
}

#[test]
fn no_key_is_left_out() {
    let mut known = vec!["name".to_owned()];
    for (section, keys) in [
        ("model", model::KEYS),
        ("data", data::KEYS),
        ("data.train", data::SOURCE_KEYS),
        ("train", train::KEYS),
        ("formation", formation::KEYS),
        ("sync", sync::KEYS),
    ] {
        known.extend(keys.iter().map(|key| format!("{section}.{key}")));
    }
    let rows = rows();
    for key in known.iter().filter(|key| *key != "data.train") {
        assert!(rows.iter().any(|row| row.key == key), "{key} is in no row");
    }
    for row in &rows {
        assert!(known.contains(&row.key.to_owned()), "{} is no key", row.key);
    }
}
