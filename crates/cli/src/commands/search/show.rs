//! `phalanx search show`: the front of a search, or one of its trials.

use super::list::state;
use super::{Which, search_failure, short};
use crate::failure::Failure;
use crate::output::{Output, Render, listing, listing_of, summary};
use anyhow::anyhow;
use clap::Args;
use phalanx_search::core::record::TrialId;
use phalanx_search_driver::trial_path;
use phalanx_search_results::{SearchFollower, SearchTable, TrialRow};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx search show                            the front of the newest search
  phalanx search show first --trial t7           one trial: its genes, its parents, every budget it reached
  phalanx search show first --output json")]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    which: Which,
    /// One trial instead of the front: t7, or 7.
    #[arg(long, value_parser = trial_id)]
    trial: Option<TrialId>,
}

/// Reads `t7` or `7`.
pub(super) fn trial_id(text: &str) -> Result<TrialId, String> {
    let number = text.strip_prefix('t').unwrap_or(text).parse();
    number.map(TrialId).map_err(|_not_a_number| "expected the number of a trial, like t7".to_owned())
}

/// A member of the front.
#[derive(Debug, Clone, Serialize)]
struct Member {
    trial: TrialId,
    archid: String,
    budget: f64,
    objectives: BTreeMap<String, f64>,
}

/// The front of a search.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(super) struct FrontView {
    members: Vec<Member>,
    #[serde(skip)]
    objectives: Vec<String>,
    #[serde(skip)]
    unit: String,
}

impl FrontView {
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }
}

impl Render for FrontView {
    fn table(&self) -> String {
        if self.members.is_empty() {
            return "nothing is on the front yet".to_owned();
        }
        let mut header = vec!["trial", "archid", self.unit.as_str()];
        header.extend(self.objectives.iter().map(String::as_str));
        let rows = self.members.iter().map(|member| {
            let values = self.objectives.iter().map(|name| member.objectives.get(name));
            let values = values.map(|value| value.map_or("-".to_owned(), |value| short(*value)));
            [member.trial.to_string(), member.archid.clone(), short(member.budget)]
                .into_iter()
                .chain(values)
                .collect()
        });
        listing_of(&header, rows)
    }

    fn quiet(&self) -> String {
        self.members.iter().map(|member| member.trial.to_string()).collect::<Vec<_>>().join("\n")
    }
}

/// The front of a table, in the order of the first objective.
pub(super) fn front_of(table: &SearchTable) -> FrontView {
    let objectives: Vec<String> =
        table.about().objectives.iter().map(|objective| objective.name.clone()).collect();
    let members = table.front().trials.into_iter().filter_map(|trial| {
        let row = table.row(trial)?;
        let result = row.latest()?;
        let values = objectives.iter().filter_map(|name| Some((name.clone(), row.value_at(result, name)?)));
        Some(Member {
            trial,
            archid: row.archid.clone(),
            budget: result.budget,
            objectives: values.collect(),
        })
    });
    let members = members.collect();
    FrontView { members, objectives, unit: table.about().budget_unit.clone() }
}

#[derive(Debug, Serialize)]
struct SearchView {
    search: PathBuf,
    state: String,
    algorithm: String,
    seed: u64,
    trials: usize,
    hypervolume: Option<f64>,
    front: FrontView,
}

impl Render for SearchView {
    fn table(&self) -> String {
        let rows = [
            ("search", self.search.display().to_string()),
            ("state", self.state.clone()),
            ("algorithm", format!("{}, seed {}", self.algorithm, self.seed)),
            ("trials", self.trials.to_string()),
            ("hypervolume", self.hypervolume.map_or("-".to_owned(), |volume| format!("{volume:.4}"))),
        ];
        format!("{}\n\n{}", summary(rows), self.front.table())
    }

    fn quiet(&self) -> String {
        self.front.quiet()
    }
}

#[derive(Debug, Serialize)]
struct TrialView {
    /// The run directory, if it was trained here.
    run: Option<PathBuf>,
    /// What it chose, by the names of the space.
    choices: BTreeMap<String, String>,
    #[serde(flatten)]
    row: TrialRow,
}

impl Render for TrialView {
    fn table(&self) -> String {
        let TrialView { run, choices, row } = self;
        let parents: Vec<String> = row.parents.iter().map(ToString::to_string).collect();
        let state = match &row.why {
            Some(why) => format!("{}: {why}", row.status),
            None => row.status.to_string(),
        };
        let mut rows =
            vec![("trial", row.trial.to_string()), ("archid", row.archid.clone()), ("state", state)];
        rows.extend(choices.iter().map(|(name, label)| ("gene", format!("{name} = {label}"))));
        rows.push(("parents", if parents.is_empty() { "none".to_owned() } else { parents.join(", ") }));
        rows.extend(row.known.iter().map(|(name, value)| ("known", format!("{name} {}", short(*value)))));
        rows.extend(row.node.iter().map(|node| ("node", node.clone())));
        rows.extend(run.iter().map(|run| ("run", run.display().to_string())));
        let reached = row.results.iter().flat_map(|result| {
            let seconds = format!("{:.1} s", result.seconds);
            result.values.iter().map(move |(name, value)| {
                [short(result.budget), name.clone(), short(*value), seconds.clone()]
            })
        });
        format!("{}\n\n{}", summary(rows), listing(["budget", "value", "", "trained for"], reached))
    }

    fn quiet(&self) -> String {
        self.row.trial.to_string()
    }
}

pub(crate) fn run(args: &ShowArgs, output: Output) -> Result<(), Failure> {
    let path = args.which.path()?;
    let follower = SearchFollower::open(&path).map_err(search_failure)?;
    let table = follower.table();
    match args.trial {
        Some(trial) => output.print(&trial_of(table, &path, trial)?),
        None => output.print(&SearchView {
            state: state(table.end()),
            algorithm: table.about().algorithm.clone(),
            seed: table.about().seed.0,
            trials: table.rows().len(),
            hypervolume: table.hypervolume().last().map(|point| point.hypervolume),
            front: front_of(table),
            search: path,
        }),
    }
}

fn trial_of(table: &SearchTable, path: &Path, trial: TrialId) -> Result<TrialView, Failure> {
    let row = table.row(trial).ok_or_else(|| {
        Failure::usage(anyhow!("there is no trial {trial} in {}", path.display()))
            .hint("`phalanx search status` lists the trials")
    })?;
    let genes = table.about().space.genes.iter().enumerate();
    let choices =
        genes.filter_map(|(at, gene)| Some((gene.name.clone(), table.choice(row, at)?.label.clone())));
    let run = trial_path(path, trial);
    Ok(TrialView { run: run.is_dir().then_some(run), choices: choices.collect(), row: row.clone() })
}
