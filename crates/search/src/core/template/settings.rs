//! `[search]`, `[objective]` and `[constraint]`: how a search file says what is wanted, and for how long.

use super::error::{Checked, TemplateFault};
use super::tree::{Entry, Node, Value, get, only};
use crate::core::algorithm::{AlgorithmKind, AlgorithmSettings};
use crate::core::control::{Finish, SearchConfig};
use crate::core::objective::{Goal, Objective};
use phalanx_types::{ByteSize, Seed, nearest};
use std::collections::BTreeMap;
use std::time::Duration;

/// `[search]`.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchSettings {
    pub algorithm: AlgorithmKind,
    pub algorithm_settings: AlgorithmSettings,
    /// How many candidates are tried.
    pub trials: u64,
    /// How many are trained at once; `None`: as many as the nodes can.
    pub workers: Option<u64>,
    /// The cores of a node that each takes.
    pub cores: u32,
    /// The memory of a node that each takes; `None`: what follows from the candidate.
    pub memory: Option<ByteSize>,
    /// How long a node may train a trial to its next budget.
    pub deadline: Option<Duration>,
    pub seed: Seed,
    /// `None`: every trial is trained in full.
    pub rungs: Option<RungSettings>,
    pub finish: Finish,
    pub retries: u32,
    pub early_failures: u32,
    pub stop_hopeless: bool,
    pub generation: Option<usize>,
}

/// Partial trainings: the first, and how much longer each is than the one before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RungSettings {
    /// In the unit of a full training.
    pub first: f64,
    pub factor: u32,
}

/// What the length of a training is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetUnit {
    Epochs,
    Steps,
}

/// The length of a full training.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FullTraining {
    pub length: f64,
    pub unit: BudgetUnit,
}

/// An objective, and where its value comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct ObjectiveSpec {
    pub objective: Objective,
    /// `valid.accuracy`, `params`, `latency`; for programs: the name in their results.
    pub from: String,
    /// How often it is measured; the median counts.
    pub trials: u32,
    /// The program that tells its value before a candidate is trained, with its arguments.
    pub program: Option<Vec<String>>,
}

/// Limits of a value, both inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BoundSpec {
    pub at_least: Option<f64>,
    pub at_most: Option<f64>,
}

/// Values that follow from a candidate without training or measuring it.
pub const CHEAP_SOURCES: [&str; 6] =
    ["params", "flops", "memory", "activation_memory", "training_memory", "size"];
/// Values that can be measured before training.
pub const MEASURED_SOURCES: [&str; 2] = ["latency", "onnx_latency"];

const KEYS: [&str; 13] = [
    "algorithm",
    "trials",
    "workers",
    "cores",
    "memory",
    "deadline",
    "seed",
    "rungs",
    "finish",
    "retries",
    "early_failures",
    "stop_hopeless",
    "generation",
];
/// The settings that an algorithm can have, for the nearest word.
const ALGORITHM_KEYS: [&str; 22] = [
    "name",
    "start",
    "candidates",
    "rounds",
    "fit_every",
    "fit_steps",
    "all_until",
    "newest",
    "population",
    "random_mix",
    "mutations",
    "crossovers",
    "mutation_rate",
    "crossover_rate",
    "history",
    "sample",
    "parents",
    "batch",
    "networks",
    "layers",
    "width",
    "training_steps",
];

impl BudgetUnit {
    fn word(self) -> &'static str {
        match self {
            Self::Epochs => "epochs",
            Self::Steps => "steps",
        }
    }
}

