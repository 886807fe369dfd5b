//! A search file: a template of a run file with the choices of a space.
//!
//! ```text
//! search.toml ─► SearchFile: Space, settings, objectives ─► + Genes ─► run.toml, model.toml, arguments of a program
//! ```
//! `"$name"` stands for the value of a choice anywhere in the template. What a candidate does not use never reaches its
//! run file, and when a gene exists follows from where it is used. See `docs/search-spaces.md`.

mod choices;
mod compile;
mod condition;
mod error;
mod expand;
mod expression;
mod identity;
mod layers;
mod ready;
mod settings;
#[cfg(test)]
mod tests;
mod tree;

pub use error::{TemplateError, TemplateFault};
pub use expand::Expanded;
pub use ready::{READY, ready};
pub use settings::{
    BoundSpec, BudgetUnit, CHEAP_SOURCES, FullTraining, MEASURED_SOURCES, ObjectiveSpec, RungSettings,
    SearchSettings,
};

use super::control::{Bound, SearchConfig};
use super::space::Space;
use compile::{Compiler, Templated};
use condition::{Condition, Declared};
use error::Checked;
use layers::LayerTemplate;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tree::{Entry, Node, Value, get, only};

/// Sections that an ordinary run file has too, besides the model.
const RUN_SECTIONS: [&str; 4] = ["data", "train", "formation", "sync"];
const SECTIONS: [&str; 11] = [
    "name",
    "space",
    "model",
    "data",
    "train",
    "formation",
    "sync",
    "search",
    "objective",
    "constraint",
    "trial",
];
/// Keys of `[model]` that belong to the layer file.
const LAYER_FILE_KEYS: [&str; 4] = ["name", "input", "tokens", "layer"];
const MODEL_KEYS: [&str; 11] =
    ["name", "input", "tokens", "layer", "weights", "dropout", "onnx", "toml", "zoo", "classes", "dims"];
/// A parsed search file.
#[derive(Debug)]
pub struct SearchFile {
    file: PathBuf,
    name: Option<String>,
    space: Space,
    genes: Vec<Declared>,
    /// Where each declared gene stands in the space.
    place: Vec<usize>,
    /// `[model]` as far as it belongs to the run file.
    run_model: Option<Templated>,
    /// `[model]` as far as it belongs to the layer file, and the layers.
    model: Option<(Templated, LayerTemplate)>,
    sections: Vec<(&'static str, Templated)>,
    command: Option<Templated>,
    full: FullTraining,
    settings: SearchSettings,
    objectives: Vec<ObjectiveSpec>,
    constraints: BTreeMap<String, BoundSpec>,
}

impl SearchFile {
    /// Parses the text of a file with this name. Relative paths in the template are relative to the file: with an
    /// absolute `path`, run files have absolute ones.
    ///
    /// # Errors
    /// The first error, with its line.
    pub fn parse(path: &Path, text: &str) -> Result<Self, TemplateError> {
        Self::read(path, text).map_err(|placed| placed_in(path, *placed))
    }

    fn read(path: &Path, text: &str) -> Checked<Self> {
        let root = tree::parse(text)?;
        only(&root, "a search file", &SECTIONS)?;
        let section = |name: &str| get(&root, name).map_or(Ok(&[][..]), |node| node.entries(name));
        let missing =
            |key, example| TemplateFault::Missing { key, place: "a search file".to_owned(), example }.at(1);
        let mut compiler = Compiler::default();
        compiler.declare(section("space")?, "")?;
        let everywhere = Condition::default();

        let command = get(&root, "trial").map(|node| command(node, &mut compiler)).transpose()?;
        let model = get(&root, "model");
        let (run_model, model) = match model {
            Some(node) => read_model(node, &mut compiler)?,
            None if command.is_some() => (None, None),
            None => return Err(missing("model", "[model] or [trial] command = [\"python3\", \"train.py\"]")),
        };
        let mut sections = Vec::new();
        for name in RUN_SECTIONS {
            if let Some(node) = get(&root, name) {
                node.entries(name)?;
                sections.push((name, compiler.value(node, name, &everywhere)?));
            }
        }
        let timed = if command.is_some() { "trial" } else { "train" };
        let full = full_training(section(timed)?, timed)?;
        let settings = SearchSettings::read(section("search")?, full)?;
        let objectives = settings::objectives(section("objective")?, command.is_some())?;
        if objectives.is_empty() {
            return Err(missing(
                "objective",
                "[objective.accuracy] goal = \"max\", from = \"valid.accuracy\"",
            ));
        }
        let constraints = settings::constraints(section("constraint")?, &objectives, command.is_some())?;
        let (space, genes, place) = space_of(compiler, command.is_some())?;
        let name = get(&root, "name").map(|node| node.text("name")).transpose()?.map(str::to_owned);
        let file = path.to_owned();
        Ok(Self {
            file,
            name,
            space,
            genes,
            place,
            run_model,
            model,
            sections,
            command,
            full,
            settings,
            objectives,
            constraints,
        })
    }

    /// The name of the search.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    pub fn space(&self) -> &Space {
        &self.space
    }

    pub fn settings(&self) -> &SearchSettings {
        &self.settings
    }

    pub fn objectives(&self) -> &[ObjectiveSpec] {
        &self.objectives
    }

    pub fn constraints(&self) -> &BTreeMap<String, BoundSpec> {
        &self.constraints
    }

