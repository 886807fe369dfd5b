use super::*;
use phalanx_graph::Weights;
use phalanx_protocol::progress::Place;
use phalanx_types::Tensor;

fn checkpoint(step: u64) -> Checkpoint {
    let tensor = |x: f32| Tensor::from_f32(vec![2], &[x, -x]).unwrap();
    Checkpoint {
        manifest: Manifest::at(Place { step, pass: 1, batch: step, ..Place::default() }),
        weights: Weights::from([("fc.weight".to_owned(), tensor(step as f32))]),
        optimizer: Weights::from([("fc.weight.exp_avg".to_owned(), tensor(0.5))]),
    }
}

fn run(path: &Path) -> RunDir {
    let dir = RunDir::create(path).unwrap();
    dir.write(RUN_FILE, b"# a run").unwrap();
    dir
}

#[test]
fn a_checkpoint_comes_back_as_it_was_and_only_the_newest_are_kept() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = run(tmp.path());
    assert!(matches!(dir.newest(), Err(RunDirError::NoCheckpoint { .. })));
    for step in [3, 20, 100, 1_000_000] {
        dir.save(&checkpoint(step), &[], 2).unwrap();
    }
    let (newest, wrong) = dir.newest().unwrap();
    assert_eq!((newest.manifest.step, wrong.len()), (1_000_000, 0));
    assert_eq!((newest.weights, newest.optimizer), {
        let saved = checkpoint(1_000_000);
        (saved.weights, saved.optimizer)
    });
    let names: Vec<_> = checkpoint::list(&dir.checkpoints());
    let names: Vec<_> = names.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["step-000100", "step-1000000"]);
}

#[test]
fn a_checkpoint_that_was_to_replace_another_of_its_step_is_not_lost() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = run(tmp.path());
    let place = dir.save(&checkpoint(7), &[], 1).unwrap();
    let (checkpoints, path) = (dir.checkpoints(), dir.path().to_owned());
    drop(dir);
    // Killed between removing the old one and renaming the new one; and while the old one was being removed.
    let beside = checkpoints.join(".step-000007");
    std::fs::rename(&place, &beside).unwrap();
    for left in [false, true] {
        if left {
            std::fs::rename(&place, &beside).unwrap();
            std::fs::create_dir(&place).unwrap();
        }
        let dir = RunDir::open(&path).unwrap();
        assert_eq!(dir.newest().unwrap().0.manifest.step, 7);
        assert!(!beside.exists());
    }
    // An unfinished directory is not a checkpoint.
    std::fs::create_dir(&beside).unwrap();
    assert_eq!(RunDir::open(&path).unwrap().newest().unwrap().0.manifest.step, 7);
    assert!(!beside.exists());
}

#[test]
fn damage_is_found_and_an_older_checkpoint_is_used() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = run(tmp.path());
    dir.save(&checkpoint(1), &[], 5).unwrap();
    for (step, damage) in [(2, "flip"), (3, "cut"), (4, "remove"), (5, "manifest")] {
        let path = dir.save(&checkpoint(step), &[], 5).unwrap();
        let file = path.join("replica0-stage0.safetensors");
        let mut bytes = std::fs::read(&file).unwrap();
        match damage {
            "flip" => *bytes.last_mut().unwrap() ^= 1,
            "cut" => bytes.truncate(bytes.len() - 1),
            "remove" => {
                std::fs::remove_file(&file).unwrap();
                continue;
            }
            _ => std::fs::write(path.join("manifest.json"), "{}").unwrap(),
        }
        std::fs::write(&file, bytes).unwrap();
    }
    let (newest, wrong) = dir.newest().unwrap();
    assert_eq!((newest.manifest.step, wrong.len()), (1, 4), "{wrong:?}");
    // They do not get in the way of the next save.
    assert!(dir.checkpoints().join("step-000005.damaged").is_dir());
    let saved = dir.save(&checkpoint(2), &[], 1).unwrap();
    let (newest, wrong) = dir.newest().unwrap();
    assert_eq!((newest.manifest.step, wrong.len(), saved.is_dir()), (2, 0, true));
}

#[test]
fn the_checkpoint_that_was_just_saved_stays() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = run(tmp.path());
    for step in [7, 8, 9] {
        dir.save(&checkpoint(step), &[], 3).unwrap();
    }
    for keep in [2, 1] {
        let saved = dir.save(&checkpoint(3), &[], keep).unwrap();
        let all = checkpoint::list(&dir.checkpoints());
        assert!(all.len() == keep && all.contains(&saved), "{all:?}");
    }
}

#[test]
fn a_directory_with_files_of_others_is_left_alone() {
    let tmp = tempfile::tempdir().unwrap();
    let file = tmp.path().join(RUN_FILE);
    std::fs::write(&file, "mine").unwrap();
    assert!(!is_run(tmp.path()));
    let refused = RunDir::create(tmp.path());
    assert!(
        matches!(refused, Err(RunDirError::NotEmpty { ref file, .. }) if file == RUN_FILE),
        "{refused:?}"
    );
    assert_eq!(std::fs::read_dir(tmp.path()).unwrap().count(), 1);
    // Files of a process that was killed at once do not get in the way.
    std::fs::remove_file(&file).unwrap();
    drop(RunDir::create(tmp.path()).unwrap());
    drop(RunDir::create(tmp.path()).unwrap());
}

