use super::*;
use crate::core::algorithm::Observation;
use crate::core::objective::{Goal, Known, NothingKnown, Objective};
use crate::core::space::{Activity, Choice, Gene, Space};
use phalanx_types::Seed;
use std::collections::BTreeSet;

fn space(genes: usize, choices: usize) -> Space {
    let choice = |number: usize| Choice { label: number.to_string(), number: Some(number as f64) };
    let gene = |index: usize| Gene {
        name: format!("g{index}"),
        choices: (0..choices).map(choice).collect(),
        activity: Activity::Always,
    };
    Space::new((0..genes).map(gene).collect()).unwrap()
}

fn objective(name: &str, goal: Goal, cheap: bool) -> Objective {
    Objective { name: name.to_owned(), goal, cheap }
}

/// A small trade: the sum of the first genes is to be large, while all but the last make it costly.
fn values(genes: &Genes) -> Vec<f64> {
    let at: Vec<f64> = genes.0.iter().map(|&choice| f64::from(choice)).collect();
    vec![at[0] + at[1] * 0.5 - 0.1 * (at[2] - at[3]).powi(2), at[0] * at[0] + at[1] + at[2]]
}

struct Search {
    space: Space,
    objectives: Vec<Objective>,
    results: Vec<Observation>,
    pending: Vec<Genes>,
    seen: BTreeSet<Genes>,
}

impl Search {
    fn new(objectives: Vec<Objective>) -> Self {
        let (space, seen) = (space(4, 6), BTreeSet::new());
        Self { space, objectives, results: Vec::new(), pending: Vec::new(), seen }
    }

    fn ask(&self, algorithm: &mut Guided, known: &dyn Known) -> Option<Genes> {
        let Self { space, objectives, results, pending, seen } = self;
        let history = History { space, objectives, results, pending, seen, known };
        let mut dice = Dice::of(Seed(1), "ask", seen.len() as u64);
        let proposal = algorithm.ask(&history, &mut dice)?;
        assert!(space.contains(&proposal.genes) && !seen.contains(&proposal.genes));
        Some(proposal.genes)
    }

    fn tell(&mut self, genes: Genes) {
        let values = values(&genes)[..self.objectives.len()].to_vec();
        self.seen.insert(genes.clone());
        self.results.push(Observation { genes, values });
    }
}

fn both() -> Vec<Objective> {
    vec![objective("gain", Goal::Max, false), objective("cost", Goal::Min, false)]
}

#[test]
fn a_single_objective_is_found() {
    let mut search = Search::new(vec![objective("gain", Goal::Max, false)]);
    let mut guided = Guided::new(&AlgorithmSettings::default());
    for _ in 0..60 {
        let genes = search.ask(&mut guided, &NothingKnown).unwrap();
        search.tell(genes);
    }
    let best = search.results.iter().map(|result| result.values[0]).fold(f64::MIN, f64::max);
    assert_eq!(best, 7.5);
}

#[test]
fn an_interrupted_search_goes_on_with_the_same_candidates() {
    let mut search = Search::new(both());
    let mut steady = Guided::new(&AlgorithmSettings::default());
    for step in 0..70 {
        // Three are being tried at any time, and results come in another order than they were asked for.
        while search.pending.len() < 4 {
            let mut resumed = Guided::new(&AlgorithmSettings::default());
            if let Some(state) = steady.state() {
                let written = serde_json::to_string(&state).unwrap();
                assert!(resumed.restore(&serde_json::from_str(&written).unwrap()));
            }
            let genes = search.ask(&mut steady, &NothingKnown).unwrap();
            assert_eq!(search.ask(&mut resumed, &NothingKnown), Some(genes.clone()));
            assert_eq!(steady.state(), resumed.state());
            search.seen.insert(genes.clone());
            search.pending.push(genes);
        }
        let done = search.pending.remove(step * 7 % 4);
        search.tell(done);
    }
}

#[test]
fn a_state_of_another_search_is_refused_or_learned_again() {
    let mut guided = Guided::new(&AlgorithmSettings::default());
    assert!(!guided.restore(&serde_json::json!({ "weights": [1.0] })));
    let kernel = serde_json::json!({ "weights": [1.0], "noise": 0.1, "additive": 0.0 });
    assert!(guided.restore(&serde_json::json!({ "results": 1, "kernels": [kernel] })));
    let mut search = Search::new(both());
    for _ in 0..25 {
        let genes = search.ask(&mut guided, &NothingKnown).unwrap();
        search.tell(genes);
    }
    let state = guided.state().unwrap();
    assert_eq!(state["kernels"][1]["weights"].as_array().unwrap().len(), 4);
}

struct CheapCost;

impl Known for CheapCost {
    fn known(&self, genes: &Genes) -> Option<Vec<f64>> {
        // Some cannot be built.
        (genes.0[3] != 2).then(|| vec![values(genes)[1]])
    }
}

#[test]
fn cheap_objectives_are_not_modelled_and_what_cannot_be_built_is_not_proposed() {
    let mut search =
        Search::new(vec![objective("gain", Goal::Max, false), objective("cost", Goal::Min, true)]);
    let mut guided = Guided::new(&AlgorithmSettings::default());
    for _ in 0..40 {
        let genes = search.ask(&mut guided, &CheapCost).unwrap();
        assert_ne!(genes.0[3], 2);
        search.tell(genes);
    }
    assert_eq!(guided.state().unwrap()["kernels"][1], serde_json::Value::Null);
}

#[test]
fn every_candidate_of_a_small_space_is_proposed_once_and_then_none() {
    let mut search = Search::new(both());
    search.space = space(4, 3);
    let mut guided = Guided::new(&AlgorithmSettings::default());
    for _ in 0..81 {
        let genes = search.ask(&mut guided, &NothingKnown).unwrap();
        search.tell(genes);
    }
    assert_eq!(search.ask(&mut guided, &NothingKnown), None);
}

#[test]
fn results_without_a_value_do_not_stop_a_search() {
    let mut search = Search::new(both());
    let mut guided = Guided::new(&AlgorithmSettings { start: Some(6), ..Default::default() });
    for step in 0..40 {
        let genes = search.ask(&mut guided, &NothingKnown).unwrap();
        search.tell(genes);
        if step % 3 == 0 {
            search.results[step].values[1] = f64::NAN;
        }
    }
    assert!(guided.state().is_some());
}

#[test]
fn many_results_are_modelled_by_the_newest_and_the_front() {
    let settings = AlgorithmSettings { all_until: Some(40), newest: Some(10), ..Default::default() };
    let mut guided = Guided::new(&settings);
    let mut search = Search::new(both());
    for _ in 0..120 {
        let genes = search.ask(&mut guided, &NothingKnown).unwrap();
        search.tell(genes);
    }
    let Search { space, objectives, results, pending, seen } = &search;
    let history = History { space, objectives, results, pending, seen, known: &NothingKnown };
    let results = Results::of(&history);
    let modelled = guided.modelled(&results);
    assert_eq!(modelled[..20], (100..120).collect::<Vec<_>>());
    assert!(results.fronts[0].iter().all(|index| modelled.contains(index)));
    assert!(modelled.len() < 60);
}