    /// The latencies that are measured before a candidate is trained: of cheap objectives, and of those that have a
    /// constraint and are no objective that is measured after training.
    pub fn measured_before(&self) -> Vec<&'static str> {
        if self.is_program() {
            return Vec::new();
        }
        let is_wanted = |source: &&str| {
            let mut of_objectives = self.objectives.iter().filter(|spec| spec.from == **source).peekable();
            match of_objectives.peek() {
                Some(_) => of_objectives.any(|spec| spec.objective.cheap),
                None => self.constraints.contains_key(*source),
            }
        };
        settings::MEASURED_SOURCES.into_iter().filter(is_wanted).collect()
    }

    /// Whether trials are programs.
    pub fn is_program(&self) -> bool {
        self.command.is_some()
    }

    /// The length of a full training.
    pub fn full_training(&self) -> FullTraining {
        self.full
    }

    /// The configuration of the search's control; budgets are in the unit of [`SearchFile::full_training`].
    pub fn config(&self) -> SearchConfig {
        let SearchSettings { rungs, .. } = &self.settings;
        let usual = SearchConfig::default();
        let bound = |(name, bound): (&String, &BoundSpec)| Bound {
            name: name.clone(),
            at_least: bound.at_least,
            at_most: bound.at_most,
        };
        SearchConfig {
            seed: self.settings.seed,
            trials: self.settings.trials,
            objectives: self.objectives.iter().map(|spec| spec.objective.clone()).collect(),
            bounds: self.constraints.iter().map(bound).collect(),
            rungs: rungs.map_or_else(|| vec![self.full.length], |rungs| rungs.budgets(self.full.length)),
            eta: rungs.map_or(usual.eta, |rungs| rungs.factor),
            finish: self.settings.finish,
            retries: self.settings.retries,
            early_failures: self.settings.early_failures,
            stop_hopeless: self.settings.stop_hopeless,
            generation: self.settings.generation,
        }
    }
}

fn placed_in(file: &Path, placed: error::Placed) -> TemplateError {
    TemplateError { file: file.to_owned(), line: placed.line, fault: placed.fault }
}

/// `[trial] command`.
fn command(trial: &Node, compiler: &mut Compiler) -> Checked<Templated> {
    let keys = trial.entries("trial")?;
    only(keys, "[trial]", &["command", "epochs"])?;
    let (place, example) = ("[trial]".to_owned(), "command = [\"python3\", \"train.py\"]");
    let node = get(keys, "command")
        .ok_or_else(|| TemplateFault::Missing { key: "command", place, example }.at(trial.line))?;
    if node.items("trial.command")?.is_empty() {
        return Err(node.wrong("trial.command", "a program and its arguments", "empty"));
    }
    compiler.value(node, "trial.command", &Condition::default())
}

/// The parts of `[model]` of the run file and of the layer file.
#[expect(clippy::type_complexity, reason = "used once")]
fn read_model(
    node: &Node,
    compiler: &mut Compiler,
) -> Checked<(Option<Templated>, Option<(Templated, LayerTemplate)>)> {
    let entries = node.entries("model")?;
    only(entries, "[model]", &MODEL_KEYS)?;
    let everywhere = Condition::default();
    let missing =
        |key, example| TemplateFault::Missing { key, place: "[model]".to_owned(), example }.at(node.line);
    let mut part = |belongs: &dyn Fn(&str) -> bool| {
        let entries = entries.iter().filter(|entry| belongs(&entry.key)).cloned().collect();
        compiler.value(&Node { line: node.line, value: Value::Table(entries) }, "model", &everywhere)
    };
    let Some(layer) = get(entries, "layer") else {
        if !["onnx", "toml", "zoo"].iter().any(|key| get(entries, key).is_some()) {
            return Err(missing("layer", "[[model.layer]] blocks, or zoo = \"digits-cnn\""));
        }
        return Ok((Some(part(&|_| true)?), None));
    };
    if let Some(other) = ["onnx", "toml", "zoo"].into_iter().find(|key| get(entries, key).is_some()) {
        return Err(TemplateFault::Conflict { key: "layer", other }.at(layer.line));
    }
    if get(entries, "input").is_none() && get(entries, "tokens").is_none() {
        return Err(missing("input", "input = [1, 28, 28]"));
    }
    let run = part(&|key| !LAYER_FILE_KEYS.contains(&key))?;
    let head = part(&|key| LAYER_FILE_KEYS.contains(&key) && key != "layer")?;
    Ok((Some(run), Some((head, LayerTemplate::read(layer, compiler)?))))
}

/// How long a full training is: the same for every candidate.
fn full_training(entries: &[Entry], section: &str) -> Checked<FullTraining> {
    let (key, unit) = match get(entries, "steps") {
        Some(_) if section == "train" => ("steps", BudgetUnit::Steps),
        _ => ("epochs", BudgetUnit::Epochs),
    };
    let length = match get(entries, key) {
        None => 1,
        Some(node) => node.whole(&format!("{section}.{key}"), 1)?,
    };
    Ok(FullTraining { length: length as f64, unit })
}

fn space_of(mut compiler: Compiler, is_program: bool) -> Checked<(Space, Vec<Declared>, Vec<usize>)> {
    if is_program {
        // Programs read all choices in their environment.
        compiler.genes.iter_mut().for_each(|gene| gene.use_where(&Condition::default()));
    }
    let (genes, declared, place) = condition::into_space(compiler.genes);
    if let Some(unused) = declared.iter().find(|gene| !gene.is_used()) {
        return Err(TemplateFault::Unused { name: unused.name.clone() }.at(unused.line));
    }
    let line = declared.first().map_or(1, |gene| gene.line);
    let space = Space::new(genes).map_err(|error| TemplateFault::Space(error).at(line))?;
    Ok((space, declared, place))
}
