//! Groups as the shell begins them: what their members start with, and what the run directory says of them.

use super::Driver;
use super::planner::PlanDetail;
use crate::error::DriverError;
use bytes::Bytes;
use phalanx_fabric::BlobId;
use phalanx_protocol::driver::{GroupStart, StageStart};
use phalanx_protocol::{Seat, layout};
use phalanx_rank::names_of;
use phalanx_records::{Event, Events};
use phalanx_records::{FormationEpoch, StageEntry};
use phalanx_types::{Epoch, NodeId, Parcel};
use phalanx_wire::train::{Get, Layout, SeatRef, Source, Start, StateRef, ToReplica};
use phalanx_wire::train_reason::BreakReason;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The groups of a run so far.
#[derive(Debug, Default)]
pub(super) struct Groups {
    pub(super) epochs: Vec<FormationEpoch>,
    /// Groups of earlier drivers of this run.
    pub(super) before: Vec<serde_json::Value>,
    /// By epoch, then by rank.
    seats: BTreeMap<Epoch, Vec<String>>,
    step_times: StepTimes,
    /// The state that replicas begin with, held for them to fetch.
    first: Option<StateRef>,
    /// Parts of a checkpoint, held for stages to fetch.
    held: Vec<BlobId>,
}

/// Steps of the present group and their time.
#[derive(Debug, Default)]
struct StepTimes {
    steps: u64,
    time: Duration,
    /// The first step of a group also allocates its buffers, and is not counted.
    warm: bool,
}

impl Groups {
    pub(super) fn after(before: Vec<serde_json::Value>) -> Self {
        Self { before, ..Self::default() }
    }

    /// The nodes of a group by rank.
    pub(super) fn nodes(&self, epoch: Epoch) -> &[String] {
        self.seats.get(&epoch).map_or(&[][..], Vec::as_slice)
    }

    /// The present group is over.
    pub(super) fn on_end(&mut self, reason: &BreakReason) {
        if let Some(last) = self.epochs.last_mut() {
            last.ended = Some(reason.to_string());
        }
    }

    pub(super) fn on_step(&mut self, took: Duration) {
        if std::mem::replace(&mut self.step_times.warm, true) {
            self.step_times.steps += 1;
            self.step_times.time += took;
        }
    }

    /// Notes how long steps took in the present group.
    pub(super) fn note_step_time(&mut self) {
        let StepTimes { steps, time, .. } = self.step_times;
        if let Some(last) = self.epochs.last_mut() {
            last.step_ms = (steps > 0).then(|| time.as_secs_f64() * 1e3 / steps as f64);
        }
    }

    fn begin(&mut self, entry: FormationEpoch, nodes: Vec<String>) {
        self.note_step_time();
        self.step_times = StepTimes::default();
        self.seats.insert(Epoch(entry.epoch), nodes);
        self.epochs.push(entry);
    }
}

