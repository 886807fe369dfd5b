//! Real processes: this test program started again as ranks.
#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use phalanx_account::NodeAccount;
use phalanx_fabric::{Fabric, FabricConfig, NodeKind};
use phalanx_launch::{
    DomainPlace, ElasticLimits, LaunchError, LaunchFailure, LaunchNotice, LaunchPlace, LaunchSize,
    LaunchSpec, LaunchSummary, NodeChoice, PROGRAMS, ProcessExit, launch, serve_ranks,
};
use phalanx_ops::{DType, OpKind, OpSignature, Ops, OpsError, Reduction, TensorSpec};
use phalanx_types::{ByteSize, DomainName, Needs, Resources};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

const GRACE: Duration = Duration::from_secs(5);
/// Sums before and after a rank dies.
const STEPS: u32 = 200;

fn spec(ranks: u32, elastic: Option<ElasticLimits>, command: Vec<OsString>) -> LaunchSpec {
    let size = LaunchSize { ranks, elastic, grace: GRACE };
    let place = LaunchPlace::Here { wrapper: Vec::new(), cores: None };
    LaunchSpec { size, command, prefix: true, place }
}

/// Starts ranks of this program that do what `mode` says.
fn ranks(ranks: u32, elastic: Option<ElasticLimits>, mode: &str, dir: &Path) -> LaunchSummary {
    let mut spec = spec(ranks, elastic, rank_program_words());
    spec.place = LaunchPlace::Here { wrapper: wrapper(mode, dir), cores: None };
    launch(&spec, |_| {}, &mut |_| {}).unwrap()
}

/// This program as a rank.
fn rank_program_words() -> Vec<OsString> {
    let me = std::env::current_exe().unwrap().into_os_string();
    vec![me, "rank_program".into(), "--exact".into(), "--nocapture".into()]
}

/// Tells it what to do.
fn wrapper(mode: &str, dir: &Path) -> Vec<OsString> {
    let mut directory = OsString::from("LAUNCH_TEST_DIR=");
    directory.push(dir);
    vec!["env".into(), format!("LAUNCH_TEST_MODE={mode}").into(), directory]
}

/// What a rank does; nothing when it is run as a test.
#[test]
fn rank_program() {
    let Ok(mode) = std::env::var("LAUNCH_TEST_MODE") else { return };
    let dir = PathBuf::from(std::env::var_os("LAUNCH_TEST_DIR").unwrap());
    let ops = Ops::init_from_env().unwrap();
    match mode.as_str() {
        "sum" => assert_eq!(sum(&ops, 100).unwrap(), vec![ops.size() as f32; 100]),
        "fail" => {
            sum(&ops, 1).unwrap();
            if ops.rank() == 1 {
                #[expect(clippy::exit, reason = "the test is about this exit code")]
                std::process::exit(7);
            }
            while sum(&ops, 1).is_ok() {}
            // Until the launcher ends this process.
            std::thread::park_timeout(Duration::from_secs(60));
        }
        "elastic" => elastic(ops, &dir),
        "grows" => grows(ops, &dir),
        other => panic!("there is no mode {other}"),
    }
}

fn sum(ops: &Ops, elements: usize) -> Result<Vec<f32>, OpsError> {
    let mut values = vec![1.0_f32; elements];
    let kind = OpKind::AllReduce { reduction: Reduction::Sum };
    let signature = OpSignature::new(kind, TensorSpec::new(DType::F32, [elements as u64]));
    ops.run_on("sum", signature, bytemuck::cast_slice_mut(&mut values))?;
    Ok(values)
}

/// Rank 2 kills itself in the middle of the first epoch; the others go on with a new one.
fn elastic(ops: Ops, dir: &Path) {
    let mut ops = ops;
    let worker = std::env::var("PHALANX_WORKER").unwrap();
    let mut step = 0;
    while step < STEPS {
        if ops.epoch() == 1 && worker == "2" && step == STEPS / 2 {
            note(dir, "killed");
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
        }
        match sum(&ops, 100_000) {
            Ok(values) => assert!(values.iter().all(|value| *value == ops.size() as f32)),
            Err(OpsError::PeerLost { rank }) => {
                note(dir, &format!("lost{worker}"));
                assert_eq!(rank, 2);
                ops = ops.reset().unwrap();
                step = 0;
                continue;
            }
            Err(error) => panic!("{error}"),
        }
        step += 1;
    }
    note(dir, &format!("done{worker}-epoch{}-rank{}-of{}", ops.epoch(), ops.rank(), ops.size()));
}