impl SearchSettings {
    pub(super) fn read(entries: &[Entry], full: FullTraining) -> Checked<Self> {
        only(entries, "[search]", &KEYS)?;
        let usual = SearchConfig::default();
        let whole = |key: &str, from: u64| {
            get(entries, key).map(|node| node.whole(&format!("search.{key}"), from)).transpose()
        };
        let small = |key: &str, default: u32| -> Checked<u32> {
            let count = whole(key, 0)?;
            Ok(count.map_or(default, |count| u32::try_from(count).unwrap_or(u32::MAX)))
        };
        let (algorithm, algorithm_settings) = match get(entries, "algorithm") {
            None => (AlgorithmKind::default(), AlgorithmSettings::default()),
            Some(node) => algorithm(node)?,
        };
        let stop_hopeless = get(entries, "stop_hopeless").map(|node| node.flag("search.stop_hopeless"));
        Ok(Self {
            algorithm,
            algorithm_settings,
            trials: whole("trials", 1)?.unwrap_or(usual.trials),
            workers: whole("workers", 1)?,
            cores: whole("cores", 1)?.map_or(1, |cores| u32::try_from(cores).unwrap_or(u32::MAX)),
            memory: get(entries, "memory").map(memory).transpose()?,
            deadline: get(entries, "deadline").map(deadline).transpose()?,
            seed: whole("seed", 0)?.map_or(usual.seed, Seed),
            rungs: get(entries, "rungs").map(|node| RungSettings::read(node, full)).transpose()?,
            finish: get(entries, "finish").map_or(Ok(usual.finish), finish)?,
            retries: small("retries", usual.retries)?,
            early_failures: small("early_failures", usual.early_failures)?,
            stop_hopeless: stop_hopeless.unwrap_or(Ok(usual.stop_hopeless))?,
            generation: whole("generation", 1)?.map(|count| count as usize),
        })
    }
}

fn algorithm(node: &Node) -> Checked<(AlgorithmKind, AlgorithmSettings)> {
    let kind = |node: &Node| {
        let word = node.text("search.algorithm")?;
        word.parse::<AlgorithmKind>().map_err(|unknown| {
            let got = format!("{word:?}; did you mean `{}`?", unknown.nearest);
            let names = AlgorithmKind::ALL.map(AlgorithmKind::name).join(", ");
            node.wrong("search.algorithm", &format!("one of {names}"), got)
        })
    };
    let Value::Table(keys) = &node.value else { return Ok((kind(node)?, AlgorithmSettings::default())) };
    let (place, example) = (|| "`search.algorithm`".to_owned(), "{ name = \"nsga2\", population = 20 }");
    let name = get(keys, "name")
        .ok_or_else(|| TemplateFault::Missing { key: "name", place: place(), example }.at(node.line))?;
    let mut json = serde_json::Map::new();
    for Entry { key, line, node } in keys.iter().filter(|entry| entry.key != "name") {
        let field = format!("search.algorithm.{key}");
        let value = match node.value {
            Value::Int(number) if number >= 0 => number.into(),
            Value::Float(number) if (0.0..=1.0).contains(&number) => number.into(),
            _ => {
                return Err(node.wrong(
                    &field,
                    "a whole number, or a share from 0 to 1",
                    node.value.to_toml(),
                ));
            }
        };
        json.insert(key.clone(), value);
        // One after the other, so that an error belongs to this key.
        if serde_json::from_value::<AlgorithmSettings>(json.clone().into()).is_err() {
            return Err(match ALGORITHM_KEYS.contains(&key.as_str()) {
                true => node.wrong(&field, "a whole number", node.value.to_toml()),
                false => TemplateFault::unknown_key(key, &place(), ALGORITHM_KEYS).at(*line),
            });
        }
    }
    let settings = serde_json::from_value(json.into());
    Ok((kind(name)?, settings.map_err(|error| node.wrong("search.algorithm", "settings", error))?))
}

fn memory(node: &Node) -> Checked<ByteSize> {
    let text = node.text("search.memory")?;
    let wrong = |_unreadable| node.wrong("search.memory", "a size such as \"512MiB\"", format!("{text:?}"));
    text.parse().map_err(wrong)
}

fn deadline(node: &Node) -> Checked<Duration> {
    let text = node.text("search.deadline")?;
    let read = humantime::parse_duration(text).ok().filter(|limit| !limit.is_zero());
    read.ok_or_else(|| node.wrong("search.deadline", "a duration such as \"10m\"", format!("{text:?}")))
}

fn finish(node: &Node) -> Checked<Finish> {
    match node.text("search.finish")? {
        "front" => Ok(Finish::Front),
        "all" => Ok(Finish::All),
        "none" => Ok(Finish::None),
        other => Err(node.wrong("search.finish", "one of front, all, none", format!("{other:?}"))),
    }
}

