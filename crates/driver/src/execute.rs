//! Carries out what the core decided.

use super::planner::PlanTask;
use super::{Driver, gone};
use crate::error::DriverError;
use phalanx_fabric::FrameKind;
use phalanx_protocol::driver::{DriverCommand, DriverEvent, DriverFailure, Notice, NoticeLevel};
use phalanx_records::{Event, Events};
use phalanx_types::NodeId;
use phalanx_wire::train::{Enlist, ToReplica};

impl Driver<'_> {
    /// Carries out one command; some have their reply at once.
    pub(super) fn execute(
        &mut self,
        command: DriverCommand,
        events: &mut Events<'_>,
    ) -> Result<Option<DriverEvent>, DriverError> {
        match command {
            DriverCommand::Enlist { node } => self.enlist(&node),
            DriverCommand::Send { node, message } => self.send(&node, &message),
            DriverCommand::Restore { node } => self.restore(&node)?,
            DriverCommand::Prepare { epoch, members, layout } => {
                let (run, ranks) = (self.run, members.len() as u32);
                for (rank, node) in (0u32..).zip(&members) {
                    let layout = layout.clone();
                    self.send(node, &ToReplica::Prepare { run, epoch, rank, ranks, layout });
                }
            }
            DriverCommand::Begin(start) => self.begin_group(start, events)?,
            DriverCommand::Abort { epoch, nodes, reason } => {
                self.groups.on_end(&reason);
                for node in nodes {
                    let reason = reason.clone();
                    self.send(&node, &ToReplica::Abort { run: self.run, epoch, reason });
                }
            }
            DriverCommand::Measure { nodes } => self.measure(nodes),
            DriverCommand::Plan(request) => {
                let nodes = self.known_nodes(&request.nodes);
                self.planner.ask(PlanTask::Plan { request, nodes, links: self.machines.links() });
            }
            DriverCommand::Compare(request) => {
                let all: Vec<NodeId> = request.members.iter().chain(&request.candidates).cloned().collect();
                let (nodes, links) = (self.known_nodes(&all), self.machines.links());
                let present = self.plans.get(&request.plan).cloned();
                self.planner.ask(PlanTask::Compare { request, present, nodes, links });
            }
            DriverCommand::Calibrate { ticket, plan, members, took_s } => {
                let (nodes, links) = (self.known_nodes(&members), self.machines.links());
                let plan = self.plans.get(&plan).cloned();
                self.planner.ask(PlanTask::Calibrate { ticket, plan, nodes, links, took_s });
            }
            DriverCommand::Fetch { ticket, node, state } => self.fetch(ticket, &node, &state),
            DriverCommand::FetchPart { ticket, node, epoch, ops } => {
                self.fetch_part(ticket, node, epoch, ops)
            }
            DriverCommand::Discard { ticket } => drop(self.fetched.remove(&ticket)),
            DriverCommand::ReleaseStart => {
                self.state = None;
                self.release_start();
            }
            DriverCommand::RecordStep(report) => {
                self.book.record_step(&report, Some(self.groups.nodes(report.epoch)), events)?;
                self.groups.on_step(report.took());
            }
            DriverCommand::RecordValidation { step, sums } => {
                let evaluation = phalanx_train::evaluation(&self.task.metrics, &sums.into());
                self.book.record_validation(step, evaluation, events)?;
            }
            DriverCommand::Draft { step } => {
                let draft = self.book.draft(self.core.place(step)?)?;
                self.drafts.insert(step, draft);
            }
            DriverCommand::DropDraft { step } => drop(self.drafts.remove(&step)),
            DriverCommand::Save { step, states } => self.save(step, &states, events)?,
            DriverCommand::CommitStream { step } => self.commit(self.core.place(step)?, events),
            DriverCommand::SaveEarlier { step, states } => self.save_earlier(step, &states, events)?,
            DriverCommand::CutRecords { after } => self.book.cut_after(after, events)?,
            DriverCommand::Rewind => return self.rewind(events).map(Some),
            DriverCommand::ForwardQuery { query, node, epoch } => {
                return Ok(self.forward_query(query, &node, epoch));
            }
            DriverCommand::FetchAnswer { query, node, shape, outputs } => {
                self.fetch_answer(query, &node, shape, outputs);
            }
            DriverCommand::RefuseQuery { query, refusal } => self.live.refuse(query, &refusal),
            DriverCommand::Tell(notice) => self.tell(&notice, events)?,
            DriverCommand::Finish { step, end, states } => {
                self.summary = Some(self.finish(step, end, &states, events)?);
            }
            DriverCommand::Fail(failure) => return Err(self.failed(failure)),
        }
        Ok(None)
    }

    pub(super) fn send(&self, node: &NodeId, message: &ToReplica) {
        let Some(peer) = self.peers.get(node) else { return };
        if let Err(error) = peer.send(FrameKind::Train, message) {
            tracing::debug!(to = %node, %error, "could not tell a replica");
        }
    }

    fn enlist(&self, node: &NodeId) {
        let enlist = Enlist {
            config: self.options.config.clone(),
            files: self.files.clone(),
            trace: self.options.trace,
            data: self.task.data(),
            share: self.task.share(),
        };
        self.send(node, &ToReplica::Enlist { run: self.run, enlist });
    }

    fn failed(&mut self, failure: DriverFailure) -> DriverError {
        match failure {
            DriverFailure::Rank { node, failure } => DriverError::Node { node, failure },
            DriverFailure::AllRefuse { refusal } => DriverError::AllRefuse { refusal },
            DriverFailure::NoPlan { ticket } => {
                self.plan_errors.remove(&ticket).unwrap_or_else(|| gone("there is no plan"))
            }
            DriverFailure::ModelLost => gone("all nodes that held the model are lost"),
        }
    }

    fn tell(&mut self, notice: &Notice, events: &mut Events<'_>) -> Result<(), DriverError> {
        let text = notice.to_string();
        if let Notice::StreamWaits { .. } = notice {
            self.book.note_waiting(self.place(), &text)?;
        }
        events.on(match (notice, notice.level()) {
            (Notice::NodeLost { node, .. }, _) => Event::Lost { node: node.to_string(), why: text },
            (_, NoticeLevel::Note) => Event::Note(text),
            (_, NoticeLevel::Waiting) => Event::Waiting(text),
            (_, NoticeLevel::Warning) => Event::Warning(text),
        });
        Ok(())
    }
}