/// Two ranks count steps until a third comes, and some more with it. No step is counted twice.
fn grows(mut ops: Ops, dir: &Path) {
    let (mut step, mut together) = (0, 0);
    let worker = std::env::var("PHALANX_WORKER").unwrap();
    while together < STEPS {
        if ops.newcomers_wait().unwrap() {
            note(dir, &format!("grew{worker}-from{}", ops.size()));
            ops = ops.reset().unwrap();
            continue;
        }
        let farthest = maximum(&ops, step);
        assert!(step == 0 || step == farthest, "a rank with a state has lost some of it");
        step = farthest + 1;
        together += u32::from(ops.size() == 3);
    }
    note(dir, &format!("done{worker}-epoch{}-rank{}-of{}", ops.epoch(), ops.rank(), ops.size()));
}

fn maximum(ops: &Ops, step: u32) -> u32 {
    let kind = OpKind::AllReduce { reduction: Reduction::Max };
    let signature = OpSignature::new(kind, TensorSpec::new(DType::F64, [1]));
    let mut value = [f64::from(step)];
    ops.run_on("step", signature, bytemuck::cast_slice_mut(&mut value)).unwrap();
    value[0] as u32
}

fn note(dir: &Path, name: &str) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    std::fs::write(dir.join(name), now.as_micros().to_string()).unwrap();
}

fn noted(dir: &Path, name: &str) -> u128 {
    std::fs::read_to_string(dir.join(name)).unwrap().parse().unwrap()
}

#[test]
fn ranks_find_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let summary = ranks(3, None, "sum", dir.path());
    assert_eq!((summary.exit_code, summary.failure, summary.epochs), (0, None, 1));
}

#[test]
fn the_first_failure_ends_all() {
    let dir = tempfile::tempdir().unwrap();
    let summary = ranks(3, None, "fail", dir.path());
    assert_eq!(summary.exit_code, 7);
    let failure = LaunchFailure::Process { worker: 1, exit: ProcessExit::Code(7) };
    assert_eq!(summary.failure, Some(failure));
    assert!(summary.seconds < 30.0);
}

#[test]
fn a_killed_rank_is_told_at_once_and_a_new_one_takes_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let limits = ElasticLimits { min: 2, max: 3, reset_limit: Some(5) };
    let summary = ranks(3, Some(limits), "elastic", dir.path());
    assert_eq!((summary.exit_code, summary.resets, summary.epochs), (0, 1, 2));
    let killed = noted(dir.path(), "killed");
    for worker in ["0", "1"] {
        let waited = noted(dir.path(), &format!("lost{worker}")) - killed;
        assert!(waited < 1_000_000, "rank {worker} heard of the loss after {waited} µs");
    }
    for (worker, rank) in [(0, 0), (1, 1), (2, 2)] {
        noted(dir.path(), &format!("done{worker}-epoch2-rank{rank}-of3"));
    }
}

#[test]
fn an_interrupt_ends_all() {
    let summary = launch(
        &spec(2, None, vec!["sleep".into(), "600".into()]),
        |control| control.interrupt(),
        &mut |_| {},
    )
    .unwrap();
    assert_eq!((summary.exit_code, summary.failure), (130, Some(LaunchFailure::Interrupted)));
    assert!(summary.seconds < GRACE.as_secs_f64(), "no rank had to be killed");
}

#[test]
fn what_cannot_be_started_is_an_error() {
    let error = launch(&spec(2, None, vec!["/nowhere/program".into()]), |_| {}, &mut |_| {}).unwrap_err();
    assert!(matches!(error, LaunchError::Start { .. }));
    let limits = ElasticLimits { min: 2, max: 4, reset_limit: None };
    for ranks in [1, 5] {
        let error = launch(&spec(ranks, Some(limits), vec!["true".into()]), |_| {}, &mut |_| {}).unwrap_err();
        assert!(matches!(error, LaunchError::Size { min: 2, max: 4, .. }));
    }
}

/// Nodes of this process that run ranks, and the launcher's node, on a thread with a runtime.
struct RankNodes {
    runtime: Handle,
    launcher: Fabric,
    /// Adds a node. The thread ends when this is dropped.
    more: mpsc::UnboundedSender<()>,
}

