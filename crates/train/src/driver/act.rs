//! What the driver tells nodes to do, as its core decides.

use super::journal::Journal;
use super::{Driver, HUSH};
use crate::book::FormationEpoch;
use crate::core::{FormationCommand, Seat};
use crate::error::TrainError;
use crate::observer::{Event, Observer};
use bytes::Bytes;
use phalanx_fabric::FrameKind;
use phalanx_types::{Epoch, NodeId, Parcel};
use phalanx_wire::train::{Asked, Enlist, SeatRef, StateRef, ToReplica};
use std::collections::BTreeSet;
use std::time::Instant;

impl Driver<'_> {
    /// Carries out what the core decided.
    pub(super) fn act(&mut self, observer: &mut dyn Observer) -> Result<(), TrainError> {
        let commands: Vec<FormationCommand> = self.out.drain().collect();
        for command in commands {
            match command {
                FormationCommand::Enlist { node } => {
                    let enlist = Enlist {
                        config: self.options.config.clone(),
                        files: self.files.clone(),
                        trace: self.options.trace,
                    };
                    self.send(&node, &ToReplica::Enlist { run: self.run, enlist });
                }
                FormationCommand::Restore { node } => self.restore(&node, observer)?,
                FormationCommand::Prepare { epoch, members } => {
                    let (run, ranks) = (self.run, members.len() as u32);
                    for (rank, node) in members.iter().enumerate() {
                        self.send(node, &ToReplica::Prepare { run, epoch, rank: rank as u32, ranks });
                    }
                    self.preparing = members;
                }
                FormationCommand::Connect { epoch, seats } => self.connect(epoch, seats, observer)?,
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
        Ok(())
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
    fn restore(&mut self, node: &NodeId, observer: &mut dyn Observer) -> Result<(), TrainError> {
        if self.journal.has_begun() {
            let lost = self.journal.step();
            let (place, state) = self.book.rewind(observer)?;
            let back = place.step;
            observer.on(&Event::Warning(&format!(
                "all replicas are lost; the run goes back from step {lost} to its last checkpoint, step {back}"
            )));
            self.journal = Journal::new(back);
            self.state = state;
            if let Some(first) = self.first.take() {
                self.fabric.release(first.blob);
            }
        }
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

    fn connect(
        &mut self,
        epoch: Epoch,
        seats: Vec<Seat>,
        observer: &mut dyn Observer,
    ) -> Result<(), TrainError> {
        let committed = seats.iter().filter_map(|seat| seat.step).max().unwrap_or(0);
        self.commit(committed, observer)?;
        self.journal.forget_the_rest();
        self.paused = None;
        self.holders.clear();
        let (run, recorded) = (self.run, self.journal.recorded());
        self.seats = seats.iter().map(|seat| seat.node.clone()).collect();
        let new = seats.iter().filter(|seat| seat.step.is_none());
        self.joiners = new.map(|seat| seat.node.clone()).collect();
        let seats: Vec<SeatRef> = seats
            .into_iter()
            .map(|seat| SeatRef { node: seat.node, end: seat.end.into(), step: seat.step })
            .collect();
        for node in &self.seats {
            let seats = seats.clone();
            self.send(node, &ToReplica::Connect { run, epoch, seats, recorded });
        }
        let nodes: Vec<String> = self.seats.iter().map(ToString::to_string).collect();
        if let Some(trace) = &mut self.trace {
            trace.on_group(epoch, self.book.elapsed(), &nodes);
        }
        observer.on(&Event::Formed { epoch: epoch.0, nodes: &nodes, step: committed });
        self.note_step_time();
        self.epochs.push(FormationEpoch {
            epoch: epoch.0,
            nodes,
            operators: self.task.graph.nodes.len(),
            parameters: self.task.graph.cost().parameters as usize,
            from_step: committed,
            step_ms: None,
            ended: None,
        });
        self.journal.begin_epoch(epoch, &self.seats);
        self.book.write_formation(&self.before, &self.epochs)
    }
}