impl RungSettings {
    fn read(node: &Node, full: FullTraining) -> Checked<Self> {
        let keys = node.entries("search.rungs")?;
        only(keys, "`search.rungs`", &["first", "factor"])?;
        let (place, example) = ("`search.rungs`".to_owned(), "{ first = \"0.1 epochs\", factor = 4 }");
        let first_node = get(keys, "first")
            .ok_or_else(|| TemplateFault::Missing { key: "first", place, example }.at(node.line))?;
        let field = "search.rungs.first";
        let unit = full.unit.word();
        let wanted =
            format!("a number of {unit}, below {} of the full training, as in \"0.1 {unit}\"", full.length);
        let first = match &first_node.value {
            Value::Text(text) => text
                .split_once(' ')
                .filter(|(_, word)| word.trim() == unit || word.trim() == unit.trim_end_matches('s'))
                .and_then(|(number, _)| number.parse().ok()),
            other => other.as_number(),
        };
        let first = first.filter(|first: &f64| *first > 0.0 && *first < full.length);
        let first = first.ok_or_else(|| first_node.wrong(field, &wanted, first_node.value.to_toml()))?;
        let factor = get(keys, "factor").map(|node| node.whole("search.rungs.factor", 2)).transpose()?;
        Ok(Self { first, factor: factor.map_or(4, |factor| u32::try_from(factor).unwrap_or(u32::MAX)) })
    }

    /// The budgets of all rungs, the last being the full training.
    pub(super) fn budgets(&self, full: f64) -> Vec<f64> {
        let growing = std::iter::successors(Some(self.first), |budget| Some(budget * f64::from(self.factor)));
        growing.take_while(|budget| *budget < full).chain([full]).collect()
    }
}

/// `[objective.<name>]`, in the order of the file.
pub(super) fn objectives(entries: &[Entry], is_program: bool) -> Checked<Vec<ObjectiveSpec>> {
    entries.iter().map(|entry| objective(entry, is_program)).collect()
}

fn objective(entry: &Entry, is_program: bool) -> Checked<ObjectiveSpec> {
    let place = format!("objective.{}", entry.key);
    let keys = entry.node.entries(&place)?;
    only(keys, &format!("[{place}]"), &["goal", "from", "trials", "cheap", "program"])?;
    let field = |key: &str| format!("{place}.{key}");
    let missing =
        |key, example| TemplateFault::Missing { key, place: format!("[{place}]"), example }.at(entry.line);
    let goal_node = get(keys, "goal").ok_or_else(|| missing("goal", "goal = \"max\""))?;
    let goal = match goal_node.text(&field("goal"))? {
        "min" => Goal::Min,
        "max" => Goal::Max,
        other => return Err(goal_node.wrong(&field("goal"), "min or max", format!("{other:?}"))),
    };
    let program =
        get(keys, "program").map(|node| program(node, &field("program"), is_program)).transpose()?;
    if let (Some(_), Some(other)) =
        (&program, ["from", "trials", "cheap"].iter().find(|key| get(keys, key).is_some()))
    {
        return Err(TemplateFault::Conflict { key: "program", other }.at(entry.line));
    }
    let from = match get(keys, "from") {
        _ if program.is_some() => entry.key.as_str(),
        Some(node) => {
            let from = node.text(&field("from"))?;
            check_source(from, is_program, &field("from"), node.line)?;
            from
        }
        None if is_program || is_source(&entry.key) => entry.key.as_str(),
        None => return Err(missing("from", "from = \"valid.accuracy\"")),
    };
    let follows = program.is_some() || (CHEAP_SOURCES.contains(&from) && !is_program);
    let cheap = match get(keys, "cheap") {
        None => follows,
        Some(node) => {
            let cheap = node.flag(&field("cheap"))?;
            if cheap && !follows && (is_program || !MEASURED_SOURCES.contains(&from)) {
                let wanted = format!("false: {from} is known only after a training");
                return Err(node.wrong(&field("cheap"), &wanted, "true"));
            }
            cheap
        }
    };
    let trials = get(keys, "trials").map(|node| node.whole(&field("trials"), 1)).transpose()?;
    Ok(ObjectiveSpec {
        objective: Objective { name: entry.key.clone(), goal, cheap },
        from: from.to_owned(),
        trials: trials.map_or(1, |trials| u32::try_from(trials).unwrap_or(u32::MAX)),
        program,
    })
}

