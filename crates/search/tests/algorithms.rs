//! What every algorithm must do, whatever it chooses: only candidates that may be tried, each once, to the last one.

use phalanx_search::core::algorithm::{
    Algorithm, AlgorithmSettings, History, Observation, Proposal, bananas::Bananas,
    evolution_pareto::EvolutionPareto, grid::Grid, local::Local, nsga2::Nsga2, random::Random,
    regularized::Regularized,
};
use phalanx_search::core::dice::Dice;
use phalanx_search::core::objective::{Goal, Known, NothingKnown, Objective};
use phalanx_search::core::pareto::hypervolume;
use phalanx_search::core::space::{Activity, Choice, Gene, Genes, Need, Space};
use phalanx_types::Seed;
use std::collections::BTreeSet;

type Make = fn() -> Box<dyn Algorithm>;

/// Names for failures, and algorithms that begin to choose after a few random candidates.
const ALGORITHMS: [(&str, Make); 7] = [
    ("random", || Box::new(Random::new(&settings()))),
    ("grid", || Box::new(Grid::new(&settings()))),
    ("regularized", || Box::new(Regularized::new(&settings()))),
    ("local", || Box::new(Local::new(&settings()))),
    ("nsga2", || Box::new(Nsga2::new(&settings()))),
    ("evolution_pareto", || Box::new(EvolutionPareto::new(&settings()))),
    ("bananas", || Box::new(Bananas::new(&settings()))),
];

/// Those of which something better than random is expected.
const CHOOSING: std::ops::Range<usize> = 2..7;

/// Networks that are small enough for a test.
fn settings() -> AlgorithmSettings {
    AlgorithmSettings {
        networks: Some(3),
        layers: Some(1),
        width: Some(16),
        training_steps: Some(100),
        ..AlgorithmSettings::default()
    }
}

fn gene(name: &str, choices: u16, activity: Activity) -> Gene {
    let choice = |number| Choice { label: format!("{number}"), number: Some(f64::from(number)) };
    Gene { name: name.to_owned(), choices: (0..choices).map(choice).collect(), activity }
}

fn flat(genes: usize, choices: u16) -> Space {
    Space::new((0..genes).map(|i| gene(&format!("g{i}"), choices, Activity::Always)).collect())
        .expect("a space")
}

/// 0 to 3 cells with 3 choices each, times two words: 80 candidates.
fn conditional() -> Space {
    let when = |choices: Vec<u16>| Activity::AnyOf(vec![vec![Need { gene: 0, choices }]]);
    let genes = vec![
        gene("cells", 4, Activity::Always),
        gene("a", 3, when(vec![1, 2, 3])),
        gene("b", 3, when(vec![2, 3])),
        gene("c", 3, when(vec![3])),
        gene("head", 2, Activity::Always),
    ];
    Space::new(genes).expect("a space")
}

fn objectives(count: usize, latency_is_cheap: bool) -> Vec<Objective> {
    let objective = |(name, goal): (&str, Goal)| Objective {
        name: name.to_owned(),
        goal,
        cheap: latency_is_cheap && name == "latency",
    };
    [("accuracy", Goal::Max), ("latency", Goal::Min), ("memory", Goal::Min)]
        .into_iter()
        .take(count)
        .map(objective)
        .collect()
}

/// A number in 0..1 that only `words` decide.
fn noise(words: &[u16]) -> f64 {
    let seed =
        words.iter().fold(7_u64, |seed, &word| seed.wrapping_mul(1_000_003).wrapping_add(u64::from(word)));
    Dice::new(Seed(seed)).unit()
}

/// Accuracy: what each choice gives, what it gives beside the next gene's, and a little of its own. Latency rises with
/// every choice; memory with some.
fn measure(genes: &Genes) -> Vec<f64> {
    let choices = &genes.0;
    let (mut accuracy, mut latency, mut memory) = (noise(choices), 0.0, 0.0);
    for (index, &choice) in choices.iter().enumerate() {
        let place = index as u16;
        let next = choices.get(index + 1).copied().unwrap_or(0);
        accuracy += 2.0 * noise(&[place, choice]) + f64::from(choice) + noise(&[place, choice, next]);
        latency += f64::from(choice) * (1.0 + noise(&[place]));
        memory += noise(&[place, choice, 9]);
    }
    vec![accuracy, latency, memory]
}

/// Refuses a share of all candidates; knows the latency of the others.
struct Refusing {
    latency: bool,
    refused: f64,
}

impl Refusing {
    fn allows(&self, genes: &Genes) -> bool {
        noise(&[&genes.0[..], &[77]].concat()) >= self.refused
    }
}

impl Known for Refusing {
    fn known(&self, genes: &Genes) -> Option<Vec<f64>> {
        let values = if self.latency { vec![measure(genes)[1]] } else { Vec::new() };
        self.allows(genes).then_some(values)
    }
}

