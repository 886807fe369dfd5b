//! Main nodes that are killed and continue from their journals.

use phalanx_jobs::{Outcome, read_journal};
use phalanx_testkit::{Process, Sandbox, eventually};
use phalanx_types::JobId;
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const JOBS: u64 = 240;

/// Computing nodes that stay, a journal, and a file to which each run of a job adds the job's id.
struct Scene {
    sandbox: Sandbox,
    _nodes: Vec<(Process, String)>,
    journal: PathBuf,
    effects: PathBuf,
}

impl Scene {
    fn new() -> Self {
        let sandbox = crate::sandbox();
        let nodes = (0..2).map(|_| sandbox.node(&["--cores", "2", "--allow-exec"])).collect();
        let (journal, effects) = (sandbox.path().join("jobs.journal"), sandbox.path().join("effects"));
        std::fs::write(&effects, "").unwrap();
        Self { sandbox, _nodes: nodes, journal, effects }
    }

    fn submit(&self) -> Process {
        let line = format!("echo $PHALANX_JOB >> {}; sleep 0.01", self.effects.display());
        let count = JOBS.to_string();
        self.start(&["--kind", "exec", "--arg", &line, "--count", &count])
    }

    fn start(&self, args: &[&str]) -> Process {
        let journal = self.journal.to_str().unwrap();
        let all = [&["job", "submit", "--wait", "--output", "json", "--journal", journal], args].concat();
        self.sandbox.start(&all)
    }

    /// The jobs that are recorded as ended.
    fn ended(&self) -> BTreeSet<JobId> {
        let Ok(history) = read_journal(&self.journal) else { return BTreeSet::new() };
        history.jobs.into_iter().filter(|(_, job)| job.outcome.is_some()).map(|(id, _)| id).collect()
    }

    /// Kills a main node once this many jobs are recorded; returns the recorded jobs.
    fn kill_after(&self, mut main: Process, jobs: u64) -> BTreeSet<JobId> {
        eventually("enough jobs are recorded", || (self.ended().len() as u64 >= jobs).then_some(()));
        main.signal(Signal::KILL);
        main.finish();
        let ended = self.ended();
        assert!((ended.len() as u64) < JOBS, "it was killed too late");
        ended
    }

    /// How often each job ran so far.
    fn runs(&self) -> BTreeMap<JobId, u32> {
        let mut runs = BTreeMap::new();
        for line in std::fs::read_to_string(&self.effects).unwrap().lines() {
            *runs.entry(line.parse().unwrap()).or_default() += 1;
        }
        runs
    }

    /// Checks that everything was solved, and recorded once.
    fn assert_complete(&self, mut main: Process) {
        let (code, summary) = main.summary();
        let count = |key: &str| summary[key].as_u64().unwrap();
        assert_eq!((code, count("submitted"), count("solved")), (Some(0), JOBS, JOBS), "{summary}");
        let jobs = read_journal(&self.journal).unwrap().jobs;
        assert_eq!(jobs.len() as u64, JOBS);
        assert!(jobs.values().all(|job| matches!(job.outcome, Some(Outcome::Solved(_)))));
        assert!(outcomes_recorded(&self.journal).values().all(|n| *n == 1));
        assert_eq!(self.runs().len() as u64, JOBS, "every job ran");
        self.sandbox.replay("jobs.journal.recording");
    }
}

/// How many outcomes the file has for each job, parsed independently of the journal's own code.
fn outcomes_recorded(journal: &Path) -> BTreeMap<u64, u32> {
    let bytes = std::fs::read(journal).unwrap();
    let (mut rest, mut outcomes) = (&bytes[16..], BTreeMap::new());
    // A length, two checksums of four bytes, and the body.
    while let Some((length, tail)) = rest.split_first_chunk::<8>() {
        let (body, after) = tail[8..].split_at(usize::try_from(u64::from_le_bytes(*length)).unwrap());
        // The fourth and the ninth kind of record are outcomes; the job's number follows, seven bits a byte.
        if matches!(body[0], 3 | 8) {
            let (mut job, mut shift) = (0, 0);
            for byte in &body[1..] {
                job |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte & 0x80 == 0 {
                    break;
                }
            }
            *outcomes.entry(job).or_default() += 1;
        }
        rest = after;
    }
    assert_eq!(outcomes.len() as u64, JOBS);
    outcomes
}

