//! Pipelines of real stages in one process, each on a thread of its own, against the model in one piece.

mod orders;

use super::connector::Connector;
use super::copies::{Copies, Guard, Keeping};
use super::group_setup;
use super::mailbox::Mailbox;
use super::outlet::{Outlet, Reports};
use super::session::{Entering, Session};
use super::worker::{Report, Worker};
use bytes::Bytes;
use phalanx_collective::{CollectiveError, Socket};
use phalanx_data::Loader;
use phalanx_engine::CpuEngine;
use phalanx_graph::{Graph, Weights, weights};
use phalanx_protocol::layout;
use phalanx_records::ModelState;
use phalanx_train::config::RunFile;
use phalanx_train::{Compute, Task};
use phalanx_train::{Cut, StepInput, loader_options};
use phalanx_types::{DType, Epoch, NodeId, Tensor};
use phalanx_wire::group_end::RankEnds;
use phalanx_wire::train::{Layout, Ops, Recorded, ReplicaLayout, StageReport, Start, StateRef, StepReport};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Epoch, lane, and the lower and the higher rank of a stream.
type Key = (u64, usize, usize, usize);

/// Streams between threads of this process.
#[derive(Debug, Clone, Default)]
struct Pairs {
    me: usize,
    /// What is between the two ends of a stream.
    link: Option<SlowLink>,
    waiting: Arc<Mutex<BTreeMap<Key, UnixStream>>>,
}

impl Connector for Pairs {
    fn stream(&self, epoch: Epoch, lane: usize, rank: usize) -> Result<Socket, CollectiveError> {
        let key = (epoch.0, lane, self.me.min(rank), self.me.max(rank));
        let mut waiting = self.waiting.lock().unwrap();
        if let Some(stream) = waiting.remove(&key) {
            return Ok(stream.into());
        }
        let (own, other) = match self.link {
            Some(link) => link.pair(),
            None => UnixStream::pair().unwrap(),
        };
        waiting.insert(key, other);
        Ok(own.into())
    }

    fn give(&self, _: Epoch, _: &NodeId, _: Ops, _: &[u8]) -> Result<(), CollectiveError> {
        Ok(())
    }

    fn get(&self, _: Epoch, _: &NodeId, _: Ops, _: u64) -> Result<Bytes, CollectiveError> {
        Ok(Bytes::new())
    }

    fn fetch(&self, _: Epoch, _: &StateRef) -> Result<Bytes, CollectiveError> {
        Ok(Bytes::new())
    }
}

/// A connection over a proxy with a latency and a bandwidth.
#[derive(Debug, Clone, Copy)]
struct SlowLink {
    latency: Duration,
    bytes_per_s: f64,
}

impl SlowLink {
    fn pair(self) -> (UnixStream, UnixStream) {
        let ((own, near), (other, far)) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
        self.carry(near.try_clone().unwrap(), far.try_clone().unwrap());
        self.carry(far, near);
        (own, other)
    }

    /// Copies one direction, until either end is closed.
    fn carry(self, mut from: UnixStream, mut to: UnixStream) {
        let (late, due) = channel::<(Instant, Vec<u8>)>();
        std::thread::spawn(move || {
            let mut free = Instant::now();
            let mut chunk = vec![0; 32 << 10];
            while let Ok(len @ 1..) = from.read(&mut chunk) {
                free = free.max(Instant::now()) + Duration::from_secs_f64(len as f64 / self.bytes_per_s);
                if late.send((free + self.latency, chunk[..len].to_vec())).is_err() {
                    break;
                }
            }
        });
        std::thread::spawn(move || {
            for (at, bytes) in due {
                std::thread::sleep(at.saturating_duration_since(Instant::now()));
                if to.write_all(&bytes).is_err() {
                    break;
                }
            }
            // The other end has closed it already, perhaps.
            let _ended = to.shutdown(std::net::Shutdown::Both);
        });
    }
}

/// A run with made-up samples.
struct Example {
    dir: tempfile::TempDir,
    file: RunFile,
    graph: Graph,
}