/// A search with a few workers, of which a random one finishes first.
struct Trial<'a> {
    space: &'a Space,
    objectives: usize,
    known: Refusing,
    workers: usize,
    trials: usize,
    seed: u64,
    /// Each question goes to an algorithm that was made anew, as after a restart.
    forgetful: bool,
}

impl Trial<'_> {
    /// Proposals in order. Fails if one must not be tried.
    fn run(&self, name: &str, make: Make) -> (Vec<Proposal>, Vec<Observation>) {
        let objectives = objectives(self.objectives, self.known.latency);
        let (mut results, mut pending): (Vec<Observation>, Vec<Genes>) = (Vec::new(), Vec::new());
        let (mut seen, mut proposals) = (BTreeSet::new(), Vec::<Proposal>::new());
        let mut algorithm = make();
        let mut finish = Dice::of(Seed(self.seed), "finish", 0);
        loop {
            while pending.len() < self.workers && proposals.len() < self.trials {
                if self.forgetful {
                    let state = algorithm.state();
                    algorithm = make();
                    assert!(state.is_none_or(|state| algorithm.restore(&state)));
                }
                let history = History {
                    space: self.space,
                    objectives: &objectives,
                    results: &results,
                    pending: &pending,
                    seen: &seen,
                    known: &self.known,
                };
                let mut dice = Dice::of(Seed(self.seed), "ask", proposals.len() as u64);
                let Some(proposal) = algorithm.ask(&history, &mut dice) else { break };
                assert!(self.space.contains(&proposal.genes), "{name}: {:?} is outside", proposal.genes);
                assert!(self.known.allows(&proposal.genes), "{name}: {:?} was refused", proposal.genes);
                let tried = |parent: &Genes| results.iter().any(|result| result.genes == *parent);
                assert!(proposal.parents.iter().all(tried), "{name}: {proposal:?}");
                assert!(seen.insert(proposal.genes.clone()), "{name}: {:?} twice", proposal.genes);
                pending.push(proposal.genes.clone());
                proposals.push(proposal);
            }
            if pending.is_empty() {
                return (proposals, results);
            }
            let genes = pending.remove(finish.below(pending.len()));
            // Some trials fail: they are seen, and there is no result.
            if !finish.chance(0.05) {
                let values = measure(&genes)[..self.objectives].to_vec();
                results.push(Observation { genes, values });
            }
        }
    }
}

#[test]
fn every_algorithm_tries_all_that_may_be_tried_once() {
    let space = conditional();
    assert_eq!(space.count(), Some(80));
    for (name, make) in ALGORITHMS {
        for (seed, (objectives, workers, refused)) in
            [(1, 1, 0.0), (1, 3, 0.4), (2, 1, 0.4), (2, 7, 0.0), (3, 3, 0.9), (3, 16, 0.4)]
                .into_iter()
                .enumerate()
        {
            let known = Refusing { latency: objectives > 1, refused };
            let allowed = space.candidates().filter(|genes| known.allows(genes)).count();
            let seed = seed as u64;
            let trial =
                Trial { space: &space, objectives, known, workers, trials: 1000, seed, forgetful: false };
            let (proposals, _) = trial.run(name, make);
            assert_eq!(proposals.len(), allowed, "{name} with {objectives} objectives, {workers} workers");
        }
    }
}

#[test]
fn an_answer_follows_from_history_state_and_dice() {
    let space = conditional();
    for (name, make) in ALGORITHMS {
        let run = |seed, forgetful| {
            let known = Refusing { latency: true, refused: 0.2 };
            Trial { space: &space, objectives: 2, known, workers: 4, trials: 45, seed, forgetful }
                .run(name, make)
        };
        let expected = run(5, false);
        assert_eq!(run(5, false), expected, "{name}");
        assert_eq!(run(5, true), expected, "{name} after restarts");
        if name != "grid" {
            assert_ne!(run(6, false).0, expected.0, "{name}");
        }
    }
}

/// The share of the space's hypervolume that the results cover, every objective scaled to 0..1.
fn share(space: &Space, results: &[Observation]) -> f64 {
    let objectives = objectives(results[0].values.len(), false);
    let turned = |values: &[f64]| -> Vec<f64> {
        objectives.iter().zip(values).map(|(objective, value)| objective.lower_is_better(*value)).collect()
    };
    let table: Vec<Vec<f64>> =
        space.candidates().map(|genes| turned(&measure(&genes)[..objectives.len()])).collect();
    let bound =
        |o: usize, better: fn(f64, f64) -> f64| table.iter().map(|p| p[o]).reduce(better).expect("a table");
    let bounds: Vec<(f64, f64)> =
        (0..objectives.len()).map(|o| (bound(o, f64::min), bound(o, f64::max))).collect();
    let scaled = |points: &[Vec<f64>]| -> Vec<Vec<f64>> {
        let scale = |point: &Vec<f64>| {
            point.iter().zip(&bounds).map(|(value, (low, high))| (value - low) / (high - low)).collect()
        };
        points.iter().map(scale).collect()
    };
    let found: Vec<Vec<f64>> = results.iter().map(|result| turned(&result.values)).collect();
    let reference = vec![1.1; objectives.len()];
    hypervolume(&scaled(&found), &reference) / hypervolume(&scaled(&table), &reference)
}

