//! Journals of real main nodes in the ledger: whatever dies when, its jobs are those that the journals tell of.

use super::model::{Faults, Process, seeds};
use super::{Workplace, on_both};
use crate::Ledger;
use phalanx_fabric::{FabricConfig, NodeKind};
use phalanx_jobs::{
    ComputingNode, JobSpec, JournalError, MainError, MainNode, MainOptions, Outcome, Outcomes, builtin,
    read_journal,
};
use phalanx_types::{ByteSize, DomainName, JobId, Parcel, Resources};
use phalanx_wire::jobs::JobQuery;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(60);

fn config(dir: &Path, name: &str, kind: NodeKind) -> FabricConfig {
    let mut config = FabricConfig::new(DomainName::new("test").unwrap(), name, kind);
    config.runtime_dir = dir.to_owned();
    config.mdns = false;
    config.resources = Resources { cores: 2, memory: ByteSize::gib(1), ..Resources::default() };
    config
}

fn jobs(kind: &str, count: usize) -> Vec<JobSpec> {
    (0..count).map(|n| JobSpec::new(kind, Parcel::from_bytes(format!("{kind} {n}")))).collect()
}

async fn take(outcomes: &mut Outcomes, count: usize) {
    for _ in 0..count {
        timeout(PATIENCE, outcomes.next()).await.unwrap().unwrap();
    }
}

/// A main node with this journal, once the one before has closed it.
async fn take_up(dir: &Path, journal: &Path) -> MainNode {
    let start = async {
        loop {
            let options = MainOptions { journal: Some(journal.to_owned()), ..MainOptions::default() };
            match MainNode::start(config(dir, "main", NodeKind::Main), options).await {
                Err(MainError::Journal(JournalError::InUse { .. })) => tokio::task::yield_now().await,
                started => return started.unwrap(),
            }
        }
    };
    timeout(PATIENCE, start).await.unwrap()
}

/// The journal of two lives of a main node: jobs that were solved, failed, were cancelled, and wait.
async fn write_journal(dir: &Path) -> Vec<u8> {
    let journal = dir.join("written.journal");
    let node = ComputingNode::start(config(dir, "node", NodeKind::Computing), builtin::handlers());
    let node = tokio::spawn(node.await.unwrap().run());
    let first = take_up(dir, &journal).await;
    let mut outcomes = first.outcomes().await.unwrap();
    first.submit_many([jobs("echo", 12), jobs("fail", 3), jobs("nobody", 4)].concat()).await.unwrap();
    take(&mut outcomes, 15).await;
    first.query(JobQuery::Cancel { jobs: vec![JobId(17)] }).await.unwrap();
    take(&mut outcomes, 1).await;
    first.shutdown().await;
    let second = take_up(dir, &journal).await;
    let mut outcomes = second.outcomes().await.unwrap();
    second.submit_many(jobs("upper", 9)).await.unwrap();
    take(&mut outcomes, 9).await;
    second.shutdown().await;
    node.abort();
    std::fs::read(journal).unwrap()
}

/// The bytes of two such journals.
fn journals() -> &'static [Vec<u8>; 2] {
    static JOURNALS: OnceLock<[Vec<u8>; 2]> = OnceLock::new();
    JOURNALS.get_or_init(|| {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        [(); 2].map(|()| {
            let dir = tempfile::tempdir().unwrap();
            runtime.block_on(write_journal(dir.path()))
        })
    })
}

/// Kind, state, reason, solver, attempts, and when it came and ended.
type Known = (String, String, Option<String>, Option<String>, u64, Option<u64>, Option<u64>);

