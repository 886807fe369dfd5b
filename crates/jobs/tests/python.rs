//! Calls of Python functions, with a stand-in for the worker: cancelled, raising, crashing, many, large.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use bytes::Bytes;
use phalanx_fabric::{FabricConfig, NodeKind};
use phalanx_jobs::builtin::Python;
use phalanx_jobs::{ComputingNode, Handlers, JobHandle, JobSpec, MainNode, MainOptions, Outcome, Stopper};
use phalanx_types::{ByteSize, DomainName, Resources};
use phalanx_wire::python::{KIND, PythonCall, PythonResult};
use phalanx_wire::reason::FailReason;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(30);

fn config(dir: &Path, name: &str, kind: NodeKind, cores: u32) -> FabricConfig {
    let mut config = FabricConfig::new(DomainName::new("test").unwrap(), name, kind);
    config.runtime_dir = dir.to_owned();
    config.mdns = false;
    config.resources = Resources { cores, memory: ByteSize::gib(1), ..Resources::default() };
    config
}

/// A main node and a node with workers that are stand-ins.
struct Place {
    main: MainNode,
    _stopper: Stopper,
    dir: TempDir,
}

impl Place {
    async fn new(cores: u32) -> Self {
        Self::with(cores, vec![stand_in()]).await
    }

    async fn with(cores: u32, worker: Vec<String>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = MainOptions::default();
        let main = MainNode::start(config(dir.path(), "main", NodeKind::Main, 0), options).await.unwrap();
        let handlers = Handlers::new().with(KIND, Python::with_command(worker));
        let node = ComputingNode::start(config(dir.path(), "node", NodeKind::Computing, cores), handlers);
        let node = node.await.unwrap();
        let stopper = node.stopper();
        tokio::spawn(node.run());
        Self { main, _stopper: stopper, dir }
    }

    async fn call(&self, function: &str, arguments: &str) -> JobHandle {
        self.main.submit(spec(function, arguments, Vec::new())).await.unwrap()
    }

    async fn value(&self, function: &str, arguments: &str) -> String {
        let job = self.call(function, arguments).await;
        String::from_utf8(result(ended(job).await).value.to_vec()).unwrap()
    }
}

/// The example that cargo builds along with these tests.
fn stand_in() -> String {
    let tests = std::env::current_exe().unwrap();
    let example = tests.parent().unwrap().parent().unwrap().join("examples/stand_in_worker");
    example.to_str().unwrap().to_owned()
}

fn spec(function: &str, arguments: &str, buffers: Vec<Bytes>) -> JobSpec {
    let mut hash = [0; 32];
    hash[..function.len()].copy_from_slice(function.as_bytes());
    let (function, arguments) = (function.to_owned().into(), arguments.to_owned().into());
    JobSpec::new(KIND, PythonCall { hash, function, arguments, buffers, inputs: 0 }.into_parcel().unwrap())
}

async fn ended(job: JobHandle) -> Outcome {
    timeout(DEADLINE, job).await.unwrap().unwrap()
}

fn result(outcome: Outcome) -> PythonResult {
    match outcome {
        Outcome::Solved(parcel) => PythonResult::from_parcel(&parcel).unwrap(),
        other => panic!("not solved: {other:?}"),
    }
}

/// What a file holds, once there is something in it.
async fn written(file: &Path) -> String {
    let look = async {
        loop {
            match std::fs::read_to_string(file) {
                Ok(text) if !text.is_empty() => return text,
                _ => tokio::task::yield_now().await,
            }
        }
    };
    timeout(DEADLINE, look).await.unwrap()
}

