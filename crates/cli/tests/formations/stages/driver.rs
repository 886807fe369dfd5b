//! What happens to a run in stages whose driver is killed or interrupted.

use super::{
    BATCHES, CHAIN, CHAINS, ENDLESS, SAMPLES, assert_measured, formation, kill, params_hash, run_file,
    sandbox, undisturbed,
};
use crate::run::{LocalNode, RUN, Run, assert_whole, last_step};
use phalanx_testkit::eventually;
use rustix::process::Signal;

fn all_end(nodes: &[LocalNode]) {
    eventually("the nodes end", || nodes.iter().all(|node| !node.is_alive()).then_some(()));
}

#[test]
fn when_everything_is_killed_at_once_a_resumed_run_comes_to_the_same() {
    let sandbox = sandbox();
    let passes = 9;
    run_file(&sandbox, &format!("epochs = {passes}\ncheckpoint_every = 23"), "");
    let mut run = Run::start(&sandbox, &CHAIN);
    for at in [40, 100] {
        run.reaches(at);
        run.saves_after(at - 40);
        let nodes = run.until_nodes(3);
        run.process.signal(Signal::KILL);
        // Some may have ended with it already.
        nodes.iter().filter(|node| node.is_alive()).for_each(|node| node.signal(Signal::KILL));
        run.process.finish();
        all_end(&nodes);
        run = Run::resume(&sandbox, &[]);
        run.process.says("from step");
    }
    run.ends();
    assert_whole(run.lines(), passes * BATCHES);
    assert_eq!(params_hash(&run.dir), undisturbed(&sandbox, &CHAIN).hash);
}

#[test]
fn an_interrupted_run_is_saved_and_comes_to_the_same() {
    let sandbox = sandbox();
    let passes = 9;
    run_file(&sandbox, &format!("epochs = {passes}\ncheckpoint_every = \"never\""), "");
    let mut run = Run::start(&sandbox, &CHAIN);
    for at in [30, 90] {
        run.reaches(at);
        let nodes = run.until_nodes(3);
        let done = run.interrupt();
        let said = run.process.stderr();
        assert!(said.contains(&format!("hint: `phalanx run resume {RUN}` goes on")), "{said}");
        assert_eq!(last_step(run.lines()), done, "all steps that were done are recorded");
        assert!(nodes.iter().all(|node| !node.is_alive()), "nodes end before their driver");
        run = Run::resume(&sandbox, &[]);
    }
    run.ends();
    assert_whole(run.lines(), passes * BATCHES);
    assert_measured(&run.dir);
    assert_eq!(params_hash(&run.dir), undisturbed(&sandbox, &CHAIN).hash);
}

#[test]
fn a_run_that_lost_a_stage_is_saved_as_it_was_when_copies_were_made() {
    let sandbox = sandbox();
    let passes = 9;
    run_file(&sandbox, &format!("epochs = {passes}\ncheckpoint_every = \"never\""), "");
    let mut run = Run::start(&sandbox, &CHAIN);
    let mut before = 0;
    for rank in [1, 0] {
        run.reaches(before + 36);
        let killed = kill(&mut run, rank);
        run.process.says(&format!("{killed} is lost"));
        let done = run.interrupt();
        assert!(done > before, "nothing was saved after step {before}");
        assert_eq!(last_step(run.lines()), done, "what is lost is not recorded");
        before = done;
        run = Run::resume(&sandbox, &[]);
    }
    run.ends();
    assert_whole(run.lines(), passes * BATCHES);
    assert_eq!(params_hash(&run.dir), undisturbed(&sandbox, &CHAIN).hash);
}

#[test]
fn a_driver_is_interrupted_at_any_moment_of_a_formation() {
    let sandbox = sandbox();
    run_file(&sandbox, &format!("{ENDLESS}\ncheckpoint_every = \"never\""), "stages = 2\nreplicas = 2");
    let mut done = 0;
    for wait in 0..4 {
        let mut run = Run::start(&sandbox, &["--local", "4"]);
        run.reaches(done + 10);
        let killed = kill(&mut run, wait);
        match wait {
            0 => {}
            1 => run.process.says(&format!("{killed} is lost")),
            2 => run.process.says("(formation 2)"),
            _ => drop(run.goes_on_without(&killed)),
        }
        let before = last_step(run.lines());
        done = run.interrupt();
        assert!(done >= before, "step {before} was recorded, {done} are done");
        assert_eq!(last_step(run.lines()), done, "all steps that were done are recorded");
    }
    crate::run::resume_to_the_end(&sandbox, done, &[]);
}

#[test]
fn checkpoints_by_time_are_of_one_step_on_all_stages() {
    let sandbox = sandbox();
    run_file(&sandbox, &format!("{ENDLESS}\ncheckpoint_every = \"300ms\""), "");
    let mut run = Run::start(&sandbox, &CHAINS);
    run.reaches(1);
    let saved = || sandbox.json(&["run", "show", RUN, "--output", "json"])["checkpoint"].as_u64();
    let (mut before, mut seen) = (0, 0);
    eventually("six checkpoints", || {
        seen += u64::from(saved() > Some(before));
        before = before.max(saved().unwrap_or(0));
        (seen >= 6).then_some(())
    });
    let nodes = run.until_nodes(6);
    run.process.signal(Signal::KILL);
    run.process.finish();
    all_end(&nodes);
    let epochs = formation(&run.dir);
    assert_eq!(epochs.len(), 1, "nothing has broken the group: {epochs:?}");
    let mut run = Run::resume(&sandbox, &["--steps", &((before / BATCHES + 2) * BATCHES).to_string()]);
    run.process.says("from step");
    run.ends();
}

