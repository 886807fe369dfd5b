//! What the driver tells nodes to do, as its core decides.

use super::journal::Journal;
use super::{Driver, HUSH};
use crate::error::DistributedError;
use bytes::Bytes;
use phalanx_fabric::FrameKind;
use phalanx_protocol::{FormationCommand, Seat};
use phalanx_records::{Event, Events};
use phalanx_records::{FormationEpoch, StageEntry};
use phalanx_types::{Epoch, NodeId, Parcel};
use phalanx_wire::train::{Asked, Enlist, SeatRef, Start, StateRef, ToReplica};
use std::collections::BTreeSet;
use std::time::Instant;

impl Driver<'_> {
    /// Carries out what the core decided.
    pub(super) fn act(&mut self, events: &mut Events<'_>) -> Result<(), DistributedError> {
        let commands: Vec<FormationCommand> = self.out.drain().collect();
        for command in commands {
            match command {
                FormationCommand::Enlist { node } => {
                    let enlist = Enlist {
                        config: self.options.config.clone(),
                        files: self.files.clone(),
                        trace: self.options.trace,
                        data: self.task.data(),
                        share: self.task.share(),
                    };
                    self.send(&node, &ToReplica::Enlist { run: self.run, enlist });
                }
                FormationCommand::Restore { node } => self.restore(&node, events)?,
                FormationCommand::Prepare { epoch, members } => {
                    let (run, ranks) = (self.run, members.len() as u32);
                    for (rank, node) in members.iter().enumerate() {
                        let (rank, layout) = (rank as u32, self.layout_for());
                        self.send(node, &ToReplica::Prepare { run, epoch, rank, ranks, layout });
                    }
                    self.preparing = members;
                }
                FormationCommand::Connect { epoch, seats } => match self.task.config.formation.is_staged() {
                    true => self.connect_stages(epoch, seats, events)?,
                    false => self.connect(epoch, seats, events)?,
                },
                FormationCommand::Muster { .. } | FormationCommand::Weigh { .. } => {
                    self.act_staged(&command, events)?;
                }
                FormationCommand::Abort { epoch, reason } => {
                    if let Some(last) = self.epochs.last_mut() {
                        last.ended = Some(reason.clone());
                    }
                    let members: BTreeSet<NodeId> =
                        self.seats.iter().chain(&self.preparing).cloned().collect();
                    for node in members {
                        let reason = reason.clone();
                        self.send(&node, &ToReplica::Abort { run: self.run, epoch, reason });
                    }
                }
                FormationCommand::AskReform { node } => self.ask(&node, Asked::Reform),
                FormationCommand::AskStop { node } => self.ask(&node, Asked::Stop),
                // All of them, when the model is here.
                FormationCommand::Dismiss { .. } => {}
                FormationCommand::Paused(pause) => self.paused = Some((pause, Instant::now() + HUSH)),
                FormationCommand::Ended => self.over = true,
            }
        }
        // Plans are made at once.
        if self.out.is_empty() { Ok(()) } else { self.act(events) }
    }

    fn ask(&self, node: &NodeId, wish: Asked) {
        self.send(node, &ToReplica::Ask { run: self.run, epoch: self.core.epoch(), wish });
    }

    pub(super) fn send(&self, node: &NodeId, message: &ToReplica) {
        let Some(peer) = self.peers.get(node) else { return };
        if let Err(error) = peer.send(FrameKind::Train, message) {
            tracing::debug!(to = %node, %error, "could not tell a replica");
        }
    }

    /// Gives a node the state of the newest checkpoint, or tells it to begin.
    fn restore(&mut self, node: &NodeId, events: &mut Events<'_>) -> Result<(), DistributedError> {
        self.rewind(events)?;
        if self.first.is_none()
            && let Some(state) = self.state.take()
        {
            let bytes: Bytes = state.to_bytes()?.into();
            let len = bytes.len() as u64;
            let blob = self.fabric.hold(Parcel::from_bytes(bytes));
            self.first = Some(StateRef { step: state.steps(), bytes: len, blob });
        }
        self.send(node, &ToReplica::Restore { run: self.run, state: self.first.clone() });
        Ok(())
    }

    /// Goes back to the newest checkpoint, when the run has done steps that nobody holds any more.
    pub(super) fn rewind(&mut self, events: &mut Events<'_>) -> Result<(), DistributedError> {
        if self.journal.has_begun() {
            let lost = self.journal.step();
            let (place, state) = self.book.rewind(events)?;
            let back = place.step;
            events.on(Event::Warning(match self.is_held_somewhere() {
                false => format!(
                    "the model is lost on all nodes; the run goes back from step {lost} to its last checkpoint, \
                     step {back}"
                ),
                true => format!(
                    "the run goes back from step {lost} to the checkpoint of step {back}, which is newer than the \
                     copies that nodes hold"
                ),
            }));
            self.journal = Journal::new(back, self.book.validated());
            self.state = state;
            if let Some(first) = self.first.take() {
                self.fabric.release(first.blob);
            }
        }
        Ok(())
    }

    fn connect(
        &mut self,
        epoch: Epoch,
        seats: Vec<Seat>,
        events: &mut Events<'_>,
    ) -> Result<(), DistributedError> {
        let step = seats.iter().filter_map(|seat| seat.step).max().unwrap_or(0);
        let new = seats.iter().filter(|seat| seat.step.is_none());
        self.joiners = new.map(|seat| seat.node.clone()).collect();
        let replica = |seat: &Seat| vec![self.whole_model(seat.node.to_string())];
        let entry = FormationEpoch {
            epoch: epoch.0,
            replicas: seats.iter().map(replica).collect(),
            from_step: step,
            predicted_ms: None,
            micro_batches: None,
            step_ms: None,
            ended: None,
        };
        self.begin_group(epoch, seats, None, entry, events)
    }

    /// Lets a group begin, of stages with what each of them begins with.
    pub(super) fn begin_group(
        &mut self,
        epoch: Epoch,
        seats: Vec<Seat>,
        starts: Option<Vec<Start>>,
        entry: FormationEpoch,
        events: &mut Events<'_>,
    ) -> Result<(), DistributedError> {
        self.commit(entry.from_step, events)?;
        self.journal.forget_the_rest();
        self.incoming.begin_epoch();
        self.paused = None;
        self.told.clear();
        self.holders.clear();
        self.seats = seats.iter().map(|seat| seat.node.clone()).collect();
        let seat = |seat: Seat| SeatRef { node: seat.node, end: seat.end.into(), step: seat.step };
        let seats: Vec<SeatRef> = seats.into_iter().map(seat).collect();
        let (run, recorded) = (self.run, self.journal.recorded());
        for (rank, node) in self.seats.iter().enumerate() {
            let start = starts.as_ref().and_then(|starts| starts.get(rank).cloned());
            self.send(node, &ToReplica::Connect { run, epoch, seats: seats.clone(), recorded, start });
        }
        let nodes: Vec<String> = self.seats.iter().map(ToString::to_string).collect();
        if let Some(trace) = &mut self.trace {
            trace.on_group(epoch, self.book.elapsed(), &nodes);
        }
        let stages: Vec<usize> = starts.iter().flat_map(|_| entry.replicas.iter().map(Vec::len)).collect();
        let (step, predicted_ms) = (entry.from_step, entry.predicted_ms);
        events.on(Event::Formed { epoch: epoch.0, nodes, step, stages, predicted_ms });
        self.note_step_time();
        self.epochs.push(entry);
        self.journal.begin_epoch(epoch, &self.seats);
        Ok(self.book.write_formation(&self.before, &self.epochs)?)
    }

    fn whole_model(&self, node: String) -> StageEntry {
        StageEntry::whole(node, &self.task.graph)
    }
}