impl Example {
    /// `x` and `y` are the shapes of a sample and of its label; `classes` bounds labels, and tokens where samples are.
    fn new(model: &str, x: &[u64], y: &[u64], classes: u64, rest: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let samples = 40;
        let numbers = |shape: &[u64], salt: u64, whole: bool| {
            let shape: Vec<u64> = std::iter::once(samples).chain(shape.iter().copied()).collect();
            let random = |i: u64| phalanx_protocol::mark(i ^ (salt << 40));
            let count = shape.iter().product::<u64>();
            let value = |i: u64| match whole {
                true => (random(i) % classes) as f32,
                false => (random(i) >> 40) as f32 / (1u64 << 23) as f32 - 1.0,
            };
            let values: Vec<f32> = (0..count).map(value).collect();
            match whole {
                true => {
                    let bytes: Vec<u8> = values.iter().flat_map(|v| (*v as i64).to_le_bytes()).collect();
                    Tensor::new(DType::I64, shape, bytes.into()).unwrap()
                }
                false => Tensor::from_f32(shape, &values).unwrap(),
            }
        };
        let tokens = x.len() == 1 && model.contains("gpt");
        let all = Weights::from_iter([
            ("x".to_owned(), numbers(x, 1, tokens)),
            ("y".to_owned(), numbers(y, 2, true)),
        ]);
        weights::save(&dir.path().join("data.safetensors"), &all).unwrap();
        let data = r#"{ file = "data.safetensors", x = "x", y = "y" }"#;
        Self::of(dir, model, [data, data], rest)
    }

    /// With handwritten digits.
    fn digits(rest: &str) -> Self {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.npz");
        let data =
            ["train", "test"].map(|set| format!("{{ file = {file:?}, x = \"x_{set}\", y = \"y_{set}\" }}"));
        Self::of(tempfile::tempdir().unwrap(), "zoo = \"digits-cnn\"", [&data[0], &data[1]], rest)
    }

    fn of(dir: tempfile::TempDir, model: &str, [train, valid]: [&str; 2], rest: &str) -> Self {
        let text = format!(
            "[model]\n{model}\n[data]\ntrain = {train}\nvalid = {valid}\nshuffle = true\n[train]\nseed = 5\n{rest}"
        );
        std::fs::write(dir.path().join("run.toml"), text).unwrap();
        let file = RunFile::load(&dir.path().join("run.toml"), &[]).unwrap();
        let graph = phalanx_train::find_model(&file.config.model).unwrap().graph;
        Self { dir, file, graph }
    }

    fn compute() -> Compute {
        let engine = CpuEngine::new(1);
        let threads = engine.threads().clone();
        Compute { engine: Arc::new(engine), threads }
    }

    /// In one piece.
    fn whole(&self, steps: u64, micro: usize) -> (ModelState, Vec<(f32, f32)>) {
        let compute = Self::compute();
        let task = Task::new(self.file.config.clone(), &compute.threads).unwrap();
        let mut stepper = task.stepper(&compute).unwrap();
        stepper.load(&task.weights).unwrap();
        let options = loader_options(&task, phalanx_protocol::progress::Place::default());
        let mut loader = Loader::new(task.train.clone(), &task.config.data.transform, options).unwrap();
        let mut records = Vec::new();
        for step in 0..steps {
            let batch = loader.next().unwrap().unwrap().batch;
            let input = StepInput {
                x: &batch.x,
                y: &batch.y,
                y_shape: &task.y_shape,
                len: batch.len,
                whole: batch.len,
                first: 0,
                cut: Cut::Size(micro),
                step,
            };
            let stepped = stepper.step(&input, task.config.lr(step, task.plan().steps().unwrap())).unwrap();
            records.push((stepped.loss as f32, stepped.grad_norm as f32));
        }
        (stepper.state(&task.graph).unwrap(), records)
    }

    /// In stages; every rank's state, and what the first reports.
    fn staged(&self, layout: &Layout) -> (Vec<ModelState>, Vec<StepReport>) {
        let Ran { states, steps, .. } = self.staged_over(layout, None);
        (states, steps)
    }