#[test]
fn a_last_validation_that_is_missing_is_made_up_for() {
    let sandbox = sandbox();
    run_file(&sandbox, "epochs = 2", "");
    let ended = Run::start(&sandbox, &CHAIN).ends();
    // As if Ctrl-C came during the last validation.
    let dir = sandbox.path().join(RUN);
    let edit = |file: &str, change: &dyn Fn(&mut serde_json::Value)| {
        let path = dir.join(file);
        let mut value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        change(&mut value);
        std::fs::write(&path, serde_json::to_vec(&value).unwrap()).unwrap();
    };
    let manifest = format!("checkpoints/step-{:06}/manifest.json", 2 * BATCHES);
    edit(&manifest, &|manifest| {
        manifest["validated"] = BATCHES.into();
        // A manifest of the version before checksums, so that the edited one counts.
        manifest["version"] = 1.into();
        manifest.as_object_mut().unwrap().remove("checksum").unwrap();
    });
    edit("state.json", &|state| state["state"] = "interrupted".into());
    let mut run = Run::resume(&sandbox, &[]);
    let again = run.ends();
    assert_eq!((&again["val_acc"], &again["params_hash"]), (&ended["val_acc"], &ended["params_hash"]));
    let validated = run.lines().iter().filter(|line| !crate::run::is_step(line));
    let steps: Vec<u64> = validated.map(|line| line["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, [BATCHES, 2 * BATCHES, 2 * BATCHES], "the first time is still in the records");
}

#[test]
fn no_replica_is_left_with_a_sample_that_batch_norm_cannot_have_alone() {
    let sandbox = sandbox();
    run_file(&sandbox, "steps = 4", "stages = \"auto\"");
    // The second batch of a pass has two samples: two replicas would have one each, whatever their speed.
    let batch = ((SAMPLES - 2) / 2).to_string();
    let mut run = Run::start(&sandbox, &["--local", "2", "--batch", &batch]);
    run.ends();
    assert_eq!(formation(&run.dir)[0].replicas.len(), 1);
}

/// The text after `error: `, up to the samples.
fn fails(train: &str, args: &[&str]) -> String {
    let sandbox = sandbox();
    run_file(&sandbox, train, "");
    let mut run = Run::start(&sandbox, args);
    let (status, _) = run.process.finish();
    let said = run.process.stderr();
    assert_eq!(status.code(), Some(1), "{said}");
    let shown = sandbox.json(&["run", "show", RUN, "--output", "json"]);
    assert_eq!(shown["state"], "failed", "{shown}");
    let error = said.split_once("error: ").unwrap_or_else(|| panic!("no error in {said}")).1;
    error.split(&[';', '\n'][..]).next().unwrap().split(" for sample").next().unwrap().to_owned()
}

#[test]
fn a_number_that_is_none_is_traced_to_the_operator_that_made_it() {
    // The first of a hundred batches that is not finite because of the parameters.
    let steep = "steps = 100\nclip_norm = 1e30";
    let set = ["--set", "train.optimizer.lr=1e30", "--set", "formation.micro_batches=1"];
    let whole = fails(steep, &[&["--set", "formation.stages=1"], &set[..]].concat());
    assert!(whole.contains("at step 2: ") && whole.contains("` made "), "{whole}");
    for formation in [&CHAIN[..], &CHAINS[..]] {
        let staged = fails(steep, &[formation, &set[..]].concat());
        assert!(staged.ends_with(&whole), "{staged} is not {whole}");
    }
    // Whichever stage has that operator.
    assert!(whole.contains("`conv2d_2`"), "{whole}");
    for cuts in [r#"["dense_1", "dense_2"]"#, r#"["conv2d_2", "bn_2"]"#, r#"["bn_1", "conv2d_2"]"#] {
        let cut = ["--set", &format!("formation.cuts={cuts}")];
        let staged = fails(steep, &[&CHAIN[..], &set[..], &cut[..]].concat());
        assert!(staged.ends_with(&whole), "{cuts}: {staged} is not {whole}");
    }
    let overlapping = ["--set", "formation.mode=asynchronous"];
    let staged = fails(steep, &[&CHAIN[..], &set[..], &overlapping[..]].concat());
    assert!(staged.contains("is NaN at step ") || staged.contains("is inf at step "), "{staged}");
}

#[test]
fn formations_that_cannot_be_are_refused_at_once() {
    let refused = |code: i32, args: &[&str], words: &[&str]| {
        let sandbox = sandbox();
        run_file(&sandbox, ENDLESS, "");
        let mut run = Run::start(&sandbox, args);
        let (status, _) = run.process.finish();
        let said = run.process.stderr();
        assert_eq!(status.code(), Some(code), "{said}");
        for word in words {
            assert!(said.contains(word), "{word} in {said}");
        }
    };
    refused(
        1,
        &["--local", "3", "--set", "formation.stages=99"],
        &["99 nodes, the pool has 3", "hint: add nodes, or say fewer `formation.stages`"],
    );
    let cut = ["--local", "3", "--set", "formation.stages=3", "--set", "formation.cuts=[\"conv2d_2\"]"];
    refused(1, &cut, &["can be cut into 2 stages at most, not 3"]);
    let single = [&CHAIN[..], &["--set", "formation.micro_batches=64"]].concat();
    refused(
        2,
        &single,
        &["BatchNorm `bn_2` needs more than one sample", "hint: say fewer `formation.micro_batches`"],
    );
}
