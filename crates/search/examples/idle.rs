//! Prints how much of their time workers wait, without and with generations.
//!
//! `cargo run --release -p phalanx-search --example idle`
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "an example")]

#[path = "../tests/idle/mod.rs"]
mod idle;

use idle::{Setting, simulate};
use std::time::Instant;

const SEEDS: u64 = 5;

fn main() {
    println!("training times log-normal: median {} hours, spread {}", idle::MEDIAN_HOURS, idle::SPREAD);
    println!(
        "workers  trials  rungs            chosen               idle % (least, most)    hours  µs per result"
    );
    for (workers, trials, generations) in [(8, 300, [16, 32]), (64, 2_400, [64, 128]), (64, 4_000, [64, 128])]
    {
        print(workers, trials, &[1.0], None);
        for generation in generations {
            print(workers, trials, &[1.0], Some(generation));
        }
        print(workers, trials, &[1.0, 3.0, 9.0], None);
    }
}

fn print(workers: usize, trials: u64, rungs: &[f64], generation: Option<usize>) {
    let begun = Instant::now();
    let setting = |seed| Setting { workers, trials, generation, rungs: rungs.to_vec(), seed };
    let all = (0..SEEDS).map(|seed| simulate(&setting(seed))).collect::<Vec<_>>();
    let micros = begun.elapsed().as_micros() as u64 / all.iter().map(|idle| idle.events).sum::<u64>();
    let mean = |of: fn(&idle::Idle) -> f64| all.iter().map(of).sum::<f64>() / SEEDS as f64;
    let shares = || all.iter().map(|idle| idle.share * 100.0);
    let (least, most) = (shares().fold(f64::INFINITY, f64::min), shares().fold(0.0, f64::max));
    let chosen =
        generation.map_or_else(|| "one at a time".to_owned(), |size| format!("generations of {size}"));
    println!(
        "{workers:>7}  {trials:>6}  {:<15}  {chosen:<19}  {:>6.2} ({least:.2}, {most:.2})  {:>7.1}  {micros:>6}",
        format!("{rungs:?}"),
        mean(|idle| idle.share * 100.0),
        mean(|idle| idle.hours),
    );
}
