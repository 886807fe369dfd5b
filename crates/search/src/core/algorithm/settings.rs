//! The names of the algorithms, and what can be set of them.

use phalanx_types::nearest;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlgorithmKind {
    /// Learns from all results what a candidate will be worth, and takes the one that promises most.
    #[default]
    Guided,
    EvolutionPareto,
    Nsga2,
    Regularized,
    Local,
    Random,
    Grid,
    Bananas,
    /// Random candidates; the best of a rung go on as soon as they are known.
    Asha,
    /// Random candidates; the best of a rung go on once all its trials have reached it.
    SuccessiveHalving,
}

impl AlgorithmKind {
    pub const ALL: [AlgorithmKind; 10] = [
        AlgorithmKind::Guided,
        AlgorithmKind::EvolutionPareto,
        AlgorithmKind::Nsga2,
        AlgorithmKind::Regularized,
        AlgorithmKind::Local,
        AlgorithmKind::Random,
        AlgorithmKind::Grid,
        AlgorithmKind::Bananas,
        AlgorithmKind::Asha,
        AlgorithmKind::SuccessiveHalving,
    ];

    /// Whether it is nothing without partial trainings.
    pub fn needs_rungs(self) -> bool {
        matches!(self, AlgorithmKind::Asha | AlgorithmKind::SuccessiveHalving)
    }

    pub fn name(self) -> &'static str {
        match self {
            AlgorithmKind::Guided => "guided",
            AlgorithmKind::EvolutionPareto => "evolution_pareto",
            AlgorithmKind::Nsga2 => "nsga2",
            AlgorithmKind::Regularized => "regularized",
            AlgorithmKind::Local => "local",
            AlgorithmKind::Random => "random",
            AlgorithmKind::Grid => "grid",
            AlgorithmKind::Bananas => "bananas",
            AlgorithmKind::Asha => "asha",
            AlgorithmKind::SuccessiveHalving => "successive_halving",
        }
    }
}

impl fmt::Display for AlgorithmKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no algorithm is called {word:?}; did you mean {nearest:?}?")]
pub struct UnknownAlgorithm {
    pub word: String,
    pub nearest: String,
}

impl FromStr for AlgorithmKind {
    type Err = UnknownAlgorithm;

    fn from_str(word: &str) -> Result<Self, UnknownAlgorithm> {
        Self::ALL.into_iter().find(|kind| kind.name() == word).ok_or_else(|| UnknownAlgorithm {
            word: word.to_owned(),
            nearest: nearest(word, Self::ALL.map(Self::name)).unwrap_or("guided").to_owned(),
        })
    }
}

/// What can be set of an algorithm; what is left out has the algorithm's own default, given here. An algorithm ignores
/// what is another's.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AlgorithmSettings {
    /// Random candidates before the first choice: guided 20, evolution_pareto 10, bananas 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<usize>,

    /// guided: candidates looked at for one choice, 600 at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidates: Option<usize>,
    /// guided: rounds in which the most promising of them are varied further, 10; half of them beyond 300 results.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds: Option<usize>,
    /// guided: results after which the model of the results is fitted again, 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fit_every: Option<usize>,
    /// guided: steps of one fit, 40.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fit_steps: Option<usize>,
    /// guided: results up to which the model is made of all of them, 600.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_until: Option<usize>,
    /// guided: newest results that are kept beyond that, beside the front, 500.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newest: Option<usize>,

    /// nsga2: members, 20. evolution_pareto: unseen candidates of one generation, 100 at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub population: Option<usize>,
    /// evolution_pareto: random candidates mixed into a generation, 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub random_mix: Option<usize>,
    /// Mutants per parent: evolution_pareto 1, local 1, bananas 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mutations: Option<usize>,
    /// evolution_pareto: crossings in a generation, 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crossovers: Option<usize>,
    /// Probability that a mutation draws a gene anew: evolution_pareto and bananas 0.3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mutation_rate: Option<f64>,
    /// nsga2: probability that a child has two parents, 0.9.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crossover_rate: Option<f64>,

    /// regularized: newest results that can be parents, 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<usize>,
    /// regularized: results drawn, of which the best becomes the parent, 40.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample: Option<usize>,

    /// bananas: best results that become parents, 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parents: Option<usize>,
    /// bananas: candidates chosen at once, 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<usize>,
    /// bananas: networks that predict, 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub networks: Option<usize>,
    /// bananas: layers of a network, 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layers: Option<usize>,
    /// bananas: width of a layer, 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub width: Option<usize>,
    /// bananas: training steps of a network, 2000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub training_steps: Option<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_is_found_by_its_name_and_others_by_the_nearest() {
        for kind in AlgorithmKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            assert_eq!(serde_json::to_value(kind).unwrap(), serde_json::Value::from(kind.name()));
        }
        let error = "nsga-2".parse::<AlgorithmKind>().unwrap_err();
        assert_eq!(error.to_string(), r#"no algorithm is called "nsga-2"; did you mean "nsga2"?"#);
        assert_eq!("quided".parse::<AlgorithmKind>().unwrap_err().nearest, "guided");
    }

    #[test]
    fn settings_are_few_and_known() {
        let settings: AlgorithmSettings =
            serde_json::from_str(r#"{"start": 5, "mutation_rate": 0.2}"#).unwrap();
        assert_eq!((settings.start, settings.mutation_rate, settings.population), (Some(5), Some(0.2), None));
        assert_eq!(serde_json::to_string(&settings).unwrap(), r#"{"start":5,"mutation_rate":0.2}"#);
        let error = serde_json::from_str::<AlgorithmSettings>(r#"{"starts": 5}"#).unwrap_err();
        assert!(error.to_string().contains("unknown field `starts`"), "{error}");
    }
}
