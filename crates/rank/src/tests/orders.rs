//! What stages do that are given the orders of a driver.

use super::{Example, Pairs, legal};
use crate::connector::Connector;
use crate::data_roots::DataRoots;
use crate::error::FileProblem;
use crate::mailbox::Mailbox;
use crate::names_of;
use crate::outlet::{Outlet, Reports};
use crate::session::is_sound;
use crate::worker::{Beginning, Opening, Order, Report, Worker, carry_out_all};
use bytes::Bytes;
use phalanx_collective::{CollectiveError, Socket};
use phalanx_protocol::{Wish, layout};
use phalanx_records::ModelState;
use phalanx_train::{Losses, Task};
use phalanx_types::{Epoch, NodeId};
use phalanx_wire::ballot::Asking;
use phalanx_wire::bulk::BlobId;
use phalanx_wire::group_end::RankEnds;
use phalanx_wire::node::LostReason;
use phalanx_wire::train::{
    DataRef, Enlist, Get, Layout, LeftWhy, Ops, PassStart, Recorded, ShareAsk, Source, Start, StateRef,
};
use phalanx_wire::train_reason::{BreakReason, RankFailure};
use std::collections::BTreeSet;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

const EPOCH: Epoch = Epoch(4);

/// A stage that waits for orders.
struct Stage {
    orders: Sender<Order>,
    heard: tokio::sync::mpsc::Receiver<(u64, Report)>,
    thread: JoinHandle<()>,
}

impl Stage {
    fn new(example: &Example, mailbox: Arc<Mailbox>) -> Self {
        let (to, heard) = tokio::sync::mpsc::channel(1 << 16);
        let compute = Example::compute();
        let task = Task::new(example.file.config.clone(), &compute.threads).unwrap();
        let data: DataRef = task.data();
        let opening = Opening {
            enlist: Enlist {
                config: String::new(),
                files: Vec::new(),
                trace: false,
                data,
                share: ShareAsk::default(),
            },
            cores: 1,
            fetch: Box::new(|_| Err(FileProblem::OtherBytes)),
            most_file: 0,
            roots: DataRoots::default(),
            compute: Arc::new(|_| Example::compute()),
            losses: Losses::new(),
            mailbox,
            reports: Reports { number: 0, to },
        };
        let (orders, waiting) = std::sync::mpsc::channel();
        let file = example.file.clone();
        let thread = std::thread::spawn(move || carry_out_all(file, opening, &waiting));
        Self { orders, heard, thread }
    }

    fn order(&self, order: Order) {
        self.orders.send(order).unwrap();
    }

    /// Waits for a report; the others are not looked at.
    fn until<T>(&mut self, wanted: impl FnMut(Report) -> Option<T>) -> T {
        let next = || self.heard.blocking_recv().map(|(_, report)| report);
        std::iter::from_fn(next).find_map(wanted).expect("the stage has ended")
    }

    fn prepare(&mut self, rank: usize, layout: &Layout) -> RankEnds {
        let ranks = layout::posts(layout).len();
        self.order(Order::Prepare { epoch: EPOCH, rank, ranks, layout: Some(layout.clone()) });
        self.until(|report| match report {
            Report::Prepared { ends, .. } => Some(ends),
            _ => None,
        })
    }

    fn connect(&self, ends: &[RankEnds], start: Start, connector: Box<dyn Connector>) {
        let (ends, recorded) = (ends.to_vec(), Recorded { step: start.step, ..Recorded::default() });
        let beginning = Beginning {
            epoch: EPOCH,
            ends,
            recorded,
            connector,
            start: Some(start),
            pass: PassStart::default(),
        };
        self.order(Order::Connect(beginning));
    }

    /// How it has left its group, and after how many steps.
    fn left(self) -> (LeftWhy, Option<u64>) {
        let (why, step, _) = self.last_words();
        (why, step)
    }