#[test]
fn the_same_step_is_written_again_and_leftovers_go() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = run(tmp.path());
    dir.save(&checkpoint(7), &[], 3).unwrap();
    dir.save(&checkpoint(7), &[], 3).unwrap();
    let left = dir.checkpoints().join(".step-000008");
    std::fs::create_dir(&left).unwrap();
    drop(dir);
    RunDir::open(tmp.path()).unwrap();
    assert!(!left.exists());
}

#[test]
fn a_directory_is_for_one_run_and_one_process() {
    let tmp = tempfile::tempdir().unwrap();
    let path = tmp.path().join("deep/run");
    let dir = run(&path);
    let pid = Some(std::process::id());
    assert!(matches!(RunDir::open(&path), Err(RunDirError::Locked { pid: p, .. }) if p == pid));
    assert!(matches!(RunDir::create(&path), Err(RunDirError::Exists { .. })));
    assert!(is_locked(&path));
    drop(dir);
    assert!(!is_locked(&path));
    RunDir::open(&path).unwrap();
    assert!(matches!(RunDir::open(tmp.path()), Err(RunDirError::NotARun { .. })));
}

#[test]
fn looking_whether_a_run_is_locked_keeps_no_process_from_taking_it() {
    let tmp = tempfile::tempdir().unwrap();
    let path = tmp.path().to_owned();
    drop(run(&path));
    let ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                    is_locked(&path);
                }
            });
        }
        let taken = (0..3000).filter(|_| RunDir::open(&path).is_ok()).count();
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(taken, 3000, "an observer was in the way");
    });
}

#[test]
fn only_the_process_that_holds_the_lock_is_its_holder() {
    let tmp = tempfile::tempdir().unwrap();
    assert!(LockHolder::of(tmp.path()).is_none(), "there is no lock");
    let dir = run(tmp.path());
    assert_eq!(LockHolder::of(tmp.path()).unwrap().pid(), std::process::id());
    // The number of a process that is there and holds nothing, as after a restart of the machine.
    let mut other = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    std::fs::write(tmp.path().join(LOCK), other.id().to_string()).unwrap();
    assert!(LockHolder::of(tmp.path()).is_none());
    for nonsense in ["", "0", "-1", "x", "4294967295"] {
        std::fs::write(tmp.path().join(LOCK), nonsense).unwrap();
        assert!(LockHolder::of(tmp.path()).is_none(), "{nonsense}");
    }
    other.kill().unwrap();
    other.wait().unwrap();
    std::fs::write(tmp.path().join(LOCK), std::process::id().to_string()).unwrap();
    let linked = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(tmp.path().join(LOCK), linked.path().join(LOCK)).unwrap();
    assert!(LockHolder::of(tmp.path()).is_some() && LockHolder::of(linked.path()).is_none());
    drop(dir);
    assert!(LockHolder::of(tmp.path()).is_none(), "the lock is free");
}

fn step(step: u64) -> StepRecord {
    StepRecord { step, pass: 1, loss: 0.5, lr: 0.1, grad_norm: 1.0, samples_per_s: 10.0, replicas: None }
}

