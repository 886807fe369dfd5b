//! `loss`, `optimizer`, `schedule` and metrics: a name, or a table with a name and settings.
//!
//! The settings of a choice are found by serialising its defaults; only settings without a default are listed here.

use super::error::ConfigError;
use super::section::{Section, Sourced, pick, unknown_key};
use super::source::Source;
use super::tree::{Node, Table, Value};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};
use std::path::PathBuf;

/// A kind of setting that is chosen by name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    /// The name in errors.
    pub(crate) what: &'static str,
    pub(crate) names: &'static [&'static str],
    pub(crate) bare: &'static [Bare],
}

/// A setting without a default.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bare {
    pub(crate) name: &'static str,
    pub(crate) setting: &'static str,
    /// Whether it must be given; otherwise it may be absent.
    pub(crate) required: bool,
}

/// A choice with its settings, each with its source.
#[derive(Debug)]
pub(crate) struct Chosen<T> {
    pub(crate) value: T,
    settings: Vec<(String, Value, Source)>,
}

/// Reads the choice under a key; by default the one called `default`.
pub(crate) fn read<T: Serialize + DeserializeOwned>(
    section: &mut Section<'_>,
    key: &'static str,
    kind: Kind,
    default: Option<&'static str>,
) -> Result<Option<T>, ConfigError> {
    let unsaid = default.map(|name| Node::default_of(Value::Text(name.to_owned())));
    let Some(node) = section.node(key).or(unsaid.as_ref()) else { return Ok(None) };
    let chosen = choose(node, &section.key(key), kind)?;
    let mut inner = section.unsaid(key);
    for (setting, value, source) in chosen.settings {
        inner.note_node(&setting, &Node { value, source: source.clone(), key: source });
    }
    Ok(Some(chosen.value))
}

/// Reads a choice: a name, or a table with one.
pub(crate) fn choose<T: Serialize + DeserializeOwned>(
    node: &Node,
    key: &str,
    kind: Kind,
) -> Result<Chosen<T>, ConfigError> {
    let wrong = |node: &Node, wanted| {
        let (key, got, at) = (key.to_owned(), node.value.kind(), node.source.clone());
        ConfigError::Type { key, wanted, got, at }
    };
    let (name, table) = match &node.value {
        Value::Text(_) => (node, None),
        Value::Table(table) => match table.get("name") {
            Some(name) => (name, Some(table)),
            None => {
                let hint = "say which: { name = \"…\" }";
                return Err(ConfigError::Missing {
                    key: "name".to_owned(),
                    section: key.to_owned(),
                    file: file_of(&node.source),
                    hint,
                });
            }
        },
        _ => return Err(wrong(node, "a name, or a table with a name")),
    };
    let Value::Text(text) = &name.value else { return Err(wrong(name, "a name")) };
    let said = Sourced { value: text.clone(), key: key.to_owned(), source: name.source.clone() };
    let picked = pick(&said, kind.what, kind.names)?;
    let mut chosen = with_settings(picked, &said, table, kind)?;
    chosen.settings.insert(0, ("name".to_owned(), name.value.clone(), name.source.clone()));
    Ok(chosen)
}

fn file_of(source: &Source) -> PathBuf {
    match source {
        Source::File(place) => place.file.to_path_buf(),
        other => PathBuf::from(other.to_string()),
    }
}

fn with_settings<T: Serialize + DeserializeOwned>(
    name: &'static str,
    said: &Sourced<String>,
    table: Option<&Table>,
    kind: Kind,
) -> Result<Chosen<T>, ConfigError> {
    let key = &said.key;
    let mut json = defaults::<T>(name, kind).ok_or_else(|| {
        said.should_be(format!("another {}: this one has no settings to begin with", kind.what))
    })?;
    let known: Vec<String> = json.keys().cloned().collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    unknown_key(table.into_iter().flatten(), key, &known)?;
    let mut settings = Vec::new();
    for setting in known.into_iter().filter(|setting| *setting != "name") {
        let Some(node) = table.and_then(|table| table.get(setting)) else {
            let required = kind.bare.iter().any(|b| b.name == name && b.setting == setting && b.required);
            if required {
                let (setting, section) = (setting.to_owned(), key.clone());
                let hint = "it has no default";
                return Err(ConfigError::Missing {
                    key: setting,
                    section,
                    file: file_of(&said.source),
                    hint,
                });
            }
            if let Some(value) = json.get(setting).and_then(from_json) {
                settings.push((setting.to_owned(), value, Source::Default));
            }
            continue;
        };
        check(&format!("{key}.{setting}"), setting, node, json.get(setting))?;
        json.insert(setting.to_owned(), to_json(&node.value));
        settings.push((setting.to_owned(), node.value.clone(), node.source.clone()));
        // One after the other, so that an error belongs to this setting.
        serde_json::from_value::<T>(Json::Object(json.clone())).map_err(|error| {
            let (key, source) = (format!("{key}.{setting}"), node.source.clone());
            Sourced { value: node.value.to_toml(), key, source }
                .should_be(format!("something else ({error})"))
        })?;
    }
    let value = serde_json::from_value(Json::Object(json))
        .map_err(|error| said.should_be(format!("something else ({error})")))?;
    Ok(Chosen { value, settings })
}

