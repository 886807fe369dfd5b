//! Stages that are killed at random moments.

use super::{
    BACK, BATCHES, CHAIN, CHAINS, formation, kill, params_hash, run_file, sandbox, seen, undisturbed,
};
use crate::run::{Run, assert_whole, last_step};

const KILLS: usize = 10;

#[test]
fn ten_killed_stages_of_two_replicas_cost_no_step_and_no_sample() {
    let sandbox = sandbox();
    let passes = 12;
    run_file(&sandbox, &format!("epochs = {passes}"), "");
    let mut run = Run::start(&sandbox, &CHAINS);
    run.reaches(20);
    for number in 0..KILLS {
        let killed = kill(&mut run, (number * 5) % 6);
        let took = run.goes_on_without(&killed);
        println!("{killed} was made up for after {took:?}, at step {}", last_step(run.lines()));
        run.goes_on(number as u64 * 2);
    }
    let summary = run.ends();
    assert_whole(run.lines(), passes * BATCHES);
    let epochs = formation(&run.dir);
    let lost = epochs.iter().filter(|epoch| epoch.ended.is_some()).count();
    assert!(lost >= KILLS, "losses end epochs: {epochs:?}");
    assert!(epochs.iter().all(|epoch| epoch.replicas.iter().all(|stages| stages.len() == 3)), "{epochs:?}");
    assert!(!run.process.stderr().contains(BACK), "{}", run.process.stderr());
    assert!(run.dir.join("model.safetensors").is_file());
    let alone = undisturbed(&sandbox, &CHAINS);
    assert_eq!(seen(run.lines()), alone.seen);
    let accuracy = summary["val_acc"].as_f64().unwrap();
    assert!((accuracy - alone.accuracy).abs() <= 0.02, "{accuracy} instead of {}", alone.accuracy);
}

#[test]
fn a_killed_stage_is_made_up_for_by_copies_and_the_numbers_are_the_same() {
    let sandbox = sandbox();
    let passes = 24;
    run_file(&sandbox, &format!("epochs = {passes}\ncheckpoint_every = \"never\""), "");
    let mut run = Run::start(&sandbox, &CHAIN);
    run.reaches(33);
    for number in 0..KILLS {
        let killed = kill(&mut run, number % 3);
        run.goes_on_without(&killed);
        run.goes_on(3 * number as u64);
    }
    run.ends();
    assert_whole(run.lines(), passes * BATCHES);
    let said = run.process.stderr();
    assert!(!said.contains(BACK), "{said}");
    let epochs = formation(&run.dir);
    assert!(epochs[1..].iter().all(|epoch| epoch.from_step > 0), "{epochs:?}");
    let alone = undisturbed(&sandbox, &CHAIN);
    assert_eq!(seen(run.lines()), alone.seen);
    assert_eq!(params_hash(&run.dir), alone.hash);
}

#[test]
fn with_a_stage_and_the_copy_of_it_the_run_goes_back_to_its_checkpoint_and_the_numbers_are_the_same() {
    let sandbox = sandbox();
    let passes = 9;
    run_file(&sandbox, &format!("epochs = {passes}\ncheckpoint_every = 23"), "");
    let mut run = Run::start(&sandbox, &CHAIN);
    run.saves_after(23);
    let killed = [kill(&mut run, 0), kill(&mut run, 1)];
    run.until_replicas("two others", |nodes| !killed.iter().any(|id| nodes.contains(&id.as_str())));
    run.ends();
    assert!(run.process.stderr().contains(BACK), "{}", run.process.stderr());
    assert_whole(run.lines(), passes * BATCHES);
    assert_eq!(params_hash(&run.dir), undisturbed(&sandbox, &CHAIN).hash);
}

#[test]
fn a_second_loss_while_a_group_gets_ready_is_survived() {
    let sandbox = sandbox();
    let passes = 8;
    run_file(&sandbox, &format!("epochs = {passes}"), "");
    let mut run = Run::start(&sandbox, &CHAINS);
    run.reaches(20);
    for number in 0..3 {
        let groups = formation(&run.dir).len();
        let (first, second) = (kill(&mut run, number), run.members().swap_remove((number + 1) % 6));
        // As soon as the driver plans the next group, or it has begun.
        match number % 2 {
            0 => run.process.says(&format!("{first} is lost")),
            _ => run.process.says(&format!("(formation {})", groups + 1)),
        }
        let node = run.nodes().into_iter().find(|node| node.among(&[&second]).is_some()).unwrap();
        node.signal(rustix::process::Signal::KILL);
        run.goes_on_without(&second);
    }
    run.ends();
    assert_whole(run.lines(), passes * BATCHES);
}

/// A run whose nodes of these ranks are killed does every step once and learns.
fn learns_without(args: &[&str], rest: &str, ranks: [usize; 2]) {
    let sandbox = sandbox();
    let passes = 10;
    run_file(&sandbox, &format!("epochs = {passes}"), rest);
    let mut run = Run::start(&sandbox, args);
    run.reaches(40);
    for rank in ranks {
        let killed = kill(&mut run, rank);
        run.goes_on_without(&killed);
    }
    let summary = run.ends();
    assert_whole(run.lines(), passes * BATCHES);
    let said = run.process.stderr();
    assert!(!said.contains(BACK), "{said}");
    assert!(summary["val_acc"].as_f64() > Some(0.9), "{summary}");
}

#[test]
fn steps_that_overlap_are_recorded_once_when_a_stage_is_killed() {
    learns_without(&CHAIN, "mode = \"asynchronous\"", [1, 0]);
}

#[test]
fn rounds_of_stages_are_recorded_once_when_a_stage_is_killed() {
    let rest = "stages = 2\nreplicas = 2\n[sync]\nexchange = \"parameters\"\nevery = 5";
    learns_without(&["--local", "4"], rest, [3, 0]);
}