#[tokio::test]
async fn a_call_takes_the_results_of_others_without_a_copy() {
    let place = Place::new(1).await;
    let big = Bytes::from(vec![7; 300_000]);
    let (first, kept) = place.main.submit_kept(spec("echo", "first", vec![big.clone()])).await.unwrap();
    let takes = place.main.taking(spec("same", "second", vec!["own".into()]), &[&kept]).unwrap();
    let (second, kept_too) = place.main.submit_kept(takes).await.unwrap();
    assert!(matches!(ended(first).await, Outcome::Kept { len } if len > 300_000));
    assert!(matches!(ended(second).await, Outcome::Kept { .. }));
    let result = PythonResult::from_parcel(&timeout(DEADLINE, kept_too.fetch()).await.unwrap().unwrap());
    let result = result.unwrap();
    assert_eq!(result.value, "second");
    let layout: Vec<u8> = [1_u32, 1].iter().flat_map(|n| n.to_le_bytes()).collect();
    assert_eq!(result.buffers, ["own".into(), "first".into(), big, Bytes::from(layout)]);
    // Both results lie in the same memory.
    let first = PythonResult::from_parcel(&kept.fetch().await.unwrap()).unwrap();
    let token = |bytes: &Bytes| {
        phalanx_shared::locate(bytes).map(|located| (located.segment.token(), located.offset))
    };
    assert!(token(&first.buffers[0]).is_some());
    assert_eq!(token(&first.buffers[0]), token(&result.buffers[2]));
}

#[tokio::test]
async fn a_call_comes_back_with_its_result_and_its_buffers() {
    let place = Place::new(1).await;
    let buffers = vec![Bytes::from(vec![7; 100]), Bytes::new(), Bytes::from(vec![9; 3])];
    let job = place.main.submit(spec("echo", "hello", buffers.clone())).await.unwrap();
    let result = result(ended(job).await);
    assert_eq!((&result.value[..], result.buffers), (&b"hello"[..], buffers));
}

#[tokio::test]
async fn an_exception_comes_back_with_its_traceback() {
    let place = Place::new(1).await;
    let Outcome::Failed(FailReason::Raised(raised)) = ended(place.call("raise", "too small").await).await
    else {
        panic!("not raised")
    };
    assert_eq!(raised.to_string(), "ValueError: too small");
    assert!(raised.traceback.starts_with("Traceback (most recent call last):"), "{}", raised.traceback);
    assert_eq!(&raised.pickled[..], b"pickled");
    // It is a failure of the call alone.
    assert_eq!(place.value("echo", "next").await, "next");
}

#[tokio::test]
async fn a_thousand_calls_are_answered_each_once() {
    let place = Place::new(1).await;
    place.value("pid", "").await;
    let mut outcomes = place.main.outcomes().await.unwrap();
    let specs = (0..1000).map(|n: u32| spec("echo", &n.to_string(), Vec::new())).collect();
    let ids = place.main.submit_many(specs).await.unwrap();
    let mut seen = vec![false; 1000];
    for _ in 0..1000 {
        let (job, outcome) = timeout(DEADLINE, outcomes.next()).await.unwrap().unwrap();
        let at = usize::try_from(job.0 - ids.start).unwrap();
        assert_eq!(result(outcome).value, at.to_string());
        assert!(!std::mem::replace(&mut seen[at], true), "{job} came twice");
    }
    let counts = place.main.counts().await.unwrap();
    assert_eq!((counts.solved, counts.reruns), (1001, 0));
}

#[tokio::test]
async fn a_worker_is_kept_for_the_next_call() {
    let place = Place::new(1).await;
    let worker = place.value("pid", "").await;
    for _ in 0..20 {
        assert_eq!(place.value("pid", "").await, worker);
    }
}

#[tokio::test]
async fn large_buffers_go_through_shared_memory_and_come_back_whole() {
    let place = Place::new(1).await;
    for round in 0_u8..4 {
        let large: Vec<u8> = (0..3_000_000_u32).map(|i| (i / 7) as u8 ^ round).collect();
        let buffers = vec![Bytes::from(vec![round; 5]), Bytes::from(large)];
        let jobs = [
            place.main.submit(spec("echo", "a", buffers.clone())).await.unwrap(),
            place.main.submit(spec("echo", "b", buffers.clone())).await.unwrap(),
        ];
        for (job, name) in jobs.into_iter().zip(["a", "b"]) {
            let result = result(ended(job).await);
            assert_eq!(result.value, name);
            assert!(result.buffers == buffers, "round {round}: other buffers came back");
        }
    }
}