#[test]
fn a_killed_main_node_goes_on_and_runs_nothing_again_that_was_recorded() {
    let scene = Scene::new();
    let ended = scene.kill_after(scene.submit(), JOBS / 2);
    let before = scene.runs();
    scene.assert_complete(scene.submit());
    let after = scene.runs();
    for job in &ended {
        assert_eq!(before.get(job), after.get(job), "job {job} was recorded and ran again");
    }
}

#[test]
fn a_main_node_killed_again_and_again_ends_all_the_same() {
    let scene = Scene::new();
    let mut recorded = Vec::new();
    for kill in 1..=3 {
        let ended = scene.kill_after(scene.submit(), JOBS * kill / 4);
        recorded.push((ended, scene.runs()));
    }
    // Without --kind the journal defines the work.
    scene.assert_complete(scene.start(&[]));
    let after = scene.runs();
    for (ended, before) in recorded {
        assert!(ended.iter().all(|job| before.get(job) == after.get(job)), "a recorded job ran again");
    }
}

#[test]
fn a_torn_tail_is_cut_and_the_run_completes() {
    let scene = Scene::new();
    scene.kill_after(scene.submit(), JOBS / 3);
    let file = std::fs::OpenOptions::new().write(true).open(&scene.journal).unwrap();
    file.set_len(file.metadata().unwrap().len() - 3).unwrap();
    let torn = read_journal(&scene.journal).unwrap();
    assert!(torn.torn_bytes > 0);
    let main = scene.submit();
    main.says("cut a torn record off the end");
    scene.assert_complete(main);
}

#[test]
fn a_journal_of_another_submission_is_refused_and_left_as_it_is() {
    let scene = Scene::new();
    let mut main = scene.start(&["--kind", "upper", "--arg", "one", "--count", "5"]);
    assert_eq!(main.summary().0, Some(0));
    let before = std::fs::read(&scene.journal).unwrap();
    let others: [(&[&str], &str); 3] = [
        (&["--kind", "upper", "--arg", "one", "--count", "3"], "the journal holds 5 jobs"),
        (&["--kind", "upper", "--arg", "two", "--count", "5"], "the journal is of other jobs"),
        (&["--kind", "echo", "--arg", "one", "--count", "9"], "the journal is of other jobs"),
    ];
    for (args, says) in others {
        let mut main = scene.start(args);
        let (status, printed) = main.finish();
        let said = main.stderr();
        assert_eq!((status.code(), printed), (Some(2), Vec::new()), "{args:?}: {said}");
        assert!(said.contains(says) && said.contains("hint: name another journal"), "{args:?}: {said}");
    }
    let after = std::fs::read(&scene.journal).unwrap();
    assert!(after == before, "nothing was written to it");
}

#[test]
fn a_finished_journal_says_its_solutions_again_without_running_anything() {
    let scene = Scene::new();
    let command = ["--kind", "exec", "--arg", "echo $PHALANX_JOB | tee -a effects"];
    for _ in 0..2 {
        let mut main = scene.start(&[&command[..], &["--output", "quiet"]].concat());
        let (status, printed) = main.finish();
        assert_eq!((status.code(), printed), (Some(0), vec!["1".to_owned()]), "{}", main.stderr());
    }
    assert_eq!(scene.runs(), BTreeMap::from([(JobId(1), 1)]));
}

#[test]
fn a_journal_in_use_is_refused() {
    let scene = Scene::new();
    let _busy = scene.start(&["--kind", "sleep", "--arg", "60s"]);
    eventually("the job is recorded", || read_journal(&scene.journal).ok().filter(|h| !h.jobs.is_empty()));
    let mut main = scene.start(&["--kind", "sleep", "--arg", "60s"]);
    assert_eq!(main.finish().0.code(), Some(2));
    assert!(main.stderr().contains("another main node is using journal"), "{}", main.stderr());
}
