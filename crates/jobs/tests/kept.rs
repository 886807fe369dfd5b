//! Solutions that stay at their nodes, on real sockets: taken by other jobs, fetched, freed, made again.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use phalanx_fabric::{FabricConfig, NodeKind};
use phalanx_jobs::{
    ComputingNode, HandlerError, Handlers, JobContext, JobHandle, JobSpec, JournalError, MainError, MainNode,
    MainOptions, Outcome, ResultMemory, SolutionRef, Stopper,
};
use phalanx_types::{ByteSize, DomainName, JobId, Parcel, Resources};
use phalanx_wire::jobs::{JobAnswer, JobQuery, JobState};
use phalanx_wire::reason::{FailReason, LostInput, WaitReason};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(20);
const LARGE: usize = 200_000;

fn config(dir: &Path, name: &str, kind: NodeKind) -> FabricConfig {
    let mut config = FabricConfig::new(DomainName::new("test").unwrap(), name, kind);
    config.runtime_dir = dir.to_owned();
    config.mdns = false;
    config.resources = Resources { cores: 1, memory: ByteSize::gib(1), ..Resources::default() };
    config
}

/// How often jobs of each kind ran.
#[derive(Debug, Default)]
struct Ran {
    made: AtomicU32,
    sums: AtomicU32,
}

/// `fill` makes many bytes of a value, `next` adds one to all of its input, `join` puts its inputs together.
fn handlers(ran: &Arc<Ran>) -> Handlers {
    let (fills, sums) = (ran.clone(), ran.clone());
    let fill = move |job: &JobContext| {
        fills.made.fetch_add(1, Ordering::Relaxed);
        Ok(Parcel::from_bytes(vec![job.payload().bytes[0]; LARGE]))
    };
    let next = move |job: &JobContext| {
        sums.sums.fetch_add(1, Ordering::Relaxed);
        let [input] = job.inputs() else { return Err(HandlerError::failed("one input, please")) };
        Ok(Parcel::from_bytes(input.bytes.iter().map(|b| b + 1).collect::<Vec<u8>>()))
    };
    let ends = |job: &JobContext| {
        let ends: Vec<u8> = job.inputs().iter().map(|input| input.bytes[0]).collect();
        Ok(Parcel::from_bytes(ends))
    };
    let fail = |_: &JobContext| Err(HandlerError::failed("broken"));
    Handlers::new().with("fill", fill).with("next", next).with("ends", ends).with("broken", fail)
}

struct Place {
    main: MainNode,
    ran: Arc<Ran>,
    dir: TempDir,
}

impl Place {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let main = MainNode::start(config(dir.path(), "main", NodeKind::Main), MainOptions::default());
        Self { main: main.await.unwrap(), ran: Arc::default(), dir }
    }

    async fn node(&self, name: &str) -> (Stopper, JoinHandle<()>) {
        let config = config(self.dir.path(), name, NodeKind::Computing);
        let node = ComputingNode::start(config, handlers(&self.ran)).await.unwrap();
        let stopper = node.stopper();
        (stopper, tokio::spawn(async { node.run().await.unwrap() }))
    }

    async fn kept(
        &self,
        kind: &str,
        payload: &'static [u8],
        of: &[&SolutionRef],
    ) -> (JobHandle, SolutionRef) {
        let spec = self.main.taking(JobSpec::new(kind, Parcel::from_bytes(payload)), of).unwrap();
        self.main.submit_kept(spec).await.unwrap()
    }
}

async fn ended(job: JobHandle) -> Outcome {
    timeout(DEADLINE, job).await.unwrap().unwrap()
}

async fn fetched(solution: &SolutionRef) -> Parcel {
    timeout(DEADLINE, solution.fetch()).await.unwrap().unwrap()
}

fn is_kept(outcome: &Outcome) -> bool {
    *outcome == Outcome::Kept { len: LARGE as u64 }
}

