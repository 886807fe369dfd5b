//! What happens to a run whose driver is killed or interrupted, or whose numbers are not finite any more.

use super::{BATCHES, CNN, ENDLESS, SGD, VERIFY, formation, run_file, sandbox};
use crate::run::{LocalNode, RUN, Run, assert_whole, is_step, last_step, resume_to_the_end};
use phalanx_testkit::{Sandbox, eventually};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// Waits until the nodes of a driver that has gone are gone too.
fn all_end(nodes: &[LocalNode]) {
    assert!(!nodes.is_empty());
    eventually("the nodes end with their driver", || nodes.iter().all(|node| !node.is_alive()).then_some(()));
}

#[test]
fn a_killed_driver_leaves_no_process_behind_and_its_run_goes_on() {
    let sandbox = sandbox();
    let passes = 20;
    run_file(&sandbox, CNN, &format!("{SGD}\nbatch = 64\nepochs = {passes}\ncheckpoint_every = 23"), VERIFY);
    let mut run = Run::start(&sandbox, &["--local", "3"]);
    for at in [50, 150] {
        run.reaches(at);
        let last = run.saves_after(at - 2 * 23);
        let nodes = run.until_nodes(3);
        run.process.signal(Signal::KILL);
        run.process.finish();
        all_end(&nodes);
        let shown = sandbox.json(&["run", "show", RUN, "--output", "json"]);
        assert_eq!(shown["state"], "interrupted", "{shown}");
        let saved = shown["checkpoint"].as_u64().unwrap();
        assert!(saved >= last, "step {saved} is saved, step {last} was");
        run = Run::resume(&sandbox, &[]);
        run.process.says(&format!("from step {saved} on"));
    }
    let nodes = run.until_nodes(3);
    let summary = run.ends();
    all_end(&nodes);
    assert_eq!(summary["steps"], passes * BATCHES);
    assert_whole(run.lines(), passes * BATCHES);
    assert!(run.dir.join("model.safetensors").is_file());
}

fn process_group(pid: u32) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // After the name, which may have spaces: the state, the parent, the group.
    stat.rsplit_once(')').unwrap().1.split_whitespace().nth(2).unwrap().to_owned()
}

#[test]
fn an_interrupted_driver_saves_everything_and_its_run_goes_on() {
    let sandbox = sandbox();
    let passes = 12;
    run_file(
        &sandbox,
        CNN,
        &format!("{SGD}\nbatch = 64\nepochs = {passes}\ncheckpoint_every = \"never\""),
        VERIFY,
    );
    let mut run = Run::start(&sandbox, &["--local", "3"]);
    for (at, signal) in [(30, Signal::INT), (90, Signal::TERM)] {
        run.reaches(at);
        let nodes = run.until_nodes(3);
        // Ctrl-C in a terminal goes to every process in the driver's group.
        let group = process_group(run.process.id());
        assert!(nodes.iter().all(|node| process_group(node.pid) != group), "nodes are not asked to stop");
        run.process.signal(signal);
        let (code, summary) = run.process.summary();
        let said = run.process.stderr();
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("stopping after this step"), "{said}");
        assert!(said.contains(&format!("hint: `phalanx run resume {RUN}` goes on")), "{said}");
        let step = summary["steps"].as_u64().unwrap();
        assert_eq!(last_step(run.lines()), step, "all steps that were done are recorded");
        let checkpoint = run.dir.join(format!("checkpoints/step-{step:06}/manifest.json"));
        assert!(checkpoint.is_file(), "{summary}");
        assert!(nodes.iter().all(|node| !node.is_alive()), "nodes end before their driver");
        // The same command continues the same run.
        run = Run::start(&sandbox, &["--local", "3"]);
    }
    run.ends();
    assert_whole(run.lines(), passes * BATCHES);
}

#[test]
fn a_driver_is_interrupted_at_any_moment_of_a_formation() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, &format!("{SGD}\nbatch = 64\n{ENDLESS}\ncheckpoint_every = \"never\""), VERIFY);
    let mut done = 0;
    // After a loss the driver has received it, waits for the others, or has them prepare.
    for wait in 0..4 {
        let mut run = Run::start(&sandbox, &["--local", "3"]);
        run.reaches(done + 10);
        run.until_replicas("three replicas", |replicas| replicas.len() == 3);
        let epochs = formation(&run.dir);
        let formation = format!("(formation {})", epochs.last().unwrap().number + 1);
        run.nodes()[1].signal(Signal::KILL);
        match wait {
            0 => {}
            1 => run.process.says("is lost"),
            2 => run.process.says(&formation),
            _ => run.until_replicas("two replicas", |replicas| replicas.len() == 2),
        }
        let before = last_step(run.lines());
        done = run.interrupt();
        assert!(done >= before, "step {before} was recorded, {done} are done");
        assert_eq!(last_step(run.lines()), done, "all steps that were done are recorded");
    }
    resume_to_the_end(&sandbox, done, &[]);
}