#[tokio::test]
async fn a_worker_in_python_needs_no_more_than_the_documented_protocol() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/worker.py");
    let place = Place::with(1, vec!["python3".to_owned(), script.to_str().unwrap().to_owned()]).await;
    for n in 0..100 {
        assert_eq!(place.value("echo", &n.to_string()).await, n.to_string());
    }
    let Outcome::Failed(FailReason::Raised(raised)) = ended(place.call("raise", "too small").await).await
    else {
        panic!("not raised")
    };
    assert_eq!(raised.to_string(), "ValueError: too small");
    assert!(raised.traceback.contains("line "), "{}", raised.traceback);
    for round in 0_u8..4 {
        let lent = shared(1 << 20, round);
        let buffers = vec![Bytes::from(vec![round; 3_000_001]), Bytes::from_static(b"small"), lent];
        let job = place.main.submit(spec("echo", "x", buffers.clone())).await.unwrap();
        assert!(result(ended(job).await).buffers == buffers, "round {round}: other buffers came back");
    }
}

#[tokio::test]
async fn cancelling_a_call_kills_its_worker_and_no_other_call() {
    let place = Place::new(1).await;
    // Quick calls first, so that calls are sent ahead.
    for n in 0..50 {
        place.value("echo", &n.to_string()).await;
    }
    let file = place.dir.path().join("worker.pid");
    let long = place.call("hold", file.to_str().unwrap()).await;
    let mut behind = Vec::new();
    for n in 0..20 {
        behind.push(place.call("echo", &n.to_string()).await);
    }
    let worker = written(&file).await;
    assert!(Path::new("/proc").join(&worker).exists());
    assert!(place.main.cancel(long.id()).await.unwrap());
    assert_eq!(ended(long).await, Outcome::Cancelled);
    for (n, job) in behind.into_iter().enumerate() {
        assert_eq!(result(ended(job).await).value, n.to_string());
    }
    // There is one core, so the others ran when the worker had ended.
    assert!(!Path::new("/proc").join(&worker).exists(), "the worker outlived its call");
}

#[tokio::test]
async fn a_call_that_kills_its_worker_fails_with_the_reason_after_its_attempts() {
    let place = Place::new(1).await;
    for n in 0..50 {
        place.value("echo", &n.to_string()).await;
    }
    let crash = JobSpec { max_attempts: 2, ..spec("exit", "3", Vec::new()) };
    let crash = place.main.submit(crash).await.unwrap();
    let mut behind = Vec::new();
    for n in 0..20 {
        behind.push(place.call("echo", &n.to_string()).await);
    }
    let Outcome::Failed(FailReason::Handler { message }) = ended(crash).await else { panic!("not failed") };
    assert_eq!(message, "the Python worker ended during the call (exit status: 3)");
    for (n, job) in behind.into_iter().enumerate() {
        assert_eq!(result(ended(job).await).value, n.to_string());
    }
    assert_eq!(place.main.counts().await.unwrap().reruns, 1);
}

#[tokio::test]
async fn calls_behind_a_long_one_run_on_another_core() {
    let place = Place::new(2).await;
    for n in 0..50 {
        place.value("echo", &n.to_string()).await;
    }
    let long = place.call("sleep", "600000").await;
    let mut behind = Vec::new();
    for n in 0..20 {
        behind.push(place.call("echo", &n.to_string()).await);
    }
    for (n, job) in behind.into_iter().enumerate() {
        assert_eq!(result(ended(job).await).value, n.to_string());
    }
    assert!(place.main.cancel(long.id()).await.unwrap());
}