#[test]
fn records_are_cut_back_to_a_checkpoint() {
    let tmp = tempfile::tempdir().unwrap();
    let mut records = Records::open(tmp.path(), None).unwrap();
    records.step(&step(1)).unwrap();
    let sizes = records.sync().unwrap();
    records.step(&step(2)).unwrap();
    let valid = ValidRecord {
        step: 2,
        pass: 1,
        val_loss: 0.25,
        val_acc: Some(0.5),
        metrics: [("val_mae".into(), 2.0)].into(),
    };
    records.valid(&valid).unwrap();
    assert_eq!(records.sizes_after(1).unwrap(), sizes);
    assert_eq!(records.sizes_after(2).unwrap(), records.sync().unwrap());
    drop(records);
    let read = |name: &str| std::fs::read_to_string(tmp.path().join(name)).unwrap();
    assert_eq!(read("losses.csv"), "step,loss\n1,0.5\n2,0.5\n");
    assert_eq!(read("val_accuracies.csv"), "step,pass,val_loss,val_acc\n2,1,0.25,0.5\n");
    let last = read("metrics.jsonl").lines().last().unwrap().to_owned();
    let (record, time) = last.rsplit_once(r#","unix_ms":"#).unwrap();
    assert_eq!(record, r#"{"step":2,"pass":1,"val_loss":0.25,"val_acc":0.5,"val_mae":2.0"#);
    assert!(time.trim_end_matches('}').parse::<u64>().unwrap() > 1_700_000_000_000, "{time}");

    let mut records = Records::open(tmp.path(), Some(sizes)).unwrap();
    records.step(&step(2)).unwrap();
    assert_eq!(read("losses.csv"), "step,loss\n1,0.5\n2,0.5\n");
    assert_eq!((read("metrics.jsonl").lines().count(), read("val_accuracies.csv").lines().count()), (2, 1));
}

fn append(path: &Path, text: &str) {
    File::options().append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

#[test]
fn the_last_records_are_found_at_the_end_of_long_files() {
    let tmp = tempfile::tempdir().unwrap();
    assert_eq!((recorded_steps(tmp.path()), last_valid(tmp.path())), (0, None));
    let mut records = Records::open(tmp.path(), None).unwrap();
    for number in 1..=2000 {
        records.step(&step(number)).unwrap();
        let valid = ValidRecord {
            step: number,
            pass: 1,
            val_loss: 0.25,
            val_acc: None,
            // One line is longer than the first read.
            metrics: (0..if number == 2000 { 2000 } else { 0 }).map(|i| (format!("val_{i}"), 1.0)).collect(),
        };
        records.valid(&valid).unwrap();
    }
    assert_eq!(recorded_steps(tmp.path()), 2000);
    assert_eq!(last_valid(tmp.path()), Some(Best { step: 2000, val_loss: 0.25, val_acc: None }));
}

#[test]
fn a_run_that_no_process_holds_is_not_running() {
    let tmp = tempfile::tempdir().unwrap();
    let path = tmp.path().join("a");
    let dir = run(&path);
    let state = RunState {
        state: Status::Running,
        reason: None,
        waiting: None,
        started: stamp(),
        ended: None,
        model: "mlp".to_owned(),
        total_steps: Some(9),
        steps: 0,
        loss: None,
        val_loss: None,
        val_acc: None,
        samples_per_s: None,
        wall_s: 0.0,
        params_hash: None,
    };
    state.write(&path).unwrap();
    let mut records = Records::open(&path, None).unwrap();
    let valid = |step| ValidRecord { step, pass: 1, val_loss: 0.25, val_acc: None, metrics: [].into() };
    records.valid(&valid(1)).unwrap();
    records.valid(&ValidRecord { val_acc: Some(0.75), ..valid(3) }).unwrap();
    records.step(&step(4)).unwrap();
    // An incomplete line.
    append(&path.join("val_accuracies.csv"), "4,1,0.1");
    let RunState { val_loss, val_acc, loss, .. } = read_run(&path).unwrap().state;
    assert_eq!((val_loss, val_acc, loss), (Some(0.25), Some(0.75), Some(0.5)));
    let seen = |runs: &[RunInfo]| {
        runs.iter().map(|r| (r.id.clone(), r.state.state, r.state.steps)).collect::<Vec<_>>()
    };
    assert_eq!(seen(&list_runs(tmp.path())), [("a".to_owned(), Status::Running, 4)]);
    drop(dir);
    assert_eq!(seen(&list_runs(tmp.path())), [("a".to_owned(), Status::Interrupted, 4)]);
    assert_eq!(list_runs(&tmp.path().join("none")), []);
}

#[test]
fn a_manifest_that_was_changed_is_damaged() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = run(tmp.path());
    let place = dir.save(&checkpoint(7), &[], 2).unwrap();
    let manifest = place.join("manifest.json");
    let good = std::fs::read(&manifest).unwrap();
    assert_eq!(Checkpoint::load(&place).unwrap().manifest.version, 2);
    // Every bit counts, also of the checksum and of its name.
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        std::fs::write(&manifest, &bad).unwrap();
        assert!(Checkpoint::load(&place).is_err(), "byte {at} of {}", String::from_utf8_lossy(&bad));
    }
    std::fs::write(&manifest, [&good[..], b" "].concat()).unwrap();
    assert!(Checkpoint::load(&place).is_err());
    // Another checkpoint's directory under this name.
    std::fs::write(&manifest, &good).unwrap();
    let other = place.with_file_name("step-000009");
    std::fs::rename(&place, &other).unwrap();
    let error = Checkpoint::load(&other).unwrap_err().to_string();
    assert!(error.contains("a step that is not that of its name"), "{error}");
}

#[test]
fn manifests_of_before_there_were_checksums_are_read() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = run(tmp.path());
    let place = dir.save(&checkpoint(7), &[], 2).unwrap();
    let path = place.join("manifest.json");
    let mut manifest: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    manifest["version"] = 1.into();
    manifest.as_object_mut().unwrap().remove("checksum").unwrap();
    std::fs::write(&path, serde_json::to_vec_pretty(&manifest).unwrap()).unwrap();
    assert_eq!(Checkpoint::load(&place).unwrap().manifest.step, 7);
}

#[test]
fn newer_checkpoints_that_cannot_be_used_are_named() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = run(tmp.path());
    for step in [7, 8, 9] {
        dir.save(&checkpoint(step), &[], 3).unwrap();
    }
    for step in [8, 9] {
        std::fs::write(dir.checkpoints().join(format!("step-00000{step}/manifest.json")), "{}").unwrap();
    }
    let (checkpoint, unusable) = newest_usable(tmp.path()).unwrap();
    assert_eq!(checkpoint.manifest.step, 7);
    assert_eq!(unusable.iter().map(|wrong| wrong.step).collect::<Vec<_>>(), [9, 8]);
}