    fn staged_over(&self, layout: &Layout, link: Option<SlowLink>) -> Ran {
        assert!(self.dir.path().exists());
        let posts = layout::posts(layout);
        let pairs = Pairs { link, ..Pairs::default() };
        let (ends_in, ends_out) = channel();
        let (told, all_told) = channel();
        let mut threads = Vec::new();
        let mut begins = Vec::new();
        for (rank, post) in posts.iter().copied().enumerate() {
            let (config, layout, ends_in, told) =
                (self.file.config.clone(), layout.clone(), ends_in.clone(), told.clone());
            let pairs = Pairs { me: rank, ..pairs.clone() };
            let (begin, begun) = channel::<Vec<RankEnds>>();
            begins.push(begin);
            threads.push(std::thread::spawn(move || {
                let compute = Self::compute();
                let task = Task::of_stages(config, &compute.threads).unwrap();
                let (to, mut heard) = tokio::sync::mpsc::channel(1 << 16);
                let mut worker = Worker::new(
                    task,
                    compute,
                    Arc::new(Mailbox::default()),
                    Outlet::Driver(Reports { number: 0, to }),
                );
                let (own, end) =
                    group_setup::prepare(&worker.task, None, Epoch(1), rank, layout.clone()).unwrap();
                ends_in.send((rank, end)).unwrap();
                let ends = begun.recv().unwrap();
                let joined = own.connect(&worker.task, &ends, &pairs, |_, _| ()).unwrap();
                let copies = Copies::default();
                let every = if layout.replicas.len() == 1 { 3 } else { 0 };
                let keeping = Keeping { every, most: 1 << 30 };
                let guard = Guard::new(keeping, post, rank, &copies, Epoch(1), &pairs).unwrap();
                let start = Start { step: 0, norm: None, gets: Vec::new() };
                let part = worker.acquire_state(Epoch(1), post.ops, &start, &pairs).unwrap();
                let entering = Entering { epoch: Epoch(1), rank, layout, joined, guard, is_planned: true };
                let session = Session::new(&mut worker, part, entering).unwrap();
                let listener = std::thread::spawn(move || {
                    let began = Instant::now();
                    let mut told = Ran::default();
                    while let Some((_, report)) = heard.blocking_recv() {
                        match report {
                            Report::Steps { steps: new, .. } => {
                                told.units.push(new.len());
                                told.steps.extend(new);
                            }
                            Report::Snapshot { step, .. } => told.saved.push(step),
                            Report::Validated { sums, .. } => {
                                let (right, of) = sums.metrics[0];
                                told.valid.push((began.elapsed(), right / of as f64));
                            }
                            // The last word of this test.
                            Report::AllLevel => break,
                            _ => {}
                        }
                    }
                    told
                });
                session.run(Recorded::default()).unwrap();
                worker.say(Report::AllLevel);
                let heard = listener.join().unwrap();
                if rank == 0 {
                    told.send(heard).unwrap();
                }
                worker.part.unwrap().state().unwrap()
            }));
        }
        let mut ends = vec![RankEnds::default(); posts.len()];
        for _ in &posts {
            let (rank, end) = ends_out.recv().unwrap();
            ends[rank] = end;
        }
        begins.iter().for_each(|begin| begin.send(ends.clone()).unwrap());
        let states = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        Ran { states, ..all_told.recv().unwrap() }
    }

    /// One replica, cut there.
    fn cut(&self, cuts: &[usize], batch: u32, micro: u32) -> Layout {
        let ends = cuts.iter().copied().chain([self.graph.nodes.len()]);
        let mut start = 0;
        let stages = ends.map(|end| {
            let ops = Ops { start, end: end as u32 };
            start = ops.end;
            ops
        });
        Layout { replicas: vec![ReplicaLayout { samples: batch, micro, stages: stages.collect() }] }
    }

    /// Requires that cut models learn what the whole one does, bit for bit.
    fn check(&self, steps: u64, batch: u32, micro: u32, cuts: impl Iterator<Item = Vec<usize>>) -> usize {
        let (whole, records) = self.whole(steps, micro as usize);
        let mut count = 0;
        for cut in cuts {
            let (states, reports) = self.staged(&self.cut(&cut, batch, micro));
            let mut all = ModelState { optimizer_steps: steps, ..ModelState::default() };
            for state in states {
                assert_eq!(state.optimizer_steps, steps);
                all.weights.extend(state.weights);
                all.optimizer.extend(state.optimizer);
            }
            for (name, tensor) in &whole.weights {
                assert!(all.weights.get(name) == Some(tensor), "cut at {cut:?}: {name} differs");
            }
            assert!(all == whole, "cut at {cut:?}: the optimizer's state differs");
            let told: Vec<(f32, f32)> =
                reports.iter().map(|report| (report.loss, report.grad_norm)).collect();
            assert_eq!(told, records, "cut at {cut:?}");
            count += 1;
        }
        count
    }
}