fn of_journal(path: &Path) -> BTreeMap<u64, Known> {
    let history = read_journal(path).unwrap();
    let known = history.jobs.into_iter().map(|(id, job)| {
        let (state, reason) = match &job.outcome {
            None => ("waiting", None),
            Some(Outcome::Solved(_) | Outcome::Kept { .. }) => ("solved", None),
            Some(Outcome::Failed(reason)) => ("failed", Some(reason.to_string())),
            Some(Outcome::Cancelled) => ("cancelled", None),
            Some(Outcome::Expired) => ("expired", None),
        };
        let solver = job.solver.map(|node| node.to_string());
        let (kind, attempts) = (job.spec.kind.to_string(), u64::from(job.attempts));
        let known =
            (kind, state.to_owned(), reason, solver, attempts, job.submitted_unix_ms, job.ended_unix_ms);
        (id.0, known)
    });
    known.collect()
}

fn of_ledger(ledger: &Ledger, name: &str) -> BTreeMap<u64, Known> {
    let journals = ledger.journals(Some("test")).unwrap();
    let of_name: Vec<_> = journals.iter().filter(|journal| journal.name == name).collect();
    assert_eq!(of_name.len(), 1, "{journals:?}");
    let jobs = ledger.jobs(&of_name, 10_000, true).unwrap();
    let known = jobs.iter().cloned().map(|job| {
        let known = (job.kind, job.state, job.reason, job.node, job.attempts, job.submitted_ms, job.ended_ms);
        (job.job, known)
    });
    let known: BTreeMap<u64, Known> = known.collect();
    assert_eq!(known.len(), jobs.len(), "every job once");
    known
}

#[test]
fn a_journal_becomes_rows_with_outcomes_solvers_and_times() {
    on_both(|place| {
        let dir = place.runs.join("journals");
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("main-1.journal"), &journals()[0]).unwrap();
        std::fs::write(dir.join("main-1.log"), "not a journal").unwrap();
        let ledger = place.ledger();
        let caught = ledger.catch_up_journals("test", &dir).unwrap();
        assert_eq!((caught.journals, caught.changed, &caught.failed), (1, 1, &vec![]));
        assert_eq!(ledger.catch_up_journals("test", &dir).unwrap().changed, 0);
        let known = of_ledger(&ledger, "main-1");
        assert_eq!(known, of_journal(&dir.join("main-1.journal")));
        let (kind, state, reason, solver, _, came, ended) = &known[&1];
        assert_eq!((kind.as_str(), state.as_str(), reason), ("echo", "solved", &None));
        assert!(solver.as_ref().unwrap().starts_with("node-"), "{solver:?}");
        assert!(came.unwrap() <= ended.unwrap());
        assert_eq!((known[&13].1.as_str(), known[&13].2.is_some()), ("failed", true));
        assert_eq!([known[&16].1.as_str(), known[&17].1.as_str()], ["waiting", "cancelled"]);
        assert_eq!(known.len(), 28);
        let journal = &ledger.journals(None).unwrap()[0];
        assert!(journal.main.as_ref().unwrap().starts_with("main-"), "{journal:?}");
        assert!(journal.is_of(&[journal.main.clone().unwrap()]) && !journal.is_of(&["main-1-77".to_owned()]));
        assert_eq!(ledger.journals(Some("other")).unwrap(), []);
        // Only those that have not ended; only the newest.
        let waiting = ledger.jobs(&[journal], 100, false).unwrap();
        assert_eq!(waiting.iter().map(|job| job.job).collect::<Vec<_>>(), [19, 18, 16]);
        let newest = ledger.jobs(&[journal], 2, true).unwrap();
        assert!(newest.iter().all(|job| job.kind == "upper"), "{newest:?}");
        assert_eq!(ledger.info().unwrap().jobs, 28);
        // A damaged one is named, and the others are read.
        std::fs::write(dir.join("a.journal"), "no journal at all, but long enough").unwrap();
        std::fs::write(dir.join("main-2.journal"), &journals()[1]).unwrap();
        let caught = ledger.catch_up_journals("test", &dir).unwrap();
        assert_eq!((caught.journals, caught.changed, caught.failed.len()), (3, 1, 1), "{caught:?}");
        std::fs::remove_file(dir.join("main-1.journal")).unwrap();
        assert_eq!(ledger.catch_up_journals("test", &dir).unwrap().removed, 1);
        assert_eq!(ledger.info().unwrap().jobs, 28, "those of the other one");
        std::fs::remove_file(dir.join("main-2.journal")).unwrap();
        assert_eq!(ledger.prune().unwrap().journals, 1);
        assert_eq!(ledger.info().unwrap().jobs, 0);
    });
}

