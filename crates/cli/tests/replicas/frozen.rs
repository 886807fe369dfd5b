//! Replicas that are frozen, for good or again and again.

use crate::run::{Run, is_step, resume_to_the_end, samples};
use crate::{CNN, ENDLESS, SGD, VERIFY, formation, run_file, sandbox};
use rustix::process::Signal;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

const HEARTBEAT: Duration = Duration::from_millis(500);
/// How much longer than a silence may last the others may take to go on.
const MARGIN: Duration = Duration::from_secs(1);

#[test]
fn the_others_go_on_without_a_frozen_replica_and_it_comes_back() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, &format!("{SGD}\nbatch = 64\n{ENDLESS}"), VERIFY);
    let mut run = Run::start(&sandbox, &["--local", "3", "--heartbeat", "500ms"]);
    run.until_replicas("three replicas", |replicas| replicas.len() == 3);
    run.goes_on(10);
    let frozen = run.nodes().swap_remove(1);
    let members = run.members();
    let id = frozen.among(&members.iter().map(String::as_str).collect::<Vec<_>>()).unwrap().to_owned();
    frozen.signal(Signal::STOP);
    let took = run.goes_on_without(&id);
    println!("without the frozen replica after {took:?}");
    assert!(took <= HEARTBEAT + MARGIN, "{took:?}");
    run.goes_on(10);
    let since = Instant::now();
    frozen.signal(Signal::CONT);
    run.until_replicas("the replica back", |replicas| replicas.contains(&id.as_str()) && replicas.len() == 3);
    println!("back {:?} after it was let go", since.elapsed());
    run.goes_on(10);
    let done = run.interrupt();
    let epochs = formation(&run.dir);
    let lost = |ended: &String| ended.contains(&format!("{id} is lost: silent"));
    assert!(epochs.iter().any(|epoch| epoch.ended.as_ref().is_some_and(lost)), "{epochs:?}");
    resume_to_the_end(&sandbox, done, &[]);
}

#[test]
fn a_replica_that_is_four_times_slower_gets_fewer_samples() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, &format!("{SGD}\nbatch = 256\n{ENDLESS}\nvalidate_every = \"never\""), VERIFY);
    let mut run = Run::start(&sandbox, &["--local", "4"]);
    run.until_replicas("four replicas", |replicas| replicas.len() == 4);
    run.goes_on(10);
    let slow = run.nodes().swap_remove(2);
    let members = run.members();
    let id = slow.among(&members.iter().map(String::as_str).collect::<Vec<_>>()).unwrap().to_owned();
    let (stop, stopped) = channel::<()>();
    let slowing = std::thread::spawn(move || {
        let mut phases = [(Signal::STOP, 15), (Signal::CONT, 5)].into_iter().cycle();
        let mut next = || {
            let (signal, millis) = phases.next().unwrap();
            slow.signal(signal);
            stopped.recv_timeout(Duration::from_millis(millis))
        };
        while next() == Err(RecvTimeoutError::Timeout) {}
        slow.signal(Signal::CONT);
    });
    let began = run.lines().len();
    run.goes_on(100);
    drop(stop);
    slowing.join().unwrap();
    let steps: Vec<_> = run.lines()[began..].iter().filter(|line| is_step(line)).take(100).collect();
    // A pass of 1078 samples has four whole batches and a short one.
    let shares = |line: &&serde_json::Value| {
        let slow = samples(line, &id);
        let others = members.iter().filter(|other| **other != id).map(|other| samples(line, other)).min();
        (slow, others.unwrap_or(0))
    };
    let shares: Vec<(u64, u64)> = steps.iter().map(shares).collect();
    println!("samples of the slow one, and the fewest of the others: {shares:?}");
    let balanced = shares.iter().position(|(slow, others)| *others > 1 && slow * 2 <= *others);
    assert!(balanced.is_some(), "{shares:?}");
    let total = |of: fn(&(u64, u64)) -> u64| shares[50..].iter().map(of).sum::<u64>();
    let (slow, others) = (total(|pair| pair.0), total(|pair| pair.1));
    assert!(slow * 2 <= others, "it stays so: {slow} to {others} in the last 50 steps, {shares:?}");
    run.interrupt();
}