/// What a run in stages came to, as its first stage says.
#[derive(Default)]
struct Ran {
    /// By rank.
    states: Vec<ModelState>,
    steps: Vec<StepReport>,
    /// Steps that were reported together.
    units: Vec<usize>,
    /// Steps after which checkpoints were made.
    saved: Vec<u64>,
    /// When, and what part of the validation data was right.
    valid: Vec<(Duration, f64)>,
}

/// Steps of the tests of exactness: a few, or as many as the environment says.
fn steps(few: u64) -> u64 {
    std::env::var("PHALANX_EXACT_STEPS").ok().and_then(|steps| steps.parse().ok()).unwrap_or(few)
}

/// Every `one_in`-th cut, unless all are wanted.
fn sampled(cuts: Vec<usize>, one_in: usize) -> Vec<usize> {
    let all = std::env::var_os("PHALANX_EXACT_STEPS").is_some();
    cuts.into_iter().step_by(if all { 1 } else { one_in }).collect()
}

fn in_two(cuts: &[usize]) -> impl Iterator<Item = Vec<usize>> + '_ {
    cuts.iter().map(|cut| vec![*cut])
}

/// Some ways to cut into more stages.
fn in_more(cuts: &[usize], stages: usize, ways: usize) -> impl Iterator<Item = Vec<usize>> + '_ {
    (0..ways).filter_map(move |way| {
        let at = |i: usize| cuts[(i * cuts.len() / stages + way * 3 + i * way) % cuts.len()];
        let mut chosen: Vec<usize> = (1..stages).map(at).collect();
        chosen.sort_unstable();
        chosen.dedup();
        (chosen.len() + 1 == stages).then_some(chosen)
    })
}

fn legal(graph: &Graph) -> Vec<usize> {
    graph.legal_cuts().into_iter().map(|cut| cut.at).collect()
}

#[test]
fn digits_cnn_cut_anywhere_learns_the_same() {
    let steps = steps(50);
    let rest = format!(
        "loss = \"mse\"\noptimizer = {{ name = \"adam\", lr = 0.001 }}\nbatch = 16\nsteps = {steps}\n\
         clip_norm = 0.05\nvalidate_every = \"7 steps\""
    );
    let example = Example::new("zoo = \"digits-cnn\"\ndropout = 0.3", &[1, 8, 8], &[], 10, &rest);
    let cuts = legal(&example.graph);
    assert!(cuts.len() > 5, "{cuts:?}");
    assert_eq!(example.check(steps, 16, 4, in_two(&cuts)), cuts.len());
    assert!(example.check(steps, 16, 6, in_more(&cuts, 3, 6)) > 2);
    assert!(example.check(steps, 16, 16, in_more(&cuts, 5, 6)) > 1);
}

#[test]
fn mobilenet_v2_cut_anywhere_learns_the_same() {
    let steps = steps(2);
    let rest = format!(
        "loss = \"cross_entropy\"\noptimizer = {{ name = \"sgd\", lr = 0.05, momentum = 0.9 }}\nbatch = 8\n\
         steps = {steps}\nvalidate_every = \"never\""
    );
    let model = "zoo = \"mobilenet-v2\"\ninput = [3, 32, 32]\nclasses = 7";
    let example = Example::new(model, &[3, 32, 32], &[], 7, &rest);
    let cuts = legal(&example.graph);
    let some = sampled(cuts.clone(), 30);
    assert_eq!(example.check(steps, 8, 4, in_two(&some)), some.len());
    assert!(example.check(steps, 8, 4, in_more(&cuts, 3, 1)) > 0);
    assert!(example.check(steps, 8, 4, in_more(&cuts, 5, 1)) > 0);
}

#[test]
fn gpt_small_cut_anywhere_learns_the_same() {
    let steps = steps(2);
    let rest = format!(
        "loss = \"cross_entropy\"\noptimizer = {{ name = \"adamw\", lr = 0.001 }}\nbatch = 4\nsteps = {steps}\n\
         clip_norm = 1.0\nvalidate_every = \"never\""
    );
    let model = "zoo = \"gpt-small\"\ninput = [12]\nclasses = 50";
    let example = Example::new(model, &[12], &[12], 50, &rest);
    let cuts = legal(&example.graph);
    let some = sampled(cuts.clone(), 9);
    assert_eq!(example.check(steps, 4, 2, in_two(&some)), some.len());
    assert!(example.check(steps, 4, 2, in_more(&cuts, 3, 1)) > 0);
    assert!(example.check(steps, 4, 1, in_more(&cuts, 5, 1)) > 0);
}

