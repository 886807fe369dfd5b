//! The Rust API on real sockets: main and computing nodes in one process.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use phalanx_fabric::{Fabric, FabricConfig, NodeKind, RequestError};
use phalanx_jobs::{
    ComputingNode, HandlerError, Handlers, JobContext, JobSpec, MainNode, MainOptions, Outcome, Stopper,
    builtin,
};
use phalanx_types::{ByteSize, DomainName, JobId, Parcel, Resources, Tensor};
use phalanx_wire::fabric::ReplyError;
use phalanx_wire::jobs::{JobAnswer, JobQuery, JobState, QUERY_SERVICE};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(20);

fn config(dir: &Path, name: &str, kind: NodeKind) -> FabricConfig {
    let mut config = FabricConfig::new(DomainName::new("test").unwrap(), name, kind);
    config.runtime_dir = dir.to_owned();
    config.mdns = false;
    config.resources = Resources { cores: 2, memory: ByteSize::gib(1), ..Resources::default() };
    config
}

async fn main_node(dir: &TempDir) -> MainNode {
    MainNode::start(config(dir.path(), "main", NodeKind::Main), MainOptions::default()).await.unwrap()
}

async fn computing(dir: &TempDir, handlers: Handlers) -> ComputingNode {
    ComputingNode::start(config(dir.path(), "node", NodeKind::Computing), handlers).await.unwrap()
}

async fn running(dir: &TempDir, handlers: Handlers) -> (Stopper, tokio::task::JoinHandle<()>) {
    let node = computing(dir, handlers).await;
    let stopper = node.stopper();
    (stopper, tokio::spawn(async { node.run().await.unwrap() }))
}

fn text(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Solved(parcel) => std::str::from_utf8(&parcel.bytes).unwrap(),
        other => panic!("not solved: {other:?}"),
    }
}

#[tokio::test]
async fn a_submitted_job_becomes_its_solution() {
    let dir = tempfile::tempdir().unwrap();
    let main = main_node(&dir).await;
    let (stopper, node) = running(&dir, builtin::handlers()).await;
    let job = main.submit(JobSpec::new("upper", Parcel::from_bytes("spear"))).await.unwrap();
    let outcome = timeout(DEADLINE, job).await.unwrap().unwrap();
    assert_eq!(text(&outcome), "SPEAR");
    main.shutdown().await;
    stopper.drain();
    timeout(DEADLINE, node).await.unwrap().unwrap();
}

#[tokio::test]
async fn many_jobs_come_back_as_a_stream_each_once() {
    let dir = tempfile::tempdir().unwrap();
    let main = main_node(&dir).await;
    let mut outcomes = main.outcomes().await.unwrap();
    let (_a, _) = running(&dir, builtin::handlers()).await;
    let (_b, _) = running(&dir, builtin::handlers()).await;
    let specs = (0..5000).map(|i: i32| JobSpec::new("echo", Parcel::from_bytes(i.to_string()))).collect();
    let ids = main.submit_many(specs).await.unwrap();
    let mut seen = BTreeSet::new();
    for _ in ids.clone() {
        let (job, outcome) = timeout(DEADLINE, outcomes.next()).await.unwrap().unwrap();
        assert_eq!(text(&outcome), (job.0 - ids.start).to_string());
        assert!(seen.insert(job), "{job} came twice");
    }
    let counts = main.counts().await.unwrap();
    assert_eq!((counts.solved, counts.reruns, counts.duplicates), (5000, 0, 0));
}

#[tokio::test]
async fn a_handler_knows_the_main_node_and_an_outcome_its_solver() {
    let dir = tempfile::tempdir().unwrap();
    let main = main_node(&dir).await;
    let mut outcomes = main.outcomes().await.unwrap();
    let whose = |job: &JobContext| {
        let main = job.main().ok_or_else(|| HandlerError::failed("no main node"))?;
        Ok(Parcel::from_bytes(main.to_string()))
    };
    let node = computing(&dir, Handlers::new().with("whose", whose)).await;
    let (id, running) = (node.id().clone(), tokio::spawn(node.run()));
    main.submit_many(vec![JobSpec::new("whose", Parcel::default())]).await.unwrap();
    let ends = timeout(DEADLINE, outcomes.next_ends()).await.unwrap().unwrap();
    assert_eq!(text(&ends[0].outcome), main.id().as_str());
    assert_eq!(ends[0].solver, Some(id));
    running.abort();
}

