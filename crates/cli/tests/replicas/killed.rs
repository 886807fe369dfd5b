//! Replicas that are killed at random moments.

use crate::run::{Run, assert_whole, last_step, resume_to_the_end};
use crate::{BATCHES, CNN, ENDLESS, SGD, VERIFY, formation, run_file, sandbox};
use phalanx_testkit::Sandbox;
use phalanx_types::Seed;
use rand::{RngExt, SeedableRng};
use rustix::process::Signal;
use std::time::{Duration, Instant, SystemTime};

const KILLS: usize = 20;
/// How long all kills may take together: a node is back a second after it was killed, and needs to start.
const LONG_ENOUGH: Duration = Duration::from_secs(50);

/// The seed given in the environment, or a new one.
#[expect(clippy::print_stdout, reason = "what it prints is how it is repeated")]
fn seed() -> Seed {
    let given = std::env::var("PHALANX_CHAOS_SEED").ok().and_then(|text| text.parse().ok());
    let clock = || SystemTime::UNIX_EPOCH.elapsed().map_or(0, |d| u64::from(d.subsec_nanos()));
    let seed = Seed(given.unwrap_or_else(clock));
    println!("PHALANX_CHAOS_SEED={}", seed.0);
    seed
}

/// How many passes this machine does in a time.
fn passes_in(sandbox: &Sandbox, time: Duration) -> u64 {
    let train =
        ["train", "run.toml", "--run-dir", "trial", "--output", "json", "--local", "4", "--epochs", "3"];
    let trial = sandbox.json(&train);
    let (steps, rate) = (trial["steps"].as_u64().unwrap(), trial["samples_per_s"].as_f64().unwrap());
    assert_eq!(steps, 3 * BATCHES);
    (rate * time.as_secs_f64() / crate::SAMPLES as f64).ceil() as u64
}

#[test]
fn twenty_killed_replicas_cost_no_step_and_no_sample() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, &format!("{SGD}\nbatch = 64\nepochs = 3"), VERIFY);
    let passes = passes_in(&sandbox, LONG_ENOUGH);
    let mut dice = rand_pcg::Pcg64::seed_from_u64(seed().0);
    let mut run = Run::start(&sandbox, &["--local", "4", "--epochs", &passes.to_string()]);
    let mut recoveries = Vec::new();
    let mut kills = 0;
    while kills < KILLS {
        // Three hold the model, so it is safe with the others whoever is killed.
        run.until_replicas("three replicas", |replicas| replicas.len() >= 3);
        run.goes_on(dice.random_range(0..20));
        let (nodes, members) = (run.nodes(), run.members());
        let members: Vec<&str> = members.iter().map(String::as_str).collect();
        let victim = &nodes[dice.random_range(0..nodes.len())];
        victim.signal(Signal::KILL);
        kills += 1;
        // One that was starting, or coming in, costs nothing.
        if let Some(id) = victim.among(&members) {
            recoveries.push(run.goes_on_without(id));
        }
    }
    let at = last_step(run.lines());
    run.ends();
    let steps = passes * BATCHES;
    println!("killed {KILLS} replicas by step {at} of {steps}: {recoveries:?}");
    assert!(recoveries.len() > KILLS / 2, "most of them were members");
    recoveries.sort_unstable();
    let median = recoveries[recoveries.len() / 2];
    assert!(median <= Duration::from_secs(1), "the median of {recoveries:?}");
    assert_whole(run.lines(), steps);
    let epochs = formation(&run.dir);
    let lost = epochs.iter().filter(|epoch| epoch.ended.is_some()).count();
    assert!(lost >= recoveries.len(), "every loss ends an epoch: {epochs:?}");
    assert!(epochs.iter().filter(|epoch| epoch.nodes.len() == 4).count() > 5, "they come back: {epochs:?}");
}

#[test]
fn when_all_replicas_are_killed_the_run_goes_on_from_its_last_checkpoint() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, &format!("{SGD}\nbatch = 64\n{ENDLESS}\ncheckpoint_every = 10"), VERIFY);
    let mut run = Run::start(&sandbox, &["--local", "2"]);
    run.reaches(45);
    let nodes = run.until_nodes(2);
    let killed = Instant::now();
    nodes.iter().for_each(|node| node.signal(Signal::KILL));
    let old = run.members();
    run.until_replicas("other replicas", |replicas| {
        !replicas.iter().any(|id| old.iter().any(|old| old == id))
    });
    println!("all were lost; the next step was recorded after {:?}", killed.elapsed());
    run.goes_on(BATCHES);
    let done = run.interrupt();
    let epochs = formation(&run.dir);
    let from = epochs.iter().find(|epoch| !epoch.nodes.iter().any(|id| old.contains(id))).unwrap().from_step;
    assert!((30..50).contains(&from), "step 30 was saved long before, and 45 recorded: {epochs:?}");
    resume_to_the_end(&sandbox, done, &[]);
}