#[tokio::test]
async fn a_program_that_is_no_worker_is_explained() {
    let python = Python::with_command(vec!["true".to_owned()]);
    let error = python.check().unwrap_err().to_string();
    assert_eq!(error, "the worker ended before it was ready (exit status: 0)");
    let python = Python::with_command(vec!["/nowhere/python".to_owned()]);
    assert_eq!(python.check().unwrap_err().kind(), std::io::ErrorKind::NotFound);
}

/// Bytes in memory that processes of this host share.
fn shared(len: usize, value: u8) -> Bytes {
    phalanx_shared::copy_together(&[&vec![value; len]]).unwrap().remove(0)
}

fn token(bytes: &[u8]) -> Option<phalanx_shared::Token> {
    phalanx_shared::locate(bytes).map(|located| located.segment.token())
}

#[tokio::test]
async fn buffers_in_shared_memory_are_read_where_they_lie() {
    let place = Place::new(1).await;
    for round in 0..5 {
        let large = shared(3 << 20, round);
        let buffers = vec![large.slice(..1 << 20), Bytes::from(vec![round; 100]), large.slice(1 << 20..)];
        let job = place.main.submit(spec("same", "hello", buffers.clone())).await.unwrap();
        let same = result(ended(job).await);
        assert_eq!((&same.value[..], &same.buffers), (&b"hello"[..], &buffers));
        assert_eq!(token(&same.buffers[2]), token(&large), "they were copied");
        let job = place.main.submit(spec("echo", "hello", buffers.clone())).await.unwrap();
        let echo = result(ended(job).await);
        assert_eq!(echo.buffers, buffers);
        let is_mapped = token(&echo.buffers[2]).is_some_and(|other| Some(other) != token(&large));
        assert!(is_mapped, "the result of the worker was sent");
    }
}

#[tokio::test]
async fn a_worker_that_names_what_is_not_in_the_arguments_is_given_up() {
    let place = Place::new(1).await;
    let mut call = spec("elsewhere", "", vec![shared(1 << 20, 1)]);
    call.max_attempts = 1;
    let outcome = ended(place.main.submit(call).await.unwrap()).await;
    let Outcome::Failed(reason) = outcome else { panic!("{outcome:?}") };
    assert!(reason.to_string().contains("arguments that the call does not have"), "{reason}");
    assert_eq!(place.value("echo", "again").await, "again");
}

#[tokio::test]
async fn a_worker_that_is_killed_gives_back_the_memory_of_its_call() {
    let place = Place::new(1).await;
    let file = place.dir.path().join("pid");
    let data = shared(5 << 20, 1);
    let segment = token(&data);
    let mut call = spec("hold", file.to_str().unwrap(), vec![data]);
    call.max_attempts = 1;
    let job = place.main.submit(call).await.unwrap();
    let pid: i32 = written(&file).await.parse().unwrap();
    let kill = rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid).unwrap(),
        rustix::process::Signal::KILL,
    );
    kill.unwrap();
    assert!(matches!(ended(job).await, Outcome::Failed(_)));
    let again = async {
        while token(&shared(5 << 20, 2)) != segment {
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, again).await.unwrap();
}

#[tokio::test]
async fn more_segments_than_a_worker_keeps_are_used_by_calls_at_once() {
    let place = Place::new(1).await;
    // Quick calls first, so that calls are sent ahead.
    for n in 0..50 {
        place.value("echo", &n.to_string()).await;
    }
    let mut jobs = Vec::new();
    for n in 0..60_u8 {
        let buffers = vec![shared(200_000, n)];
        let mut call = spec("same", "", buffers.clone());
        call.max_attempts = 1;
        jobs.push((buffers, place.main.submit(call).await.unwrap()));
    }
    for (buffers, job) in jobs {
        assert_eq!(result(ended(job).await).buffers, buffers);
    }
}
