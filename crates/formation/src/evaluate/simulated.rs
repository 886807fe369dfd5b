//! Compares the closed form of a replica's time with a simulation of its schedule, event by event.

use crate::evaluate::timing::seconds;
use crate::evaluate::{Problem, StageRange};
use crate::{CutCost, Link, ModelCost, OpCost, Options, Pool, PoolNode, Work};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// A pipeline as a table of times for one micro-batch.
struct Pipe {
    forward: Vec<f64>,
    backward: Vec<f64>,
    /// Behind each stage but the last: latency, then transfer there and back.
    links: Vec<(f64, f64, f64)>,
}

/// Simulates one-forward-one-backward: each stage but the last admits as many micro-batches as there are stages from it
/// on, plus `spare`, then runs the backward of the oldest before the next forward. A link carries one micro-batch at a
/// time each way.
fn played(pipe: &Pipe, micro_batches: usize, spare: usize) -> f64 {
    let stages = pipe.forward.len();
    let order: Vec<Vec<(bool, usize)>> = (0..stages)
        .map(|s| schedule(if s + 1 == stages { 1 } else { stages - s + spare }, micro_batches))
        .collect();
    let mut next = vec![0; stages];
    let mut free = vec![0.0f64; stages];
    let mut link_free = vec![[0.0f64; 2]; stages];
    // When inputs arrive, by stage and micro-batch.
    let mut forward_in = vec![vec![f64::INFINITY; micro_batches]; stages];
    let mut backward_in = forward_in.clone();
    forward_in[0].fill(0.0);
    let mut end = 0.0f64;
    loop {
        let mut moved = false;
        for s in 0..stages {
            let Some((is_forward, k)) = order[s].get(next[s]).copied() else { continue };
            let ready = if is_forward { forward_in[s][k] } else { backward_in[s][k] };
            if ready.is_infinite() {
                continue;
            }
            let takes = if is_forward { pipe.forward[s] } else { pipe.backward[s] };
            free[s] = free[s].max(ready) + takes;
            (moved, end) = (true, end.max(free[s]));
            next[s] += 1;
            match (is_forward, s + 1 == stages) {
                (true, true) => backward_in[s][k] = free[s],
                (true, false) => {
                    let (latency, there, _) = pipe.links[s];
                    link_free[s][0] = link_free[s][0].max(free[s]) + there;
                    forward_in[s + 1][k] = link_free[s][0] + latency;
                }
                (false, _) if s > 0 => {
                    let (latency, _, back) = pipe.links[s - 1];
                    link_free[s - 1][1] = link_free[s - 1][1].max(free[s]) + back;
                    backward_in[s - 1][k] = link_free[s - 1][1] + latency;
                }
                (false, _) => {}
            }
        }
        if !moved {
            return end;
        }
    }
}

/// Forwards (true) and backwards of a stage, in order.
fn schedule(ahead: usize, micro_batches: usize) -> Vec<(bool, usize)> {
    let ahead = ahead.min(micro_batches);
    let mut order: Vec<(bool, usize)> = (0..ahead).map(|k| (true, k)).collect();
    for k in 0..micro_batches {
        order.push((false, k));
        if k + ahead < micro_batches {
            order.push((true, k + ahead));
        }
    }
    order
}

struct Drawn {
    model: ModelCost,
    pool: Pool,
    options: Options,
    pipe: Pipe,
}

/// A random pipeline of single operators whose links take up to `link` seconds, with up to `latency` seconds of
/// latency.
fn drawn(dice: &mut Pcg64, stages: usize, link: f64, latency: f64) -> Drawn {
    let mut between =
        |from: f64, to: f64| from + (to - from) * f64::from(dice.random_range(0..1000u32)) / 1000.0;
    let mut model = ModelCost::default();
    let mut pool = Pool::new((0..stages).map(|i| PoolNode::new(format!("n{i}"), 1 << 30, 1.0)).collect());
    let mut pipe = Pipe { forward: Vec::new(), backward: Vec::new(), links: Vec::new() };
    for s in 0..stages {
        let forward = between(0.5, 1.5);
        let work = |per_sample: f64| Work { per_sample, per_batch: 0.0 };
        let op = OpCost { forward: work(forward), backward: work(2.0 * forward), ..OpCost::default() };
        model.ops.push(op);
        pipe.forward.push(forward);
        pipe.backward.push(2.0 * forward);
        if s + 1 < stages {
            let (there, wait) = (between(0.0, link), between(0.0, latency));
            let bytes = (there * 1e6) as u64;
            model.cuts.push(CutCost { at: s + 1, forward_bytes: bytes, backward_bytes: bytes });
            pool.links.insert((s, s + 1), Link::new(1e6, wait));
            pipe.links.push((wait, bytes as f64 / 1e6, bytes as f64 / 1e6));
        }
    }
    Drawn { model, pool, options: Options { batch: 64, ..Options::default() }, pipe }
}

/// The closed form divided by the simulated time: smallest, largest and mean.
fn ratios(link: f64, latency: f64) -> (f64, f64, f64) {
    let mut dice = Pcg64::seed_from_u64(5);
    let (mut least, mut most, mut sum) = (f64::INFINITY, 0.0f64, 0.0);
    for _ in 0..400 {
        let (stages, micro_batches) = (dice.random_range(1..=6usize), dice.random_range(1..=16usize));
        let spare = dice.random_range(0..=2usize);
        let Drawn { model, pool, mut options, pipe } = drawn(&mut dice, stages, link, latency);
        options.ahead = spare;
        let problem = Problem::new(&model, &pool, &options).unwrap();
        let parts: Vec<StageRange> =
            (0..stages).map(|s| StageRange { node: s, from: s, to: s + 1 }).collect();
        let ratio = seconds(&problem, &parts, micro_batches, 1) / played(&pipe, micro_batches, spare);
        (least, most, sum) = (least.min(ratio), most.max(ratio), sum + ratio);
    }
    println!("link {link} latency {latency}: {least:.3} to {most:.3}, {:.3} on average", sum / 400.0);
    (least, most, sum / 400.0)
}

#[test]
fn equal_stages_take_exactly_as_long_as_they_do_when_played() {
    for (stages, micro_batches) in [(1, 1), (1, 8), (2, 1), (2, 7), (4, 4), (4, 16), (6, 3)] {
        let pipe = Pipe {
            forward: vec![1.0; stages],
            backward: vec![2.0; stages],
            links: vec![(0.0, 0.0, 0.0); stages - 1],
        };
        let closed = 3.0 * stages as f64 + 3.0 * (micro_batches as f64 - 1.0);
        assert_eq!(played(&pipe, micro_batches, 0), closed, "{stages} stages, {micro_batches} micro-batches");
    }
}

#[test]
fn the_closed_form_is_near_what_is_played() {
    // Unequal stages, links that take a tenth of a stage, half of one, as long as one, and mostly latency.
    for (link, latency, least, most, mean) in [
        (0.1, 0.1, 0.87, 1.0001, 0.99),
        (0.5, 0.5, 0.82, 1.0001, 0.985),
        (3.0, 0.5, 0.65, 1.0001, 0.95),
        (0.1, 10.0, 0.6, 1.0001, 0.94),
    ] {
        let (low, high, average) = ratios(link, latency);
        assert!(low > least && high < most && average > mean, "{link} {latency}: {low} {high} {average}");
    }
}