/// Checks the type of a setting and, if its name implies one, its range.
fn check(key: &str, setting: &str, node: &Node, default: Option<&Json>) -> Result<(), ConfigError> {
    let value = to_json(&node.value);
    let wanted = match default {
        Some(Json::Bool(_)) if !value.is_boolean() => Some("true or false"),
        Some(Json::String(_)) if !value.is_string() => Some("a text"),
        Some(Json::Array(_)) if !value.is_array() => Some("a list"),
        Some(Json::Number(_) | Json::Null) if !value.is_number() => Some("a number"),
        _ => None,
    };
    if let Some(wanted) = wanted {
        let (got, at) = (node.value.kind(), node.source.clone());
        return Err(ConfigError::Type { key: key.to_owned(), wanted, got, at });
    }
    let numbers: Vec<f64> = match &value {
        Json::Array(items) => items.iter().filter_map(Json::as_f64).collect(),
        other => other.as_f64().into_iter().collect(),
    };
    let (fine, wanted): (fn(f64) -> bool, _) = match setting {
        "lr" | "eps" | "delta" | "gamma" | "div_factor" | "final_div_factor" | "max_lr" => {
            (|x| x > 0.0 && x.is_finite(), "a number above 0")
        }
        "momentum" | "betas" | "beta1" | "beta2" | "alpha" | "smoothing" => {
            (|x| (0.0..1.0).contains(&x), "from 0 to below 1")
        }
        "pct_start" => (|x| (0.0..=1.0).contains(&x), "from 0 to 1"),
        "weight_decay" | "min_lr" | "dampening" | "warmup" | "steps" | "rates" => {
            (|x| x >= 0.0 && x.is_finite(), "a number from 0 on")
        }
        "every" | "k" => (|x| x >= 1.0, "a whole number from 1 on"),
        _ => (f64::is_finite, "a finite number"),
    };
    if numbers.into_iter().all(fine) {
        return Ok(());
    }
    let said = Sourced { value: node.value.to_toml(), key: key.to_owned(), source: node.source.clone() };
    Err(said.should_be(wanted))
}

/// Checks the settings of a choice made in code, by the rules for run files.
pub(crate) fn validate<T: Serialize + DeserializeOwned>(
    choice: &T,
    key: &str,
    kind: Kind,
) -> Result<(), ConfigError> {
    let Some(value) = table_of(choice) else { return Ok(()) };
    choose::<T>(&in_code(value), key, kind).map(|_chosen| ())
}

/// A value set by the program, with everything in it.
fn in_code(value: Value) -> Node {
    let value = match value {
        Value::Table(table) => {
            Value::Table(table.into_iter().map(|(key, node)| (key, in_code(node.value))).collect())
        }
        value => value,
    };
    Node { value, source: Source::Code, key: Source::Code }
}

/// A serialised value as a value of a run file.
pub(crate) fn table_of(value: &impl Serialize) -> Option<Value> {
    from_json_table(&serde_json::to_value(value).ok()?)
}

fn from_json_table(json: &Json) -> Option<Value> {
    let Json::Object(map) = json else { return from_json(json) };
    let entries =
        map.iter().filter_map(|(key, json)| Some((key.clone(), Node::default_of(from_json_table(json)?))));
    Some(Value::Table(entries.collect()))
}

/// A choice with all its settings; settings without a default are a number or absent.
pub(crate) fn defaults<T: Serialize + DeserializeOwned>(name: &str, kind: Kind) -> Option<Map<String, Json>> {
    let bare = kind.bare.iter().filter(|bare| bare.name == name);
    let mut begin = Map::from_iter([("name".to_owned(), Json::from(name))]);
    begin.extend(bare.clone().filter(|b| b.required).map(|b| (b.setting.to_owned(), Json::from(1))));
    let choice: T = serde_json::from_value(Json::Object(begin)).ok()?;
    let mut all = match serde_json::to_value(choice).ok()? {
        Json::Object(map) => map,
        _ => Map::new(),
    };
    all.insert("name".to_owned(), name.into());
    for bare in bare {
        all.entry(bare.setting).or_insert(Json::Null);
    }
    Some(all)
}

fn to_json(value: &Value) -> Json {
    match value {
        Value::Bool(b) => (*b).into(),
        Value::Int(n) => (*n).into(),
        Value::Float(x) => (*x).into(),
        Value::Text(text) => text.clone().into(),
        Value::List(items) => items.iter().map(|item| to_json(&item.value)).collect::<Vec<_>>().into(),
        Value::Table(table) => {
            Json::Object(table.iter().map(|(key, node)| (key.clone(), to_json(&node.value))).collect())
        }
    }
}

pub(crate) fn from_json(json: &Json) -> Option<Value> {
    Some(match json {
        Json::Bool(b) => Value::Bool(*b),
        Json::Number(n) => match n.as_i64() {
            Some(n) => Value::Int(n),
            None => Value::Float(shortest(n.as_f64()?)),
        },
        Json::String(text) => Value::Text(text.clone()),
        Json::Array(items) => {
            let nodes = items.iter().map(|item| Some(Node::default_of(from_json(item)?)));
            Value::List(nodes.collect::<Option<_>>()?)
        }
        Json::Null | Json::Object(_) => return None,
    })
}

/// An `f32` as `f64` without spurious digits.
pub(super) fn shortest(x: f64) -> f64 {
    let narrow = x as f32;
    if f64::from(narrow) == x { narrow.to_string().parse().unwrap_or(x) } else { x }
}
