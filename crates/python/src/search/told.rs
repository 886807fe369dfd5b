//! What Python tells of a search.

use crate::errors::Failure;
use phalanx_search::core::algorithm::{Algorithm, AlgorithmKind, AlgorithmSettings, make};
use phalanx_search::core::control::{Bound, Finish, SearchConfig};
use phalanx_search::core::objective::Objective;
use phalanx_search::core::space::Space;
use phalanx_search_results::{Limits, SearchAbout};
use phalanx_types::Seed;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// How many results make an iteration in the tables, where the algorithm does not say it.
const ITERATION: usize = 10;
/// The random candidates that the algorithm `guided` begins with.
const GUIDED_START: usize = 20;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Told {
    name: String,
    algorithm: String,
    algorithm_settings: AlgorithmSettings,
    seed: u64,
    trials: u64,
    objectives: Vec<Objective>,
    constraints: BTreeMap<String, Limits>,
    /// Budgets.
    rungs: Vec<f64>,
    eta: u32,
    finish: Finish,
    /// The search ends when so many trials failed before any gave a result.
    early_failures: u32,
}

impl Told {
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        serde_json::from_str(text)
            .map_err(|error| Failure::input(format!("the search cannot be used: {error}")))
    }

    fn kind(&self) -> Result<AlgorithmKind, Failure> {
        self.algorithm.parse().map_err(|unknown| {
            let all = AlgorithmKind::ALL.map(AlgorithmKind::name).join(", ");
            Failure::input(format!("{unknown}")).hint(format!("there are {all}"))
        })
    }

    pub(super) fn algorithm(&self) -> Result<Box<dyn Algorithm>, Failure> {
        Ok(make(self.kind()?, &self.algorithm_settings))
    }

    /// The search with this, in a space.
    pub(super) fn about(&self, space: Space, started: u64) -> Result<SearchAbout, Failure> {
        let start = match self.kind()? {
            AlgorithmKind::Guided => GUIDED_START,
            _ => ITERATION,
        };
        Ok(SearchAbout {
            id: self.name.clone(),
            name: self.name.clone(),
            kind: "python".to_owned(),
            algorithm: self.algorithm.clone(),
            seed: Seed(self.seed),
            objectives: self.objectives.clone(),
            constraints: self.constraints.clone(),
            rungs: self.rungs.clone(),
            budget_unit: "budget".to_owned(),
            trials: self.trials,
            space,
            init: self.algorithm_settings.start.unwrap_or(start),
            per_iteration: ITERATION,
            started,
            base: PathBuf::new(),
        })
    }

    /// What the core is told of the search.
    pub(super) fn config(&self, about: &SearchAbout) -> SearchConfig {
        let bound = |(name, limits): (&String, &Limits)| Bound {
            name: name.clone(),
            at_least: limits.at_least,
            at_most: limits.at_most,
        };
        SearchConfig {
            seed: about.seed,
            trials: about.trials,
            objectives: about.objectives.clone(),
            bounds: about.constraints.iter().map(bound).collect(),
            rungs: about.rungs.clone(),
            eta: self.eta,
            finish: self.finish,
            early_failures: self.early_failures,
            ..SearchConfig::default()
        }
    }
}

/// A directory is gone on with by the same search only.
pub(super) fn check_same(path: &Path, before: &SearchAbout, now: &SearchAbout) -> Result<(), Failure> {
    let differs = [
        ("kind", before.kind != now.kind),
        ("space", before.space != now.space),
        ("objectives", before.objectives != now.objectives),
        ("constraints", before.constraints != now.constraints),
        ("budgets", before.rungs != now.rungs),
        ("algorithm", before.algorithm != now.algorithm),
        ("seed", before.seed != now.seed),
    ];
    let names: Vec<&str> = differs.iter().filter(|(_, differs)| *differs).map(|(name, _)| *name).collect();
    if names.is_empty() {
        return Ok(());
    }
    let what = names.join(", ");
    let reason = format!("{} holds another search; what differs: {what}", path.display());
    Err(Failure::input(reason).hint("search as before, or in another directory"))
}

/// Points of one space.
pub(super) fn same_lengths(points: &[Vec<f64>], wanted: Option<usize>) -> Result<(), Failure> {
    let wanted = wanted.or(points.first().map(Vec::len)).unwrap_or_default();
    match points.iter().find(|point| point.len() != wanted || point.iter().any(|value| value.is_nan())) {
        None => Ok(()),
        Some(point) => Err(Failure::input(format!("the point {point:?} does not have {wanted} numbers"))),
    }
}