#[test]
fn replicas_that_are_cut_at_different_places_stay_the_same() {
    let rest = "loss = \"mse\"\noptimizer = { name = \"adam\", lr = 0.001 }\nbatch = 16\nsteps = 12\nclip_norm = 0.1";
    let example = Example::new("zoo = \"digits-cnn\"", &[1, 8, 8], &[], 10, rest);
    let cuts = legal(&example.graph);
    let (a, b) = (cuts[2], cuts[cuts.len() - 3]);
    let [mut first, mut second] =
        [&[a, b][..], &[(a + b) / 2][..]].map(|cut| example.cut(cut, 8, 4).replicas.remove(0));
    (first.samples, second.samples) = (10, 6);
    let (states, reports) = example.staged(&Layout { replicas: vec![first, second] });
    let join = |states: &[ModelState]| {
        let mut all = ModelState::default();
        for state in states {
            all.weights.extend(state.weights.clone());
            all.optimizer.extend(state.optimizer.clone());
        }
        all
    };
    let (one, other) = (join(&states[..3]), join(&states[3..]));
    // They have seen different numbers of batches.
    for (name, tensor) in one.weights.iter().filter(|(name, _)| !name.ends_with("num_batches_tracked")) {
        assert!(other.weights[name] == *tensor, "{name} differs");
    }
    assert!(one.optimizer == other.optimizer, "the optimizers' states differ");
    assert_eq!(reports.len(), 12);
}

#[test]
fn replicas_of_stages_learn_what_one_model_learns_from_the_whole_batch() {
    let rest = "loss = \"cross_entropy\"\noptimizer = { name = \"adamw\", lr = 0.001 }\nbatch = 6\nsteps = 4\n\
                validate_every = \"never\"\nclip_norm = 1.0";
    let model = "zoo = \"gpt-small\"\ninput = [8]\nclasses = 50\ndropout = 0.0";
    let example = Example::new(model, &[8], &[8], 50, rest);
    let cuts = legal(&example.graph);
    let [mut first, mut second] = [cuts[9], cuts[20]].map(|cut| example.cut(&[cut], 6, 2).replicas.remove(0));
    (first.samples, second.samples) = (4, 2);
    let (states, _) = example.staged(&Layout { replicas: vec![first, second] });
    let (whole, _) = example.whole(4, 6);
    for (name, tensor) in &whole.weights {
        let own = states[..2].iter().find_map(|state| state.weights.get(name)).unwrap();
        let (a, b) = (tensor.to_f32().unwrap(), own.to_f32().unwrap());
        let worst = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        // Adam makes a step of a gradient that is nearly nothing, whatever its sign.
        assert!(worst < 0.005, "{name}: {worst}");
        let mean = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).sum::<f32>() / a.len() as f32;
        assert!(mean < 1e-5, "{name}: {mean}");
    }
}

#[test]
fn rounds_average_what_replicas_learned_alone() {
    for (exchange, compress) in [("parameters", "none"), ("outer", "none"), ("parameters", "int8")] {
        let rest = format!(
            "loss = \"mse\"\noptimizer = {{ name = \"adam\", lr = 0.001 }}\nbatch = 16\nsteps = 31\n\
             [sync]\nexchange = \"{exchange}\"\ncompress = \"{compress}\"\nevery = 4\naverage_optimizer = true\n[formation]\nstages = 2"
        );
        let example = Example::new("zoo = \"digits-cnn\"", &[1, 8, 8], &[], 10, &rest);
        let cuts = legal(&example.graph);
        let [first, second] = [cuts[1], cuts[4]].map(|cut| example.cut(&[cut], 8, 8).replicas.remove(0));
        let (states, reports) = example.staged(&Layout { replicas: vec![first, second] });
        assert_eq!(
            reports.iter().map(|report| report.step).collect::<Vec<_>>(),
            (1..=31).collect::<Vec<_>>()
        );
        for (name, tensor) in &states[0].weights {
            let other = states[2..].iter().find_map(|state| state.weights.get(name));
            assert!(other == Some(tensor), "{exchange}: {name} differs");
        }
        let mean = |of: &[StepReport]| of.iter().map(|report| report.loss).sum::<f32>() / of.len() as f32;
        let (first, last) = (mean(&reports[..6]), mean(&reports[25..]));
        assert!(last < first, "{exchange}: {last} after {first}");
    }
}

