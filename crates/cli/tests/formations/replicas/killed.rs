//! Replicas that are killed at random moments.

use super::{BATCHES, CNN, ENDLESS, SGD, VERIFY, formation, run_file, sandbox};
use crate::run::{Run, is_step, last_step, replicas, resume_to_the_end, samples};
use phalanx_testkit::chaos_seed;
use rand::{RngExt, SeedableRng};
use rustix::process::Signal;
use serde_json::Value;
use std::time::{Duration, Instant};

const KILLS: usize = 20;

#[test]
fn twenty_killed_replicas_cost_no_step_and_no_sample() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, &format!("{SGD}\nbatch = 64\n{ENDLESS}"), VERIFY);
    let mut dice = rand_pcg::Pcg64::seed_from_u64(chaos_seed().0);
    let mut run = Run::start(&sandbox, &["--local", "4"]);
    let mut recoveries = Vec::new();
    let mut kills = 0;
    while kills < KILLS {
        // Three replicas hold the model, so it survives any kill. New ones do not compute before that.
        let holders = |line: &Value| replicas(line).iter().filter(|id| samples(line, id) > 0).count();
        run.until_step("three replicas", |line| holders(line) >= 3);
        run.goes_on(dice.random_range(0..20));
        let (nodes, members) = (run.nodes(), run.members());
        let members: Vec<&str> = members.iter().map(String::as_str).collect();
        // The first one reports for all of them, so it is the most interesting victim.
        let first = dice.random_bool(0.5);
        let victim = &nodes[if first { 0 } else { dice.random_range(0..nodes.len()) }];
        victim.signal(Signal::KILL);
        kills += 1;
        // A victim that was still starting or joining costs nothing.
        if let Some(id) = victim.among(&members) {
            recoveries.push(run.goes_on_without(id));
        }
    }
    let at = last_step(run.lines());
    run.until_replicas("all four again", |replicas| replicas.len() == 4);
    let done = run.interrupt();
    println!("killed {KILLS} replicas by step {at}: {recoveries:?}");
    assert!(recoveries.len() > KILLS / 2, "most of them were members");
    recoveries.sort_unstable();
    let median = recoveries[recoveries.len() / 2];
    assert!(median <= Duration::from_secs(1), "the median of {recoveries:?}");
    let epochs = formation(&run.dir);
    resume_to_the_end(&sandbox, done, &[]);
    let lost = epochs.iter().filter(|epoch| epoch.ended.is_some()).count();
    // Not every loss ends an epoch: some happen while a group is forming.
    assert!(lost > KILLS / 2, "losses end epochs: {epochs:?}");
}

#[test]
fn when_all_replicas_are_killed_the_run_goes_on_from_its_last_checkpoint() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, &format!("{SGD}\nbatch = 64\n{ENDLESS}\ncheckpoint_every = 10"), VERIFY);
    let mut run = Run::start(&sandbox, &["--local", "2"]);
    let nodes = run.until_nodes(2);
    let saved = run.saves_after(20);
    let killed = Instant::now();
    nodes.iter().for_each(|node| node.signal(Signal::KILL));
    let old = run.members();
    let others = |line: &Value| !replicas(line).iter().any(|id| old.iter().any(|old| old == id));
    let last = |lines: &[Value]| lines.iter().rfind(|line| is_step(line)).is_some_and(others);
    run.until("other replicas", |lines| last(lines).then_some(()));
    println!("all were lost; the next step was recorded after {:?}", killed.elapsed());
    run.goes_on(BATCHES);
    let done = run.interrupt();
    let epochs = formation(&run.dir);
    let from = epochs.iter().find(|epoch| !epoch.nodes.iter().any(|id| old.contains(id))).unwrap().from_step;
    assert!(from >= saved, "step {saved} was saved: {epochs:?}");
    resume_to_the_end(&sandbox, done, &[]);
}

#[test]
fn a_run_that_lost_all_replicas_may_be_stopped_before_it_is_as_far_again() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, &format!("{SGD}\nbatch = 64\n{ENDLESS}\ncheckpoint_every = 60"), VERIFY);
    let mut run = Run::start(&sandbox, &["--local", "2"]);
    run.reaches(115);
    run.until_nodes(2).iter().for_each(|node| node.signal(Signal::KILL));
    // Nodes start one after the other; training begins with the first.
    run.process.says_where("another formation", |said| said.contains("(formation 2)"));
    let done = run.interrupt();
    resume_to_the_end(&sandbox, done.max(115), &[]);
}

#[test]
fn parameters_are_compared_while_the_first_replica_is_new() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, &format!("{SGD}\nbatch = 64\n{ENDLESS}"), VERIFY);
    let mut run = Run::start(&sandbox, &["--local", "2"]);
    run.reaches(20);
    // Ranks are in the order of names, so another node becomes the first.
    let first = run.members().swap_remove(0);
    run.nodes()[0].signal(Signal::KILL);
    run.goes_on_without(&first);
    run.until_step("both compute", |line| {
        replicas(line).iter().filter(|id| samples(line, id) > 0).count() == 2
    });
    run.interrupt();
    let mut steps = run.lines().iter().filter(|line| is_step(line));
    assert_eq!(steps.find(|line| line["hash"].is_null()), None, "not compared");
}
