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
mod expression;
mod identity;
mod layers;
mod ready;
mod settings;
#[cfg(test)]
mod tests;
mod tree;

pub use error::{TemplateError, TemplateFault};
pub use ready::{READY, ready};
pub use settings::{
    BoundSpec, BudgetUnit, CHEAP_SOURCES, FullTraining, MEASURED_SOURCES, ObjectiveSpec, RungSettings,
    SearchSettings,
};

use super::control::{Bound, SearchConfig};
use super::space::{Genes, Space};
use compile::{Candidate, Compiler, Templated};
use condition::{Condition, Declared};
use error::Checked;
use layers::{ExpandedLayer, LayerTemplate};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tree::{Entry, Node, Value, get, only};

/// Sections that an ordinary run file has too, besides the model.
const RUN_SECTIONS: [&str; 4] = ["data", "train", "formation", "sync"];
const SECTIONS: [&str; 11] = [
    "name", "space", "model", "data", "train", "formation", "sync", "search", "objective", "constraint", "trial",
];
/// Keys of `[model]` that belong to the layer file.
const LAYER_FILE_KEYS: [&str; 4] = ["name", "input", "tokens", "layer"];
const MODEL_KEYS: [&str; 11] =
    ["name", "input", "tokens", "layer", "weights", "dropout", "onnx", "toml", "zoo", "classes", "dims"];
/// Keys of a run file that do not change its result.
const IRRELEVANT: [(&str, &[&str]); 2] = [
    ("train", &["threads", "checkpoint_every", "keep", "validate_every", "recompute"]),
    (
        "formation",
        &[
            "local", "min_replicas", "max_replicas", "patience", "stages", "copies", "cuts", "measure", "cores",
            "memory", "in_flight", "ahead",
        ],
    ),
];

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