#[test]
fn a_driver_is_interrupted_as_soon_as_a_group_begins() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, &format!("{SGD}\nbatch = 64\n{ENDLESS}"), VERIFY);
    let mut done = 0;
    for _ in 0..6 {
        let mut run = Run::start(&sandbox, &["--local", "4"]);
        run.process.says("(formation 1)");
        let now = run.interrupt();
        assert!((done..done + 1000).contains(&now), "step {now} after step {done}");
        done = now;
    }
    resume_to_the_end(&sandbox, done, &[]);
}

#[test]
fn a_validation_that_was_not_done_any_more_is_done_when_the_run_goes_on() {
    let never = "validate_every = \"never\"";
    for nodes in [&[][..], &["--local", "2"]] {
        let sandbox = sandbox();
        let train = format!("{SGD}\nbatch = 64\nsteps = {BATCHES}\n{never}");
        run_file(&sandbox, CNN, &train, VERIFY);
        let mut run = Run::start(&sandbox, nodes);
        run.ends();
        assert!(run.lines().iter().all(is_step));
        let file = run.dir.join("run.toml");
        let written = std::fs::read_to_string(&file).unwrap();
        assert!(written.contains(never), "{written}");
        std::fs::write(&file, written.replace(never, "")).unwrap();
        let mut run = Run::resume(&sandbox, &["--steps", &(2 * BATCHES).to_string()]);
        run.ends();
        let steps: Vec<_> =
            run.lines().iter().filter(|line| !is_step(line)).map(|line| &line["step"]).collect();
        assert_eq!(steps, [BATCHES, 2 * BATCHES], "{nodes:?}");
    }
}

#[test]
fn a_second_interrupt_does_not_wait_for_the_step() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, &format!("{SGD}\nbatch = 64\n{ENDLESS}\ncheckpoint_every = 10"), VERIFY);
    let mut run = Run::start(&sandbox, &["--local", "2", "--heartbeat", "5m"]);
    run.reaches(25);
    let nodes = run.until_nodes(2);
    // A frozen node is not considered lost so soon, so this step does not end.
    nodes[0].signal(Signal::STOP);
    run.process.signal(Signal::INT);
    run.process.says("stopping after this step");
    let since = Instant::now();
    run.process.signal(Signal::INT);
    let (status, printed) = run.process.finish();
    let said = run.process.stderr();
    assert_eq!((status.code(), printed.len()), (Some(1), 0), "{said}");
    assert!(said.contains("error: stopped at once"), "{said}");
    println!("stopped after {:?}", since.elapsed());
    assert!(since.elapsed() < Duration::from_secs(8), "{:?}", since.elapsed());
    all_end(&nodes);
    let mut run = Run::resume(&sandbox, &["--steps", "51"]);
    run.ends();
    assert_whole(run.lines(), 51);
}

/// Trains until a number is not finite; returns the run and the text after `error: `.
fn fails_in_step_2(sandbox: &Sandbox) -> (Run, String) {
    let train = "optimizer = { name = \"sgd\", lr = 1e30 }\nbatch = 64\nsteps = 100";
    run_file(sandbox, CNN, train, VERIFY);
    let mut run = Run::start(sandbox, &["--local", "3"]);
    let nodes = run.until_nodes(3);
    let (status, _) = run.process.finish();
    let said = run.process.stderr();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(nodes.iter().all(|node| !node.is_alive()), "nodes end before their driver");
    let error = said.split_once("error: ").map(|(_, error)| error.to_owned());
    (run, error.unwrap_or_else(|| panic!("no error in {said}")))
}

#[test]
fn a_run_whose_loss_is_no_number_fails_and_says_where() {
    let sandbox = sandbox();
    let (mut run, error) = fails_in_step_2(&sandbox);
    assert!(error.contains("step 2"), "{error}");
    assert!(error.contains("NaN") || error.contains("inf"), "{error}");
    let shown = sandbox.json(&["run", "show", RUN, "--output", "json"]);
    assert_eq!(shown["state"], "failed", "{shown}");
    assert!(shown["reason"].as_str().unwrap().contains("step 2"), "{shown}");
    assert!(last_step(run.lines()) < 2, "the step that failed is not recorded");
}

#[test]
fn the_step_before_one_that_fails_is_recorded() {
    let sandbox = sandbox();
    let (mut run, _) = fails_in_step_2(&sandbox);
    assert_eq!(last_step(run.lines()), 1);
}
