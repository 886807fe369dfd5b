//! `phalanx run tag` and `phalanx run note`: what users say about a run, in its directory.

use super::run_path;
use crate::commands::ledger::bring_in;
use crate::commands::train::train_failure;
use crate::escape::one_line;
use crate::failure::Failure;
use crate::output::{Output, Render};
use anyhow::anyhow;
use clap::Args;
use phalanx_records::history::{Entry, Position, read_from};
use phalanx_records::run_dir::{Annotation, EVENTS, METRICS, annotate, read_run};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The longest name and value of a tag, and the longest note.
const NAME_CHARS: usize = 250;
const VALUE_CHARS: usize = 5_000;
const NOTE_CHARS: usize = 20_000;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx run tag first owner=ada purpose=\"learning rates\"
  phalanx run tag first --remove owner
  phalanx run list --where 'tag.owner = ada'")]
pub(crate) struct TagArgs {
    /// The run: its directory, or its name in runs/.
    run: PathBuf,
    /// Tags to set.
    #[arg(value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// A tag to remove; may be given more than once.
    #[arg(long, value_name = "KEY")]
    remove: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: phalanx run note first \"diverged after the third pass; lower rate next\"")]
pub(crate) struct NoteArgs {
    /// The run: its directory, or its name in runs/.
    run: PathBuf,
    /// What to write down.
    text: String,
}

/// What users have said about a run.
#[derive(Debug, Default, Serialize)]
pub(super) struct Annotated {
    run: String,
    tags: BTreeMap<String, String>,
    notes: Vec<Note>,
}

#[derive(Debug, Serialize)]
struct Note {
    unix_ms: u64,
    text: String,
}

impl Render for Annotated {
    fn table(&self) -> String {
        let tags = self.tags.iter().map(|(key, value)| format!("{}={}", one_line(key), one_line(value)));
        let notes = self.notes.iter().map(|note| format!("note: {}", one_line(&note.text)));
        let lines: Vec<String> = tags.chain(notes).collect();
        if lines.is_empty() { "no tags".to_owned() } else { lines.join("\n") }
    }

    fn quiet(&self) -> String {
        String::new()
    }
}

pub(crate) fn tag(args: &TagArgs, output: Output) -> Result<(), Failure> {
    let run = run_path(&args.run);
    let known = read_annotations(&run)?;
    let mut set = BTreeMap::new();
    for text in &args.set {
        let (key, value) =
            text.split_once('=').filter(|(key, _)| !key.trim().is_empty()).ok_or_else(|| {
                Failure::usage(anyhow!("`{}` is no tag", one_line(text))).hint("give tags like owner=ada")
            })?;
        let key = key.trim();
        let fits = key.chars().count() <= NAME_CHARS && value.chars().count() <= VALUE_CHARS;
        if !fits || key.chars().any(char::is_control) {
            return Err(Failure::usage(anyhow!("the tag `{}` cannot be taken", one_line(key))).hint(format!(
                "a key has at most {NAME_CHARS} characters and no control characters, a value {VALUE_CHARS}"
            )));
        }
        set.insert(key.to_owned(), value.to_owned());
    }
    if set.is_empty() && args.remove.is_empty() {
        return output.print(&known);
    }
    if let Some(unknown) = args.remove.iter().find(|key| !known.tags.contains_key(*key)) {
        let error = anyhow!("the run {} has no tag `{}`", known.run, one_line(unknown));
        let there: Vec<&str> = known.tags.keys().map(String::as_str).collect();
        return Err(Failure::usage(error)
            .hint_if((!there.is_empty()).then(|| format!("it has {}", one_line(&there.join(", "))))));
    }
    for key in &args.remove {
        annotate(&run, &Annotation::Remove(key.clone())).map_err(train_failure)?;
    }
    if !set.is_empty() {
        annotate(&run, &Annotation::Set(set)).map_err(train_failure)?;
    }
    bring_in(&run);
    output.print(&read_annotations(&run)?)
}

pub(crate) fn note(args: &NoteArgs, output: Output) -> Result<(), Failure> {
    let run = run_path(&args.run);
    read_run(&run).map_err(train_failure)?;
    let text = args.text.trim();
    if text.is_empty() || text.chars().count() > NOTE_CHARS {
        let error = anyhow!("a note has at least one and at most {NOTE_CHARS} characters");
        return Err(Failure::usage(error));
    }
    annotate(&run, &Annotation::Note(text.to_owned())).map_err(train_failure)?;
    bring_in(&run);
    output.print(&read_annotations(&run)?)
}

/// What users have said about a run, as its file has it.
pub(super) fn read_annotations(run: &Path) -> Result<Annotated, Failure> {
    let info = read_run(run).map_err(train_failure)?;
    let mut known = Annotated { run: info.id, ..Annotated::default() };
    // At the end of the other files.
    let end = |name: &str| std::fs::metadata(run.join(name)).map_or(0, |file| file.len());
    let mut position = Position { events: end(EVENTS), metrics: end(METRICS), annotations: 0 };
    loop {
        let batch = read_from(run, &position).map_err(train_failure)?;
        if batch.position == position {
            return Ok(known);
        }
        position = batch.position;
        for entry in batch.entries {
            let Entry::Annotation { unix_ms, annotation } = entry else { continue };
            match annotation {
                Annotation::Set(tags) => known.tags.extend(tags),
                Annotation::Remove(key) => drop(known.tags.remove(&key)),
                Annotation::Note(text) => known.notes.push(Note { unix_ms, text }),
            }
        }
    }
}