#[tokio::test]
async fn a_chain_of_jobs_takes_solutions_from_each_other() {
    let place = Place::new().await;
    let (_one, _) = place.node("one").await;
    let (_two, _) = place.node("two").await;
    let (first, mut solution) = place.kept("fill", b"\x05", &[]).await;
    let mut jobs = vec![first];
    for _ in 0..10 {
        let (job, next) = place.kept("next", b"", &[&solution]).await;
        jobs.push(job);
        solution = next;
    }
    for job in jobs {
        assert!(is_kept(&ended(job).await));
    }
    assert_eq!(fetched(&solution).await.bytes, vec![15; LARGE]);
    let ends = place.main.taking(JobSpec::new("ends", Parcel::default()), &[&solution, &solution]).unwrap();
    let Outcome::Solved(ends) = ended(place.main.submit(ends).await.unwrap()).await else { panic!() };
    assert_eq!(ends.bytes, [15, 15][..]);
    assert_eq!(place.ran.sums.load(Ordering::Relaxed), 10, "nothing ran twice");
}

#[tokio::test]
async fn a_lost_solution_is_made_again_with_all_it_was_made_from() {
    let place = Place::new().await;
    let (one, end) = place.node("one").await;
    let (first, a) = place.kept("fill", b"\x01", &[]).await;
    let (second, b) = place.kept("next", b"", &[&a]).await;
    assert!(is_kept(&ended(first).await) && is_kept(&ended(second).await));
    // Only the way to make it is remembered of the first one.
    drop(a);
    one.stop_now();
    timeout(DEADLINE, end).await.unwrap().unwrap();
    let (third, c) = place.kept("next", b"", &[&b]).await;
    let JobAnswer::Jobs { jobs, .. } = place.main.query(JobQuery::Show { job: third.id() }).await.unwrap()
    else {
        panic!()
    };
    let waits = JobState::Waiting(WaitReason::Inputs { missing: 1, first: b.job() });
    assert!(jobs[0].state == waits || jobs[0].state == JobState::Waiting(WaitReason::NoNodes), "{jobs:?}");
    let (_two, _) = place.node("two").await;
    assert!(is_kept(&ended(third).await));
    assert_eq!(fetched(&c).await.bytes, vec![3; LARGE]);
    assert_eq!(place.ran.made.load(Ordering::Relaxed), 2);
    assert_eq!(place.ran.sums.load(Ordering::Relaxed), 3);
    assert_eq!(place.main.counts().await.unwrap().solved, 3, "every job has one outcome");
}

#[tokio::test]
async fn what_cannot_be_taken_is_said_with_its_reason() {
    let place = Place::new().await;
    let (_one, _) = place.node("one").await;
    let (broken, a) = place.kept("broken", b"", &[]).await;
    let (after, b) = place.kept("next", b"", &[&a]).await;
    let Outcome::Failed(FailReason::Handler { .. }) = ended(broken).await else { panic!() };
    let Outcome::Failed(FailReason::InputFailed { job, why, .. }) = ended(after).await else { panic!() };
    assert_eq!((job, why.as_str()), (a.job(), "handler failed: broken"));
    let Err(MainError::NoSolution(FailReason::InputFailed { job, .. })) = b.fetch().await else { panic!() };
    assert_eq!(job, a.job());
    // A job that never was, and one whose solution is not kept.
    for inputs in [vec![JobId(99)], vec![JobId(3)]] {
        let spec = JobSpec { inputs, ..JobSpec::new("ends", Parcel::default()) };
        let outcome = ended(place.main.submit(spec).await.unwrap()).await;
        assert!(matches!(outcome, Outcome::Failed(FailReason::InputLost { why: LostInput::NotKept, .. })));
    }
    let other = Place::new().await;
    let foreign = other.main.taking(JobSpec::new("ends", Parcel::default()), &[&a]);
    assert!(matches!(foreign, Err(MainError::OtherMain)));
}

#[tokio::test]
async fn the_last_reference_frees_a_solution_at_its_node() {
    let place = Place::new().await;
    let node =
        ComputingNode::start(config(place.dir.path(), "one", NodeKind::Computing), handlers(&place.ran));
    let node = node.await.unwrap();
    let fabric = node.fabric().clone();
    let _running = tokio::spawn(node.run());
    let (job, solution) = place.kept("fill", b"\x07", &[]).await;
    assert!(is_kept(&ended(job).await));
    let second = solution.clone();
    drop(solution);
    assert_eq!(fetched(&second).await.bytes.len(), LARGE);
    assert_eq!(fabric.held_bytes(), LARGE as u64);
    drop(second);
    let freed = async {
        while fabric.held_bytes() > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, freed).await.unwrap();
}

