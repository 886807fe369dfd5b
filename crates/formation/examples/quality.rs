//! The quality of the planners: small pools against exhaustive search, large ones against plain formations.
//!
//! `cargo run --release --package phalanx-formation --example quality [POOLS [NODES]]`

#[path = "../tests/it/brute/mod.rs"]
mod brute;
#[path = "../tests/it/large/mod.rs"]
mod large;
#[path = "../tests/it/random/mod.rs"]
mod random;

use phalanx_formation::{Exchange, Options, Plan, Shortfall, exact, genetic, greedy};
use random::{Case, Random};
use std::io::{self, Write};
use std::time::Instant;

fn main() -> io::Result<()> {
    let pools = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(200);
    if pools > 0 {
        small_pools(pools)?;
    }
    large_pools(std::env::args().nth(2).and_then(|n| n.parse().ok()))
}

/// The seconds it took, and the plan.
fn timed(plan: impl FnOnce() -> Result<Plan, Shortfall>) -> (f64, Option<Plan>) {
    let start = Instant::now();
    let plan = plan().ok();
    (start.elapsed().as_secs_f64(), plan)
}

fn small_pools(pools: usize) -> io::Result<()> {
    let mut dice = Random::new(2);
    let (mut ratios, mut seconds) = ([const { Vec::new() }; 3], [const { Vec::new() }; 3]);
    let mut done = 0;
    while done < pools {
        let (nodes, cuts) = [(3, 12), (4, 8), (5, 5), (6, 3)][dice.number(0, 3)];
        let mut case = dice.case(nodes, cuts);
        case.options.micro_batches.get_or_insert(4);
        let Some(optimum) = brute::best(&case) else { continue };
        done += 1;
        let Case { model, pool, options } = &case;
        let tried = [
            timed(|| exact(model, pool, options, &mut || true)),
            timed(|| genetic(model, pool, options, &mut || true)),
            timed(|| greedy(model, pool, options, &mut || true)),
        ];
        for (i, (time, plan)) in tried.into_iter().enumerate() {
            ratios[i].push(plan.map_or(f64::INFINITY, |p| p.predicted.score / optimum));
            seconds[i].push(time * 1e3);
        }
    }
    let mut out = io::stdout().lock();
    writeln!(out, "{pools} pools of 3 to 6 nodes: score / optimum")?;
    writeln!(
        out,
        "{:<10}{:>9}{:>9}{:>9}{:>9}{:>9}{:>12}{:>12}",
        "", "optimal", "in 2 %", "p50", "p95", "worst", "ms p50", "ms worst"
    )?;
    for (name, (ratio, ms)) in ["exact", "genetic", "greedy"].iter().zip(ratios.iter_mut().zip(&mut seconds))
    {
        ratio.sort_by(f64::total_cmp);
        ms.sort_by(f64::total_cmp);
        let part = |limit: f64| 100.0 * ratio.iter().filter(|r| **r <= limit).count() as f64 / pools as f64;
        let at = |all: &[f64], p: usize| all[(all.len() - 1) * p / 100];
        writeln!(
            out,
            "{name:<10}{:>7.1} %{:>7.1} %{:>9.3}{:>9.3}{:>9.3}{:>12.1}{:>12.1}",
            part(1.0 + 1e-9),
            part(1.02),
            at(ratio, 50),
            at(ratio, 95),
            at(ratio, 100),
            at(ms, 50),
            at(ms, 100)
        )?;
    }
    Ok(())
}

fn large_pools(only: Option<usize>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "\nlarge pools: seconds a step, of greedy and of genetic")?;
    writeln!(
        out,
        "{:<7}{:<6}{:>6}{:>8}{:>9}{:>9}{:>9}{:>11}{:>11}{:>10}",
        "nodes", "ops", "seed", "every", "greedy", "genetic", "faster", "replicas", "left out", "time"
    )?;
    for (nodes, ops) in [(100, 60), (100, 150), (1000, 60), (1000, 150)] {
        if only.is_some_and(|n| n != nodes) {
            continue;
        }
        for seed in 1..=3 {
            let every = [1, 10, 100][seed as usize - 1];
            let case = large_case(nodes, ops, seed, every);
            let Case { model, pool, options } = &case;
            let (_, plain) = timed(|| greedy(model, pool, options, &mut || true));
            let (time, found) = timed(|| genetic(model, pool, options, &mut || true));
            let (Some(plain), Some(found)) = (plain, found) else {
                writeln!(out, "{nodes:<7}{ops:<6}{seed:>6} does not fit")?;
                continue;
            };
            let (before, after) = (plain.predicted.score, found.predicted.score);
            writeln!(
                out,
                "{nodes:<7}{ops:<6}{seed:>6}{every:>8}{before:>9.3}{after:>9.3}{:>7.1} %{:>11}{:>11}{time:>8.2} s",
                (before / after - 1.0) * 100.0,
                found.replicas.len(),
                found.left_out.len()
            )?;
        }
    }
    Ok(())
}

fn large_case(nodes: usize, ops: usize, seed: u64, every: u64) -> Case {
    let mut dice = Random::new(seed);
    let model = dice.model(ops, ops - 1);
    let pool = large::pool(&mut dice, nodes, &model);
    let options = Options {
        batch: 4 * nodes,
        exchange: Exchange { every, bytes_per_parameter_byte: 1.0 },
        ..Options::default()
    };
    Case { model, pool, options }
}