#[tokio::test]
async fn tensors_travel_both_ways_whether_small_or_large() {
    let dir = tempfile::tempdir().unwrap();
    let main = main_node(&dir).await;
    let double = |job: &JobContext| {
        let x = job.payload().tensor("x").ok_or_else(|| HandlerError::failed("no x"))?;
        let values = x.to_f32().map_err(|e| HandlerError::failed(e.to_string()))?;
        let doubled: Vec<f32> = values.iter().map(|v| v * 2.0).collect();
        let y = Tensor::from_f32(x.shape().to_vec(), &doubled)
            .map_err(|e| HandlerError::failed(e.to_string()))?;
        Ok(Parcel::default().with_tensor("y", y))
    };
    let (_node, _) = running(&dir, Handlers::new().with("double", double)).await;
    for rows in [2_u64, 100_000] {
        let values: Vec<f32> = (0..rows * 3).map(|v| v as f32).collect();
        let x = Tensor::from_f32(vec![rows, 3], &values).unwrap();
        let job = main.submit(JobSpec::new("double", Parcel::default().with_tensor("x", x))).await.unwrap();
        let Outcome::Solved(solution) = timeout(DEADLINE, job).await.unwrap().unwrap() else {
            panic!("unsolved")
        };
        let y = solution.tensor("y").unwrap();
        assert_eq!(y.shape(), [rows, 3]);
        assert_eq!(y.to_f32().unwrap(), values.iter().map(|v| v * 2.0).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn cancelling_reaches_the_handler_and_progress_reaches_the_asker() {
    let dir = tempfile::tempdir().unwrap();
    let main = main_node(&dir).await;
    let stopped = Arc::new(AtomicU32::new(0));
    let seen = stopped.clone();
    let wait = move |job: &JobContext| {
        job.progress(0.25, "a quarter");
        let result = job.sleep(DEADLINE);
        seen.fetch_add(u32::from(result.is_err()), Ordering::SeqCst);
        result.map(|()| Parcel::default())
    };
    let (stopper, node) = running(&dir, Handlers::new().with("wait", wait)).await;
    let job = main.submit(JobSpec::new("wait", Parcel::default())).await.unwrap();
    let id = job.id();
    let has_progress = async {
        loop {
            let answer = main.query(JobQuery::Show { job: id }).await.unwrap();
            if let JobAnswer::Jobs { jobs, .. } = answer
                && let JobState::Running { progress: Some(progress), .. } = &jobs[0].state
            {
                return progress.clone();
            }
            tokio::task::yield_now().await;
        }
    };
    assert_eq!(timeout(DEADLINE, has_progress).await.unwrap(), (250, "a quarter".to_owned()));
    assert!(main.cancel(id).await.unwrap());
    assert_eq!(timeout(DEADLINE, job).await.unwrap().unwrap(), Outcome::Cancelled);
    assert!(!main.cancel(id).await.unwrap(), "it has ended already");
    stopper.drain();
    timeout(DEADLINE, node).await.unwrap().unwrap();
    assert_eq!(stopped.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn solve_one_takes_exactly_one_job_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let main = main_node(&dir).await;
    let mut node = computing(&dir, builtin::handlers()).await;
    let specs = (0..3).map(|_| JobSpec::new("echo", Parcel::default())).collect();
    main.submit_many(specs).await.unwrap();
    for solved in 1..=2 {
        timeout(DEADLINE, node.solve_one()).await.unwrap().unwrap();
        assert_eq!(main.counts().await.unwrap().solved, solved);
    }
    node.shutdown().await;
}

#[tokio::test]
async fn a_handler_that_panics_fails_its_job_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let main = main_node(&dir).await;
    let bad = |_: &JobContext| -> Result<Parcel, HandlerError> { panic!("out of arrows") };
    let (_node, _) = running(&dir, builtin::handlers().with("bad", bad)).await;
    let job = main.submit(JobSpec::new("bad", Parcel::default())).await.unwrap();
    let Outcome::Failed(reason) = timeout(DEADLINE, job).await.unwrap().unwrap() else {
        panic!("not failed")
    };
    assert_eq!(reason.to_string(), "handler panicked: out of arrows");
    let job = main.submit(JobSpec::new("echo", Parcel::from_bytes("on"))).await.unwrap();
    assert_eq!(text(&timeout(DEADLINE, job).await.unwrap().unwrap()), "on");
}

#[tokio::test]
async fn an_error_worth_retrying_is_retried_as_often_as_the_job_allows() {
    let dir = tempfile::tempdir().unwrap();
    let main = main_node(&dir).await;
    let tries = Arc::new(AtomicU32::new(0));
    let counted = tries.clone();
    let flaky = move |_: &JobContext| match counted.fetch_add(1, Ordering::SeqCst) {
        0 | 1 => Err(HandlerError::retry("not yet")),
        _ => Ok(Parcel::from_bytes("now")),
    };
    let (_node, _) = running(&dir, Handlers::new().with("flaky", flaky)).await;
    let job = main.submit(JobSpec::new("flaky", Parcel::default())).await.unwrap();
    assert_eq!(text(&timeout(DEADLINE, job).await.unwrap().unwrap()), "now");
    assert_eq!((tries.load(Ordering::SeqCst), main.counts().await.unwrap().reruns), (3, 2));
}

#[tokio::test]
async fn a_journal_brings_back_what_was_and_what_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let options = MainOptions { journal: Some(journal), ..MainOptions::default() };
    let start = || MainNode::start(config(dir.path(), "main", NodeKind::Main), options.clone());
    let main = start().await.unwrap();
    let (stopper, node) = running(&dir, builtin::handlers()).await;
    let done = main.submit(JobSpec::new("upper", Parcel::from_bytes("a"))).await.unwrap();
    timeout(DEADLINE, done).await.unwrap().unwrap();
    stopper.drain();
    timeout(DEADLINE, node).await.unwrap().unwrap();
    main.submit_many(vec![JobSpec::new("upper", Parcel::from_bytes("b"))]).await.unwrap();
    main.shutdown().await;
    drop(main);

    let main = timeout(DEADLINE, async {
        loop {
            // The journal is free once the first node's task has ended.
            if let Ok(main) = start().await {
                return main;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    let recovered = main.take_recovered();
    assert_eq!(recovered.len(), 2);
    assert_eq!(text(recovered[0].1.as_ref().unwrap()), "A");
    assert_eq!(recovered[1], (JobId(2), None));
    let mut outcomes = main.outcomes().await.unwrap();
    let (_node, _) = running(&dir, builtin::handlers()).await;
    let (job, outcome) = timeout(DEADLINE, outcomes.next()).await.unwrap().unwrap();
    assert_eq!((job, text(&outcome)), (JobId(2), "B"));
}

#[tokio::test]
async fn a_failure_with_a_very_long_message_still_arrives() {
    let dir = tempfile::tempdir().unwrap();
    let main = main_node(&dir).await;
    let (_node, _) = running(&dir, builtin::handlers()).await;
    let long = "x".repeat(5 << 20) + "the end";
    let job = main.submit(JobSpec::new("fail", Parcel::from_bytes(long))).await.unwrap();
    let Outcome::Failed(reason) = timeout(DEADLINE, job).await.unwrap().unwrap() else {
        panic!("not failed")
    };
    let text = reason.to_string();
    assert!(text.len() < 2048 && text.ends_with("the end"), "{} bytes", text.len());
}

#[tokio::test]
async fn a_payload_that_could_never_be_sent_is_refused_when_submitted() {
    let dir = tempfile::tempdir().unwrap();
    let main = main_node(&dir).await;
    let empty = Tensor::from_f32(vec![0], &[]).unwrap();
    let tensors = (0..100_000).map(|i| (format!("tensor-{i}"), empty.clone())).collect();
    let payload = Parcel { tensors, ..Parcel::default() };
    let error = main.submit(JobSpec::new("echo", payload)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "a payload has too many tensors (100000): their names and shapes do not fit a message"
    );
}

#[tokio::test]
async fn a_handler_that_gives_up_unasked_has_failed() {
    let dir = tempfile::tempdir().unwrap();
    let main = main_node(&dir).await;
    let quitter = |_: &JobContext| -> Result<Parcel, HandlerError> { Err(HandlerError::cancelled()) };
    let (_node, _) = running(&dir, Handlers::new().with("quit", quitter)).await;
    let job = main.submit(JobSpec::new("quit", Parcel::default())).await.unwrap();
    let outcome = timeout(DEADLINE, job).await.unwrap().unwrap();
    assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
}

#[tokio::test]
async fn only_a_member_that_looks_on_may_cancel_jobs_of_a_main_node() {
    let dir = tempfile::tempdir().unwrap();
    let main = main_node(&dir).await;
    let job = main.submit(JobSpec::new("nobody", Parcel::from_bytes("x"))).await.unwrap();
    let mut body = bytes::BytesMut::new();
    phalanx_wire::codec::encode_into(&JobQuery::CancelAll, &mut body).unwrap();
    let ask = async |name: &str, kind: NodeKind| {
        let member = Fabric::start(config(dir.path(), name, kind)).await.unwrap();
        member.settled(DEADLINE).await;
        let answer = member.request(main.id(), QUERY_SERVICE, body.clone().freeze(), DEADLINE).await;
        member.shutdown().await;
        answer
    };
    for kind in [NodeKind::Main, NodeKind::Computing, NodeKind::Edge, NodeKind::Inference] {
        let refused = ask("liar", kind).await;
        let Err(RequestError::Reply { source: ReplyError::Refused { message }, .. }) = refused else {
            panic!("{kind}: {refused:?}")
        };
        assert!(message.contains("neither"), "{message}");
        assert_eq!(main.counts().await.unwrap().cancelled, 0);
    }
    ask("operator", NodeKind::Observer).await.unwrap();
    assert_eq!(timeout(DEADLINE, job).await.unwrap().unwrap(), Outcome::Cancelled);
    main.shutdown().await;
}