#[tokio::test]
async fn a_main_node_that_is_started_again_knows_what_was_kept() {
    let place = Place::new().await;
    let (_one, _) = place.node("one").await;
    let journal = place.dir.path().join("kept.journal");
    let options = || MainOptions { journal: Some(journal.clone()), ..MainOptions::default() };
    let start = || MainNode::start(config(place.dir.path(), "again", NodeKind::Main), options());
    let main = start().await.unwrap();
    let fill = || JobSpec::new("fill", Parcel::from_bytes(&b"\x09"[..]));
    let (job, kept) = main.submit_kept(fill()).await.unwrap();
    let (dropped, also_kept) = main.submit_kept(fill()).await.unwrap();
    assert!(is_kept(&ended(job).await) && is_kept(&ended(dropped).await));
    let (first, second) = (kept.job(), also_kept.job());
    drop(also_kept);
    main.counts().await.unwrap();
    // The process of a main node that ends drops nothing.
    std::mem::forget(kept);
    main.shutdown().await;
    drop(main);
    // The task of the first one may take a moment to let go of the journal.
    let again = async {
        loop {
            match start().await {
                Ok(main) => break main,
                Err(MainError::Journal(JournalError::InUse { .. })) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    let main = timeout(DEADLINE, again).await.unwrap();
    let recovered = main.take_recovered();
    assert!(recovered.iter().all(|(_, outcome)| outcome.as_ref().is_some_and(is_kept)), "{recovered:?}");
    let kept = main.solution(first);
    let next = main.taking(JobSpec::new("ends", Parcel::default()), &[&kept]).unwrap();
    let Outcome::Solved(ends) = ended(main.submit(next).await.unwrap()).await else { panic!() };
    assert_eq!(ends.bytes, [9][..]);
    let released = JobSpec { inputs: vec![second], ..JobSpec::new("ends", Parcel::default()) };
    let outcome = ended(main.submit(released).await.unwrap()).await;
    assert!(matches!(outcome, Outcome::Failed(FailReason::InputLost { why: LostInput::NotKept, .. })));
}

#[tokio::test]
async fn solutions_over_the_budget_go_to_disk_and_come_back_right() {
    let place = Place::new().await;
    let spill = place.dir.path().join("spill");
    std::fs::create_dir(&spill).unwrap();
    let config = config(place.dir.path(), "one", NodeKind::Computing);
    let many = |job: &JobContext| Ok(Parcel::from_bytes(vec![job.payload().bytes[0]; 1 << 20]));
    let handlers = handlers(&place.ran).with("many", many);
    let mut node = ComputingNode::start(config, handlers).await.unwrap();
    node.set_result_memory(ResultMemory { limit: ByteSize::mib(2), spill: spill.clone() });
    let fabric = node.fabric().clone();
    let _running = tokio::spawn(node.run());
    let mut kept = Vec::new();
    for value in [b"\x01", b"\x02", b"\x03", b"\x04", b"\x05", b"\x06"] {
        let (job, solution) = place.kept("many", value, &[]).await;
        assert!(matches!(ended(job).await, Outcome::Kept { len } if len == 1 << 20));
        kept.push(solution);
    }
    // Files without names: the space that they take in the directory is what tells of them.
    let open = || {
        let files =
            std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|file| file.ok()?.path().read_link().ok());
        files.filter(|file| file.starts_with(&spill)).count()
    };
    let spilled = async {
        while open() == 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, spilled).await.unwrap();
    let all: Vec<&SolutionRef> = kept.iter().collect();
    let ends = place.main.taking(JobSpec::new("ends", Parcel::default()), &all).unwrap();
    let Outcome::Solved(ends) = ended(place.main.submit(ends).await.unwrap()).await else { panic!() };
    assert_eq!(ends.bytes, [1, 2, 3, 4, 5, 6][..]);
    for (solution, value) in kept.iter().zip(1..) {
        assert_eq!(fetched(solution).await.bytes, vec![value; 1 << 20]);
    }
    assert_eq!(fabric.held_bytes(), 6 << 20);
}

/// What the process of a main node is told: the directory of its domain.
const MAIN_DIR: &str = "PHALANX_TEST_MAIN_DIR";

async fn main_with_journal(dir: &Path) -> MainNode {
    let options = MainOptions { journal: Some(dir.join("kept.journal")), ..MainOptions::default() };
    MainNode::start(config(dir, "again", NodeKind::Main), options).await.unwrap()
}

/// A main node that keeps two solutions, one made from the other, until it is killed.
#[tokio::test]
#[ignore = "the process of a main node, which a test starts"]
async fn main_process() {
    let Ok(dir) = std::env::var(MAIN_DIR) else { return };
    let main = main_with_journal(Path::new(&dir)).await;
    let (job, kept) = main.submit_kept(JobSpec::new("fill", Parcel::from_bytes(&b"\x09"[..]))).await.unwrap();
    let next = main.taking(JobSpec::new("next", Parcel::default()), &[&kept]).unwrap();
    let (next, made) = main.submit_kept(next).await.unwrap();
    assert!(is_kept(&ended(job).await) && is_kept(&ended(next).await));
    println!("kept {} {}", kept.job().0, made.job().0);
    std::future::pending::<()>().await;
}

/// Starts a main node in a process; gives it with the jobs whose solutions it keeps.
fn start_main_process(dir: &Path) -> (std::process::Child, [JobId; 2]) {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["main_process", "--exact", "--ignored", "--nocapture"]).env(MAIN_DIR, dir);
    let mut process = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(process.stdout.take().unwrap()));
    let told = lines.map_while(Result::ok).find_map(|line| Some(line.split_once("kept ")?.1.to_owned()));
    let jobs: Vec<JobId> =
        told.unwrap().split(' ').map(|number| JobId(number.trim().parse().unwrap())).collect();
    (process, jobs.try_into().unwrap())
}

