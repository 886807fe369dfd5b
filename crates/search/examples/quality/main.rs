//! How good the algorithms of a search are: the share of the true hypervolume that they find.
//!
//! ```text
//! cargo run --release -p phalanx-search --example quality -- \
//!     --problem zdt1,dtlz2 --table cora.csv --objectives error,latency --cheap latency \
//!     --algorithm guided,nsga2 --seeds 10 --evaluations 100,300 [--json]
//! cargo run --release -p phalanx-search --example quality -- --speed 100,500,2000 [--problem zdt1]
//! ```
//!
//! `--table` may be given several times; `problem.rs` says how a table looks, and how the formulas are made spaces.
//! `--reference 11` asks for another reference than 1.1, `--first-seed 10` for other seeds than 0, 1, ….
//! `--speed` prints how long the choice of a candidate takes after so many results.

#![expect(clippy::print_stdout, reason = "a program whose results are printed")]

mod problem;
mod search;

use phalanx_search::core::algorithm::{AlgorithmKind, AlgorithmSettings, History, Observation, make};
use phalanx_search::core::dice::Dice;
use phalanx_types::Seed;
use problem::{Beforehand, Problem};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

struct Options {
    problems: Vec<Problem>,
    algorithms: Vec<AlgorithmKind>,
    first_seed: u64,
    seeds: u64,
    evaluations: Vec<usize>,
    speed: Vec<usize>,
    json: bool,
}

fn main() -> Result<(), String> {
    let options = Options::parse(std::env::args().skip(1))?;
    for problem in &options.problems {
        for &algorithm in &options.algorithms {
            if options.speed.is_empty() {
                report(problem, algorithm, &options);
            } else {
                options.speed.iter().for_each(|&results| speed(problem, algorithm, results));
            }
        }
    }
    Ok(())
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let (mut names, mut tables) = (Vec::new(), Vec::new());
        let (mut objectives, mut cheap) = (Vec::new(), Vec::new());
        let mut reference = 1.1;
        let mut options = Self {
            problems: Vec::new(),
            algorithms: vec![AlgorithmKind::Guided],
            first_seed: 0,
            seeds: 10,
            evaluations: vec![100, 300],
            speed: Vec::new(),
            json: false,
        };
        while let Some(name) = arguments.next() {
            if name == "--json" {
                options.json = true;
                continue;
            }
            let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--problem" => names.extend(list(&value)?),
                "--table" => tables.push(value),
                "--objectives" => objectives = list(&value)?,
                "--cheap" => cheap = list(&value)?,
                "--algorithm" => options.algorithms = list(&value)?,
                "--seeds" => options.seeds = one(&value)?,
                "--first-seed" => options.first_seed = one(&value)?,
                "--evaluations" => options.evaluations = list(&value)?,
                "--reference" => reference = one(&value)?,
                "--speed" => options.speed = list(&value)?,
                _ => return Err(format!("no option is called {name}")),
            }
        }
        if names.is_empty() && tables.is_empty() {
            names.push("zdt1".to_owned());
        }
        for name in names {
            options.problems.push(Problem::formula(&name).ok_or(format!("no formula is called {name}"))?);
        }
        for table in tables {
            let text = std::fs::read_to_string(&table).map_err(|error| format!("{table}: {error}"))?;
            let name =
                Path::new(&table).file_stem().map_or(table.clone(), |n| n.to_string_lossy().into_owned());
            let problem = Problem::table(&name, &text, &objectives);
            options.problems.push(problem.map_err(|error| format!("{table}: {error}"))?);
        }
        let finish = |problem: Problem| problem.knowing(&cheap).with_reference(reference);
        options.problems = options.problems.into_iter().map(finish).collect();
        Ok(options)
    }
}

fn one<T: std::str::FromStr<Err: std::fmt::Display>>(value: &str) -> Result<T, String> {
    value.parse().map_err(|error| format!("{value:?}: {error}"))
}

