//! What a candidate is as files: the run file, the layer file, the arguments of a program.

use super::compile::{Candidate, Templated};
use super::error::Checked;
use super::layers::ExpandedLayer;
use super::tree::{Entry, Node, Value, get};
use super::{SearchFile, TemplateError, identity, placed_in};
use crate::core::space::Genes;
use std::collections::BTreeMap;
use std::path::Path;

/// Keys of a run file that do not change its result.
const IRRELEVANT: [(&str, &[&str]); 2] = [
    ("train", &["threads", "checkpoint_every", "keep", "validate_every", "recompute"]),
    (
        "formation",
        &[
            "local",
            "min_replicas",
            "max_replicas",
            "patience",
            "stages",
            "copies",
            "cuts",
            "measure",
            "cores",
            "memory",
            "in_flight",
            "ahead",
        ],
    ),
];

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
                    for source in
                        entries.iter_mut().filter(|entry| ["train", "valid"].contains(&entry.key.as_str()))
                    {
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

    fn training_id(
        &self,
        model: &[Entry],
        sections: &[(&'static str, Vec<Entry>)],
        has_layers: bool,
    ) -> String {
        let mut parts: Vec<String> = Vec::new();
        for (name, entries) in sections {
            let irrelevant =
                IRRELEVANT.iter().find(|(section, _)| section == name).map_or(&[][..], |(_, keys)| *keys);
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
