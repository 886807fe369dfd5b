//! A stage that is frozen for longer than the others wait for it.

use super::{BACK, BATCHES, CHAIN, formation, params_hash, run_file, sandbox, undisturbed};
use crate::run::{Run, assert_whole};
use rustix::process::Signal;

#[test]
fn a_frozen_stage_is_lost_and_comes_back_and_the_numbers_are_the_same() {
    let sandbox = sandbox();
    let passes = 9;
    run_file(&sandbox, &format!("epochs = {passes}"), "");
    let mut run = Run::start(&sandbox, &[&CHAIN[..], &["--heartbeat", "500ms"]].concat());
    run.reaches(45);
    let members = run.members();
    let frozen = run.nodes().into_iter().find(|node| node.among(&[&members[1]]).is_some()).unwrap();
    frozen.signal(Signal::STOP);
    run.process.says(&format!("{} is lost: silent", members[1]));
    run.process.says("waiting: ");
    frozen.signal(Signal::CONT);
    run.ends();
    assert_whole(run.lines(), passes * BATCHES);
    assert!(!run.process.stderr().contains(BACK), "{}", run.process.stderr());
    let epochs = formation(&run.dir);
    let again = epochs.last().unwrap().replicas[0].contains(&members[1]);
    assert!(again && epochs.len() >= 2, "the same node comes back: {epochs:?}");
    assert_eq!(params_hash(&run.dir), undisturbed(&sandbox, &CHAIN).hash);
}