#[test]
fn a_rebuild_reads_journals_again_also_those_that_lie_elsewhere() {
    on_both(|place| {
        let [dir, elsewhere] = ["journals", "elsewhere"].map(|name| place.runs.join(name));
        std::fs::create_dir(&dir).unwrap();
        std::fs::create_dir(&elsewhere).unwrap();
        std::fs::write(dir.join("main.journal"), &journals()[0]).unwrap();
        // A user may call it as they like.
        let own = elsewhere.join("mine");
        std::fs::write(&own, &journals()[1]).unwrap();
        let ledger = place.ledger();
        ledger.catch_up_journals("test", &dir).unwrap();
        ledger.feed_journal("test", &own).unwrap();
        let rebuilt = ledger.rebuild_journals(&[("test".to_owned(), dir.clone())]).unwrap();
        assert_eq!((rebuilt.journals, rebuilt.changed, rebuilt.removed), (2, 2, 0), "{rebuilt:?}");
        assert_eq!(of_ledger(&ledger, "main"), of_journal(&dir.join("main.journal")));
        assert_eq!(of_ledger(&ledger, "mine"), of_journal(&own));
    });
}

/// A journal that grows at any byte, processes that feed it and die, and another journal in its place.
fn live(place: &Workplace, seed: u64) {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let dir = place.runs.join("journals");
    std::fs::create_dir(&dir).unwrap();
    let path = dir.join("main.journal");
    let (mut whole, mut len) = (&journals()[0], 0);
    let mut processes = [Process::new(&place.url), Process::new(&place.url)];
    for _ in 0..rng.random_range(5..40) {
        let process = &mut processes[rng.random_range(0..2)];
        match rng.random_range(0..20) {
            0..=8 => {
                len = (len + rng.random_range(1..600)).min(whole.len());
                std::fs::write(&path, &whole[..len]).unwrap();
            }
            9..=13 => process.work(|ledger| ledger.catch_up_journals("test", &dir).map(drop)),
            14 => {
                process.work(|ledger| ledger.rebuild_journals(&[("test".to_owned(), dir.clone())]).map(drop))
            }
            15 => process.set(Faults { unreachable: true, ..Faults::default() }),
            16 => *process = Process::new(&place.url),
            17 => {
                (whole, len) = (&journals()[rng.random_range(0..2)], 0);
                std::fs::remove_file(&path).unwrap_or_default();
            }
            _ => {
                let (left, reaches) = (Some(rng.random_range(0..60)), rng.random_bool(0.5));
                process.set(Faults { left, reaches, ..Faults::default() });
            }
        }
    }
    std::fs::write(&path, whole).unwrap();
    drop(processes);
    let ledger = place.ledger();
    let caught = ledger.catch_up_journals("test", &dir).unwrap();
    assert_eq!((caught.journals, &caught.failed), (1, &vec![]), "seed {seed}");
    assert_eq!(of_ledger(&ledger, "main"), of_journal(&path), "seed {seed}");
    assert_eq!(ledger.catch_up_journals("test", &dir).unwrap().changed, 0, "seed {seed}: nothing is new");
    ledger.rebuild_journals(&[("test".to_owned(), dir)]).unwrap();
    assert_eq!(of_ledger(&ledger, "main"), of_journal(&path), "seed {seed}, made anew");
}

#[test]
fn in_the_end_the_ledger_has_the_jobs_of_the_journal_whatever_dies_when() {
    (0..seeds(300)).for_each(|seed| live(&Workplace::sqlite(), seed));
}

#[test]
fn in_the_end_the_ledger_has_the_jobs_of_the_journal_with_a_server_too() {
    (0..seeds(300) / 25).for_each(|seed| live(&Workplace::postgres(), seed));
}