/// Waits until a node holds this many bytes of solutions.
async fn holds(fabric: &phalanx_fabric::Fabric, bytes: usize) {
    let held = async {
        while fabric.held_bytes() != bytes as u64 {
            tokio::task::yield_now().await;
        }
    };
    let within = timeout(DEADLINE, held).await;
    assert!(within.is_ok(), "{} bytes are held, not {bytes}", fabric.held_bytes());
}

#[tokio::test]
async fn what_a_killed_main_node_kept_is_right_and_freed_in_the_end() {
    let (dir, ran) = (tempfile::tempdir().unwrap(), Arc::<Ran>::default());
    let node = ComputingNode::start(config(dir.path(), "one", NodeKind::Computing), handlers(&ran));
    let node = node.await.unwrap();
    let fabric = node.fabric().clone();
    let _running = tokio::spawn(node.run());
    let domain = dir.path().to_owned();
    let (mut process, [first, second]) =
        tokio::task::spawn_blocking(move || start_main_process(&domain)).await.unwrap();
    holds(&fabric, 2 * LARGE).await;
    // SIGKILL: it says goodbye to no node, and drops nothing.
    process.kill().unwrap();
    process.wait().unwrap();
    let main = main_with_journal(dir.path()).await;
    let recovered = main.take_recovered();
    assert!(recovered.iter().all(|(_, outcome)| outcome.as_ref().is_some_and(is_kept)), "{recovered:?}");
    let (kept, made) = (main.solution(first), main.solution(second));
    assert_eq!(fetched(&made).await.bytes, vec![10; LARGE]);
    let ends = main.taking(JobSpec::new("ends", Parcel::default()), &[&kept, &made]).unwrap();
    let Outcome::Solved(ends) = ended(main.submit(ends).await.unwrap()).await else { panic!() };
    assert_eq!(ends.bytes, [9, 10][..]);
    let ran = [&ran.made, &ran.sums].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(ran, [1, 1], "the node had both still: nothing was made again");
    holds(&fabric, 2 * LARGE).await;
    drop(kept);
    holds(&fabric, LARGE).await;
    drop(made);
    holds(&fabric, 0).await;
}

#[tokio::test]
async fn what_a_killed_main_node_kept_is_freed_when_its_next_life_ends() {
    let (dir, ran) = (tempfile::tempdir().unwrap(), Arc::<Ran>::default());
    let node = ComputingNode::start(config(dir.path(), "one", NodeKind::Computing), handlers(&ran));
    let node = node.await.unwrap();
    let fabric = node.fabric().clone();
    let _running = tokio::spawn(node.run());
    let domain = dir.path().to_owned();
    let (mut process, [first, _]) =
        tokio::task::spawn_blocking(move || start_main_process(&domain)).await.unwrap();
    process.kill().unwrap();
    process.wait().unwrap();
    let main = main_with_journal(dir.path()).await;
    let kept = main.solution(first);
    assert_eq!(fetched(&kept).await.bytes, vec![9; LARGE]);
    std::mem::forget(kept);
    main.shutdown().await;
    holds(&fabric, 0).await;
}