/// A candidate as files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expanded {
    /// The text of an ordinary run file.
    pub run: String,
    /// The text of an ordinary layer file, which the run file expects beside it as `model.toml`.
    pub model: Option<String>,
    /// The program of a trial, and its arguments.
    pub argv: Option<Vec<String>>,
    /// The genes that the candidate has, and their choices.
    pub genes: BTreeMap<String, String>,
    /// The SHA-256 of the network: equal networks have the same.
    pub model_id: String,
    /// The SHA-256 of everything else that changes a result.
    pub training_id: String,
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
        let missing = |key, example| {
            TemplateFault::Missing { key, place: "a search file".to_owned(), example }.at(1)
        };
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
            return Err(missing("objective", "[objective.accuracy] goal = \"max\", from = \"valid.accuracy\""));
        }
        let constraints = settings::constraints(section("constraint")?, &objectives, command.is_some())?;
        let (space, genes, place) = space_of(compiler, command.is_some())?;
        let name = get(&root, "name").map(|node| node.text("name")).transpose()?.map(str::to_owned);
        let file = path.to_owned();
        Ok(Self {
            file, name, space, genes, place, run_model, model, sections, command, full, settings, objectives,
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
        let bound = |(name, bound): (&String, &BoundSpec)| {
            Bound { name: name.clone(), at_least: bound.at_least, at_most: bound.at_most }
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

    /// What a candidate is as files.
    ///
    /// # Errors
    /// It cannot be written down: arithmetic that does not come out, or a layer that refers to one it does not have.
    pub fn expand(&self, genes: &Genes) -> Result<Expanded, TemplateError> {
        self.expand_checked(genes).map_err(|placed| placed_in(&self.file, *placed))
    }

    fn expand_checked(&self, genes: &Genes) -> Checked<Expanded> {
        let genes = self.space.fold(genes.clone());
        let active = self.space.active(&genes);
        let choices: Vec<Option<u16>> =
            self.place.iter().map(|at| active.binary_search(at).is_ok().then(|| genes.0[*at])).collect();
        let candidate = Candidate { genes: &self.genes, choices: &choices };

        let layers = self.model.as_ref().map(|(_, layers)| layers.expand(&candidate)).transpose()?;
        let mut run_model = table(&candidate, self.run_model.as_ref(), "model")?;
        let mut head = Vec::new();
        if let Some((keys, _)) = &self.model {
            head = table(&candidate, Some(keys), "model")?;
            run_model.insert(0, text_entry("toml", "model.toml"));
        }
        let mut sections = Vec::new();
        for (name, templated) in &self.sections {
            sections.push((*name, table(&candidate, Some(templated), name)?));
        }
        self.complete(&mut run_model, &mut sections);
        let argv = self.command.as_ref().map(|command| arguments(&candidate, command)).transpose()?;

        let labels = active.iter().map(|&gene| {
            let of_gene = &self.space.genes[gene];
            (of_gene.name.clone(), of_gene.choices[usize::from(genes.0[gene])].label.clone())
        });
        let used: BTreeMap<String, String> = labels.collect();
        let model_id = match (&layers, &argv) {
            (Some(layers), _) => {
                let is_input = |entry: &&Entry| entry.key != "name";
                let input: Vec<Entry> = head.iter().filter(is_input).cloned().collect();
                identity::of_layers(&input, layers)
            }
            (None, None) => identity::hash(&[section_text("model", &run_model)]),
            (None, Some(argv)) => {
                // A program can read every choice in its environment.
                let choices = used.iter().map(|(name, choice)| format!("{name}={choice}"));
                identity::hash(&argv.iter().cloned().chain(choices).collect::<Vec<_>>())
            }
        };
        let mut run: Vec<String> = Vec::new();
        if !run_model.is_empty() {
            run.push(section_text("model", &run_model));
        }
        run.extend(sections.iter().map(|(name, entries)| section_text(name, entries)));
        let training_id = self.training_id(&run_model, &sections, layers.is_some());
        let model = layers.map(|layers| model_text(&head, &layers));
        Ok(Expanded { run: run.join("\n"), model, argv, genes: used, model_id, training_id })
    }

    /// Puts what the template leaves open: where files are, and the seed.
    fn complete(&self, model: &mut [Entry], sections: &mut [(&'static str, Vec<Entry>)]) {
        let base = self.file.parent().unwrap_or(Path::new(""));
        let below = |entries: &mut [Entry], keys: &[&str]| {
            for Entry { key, node, .. } in entries {
                if let (true, Value::Text(path)) = (keys.contains(&key.as_str()), &mut node.value) {
                    *path = base.join(&*path).to_string_lossy().into_owned();
                }
            }
        };
        match &self.model {
            // The layer file stands beside the run file.
            Some(_) => below(model, &["weights"]),
            None => below(model, &["weights", "onnx", "toml"]),
        }
        for (name, entries) in sections {
            match *name {
                "data" => {
                    for source in entries.iter_mut().filter(|entry| ["train", "valid"].contains(&entry.key.as_str())) {
                        if let Value::Table(keys) = &mut source.node.value {
                            below(keys, &["file", "labels_file"]);
                        }
                    }
                }
                "train" if get(entries, "seed").is_none() => {
                    let seed = i64::try_from(self.settings.seed.0).unwrap_or(i64::MAX);
                    let node = Node { line: 0, value: Value::Int(seed) };
                    entries.push(Entry { key: "seed".to_owned(), line: 0, node });
                }
                _ => {}
            }
        }
    }

    fn training_id(&self, model: &[Entry], sections: &[(&'static str, Vec<Entry>)], has_layers: bool) -> String {
        let mut parts: Vec<String> = Vec::new();
        for (name, entries) in sections {
            let irrelevant = IRRELEVANT.iter().find(|(section, _)| section == name).map_or(&[][..], |(_, keys)| *keys);
            let relevant = entries.iter().filter(|entry| !irrelevant.contains(&entry.key.as_str()));
            let mut keys: Vec<String> = relevant.map(|entry| format!("{name}.{}", entry.to_toml())).collect();
            keys.sort();
            parts.extend(keys);
        }
        if has_layers {
            parts.extend(model.iter().map(Entry::to_toml));
        }
        if sections.iter().all(|(name, _)| *name != "train") {
            parts.push(self.settings.seed.0.to_string());
        }
        identity::hash(&parts)
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
    let missing = |key, example| TemplateFault::Missing { key, place: "[model]".to_owned(), example }.at(node.line);
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

fn table(candidate: &Candidate<'_>, templated: Option<&Templated>, field: &str) -> Checked<Vec<Entry>> {
    let node = templated.map(|templated| candidate.resolve(templated, field)).transpose()?.flatten();
    match node.map(|node| node.value) {
        Some(Value::Table(entries)) => Ok(entries),
        _ => Ok(Vec::new()),
    }
}

fn arguments(candidate: &Candidate<'_>, command: &Templated) -> Checked<Vec<String>> {
    match candidate.resolve(command, "trial.command")?.map(|node| node.value) {
        Some(Value::List(items)) => Ok(items.iter().map(|item| item.value.label()).collect()),
        _ => Ok(Vec::new()),
    }
}

fn text_entry(key: &str, text: &str) -> Entry {
    Entry { key: key.to_owned(), line: 0, node: Node { line: 0, value: Value::Text(text.to_owned()) } }
}

fn section_text(name: &str, entries: &[Entry]) -> String {
    let lines: String = entries.iter().map(|entry| entry.to_toml() + "\n").collect();
    format!("[{name}]\n{lines}")
}

fn model_text(head: &[Entry], layers: &[ExpandedLayer]) -> String {
    let mut text: String = head.iter().map(|entry| entry.to_toml() + "\n").collect();
    for layer in layers {
        text.push_str("\n[[layer]]\n");
        let name = layer.name.as_ref().map(|name| text_entry("name", name));
        let reference = |(key, target): &(String, Option<usize>)| {
            let name = target.and_then(|target| layers[target].name.as_deref()).unwrap_or("x");
            text_entry(key, name)
        };
        let references: Vec<Entry> = layer.references.iter().map(reference).collect();
        for entry in layer.keys.iter().chain(&name).chain(&references) {
            text.push_str(&entry.to_toml());
            text.push('\n');
        }
    }
    text
}