    /// The same, and the steps that it has told of.
    fn last_words(mut self) -> (LeftWhy, Option<u64>, Vec<u64>) {
        let mut told = Vec::new();
        let (why, step) = self.until(|report| match report {
            Report::Left { why, step, .. } => Some((why, step)),
            Report::Steps { steps, .. } => {
                told.extend(steps.iter().map(|report| report.step));
                None
            }
            _ => None,
        });
        drop(self.orders);
        self.thread.join().unwrap();
        (why, step, told)
    }
}

fn example(steps: u64) -> Example {
    let rest = format!(
        "loss = \"mse\"\noptimizer = {{ name = \"adam\", lr = 0.001 }}\nbatch = 8\nsteps = {steps}\n\
         validate_every = \"never\"\n[formation]\nstages = 2"
    );
    Example::new("zoo = \"digits-cnn\"", &[1, 8, 8], &[], 10, &rest)
}

#[test]
fn a_stage_whose_group_is_over_before_it_began_says_so() {
    let (example, mailbox) = (example(3), Arc::new(Mailbox::default()));
    let layout = example.cut(&[legal(&example.graph)[0]], 8, 8);
    let mut stage = Stage::new(&example, mailbox.clone());
    stage.prepare(0, &layout);
    let loss = LostReason::LinkBroken { detail: "killed".into() };
    let reason = BreakReason::NodeLost { node: "n2".parse().unwrap(), loss };
    mailbox.abort(EPOCH, reason.clone());
    stage.order(Order::Cancel { epoch: EPOCH });
    let start = Start { step: 0, norm: None, gets: Vec::new() };
    stage.connect(&[], start, Box::new(Pairs::default()));
    assert_eq!(stage.left(), (LeftWhy::Broken { reason }, None));
}

/// What the driver holds of a state, for stages that must all be connected before one of them has its part.
#[derive(Debug, Clone)]
struct Disk {
    pairs: Pairs,
    parts: Vec<Bytes>,
    /// Ranks that have opened streams.
    connected: Arc<(Mutex<BTreeSet<usize>>, Condvar)>,
}

impl Connector for Disk {
    fn stream(&self, epoch: Epoch, lane: usize, rank: usize) -> Result<Socket, CollectiveError> {
        self.connected.0.lock().unwrap().insert(self.pairs.me);
        self.connected.1.notify_all();
        self.pairs.stream(epoch, lane, rank)
    }

    fn give(&self, _: Epoch, _: &NodeId, _: Ops, _: &[u8]) -> Result<(), CollectiveError> {
        unreachable!("no stage was told to give")
    }

    fn get(&self, _: Epoch, _: &NodeId, _: Ops, _: u64) -> Result<Bytes, CollectiveError> {
        unreachable!("no stage was told to get")
    }

    fn fetch(&self, _: Epoch, state: &StateRef) -> Result<Bytes, CollectiveError> {
        let (connected, changed) = &*self.connected;
        let (all, parts) = (connected.lock().unwrap(), self.parts.len());
        let (all, _) =
            changed.wait_timeout_while(all, Duration::from_secs(20), |all| all.len() < parts).unwrap();
        assert_eq!(all.len(), parts, "only these are connected: {all:?}");
        Ok(self.parts[state.blob.0 as usize].clone())
    }
}

/// Two stages that begin with what the driver has of a state.
fn from_disk(example: &Example, state: &ModelState) -> Vec<Stage> {
    from_disk_with(example, state, &Arc::default())
}

