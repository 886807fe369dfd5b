//! `docs/run-files.md` lists exactly the existing keys, with their defaults.

use super::super::choice::{self, Kind};
use super::super::{data, formation, model, sync, train};
use super::*;
use std::collections::BTreeMap;

/// The cells of every row of the tables below a heading.
fn tables() -> BTreeMap<String, Vec<Vec<String>>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/run-files.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut tables = BTreeMap::<String, Vec<Vec<String>>>::new();
    let mut heading = String::new();
    for line in text.lines() {
        if let Some(found) = line.strip_prefix("## ").or_else(|| line.strip_prefix("### ")) {
            heading = found.to_owned();
        } else if line.starts_with("| `") {
            // A bar in a cell is written with a backslash.
            let cells = line.trim_matches('|').replace("\\|", "\0");
            let cells = cells.split('|').map(|cell| cell.trim().replace('\0', "|")).collect();
            tables.entry(heading.clone()).or_default().push(cells);
        }
    }
    tables
}

/// The text between backticks at the beginning of a cell.
fn quoted(cell: &str) -> &str {
    cell.trim_start_matches('`').split('`').next().unwrap()
}

#[test]
fn the_page_names_every_key_and_no_other() {
    let tables = tables();
    for (heading, keys) in [
        ("Top level", &["name"][..]),
        ("[model]", model::KEYS),
        ("[data]", data::KEYS),
        ("data.train and data.valid", data::SOURCE_KEYS),
        ("[train]", train::KEYS),
        ("[formation]", formation::KEYS),
        ("[sync]", sync::KEYS),
    ] {
        let rows = tables.get(heading).unwrap_or_else(|| panic!("there is no table below {heading:?}"));
        let mut named: Vec<&str> = rows.iter().map(|row| quoted(&row[0])).collect();
        let mut keys = keys.to_vec();
        named.sort_unstable();
        keys.sort_unstable();
        assert_eq!(named, keys, "below {heading:?}");
    }
}

#[test]
fn the_page_has_the_defaults_that_a_run_has() {
    let tables = tables();
    let resolved = parse(RUN, &[]).unwrap().resolved.to_toml();
    let mut section = "";
    let mut compared = 0;
    for line in resolved.lines() {
        if line.starts_with('[') {
            section = line;
        }
        let Some((said, source)) = line.split_once(" # ") else { continue };
        let (Some(rows), "default") = (tables.get(section), source) else { continue };
        let (key, value) = said.trim().split_once(" = ").unwrap();
        let row = rows.iter().find(|row| quoted(&row[0]) == key).unwrap();
        assert_eq!(quoted(&row[2]), value, "{section} {key}");
        compared += 1;
    }
    assert!(compared >= 12, "{compared} of\n{resolved}");
}

/// As on the page: `lr` = 0.01, `momentum` = 0.0.
fn settings<T: serde::Serialize + serde::de::DeserializeOwned>(name: &str, kind: Kind) -> String {
    let all = choice::defaults::<T>(name, kind).unwrap();
    let required = |setting: &str| {
        kind.bare.iter().any(|bare| bare.name == name && bare.setting == setting && bare.required)
    };
    let setting = |(key, value): (&String, &serde_json::Value)| match choice::from_json(value) {
        Some(value) if !required(key) => format!("`{key}` = {}", value.to_toml()),
        _ => format!("`{key}`"),
    };
    all.iter().filter(|(key, _)| *key != "name").map(setting).collect::<Vec<_>>().join(", ")
}

fn assert_choices<T: serde::Serialize + serde::de::DeserializeOwned>(heading: &str, kind: Kind) {
    let tables = tables();
    let expected: Vec<[String; 2]> =
        kind.names.iter().map(|name| [format!("`{name}`"), settings::<T>(name, kind)]).collect();
    let found = tables.get(heading).cloned().unwrap_or_default();
    let found: Vec<[String; 2]> = found.into_iter().map(|row| [row[0].clone(), row[1].clone()]).collect();
    assert_eq!(found, expected, "below {heading:?}");
}

#[test]
fn the_page_has_every_choice_with_its_settings() {
    assert_choices::<Loss>("Losses", train::LOSS);
    assert_choices::<OptimizerSpec>("Optimizers", train::OPTIMIZER);
    assert_choices::<Schedule>("Schedules", train::SCHEDULE);
    assert_choices::<Metric>("Metrics", train::METRIC);
}