/// A program of the user's that tells what a candidate costs.
fn program(node: &Node, field: &str, is_program: bool) -> Checked<Vec<String>> {
    if is_program {
        let wanted = "left out where trials are programs: they can report it";
        return Err(node.wrong(field, wanted, node.value.to_toml()));
    }
    let words = node.items(field)?.iter().map(|word| Ok(word.text(field)?.to_owned()));
    let words = words.collect::<Checked<Vec<String>>>()?;
    match words.first() {
        Some(first) if !first.is_empty() => Ok(words),
        _ => Err(node.wrong(field, "a program and its arguments", node.value.to_toml())),
    }
}

fn is_source(name: &str) -> bool {
    let of_training = name.split_once('.').is_some_and(|(of, metric)| {
        ["valid", "train"].contains(&of) && !metric.is_empty() && !metric.contains('.')
    });
    of_training || name == "seconds" || CHEAP_SOURCES.contains(&name) || MEASURED_SOURCES.contains(&name)
}

fn check_source(name: &str, is_program: bool, field: &str, line: usize) -> Checked<()> {
    if is_program || is_source(name) {
        return Ok(());
    }
    let known = CHEAP_SOURCES.into_iter().chain(MEASURED_SOURCES);
    let known: Vec<&str> = known.chain(["seconds", "valid.accuracy", "valid.loss", "train.loss"]).collect();
    let got = match nearest(name, known.iter().copied()) {
        Some(nearest) => format!("{name:?}; did you mean `{nearest}`?"),
        None => format!("{name:?}"),
    };
    Err(TemplateFault::value(field, format!("one of {}, or another valid.<metric>", known.join(", ")), got)
        .at(line))
}

/// `[constraint]`: on objectives, by name, or on anything that an objective can come from.
pub(super) fn constraints(
    entries: &[Entry],
    objectives: &[ObjectiveSpec],
    is_program: bool,
) -> Checked<BTreeMap<String, BoundSpec>> {
    let mut bounds = BTreeMap::new();
    for entry in entries {
        let field = format!("constraint.{}", entry.key);
        if !objectives.iter().any(|objective| objective.objective.name == entry.key) {
            check_source(&entry.key, is_program, &field, entry.line)?;
        }
        let keys = entry.node.entries(&field)?;
        only(keys, &format!("`{field}`"), &["at_least", "at_most"])?;
        let limit = |key: &str| get(keys, key).map(|node| node.number(&format!("{field}.{key}"))).transpose();
        let bound = BoundSpec { at_least: limit("at_least")?, at_most: limit("at_most")? };
        match bound {
            BoundSpec { at_least: None, at_most: None } => {
                let (key, place, example) = ("at_most", format!("`{field}`"), "{ at_most = 1e6 }");
                return Err(TemplateFault::Missing { key, place, example }.at(entry.line));
            }
            BoundSpec { at_least: Some(least), at_most: Some(most) } if least > most => {
                let wanted = format!("{least} or more: nothing is left");
                return Err(TemplateFault::value(&format!("{field}.at_most"), wanted, most).at(entry.line));
            }
            _ => {}
        }
        bounds.insert(entry.key.clone(), bound);
    }
    Ok(bounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_of_an_algorithm_has_its_key() {
        let text = include_str!("../algorithm/settings.rs");
        let fields =
            text.lines().filter_map(|line| line.trim().strip_prefix("pub ")?.split_once(": Option<"));
        for (field, _) in fields {
            assert!(ALGORITHM_KEYS.contains(&field), "{field}");
        }
    }

    #[test]
    fn keys_of_algorithms_are_those_that_they_can_have() {
        for key in ALGORITHM_KEYS.into_iter().filter(|key| *key != "name") {
            let value = if key.ends_with("_rate") { 0.5.into() } else { serde_json::Value::from(1) };
            let json = serde_json::Map::from_iter([(key.to_owned(), value)]);
            let read = serde_json::from_value::<AlgorithmSettings>(json.into());
            assert_ne!(read.unwrap(), AlgorithmSettings::default(), "{key}");
        }
    }
}