impl Driver<'_> {
    /// Gives a node the state of the newest checkpoint, or tells it to begin.
    pub(super) fn restore(&mut self, node: &NodeId) -> Result<(), DriverError> {
        if self.groups.first.is_none()
            && let Some(state) = self.state.take()
        {
            let bytes: Bytes = state.to_bytes()?.into();
            let len = bytes.len() as u64;
            let blob = self.fabric.hold(Parcel::from_bytes(bytes));
            self.groups.first = Some(StateRef { step: state.steps(), bytes: len, blob });
        }
        self.send(node, &ToReplica::Restore { run: self.run, state: self.groups.first.clone() });
        Ok(())
    }

    /// Lets go of states that are held for nodes to begin with.
    pub(super) fn release_start(&mut self) {
        let Groups { first, held, .. } = &mut self.groups;
        let first = first.take().map(|first| first.blob);
        held.drain(..).chain(first).for_each(|blob| self.fabric.release(blob));
    }

    pub(super) fn begin_group(
        &mut self,
        start: GroupStart,
        events: &mut Events<'_>,
    ) -> Result<(), DriverError> {
        let GroupStart { epoch, seats, recorded, from_step, stages, pass } = start;
        let (entry, starts) = match stages {
            Some(stages) => {
                self.groups.held.drain(..).for_each(|blob| self.fabric.release(blob));
                self.book.set_stages(self.stage_names(&stages.layout)?);
                let members: Vec<String> = seats.iter().map(|seat| seat.node.to_string()).collect();
                let entry = self.stages_entry(epoch, from_step, &stages, &members);
                let starts = match stages.starts {
                    Some(starts) => starts,
                    None => self.starts_from_disk(&stages.layout)?,
                };
                (entry, Some(starts))
            }
            None => (self.replicas_entry(epoch, from_step, &seats), None),
        };
        let seat =
            |seat: &Seat| SeatRef { node: seat.node.clone(), ends: seat.ends.clone(), step: seat.step };
        let all: Vec<SeatRef> = seats.iter().map(seat).collect();
        for (rank, seat) in seats.iter().enumerate() {
            let start = starts.as_ref().and_then(|starts| starts.get(rank).cloned());
            let (run, seats) = (self.run, all.clone());
            self.send(&seat.node, &ToReplica::Connect { run, epoch, seats, recorded, start, pass });
        }
        let nodes: Vec<String> = seats.iter().map(|seat| seat.node.to_string()).collect();
        if let Some(trace) = &mut self.trace {
            trace.on_group(epoch, self.book.elapsed(), &nodes);
        }
        events.on(Event::Formed {
            epoch: epoch.0,
            nodes: nodes.clone(),
            step: from_step,
            stages: starts.iter().flat_map(|_| entry.replicas.iter().map(Vec::len)).collect(),
            predicted_ms: entry.predicted_ms,
        });
        self.groups.begin(entry, nodes);
        Ok(self.book.write_formation(&self.groups.before, &self.groups.epochs)?)
    }

    /// What stages begin with when no nodes hold all of the model: the newest checkpoint, or the seed.
    fn starts_from_disk(&mut self, layout: &Layout) -> Result<Vec<Start>, DriverError> {
        let posts = layout::posts(layout);
        let Some(state) = &self.state else {
            return Ok(posts.iter().map(|_| Start { step: 0, norm: None, gets: Vec::new() }).collect());
        };
        let step = state.steps();
        let mut starts = Vec::new();
        for post in posts {
            let names = names_of(&self.task.graph, post.ops)?;
            let bytes: Bytes = state.only(&names).to_bytes()?.into();
            let len = bytes.len() as u64;
            let blob = self.fabric.hold(Parcel::from_bytes(bytes));
            self.groups.held.push(blob);
            let from = Source::Driver(StateRef { step, bytes: len, blob });
            starts.push(Start { step, norm: None, gets: vec![Get { ops: post.ops, from }] });
        }
        Ok(starts)
    }

    /// The names of what each stage of the first replica holds.
    fn stage_names(&self, layout: &Layout) -> Result<Vec<BTreeSet<String>>, DriverError> {
        let stages = layout.replicas.first().map_or(&[][..], |replica| &replica.stages);
        stages.iter().map(|ops| Ok(names_of(&self.task.graph, *ops)?)).collect()
    }

    fn replicas_entry(&self, epoch: Epoch, from_step: u64, seats: &[Seat]) -> FormationEpoch {
        let replica = |seat: &Seat| vec![StageEntry::whole(seat.node.to_string(), &self.task.graph)];
        FormationEpoch {
            epoch: epoch.0,
            replicas: seats.iter().map(replica).collect(),
            from_step,
            predicted_ms: None,
            micro_batches: None,
            step_ms: None,
            ended: None,
        }
    }

    fn stages_entry(
        &self,
        epoch: Epoch,
        from_step: u64,
        start: &StageStart,
        members: &[String],
    ) -> FormationEpoch {
        let detail = self.plans.get(&start.plan);
        let posts = layout::posts(&start.layout);
        let mut replicas = vec![Vec::new(); start.layout.replicas.len()];
        for (rank, post) in posts.iter().enumerate() {
            let own = self.task.graph.nodes.get(layout::range(post.ops)).unwrap_or_default();
            let stage = detail.and_then(|detail| detail.stage(rank));
            replicas[post.replica].push(StageEntry {
                node: members.get(rank).cloned().unwrap_or_default(),
                operators: own.len(),
                first: own.first().map(|node| node.name.clone()).unwrap_or_default(),
                last: own.last().map(|node| node.name.clone()).unwrap_or_default(),
                parameters: detail.map_or(0, |detail| detail.parameters(post.ops)),
                memory: stage.map(|stage| stage.memory),
                busy_ms: stage.map(|stage| stage.busy_s * 1e3),
            });
        }
        let plan = detail.map(|detail: &std::sync::Arc<PlanDetail>| &detail.plan);
        FormationEpoch {
            epoch: epoch.0,
            replicas,
            from_step,
            predicted_ms: plan.map(|plan| plan.seconds_per_batch() * 1e3),
            micro_batches: plan.map(|plan| plan.micro_batches),
            step_ms: None,
            ended: None,
        }
    }
}
