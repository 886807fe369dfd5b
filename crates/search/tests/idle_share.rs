//! Workers of a search hardly wait, because no candidate waits for a generation.
#![expect(clippy::unwrap_used, reason = "a test")]

mod idle;

use idle::{Idle, Setting, simulate};

/// Share of the time and hours, on average.
fn mean(workers: usize, trials: u64, generation: Option<usize>) -> (f64, f64) {
    let setting = |seed| Setting { workers, trials, generation, rungs: vec![1.0], seed };
    let seeds = if workers > 8 { 2 } else { 5 };
    let all = (0..seeds).map(|seed| simulate(&setting(seed))).collect::<Vec<_>>();
    assert!(all.iter().all(|idle| idle.events == trials + 1), "{all:?}");
    let mean = |of: fn(&Idle) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
    (mean(|idle| idle.share), mean(|idle| idle.hours))
}

/// Only the last trainings leave workers idle, so that the share falls with the number of trials per worker.
#[test]
fn eight_and_sixty_four_workers_are_idle_under_three_per_cent_of_the_time() {
    for (workers, trials) in [(8, 300), (64, 4_000)] {
        let (steady, hours) = mean(workers, trials, None);
        let (generations, more_hours) = mean(workers, trials / 4, Some(workers * 2));
        assert!(steady < 0.03, "{workers} workers: {steady}");
        assert!(
            generations > 0.2 && 4.0 * more_hours > 1.2 * hours,
            "{workers} workers, generations: {generations}"
        );
    }
}