#[test]
fn choosing_is_better_than_chance() {
    let space = flat(6, 4);
    let mean = |(name, make): (&str, Make), objectives| {
        let shares = (0..10).map(|seed| {
            let known = Refusing { latency: true, refused: 0.0 };
            let trial =
                Trial { space: &space, objectives, known, workers: 4, trials: 120, seed, forgetful: false };
            share(&space, &trial.run(name, make).1)
        });
        shares.sum::<f64>() / 10.0
    };
    let random = mean(ALGORITHMS[0], 2);
    println!("random {random:.4}, grid {:.4}", mean(ALGORITHMS[1], 2));
    for algorithm in &ALGORITHMS[CHOOSING] {
        let chosen = mean(*algorithm, 2);
        println!("{} {chosen:.4}", algorithm.0);
        assert!(chosen > random + 0.25 * (1.0 - random), "{}: {chosen}, random {random}", algorithm.0);
    }
}

/// One question, with results of the first candidates and nothing else left than what is `left`.
fn ask_once(make: Make, space: &Space, left: &[Genes], known: &dyn Known) -> Option<Genes> {
    let objectives = objectives(2, false);
    let seen: BTreeSet<Genes> = space.candidates().filter(|genes| !left.contains(genes)).collect();
    let result = |genes: &Genes| Observation { genes: genes.clone(), values: measure(genes)[..2].to_vec() };
    let results: Vec<Observation> = seen.iter().take(60).map(result).collect();
    let history =
        History { space, objectives: &objectives, results: &results, pending: &[], seen: &seen, known };
    make().ask(&history, &mut Dice::new(Seed(3))).map(|proposal| proposal.genes)
}

#[test]
fn the_last_candidate_of_ten_thousand_is_found() {
    let space = flat(4, 10);
    let last = space.candidates().nth(7_321).unwrap();
    for (name, make) in ALGORITHMS {
        assert_eq!(
            ask_once(make, &space, std::slice::from_ref(&last), &NothingKnown),
            Some(last.clone()),
            "{name}"
        );
        assert_eq!(ask_once(make, &space, &[], &NothingKnown), None, "{name}");
    }
}

#[test]
fn nothing_allowed_ends_and_one_candidate_is_enough() {
    let huge = flat(60, 9);
    let nothing = Refusing { latency: false, refused: 2.0 };
    for (name, make) in ALGORITHMS {
        let trial = |space, known| Trial {
            space,
            objectives: 2,
            known,
            workers: 2,
            trials: 30,
            seed: 1,
            forgetful: false,
        };
        let (proposals, _) = trial(&huge, Refusing { latency: false, refused: 2.0 }).run(name, make);
        assert_eq!(proposals, [], "{name}");
        let (proposals, _) = trial(&huge, Refusing { latency: true, refused: 0.8 }).run(name, make);
        assert_eq!(proposals.len(), 30, "{name}");
        let (proposals, _) = trial(&flat(3, 1), Refusing { latency: false, refused: 0.0 }).run(name, make);
        assert_eq!(proposals.len(), 1, "{name}");
        assert_eq!(ask_once(make, &conditional(), &[], &nothing), None, "{name}");
    }
}

#[test]
fn results_that_cannot_be_compared_are_no_parents() {
    let space = flat(3, 6);
    let objectives = objectives(2, false);
    let wrong = [vec![f64::NAN, 1.0], vec![1.0, f64::INFINITY], vec![1.0]];
    let tried = space.candidates().take(40).enumerate();
    let results: Vec<Observation> =
        tried.map(|(i, genes)| Observation { genes, values: wrong[i % 3].clone() }).collect();
    let seen = results.iter().map(|result| result.genes.clone()).collect();
    let history = History {
        space: &space,
        objectives: &objectives,
        results: &results,
        pending: &[],
        seen: &seen,
        known: &NothingKnown,
    };
    for (name, make) in ALGORITHMS {
        let proposal = make().ask(&history, &mut Dice::new(Seed(1))).unwrap();
        assert_eq!(proposal.parents, [], "{name}");
    }
}

#[test]
fn the_beginning_of_a_grid_is_spread_over_every_gene() {
    let space = flat(5, 4);
    let known = Refusing { latency: false, refused: 0.0 };
    let trial =
        Trial { space: &space, objectives: 1, known, workers: 1, trials: 32, seed: 1, forgetful: false };
    let (proposals, _) = trial.run(ALGORITHMS[1].0, ALGORITHMS[1].1);
    for gene in 0..5 {
        for choice in 0..4 {
            let count = proposals.iter().filter(|proposal| proposal.genes.0[gene] == choice).count();
            assert!((5..=11).contains(&count), "gene {gene}, choice {choice}: {count} of 32");
        }
    }
}
