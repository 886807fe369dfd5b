//! `phalanx search space`: what a search file comes to, without training anything.

use super::{search_failure, short};
use crate::failure::Failure;
use crate::output::{Output, Render, listing_of, summary};
use anyhow::Context;
use clap::Args;
use phalanx_search_driver::{Overrides, SearchPlan, Surveyed};
use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx search space search.toml
  phalanx search space ready:mobilenet --sample 20 --output json
  phalanx search space ready:cnn --write search.toml     a search file to start from")]
pub(crate) struct SpaceArgs {
    /// The search file; ready:NAME is one that comes with Phalanx.
    #[arg(value_name = "SEARCH.toml")]
    file: PathBuf,
    /// How many random candidates to build and show.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    sample: u64,
    /// Write the search file to this new file as well, to change it.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Space {
    /// How many different candidates there are, if that can be counted.
    candidates: Option<u128>,
    genes: Vec<String>,
    sample: Vec<Surveyed>,
}

impl Render for Space {
    fn table(&self) -> String {
        let count = self.candidates.map_or("too many to count".to_owned(), |count| count.to_string());
        let refused = self.sample.iter().filter(|surveyed| surveyed.why_not.is_some()).count();
        let mut rows = vec![("candidates", count)];
        rows.extend(self.genes.iter().map(|gene| ("gene", gene.clone())));
        rows.push(("sample", format!("{} drawn, {refused} cannot be tried", self.sample.len())));
        let mut names: Vec<&String> = self.sample.iter().flat_map(|surveyed| surveyed.known.keys()).collect();
        names.sort_unstable();
        names.dedup();
        let mut header = vec!["archid"];
        header.extend(names.iter().map(|name| name.as_str()));
        header.push("");
        let sample = self.sample.iter().map(|surveyed| {
            let values = names
                .iter()
                .map(|name| surveyed.known.get(*name).map_or("-".to_owned(), |value| short(*value)));
            let why_not = surveyed.why_not.clone().unwrap_or_default();
            [surveyed.archid.clone()].into_iter().chain(values).chain([why_not]).collect()
        });
        format!("{}\n\n{}", summary(rows), listing_of(&header, sample))
    }

    fn quiet(&self) -> String {
        self.candidates.map_or_else(String::new, |count| count.to_string())
    }
}

pub(crate) fn run(args: &SpaceArgs, output: Output) -> Result<(), Failure> {
    let plan = SearchPlan::load(&args.file, "space", &Overrides::default()).map_err(search_failure)?;
    if let Some(path) = &args.write {
        write_new(path, plan.text())?;
    }
    let space = plan.space();
    let genes = space.genes.iter().map(|gene| {
        let labels: Vec<&str> = gene.choices.iter().map(|choice| choice.label.as_str()).collect();
        format!("{}: {}", gene.name, labels.join(", "))
    });
    output.print(&Space {
        candidates: space.count(),
        genes: genes.collect(),
        sample: plan.survey(args.sample),
    })
}

/// Writes a file that is not there yet.
fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    let written = File::create_new(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("could not write {}", path.display())).map_err(Failure::usage)
}