fn from_disk_with(example: &Example, state: &ModelState, mailbox: &Arc<Mailbox>) -> Vec<Stage> {
    let layout = example.cut(&[legal(&example.graph)[2]], 8, 8);
    let (posts, step) = (layout::posts(&layout), state.steps());
    let part = |ops: Ops| -> Bytes {
        state.only(&names_of(&example.graph, ops).unwrap()).to_bytes().unwrap().into()
    };
    let parts: Vec<Bytes> = posts.iter().map(|post| part(post.ops)).collect();
    let disk = Disk { pairs: Pairs::default(), parts, connected: Arc::default() };
    let mut stages: Vec<Stage> = posts.iter().map(|_| Stage::new(example, mailbox.clone())).collect();
    let ends: Vec<RankEnds> =
        stages.iter_mut().enumerate().map(|(rank, stage)| stage.prepare(rank, &layout)).collect();
    for (rank, (stage, post)) in stages.iter().zip(&posts).enumerate() {
        let bytes = disk.parts[rank].len() as u64;
        let from = Source::Driver(StateRef { step, bytes, blob: BlobId(rank as u64) });
        let start = Start { step, norm: None, gets: vec![Get { ops: post.ops, from }] };
        let pairs = Pairs { me: rank, ..disk.pairs.clone() };
        stage.connect(&ends, start, Box::new(Disk { pairs, ..disk.clone() }));
    }
    stages
}

#[test]
fn stages_that_begin_from_disk_are_connected_before_one_has_its_part() {
    let steps = 6;
    let example = example(steps);
    for stage in from_disk(&example, &example.whole(3, 8).0) {
        assert_eq!(stage.left(), (LeftWhy::Ended, Some(steps)));
    }
}

#[test]
fn a_stage_that_leaves_by_agreement_says_what_the_speaking_rank_may_not_have() {
    let (example, mailbox) = (example(6), Arc::new(Mailbox::default()));
    mailbox.set_wish(EPOCH, Wish::Reform);
    for stage in from_disk_with(&example, &example.whole(3, 8).0, &mailbox) {
        let (why, step, mut told) = stage.last_words();
        told.dedup();
        assert_eq!((why, step, told), (LeftWhy::Reformed, Some(4), vec![4]));
    }
}

#[test]
fn a_state_that_lacks_something_fails_the_run_and_is_not_tried_for_ever() {
    let example = example(6);
    let (mut state, _) = example.whole(3, 8);
    state.optimizer.clear();
    for stage in from_disk(&example, &state) {
        let (why, _) = stage.left();
        assert!(matches!(&why, LeftWhy::Failed(RankFailure::Error { .. })), "{why:?}");
    }
}

#[test]
fn before_the_first_step_a_part_of_what_is_held_is_enough() {
    let example = example(6);
    let compute = Example::compute();
    let task = Task::of_stages(example.file.config.clone(), &compute.threads).unwrap();
    let (to, _heard) = tokio::sync::mpsc::channel(1 << 16);
    let mut worker = Worker::new(task, compute, Arc::default(), Outlet::Driver(Reports { number: 0, to }));
    let start = Start { step: 0, norm: None, gets: Vec::new() };
    let mut settle = |end: usize| {
        let ops = Ops { start: 0, end: end as u32 };
        let part = worker.acquire_state(EPOCH, ops, &start, &Pairs::default()).unwrap();
        let state = part.state().unwrap();
        worker.part = Some(part);
        state
    };
    let cuts = legal(&example.graph);
    let small = settle(cuts[2]);
    let large = settle(cuts[cuts.len() - 1]);
    assert!(small.weights.iter().all(|(name, tensor)| large.weights.get(name) == Some(tensor)));
    assert!(small.weights.len() < large.weights.len());
}

#[test]
fn a_live_query_of_the_wrong_size_is_not_sound() {
    let compute = Example::compute();
    let task = Task::of_stages(example(6).file.config, &compute.threads).unwrap();
    let sound = |samples, batch| is_sound(&Asking { number: 1, samples, batch }, &task);
    // A sample has 64 values of four bytes, and a question 64 MiB at most.
    assert!(sound(100, 8) && sound(1 << 18, 1));
    assert!(!sound(100, 9) && !sound((1 << 18) + 1, 8) && !sound(u64::MAX, 8));
}