#[test]
fn a_replica_without_samples_in_a_step_keeps_step() {
    let ways = [
        "clip_norm = 0.1\n[sync]\nexchange = \"parameters\"\nevery = 3\n[formation]\nstages = 2",
        "[formation]\nstages = 2\nmode = \"asynchronous\"",
        "[sync]\nexchange = \"parameters\"\nevery = 3\n[formation]\nstages = 2\nmode = \"asynchronous\"",
    ];
    for way in ways {
        // The last of four batches has one sample.
        let rest = format!(
            "loss = \"cross_entropy\"\noptimizer = \"adam\"\nbatch = 13\nsteps = 12\nvalidate_every = \"never\"\n{way}"
        );
        let model = "zoo = \"mlp\"\ninput = [16]\nclasses = 10";
        let example = Example::new(model, &[16], &[], 10, &rest);
        let cut = legal(&example.graph)[1];
        let [first, second] = [7, 6].map(|samples| example.cut(&[cut], samples, 3).replicas.remove(0));
        let (states, reports) = example.staged(&Layout { replicas: vec![first, second] });
        let steps: Vec<u64> = reports.iter().map(|report| report.step).collect();
        assert_eq!(steps, (1..=12).collect::<Vec<_>>(), "{way}");
        assert!(states.iter().all(|state| state.optimizer_steps == 12), "{way}");
    }
}

#[test]
fn asynchronous_stages_are_stale_by_no_more_than_they_may_and_always_the_same() {
    let rest = "loss = \"mse\"\noptimizer = { name = \"adam\", lr = 0.002 }\nbatch = 8\nsteps = 60\n\
                validate_every = \"30 steps\"\n[formation]\nstages = 3\nmode = \"asynchronous\"\nin_flight = 5";
    let example = Example::new("zoo = \"digits-cnn\"", &[1, 8, 8], &[], 10, rest);
    let cuts = legal(&example.graph);
    let layout = example.cut(&[cuts[2], cuts[5]], 8, 8);
    let (states, reports) = example.staged(&layout);
    let (again, _) = example.staged(&layout);
    assert!(states == again, "two runs of the same seed differ");
    let staleness = |report: &StepReport| -> Vec<u32> {
        report.ranks.iter().map(|rank| rank.stage.unwrap().staleness).collect()
    };
    assert_eq!(staleness(&reports[0]), [4, 2, 0]);
    let mean = |of: &[StepReport]| of.iter().map(|report| report.loss).sum::<f32>() / of.len() as f32;
    assert!(mean(&reports[50..]) < mean(&reports[..10]));
}

#[test]
fn checkpoints_by_time_do_not_pile_up_while_the_driver_has_not_taken_the_last() {
    let rest = "loss = \"mse\"\nbatch = 8\nsteps = 40\ncheckpoint_every = \"1us\"\n[formation]\nstages = 2";
    let example = Example::new("zoo = \"mlp\"\ninput = [16]\nclasses = 10", &[16], &[], 10, rest);
    let cut = legal(&example.graph)[1];
    let ran = example.staged_over(&example.cut(&[cut], 8, 8), None);
    assert_eq!((ran.saved, ran.steps.len()), (vec![1], 40));
}

/// What a stage in the middle says of a step in the middle of a run.
fn said_of_a_step(optimizer: &str, formation: &str) -> StageReport {
    let rest = format!(
        "loss = \"mse\"\noptimizer = {{ name = {optimizer} }}\nbatch = 8\nsteps = 20\nvalidate_every = \"never\"\n\
         [formation]\nstages = 3\n{formation}"
    );
    let example = Example::new("zoo = \"digits-cnn\"", &[1, 8, 8], &[], 10, &rest);
    let cuts = legal(&example.graph);
    let (_, reports) = example.staged(&example.cut(&[cuts[1], cuts[cuts.len() - 2]], 8, 8));
    reports[13].ranks[1].stage.unwrap()
}