impl RankNodes {
    fn start(dir: &Path, count: usize, wrapper: &[OsString]) -> Self {
        let (started, nodes) = std::sync::mpsc::channel();
        let (more, mut wanted) = mpsc::unbounded_channel();
        let (dir, wrapper) = (dir.to_owned(), wrapper.to_vec());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let add = async || {
                    let node = rank_node(&dir, NodeKind::Computing).await;
                    serve_ranks(&node, &NodeAccount::new(NODE), wrapper.clone());
                };
                for _ in 0..count {
                    add().await;
                }
                let launcher = rank_node(&dir, NodeKind::Main).await;
                started.send((Handle::current(), launcher)).unwrap();
                while wanted.recv().await.is_some() {
                    add().await;
                }
            });
        });
        let (runtime, launcher) = nodes.recv().unwrap();
        Self { runtime, launcher, more }
    }

    fn place(&self, directory: &Path, cores_per_rank: u32) -> LaunchPlace {
        LaunchPlace::Domain(DomainPlace {
            fabric: self.launcher.clone(),
            runtime: self.runtime.clone(),
            nodes: NodeChoice::Any,
            cores_per_rank,
            variables: Vec::new(),
            directory: directory.to_owned(),
        })
    }
}

const NODE: Needs = Needs { cores: 4, memory: ByteSize(1 << 30) };

async fn rank_node(dir: &Path, kind: NodeKind) -> Fabric {
    let mut config = FabricConfig::new(DomainName::new("lab").unwrap(), "node", kind);
    (config.runtime_dir, config.mdns) = (dir.to_owned(), false);
    if kind == NodeKind::Computing {
        config.handles = vec![PROGRAMS.into()];
        config.resources = Resources { cores: NODE.cores, memory: NODE.memory, ..Resources::default() };
    }
    Fabric::start(config).await.unwrap()
}

#[test]
fn ranks_on_nodes_find_each_other_and_a_killed_one_is_replaced() {
    for (mode, elastic, epochs) in
        [("sum", None, 1), ("elastic", Some(ElasticLimits { min: 2, max: 3, reset_limit: Some(5) }), 2)]
    {
        let dir = tempfile::tempdir().unwrap();
        let nodes = RankNodes::start(dir.path(), 2, &wrapper(mode, dir.path()));
        let spec = LaunchSpec { place: nodes.place(dir.path(), 1), ..spec(3, elastic, rank_program_words()) };
        let mut hosts = BTreeMap::new();
        let mut note = |notice| match notice {
            LaunchNotice::Placed { nodes } => hosts.extend(nodes),
            other => assert!(matches!(other, LaunchNotice::Waiting { .. }), "{other:?}"),
        };
        let summary = launch(&spec, |_| {}, &mut note).unwrap();
        assert_eq!((summary.exit_code, summary.failure, summary.epochs), (0, None, epochs));
        assert_eq!(hosts.values().collect::<BTreeSet<_>>().len(), 2, "both nodes run ranks: {hosts:?}");
    }
}

#[test]
fn a_rank_is_added_when_a_node_joins_and_none_beyond_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = RankNodes::start(dir.path(), 1, &wrapper("grows", dir.path()));
    let limits = ElasticLimits { min: 2, max: 3, reset_limit: Some(0) };
    // One node has room for two ranks.
    let place = nodes.place(dir.path(), NODE.cores / 2);
    let spec = LaunchSpec { place, ..spec(2, Some(limits), rank_program_words()) };
    let mut placed = Vec::new();
    let mut note = |notice| {
        if let LaunchNotice::Placed { nodes: hosts } = notice {
            placed.push(hosts.keys().copied().collect::<Vec<u32>>());
            if placed.len() == 1 {
                // Room for four more ranks.
                nodes.more.send(()).unwrap();
                nodes.more.send(()).unwrap();
            }
        }
    };
    let summary = launch(&spec, |_| {}, &mut note).unwrap();
    assert_eq!((summary.exit_code, summary.failure), (0, None));
    assert_eq!((summary.resets, summary.epochs), (0, 2));
    assert_eq!(placed, [vec![0, 1], vec![2]]);
    for worker in [0, 1] {
        noted(dir.path(), &format!("grew{worker}-from2"));
        noted(dir.path(), &format!("done{worker}-epoch2-rank{worker}-of3"));
    }
    noted(dir.path(), "done2-epoch2-rank2-of3");
}