fn list<T: std::str::FromStr<Err: std::fmt::Display>>(values: &str) -> Result<Vec<T>, String> {
    values.split(',').map(one).collect()
}

/// Runs an algorithm with all seeds, and prints the shares.
fn report(problem: &Problem, algorithm: AlgorithmKind, options: &Options) {
    let most = options.evaluations.iter().copied().max().unwrap_or(0);
    let mut shares: Vec<Vec<f64>> = vec![Vec::new(); options.evaluations.len()];
    let began = Instant::now();
    for seed in options.first_seed..options.first_seed + options.seeds {
        let values = search::search(problem, algorithm, seed, most);
        for (shares, &evaluations) in shares.iter_mut().zip(&options.evaluations) {
            shares.push(problem.share(&values[..evaluations.min(values.len())]));
        }
    }
    let seconds = began.elapsed().as_secs_f64() / options.seeds.max(1) as f64;
    if options.json {
        let line = serde_json::json!({
            "problem": problem.name,
            "algorithm": algorithm.name(),
            "evaluations": options.evaluations,
            "first_seed": options.first_seed,
            "shares": shares,
            "seconds": seconds,
        });
        println!("{line}");
        return;
    }
    let column = |(shares, evaluations): (&Vec<f64>, &usize)| {
        let count = shares.len().max(1) as f64;
        let mean = shares.iter().sum::<f64>() / count;
        let squares: f64 = shares.iter().map(|share| (share - mean).powi(2)).sum();
        format!("  {mean:.4} ({:.4}) @{evaluations}", (squares / (count - 1.0).max(1.0)).sqrt())
    };
    let columns: String = shares.iter().zip(&options.evaluations).map(column).collect();
    println!("{:<12} {:<16}{columns}  {seconds:.2} s a search", problem.name, algorithm.name());
}

/// Prints how long an algorithm takes to choose, from so many results of random candidates on.
fn speed(problem: &Problem, algorithm: AlgorithmKind, count: usize) {
    let mut dice = Dice::new(Seed(1));
    let mut seen = BTreeSet::new();
    let known = Beforehand::of(problem);
    let mut results: Vec<Observation> = Vec::new();
    let mut algorithm = make(algorithm, &AlgorithmSettings::default());
    let add = |genes, seen: &mut BTreeSet<_>, results: &mut Vec<Observation>| {
        if let Some(values) = problem.evaluate(&genes).filter(|_| seen.insert(genes.clone())) {
            results.push(Observation { genes, values });
        }
    };
    while results.len() < count {
        add(problem.space.sample(&mut dice), &mut seen, &mut results);
    }
    let mut times: Vec<Duration> = Vec::new();
    for number in 0..101 {
        let (space, objectives) = (&problem.space, problem.objectives.as_slice());
        let history =
            History { space, objectives, results: &results, pending: &[], seen: &seen, known: &known };
        let mut dice = Dice::of(Seed(1), "ask", number);
        let began = Instant::now();
        let Some(proposal) = algorithm.ask(&history, &mut dice) else { break };
        times.push(began.elapsed());
        add(proposal.genes, &mut seen, &mut results);
    }
    // The first choice learns everything anew, as after a restart.
    let [first, rest @ ..] = times.as_slice() else { return };
    let mut sorted = rest.to_vec();
    sorted.sort();
    let mean = rest.iter().sum::<Duration>() / rest.len().max(1) as u32;
    let millis = |time: Option<&Duration>| time.map_or(f64::NAN, |time| time.as_secs_f64() * 1e3);
    println!(
        "{:<12} {count} results: first {:.1} ms, then mean {:.1} ms, median {:.1} ms, longest {:.1} ms",
        problem.name,
        millis(Some(first)),
        millis(Some(&mean)),
        millis(sorted.get(sorted.len() / 2)),
        millis(sorted.last()),
    );
}
