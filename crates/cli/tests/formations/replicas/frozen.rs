//! Replicas that are frozen, for good or repeatedly.

use super::{CNN, ENDLESS, SGD, VERIFY, digits, formation, run_file, run_file_on, sandbox};
use crate::run::{LocalNode, Run, is_step, resume_to_the_end, samples};
use rustix::process::Signal;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

const HEARTBEAT: Duration = Duration::from_millis(500);
/// How much longer than the heartbeat the others may take to continue.
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

/// How much longer a slow node is stopped than it runs. Replicas that share cores have less than a core each, and the
/// system lets a process that was stopped run first, so this makes it four to six times slower than the others, less
/// on a busy machine.
const STANDSTILL: u32 = 10;

/// How long it runs at a time: much shorter than its computing time in a step.
const SHORT: Duration = Duration::from_micros(300);
/// Samples of a step.
const LARGE: u64 = 1024;

/// Slows a node down until `stopped` is closed.
fn slow_down(node: &LocalNode, stopped: &Receiver<()>) {
    let mut run = SHORT;
    loop {
        node.signal(Signal::STOP);
        if stopped.recv_timeout(run * STANDSTILL) != Err(RecvTimeoutError::Timeout) {
            return node.signal(Signal::CONT);
        }
        let since = Instant::now();
        node.signal(Signal::CONT);
        let _goes_on = stopped.recv_timeout(SHORT);
        // On a busy machine this thread is late, too.
        run = since.elapsed().min(Duration::from_millis(30));
    }
}

#[test]
fn a_slow_replica_gets_fewer_samples() {
    let sandbox = sandbox();
    // A step has to be long compared with the pauses, and no batch incomplete.
    let digits = digits();
    let file = digits.display();
    let data = format!("train = {{ file = \"{file}\", x = \"x_train\", y = \"y_train\" }}\ndrop_last = true");
    run_file_on(&sandbox, CNN, &data, &format!("{SGD}\nbatch = {LARGE}\n{ENDLESS}"), VERIFY);
    let mut run = Run::start(&sandbox, &["--local", "4"]);
    run.until_replicas("four replicas", |replicas| replicas.len() == 4);
    run.goes_on(10);
    let slow = run.nodes().swap_remove(2);
    let members = run.members();
    let id = slow.among(&members.iter().map(String::as_str).collect::<Vec<_>>()).unwrap().to_owned();
    let began = run.lines().len();
    let (stop, stopped) = channel();
    let slowing = std::thread::spawn(move || slow_down(&slow, &stopped));
    run.goes_on(100);
    drop(stop);
    slowing.join().unwrap();
    let steps = run.lines()[began..].iter().filter(|line| is_step(line)).take(100);
    let shares: Vec<u64> = steps.map(|line| samples(line, &id)).collect();
    println!("samples of the slow one, of {LARGE}: {shares:?}");
    let mut later = shares[40..].to_vec();
    later.sort_unstable();
    // The median, because other load may slow the others down in some steps.
    let slow = later[later.len() / 2];
    let others = (LARGE - slow) / 3;
    // The others are slowed down as well: they have half a core each, and other load takes its part.
    assert!(
        slow * 3 <= others * 2,
        "{slow} samples to {others}, the median of the last 60 steps: {shares:?}"
    );
    run.interrupt();
}