#[test]
fn stages_say_all_that_they_hold_and_what_they_send_in_a_step() {
    let sgd = said_of_a_step("\"sgd\"", "");
    let adam = said_of_a_step("\"adam\"", "");
    let parameters = (adam.memory - sgd.memory) / 2;
    assert!(parameters > 1000 && parameters.is_multiple_of(4), "{parameters}");
    let alone = said_of_a_step("\"sgd\"", "in_flight = 1\nmode = \"asynchronous\"");
    assert!(alone.memory >= sgd.memory + parameters, "{alone:?}, {sgd:?}, {parameters}");
    let stale = said_of_a_step("\"adam\"", "in_flight = 5\nmode = \"asynchronous\"");
    // What it can be taken back to, with two states of the optimizer, and two versions of the parameters.
    assert!(stale.memory >= adam.memory + 5 * parameters, "{stale:?}, {adam:?}, {parameters}");
    assert_eq!((sgd.sent, adam.sent, stale.sent), (sgd.sent, sgd.sent, sgd.sent));
}

#[test]
fn asynchronous_stages_are_empty_where_the_run_file_says() {
    let units = |rest: &str| {
        let rest =
            format!("loss = \"mse\"\nbatch = 8\nsteps = 20\n{rest}\nmode = \"asynchronous\"\nstages = 2");
        let example = Example::new("zoo = \"mlp\"\ninput = [16]\nclasses = 10", &[16], &[], 10, &rest);
        let cut = legal(&example.graph)[1];
        let Ran { units, saved, .. } = example.staged_over(&example.cut(&[cut], 8, 8), None);
        (units, saved)
    };
    let never = "validate_every = \"never\"";
    let often = format!("{never}\ncheckpoint_every = 7\n[formation]\ncopies = 4");
    assert_eq!(units(&often), (vec![4, 3, 4, 3, 4, 2], vec![7, 14]));
    let usual = "validate_every = \"12 steps\"\n[formation]";
    assert_eq!(units(usual), (vec![10, 2, 8], vec![]));
    let long = format!("{never}\n[formation]\ncopies = 0");
    assert_eq!(units(&long), (vec![20], vec![]));
}

/// Not a test of right and wrong, but of time: `cargo xtask bench stages slow` runs it.
#[test]
#[ignore = "a benchmark of half a minute"]
fn asynchronous_stages_learn_faster_over_slow_links() {
    const GOAL: f64 = 0.97;
    let link = SlowLink { latency: Duration::from_millis(10), bytes_per_s: 100e6 / 8.0 };
    let time = |formation: &str, micro: u32| {
        let rest = format!(
            "loss = \"mse\"\noptimizer = {{ name = \"adam\", lr = 0.001 }}\nbatch = 64\nepochs = 80\n\
             [formation]\nstages = 3\ncopies = 0\n{formation}"
        );
        let example = Example::digits(&rest);
        let bytes = |cut: &phalanx_graph::CutPoint| (cut.bytes, cut.at);
        let legal = example.graph.legal_cuts();
        let third = example.graph.nodes.len() / 3;
        // Where least has to be sent, in the middle third and in the last.
        let [a, b] = [third..2 * third, 2 * third..3 * third - 2].map(|range| {
            legal.iter().filter(|cut| range.contains(&cut.at)).min_by_key(|cut| bytes(cut)).unwrap().at
        });
        let ran = example.staged_over(&example.cut(&[a, b], 64, micro), Some(link));
        let reached = ran.valid.iter().find(|(_, accuracy)| *accuracy >= GOAL).map(|(at, _)| *at);
        let stale =
            ran.steps.iter().flat_map(|step| &step.ranks).map(|rank| rank.stage.unwrap().staleness).max();
        let best = ran.valid.iter().map(|(_, accuracy)| *accuracy).fold(0.0, f64::max);
        println!(
            "{formation:40} cuts {a} {b}, {micro} at once: 97 % after {reached:?}, best {best:.4}, all in {:?}, stale by {stale:?}",
            ran.valid.last().unwrap().0
        );
        (reached.unwrap_or(Duration::MAX), stale.unwrap())
    };
    let (exact, _) = time("", 64);
    let (asynchronous, stale) = time("mode = \"asynchronous\"\nin_flight = 6", 64);
    let ratio = asynchronous.as_secs_f64() / exact.as_secs_f64();
    println!("asynchronous / exact: {ratio:.3}");
    assert!(ratio <= 0.6 && stale <= 5, "{ratio} {stale}");
}
