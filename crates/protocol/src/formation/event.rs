//! What the driver's core is told, as one value, so that it can be recorded and replayed.

use super::{FormationCommand, FormationCore, Left, Limits};
use phalanx_recording::Replay;
use phalanx_types::{Epoch, NodeId, Outbox, Time};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a [`FormationCore`] begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormationSetup {
    pub limits: Limits,
    /// A plan says which nodes hold which part of the model.
    pub planned: bool,
}

/// Something that happened to a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FormationEvent {
    /// A node that could take part has come.
    NodeFound { node: NodeId },
    /// A node has opened the run; `step` is what it still holds of it.
    Enlisted { node: NodeId, step: Option<u64> },
    /// A node holds the state that was on disk.
    Restored { node: NodeId, step: u64 },
    /// There is a plan of who is in the next group, by rank; or why there can be none.
    Mustered { plan: Result<Vec<NodeId>, String> },
    /// More is known than when a plan was asked for.
    MusterRepeated,
    /// Waiting nodes may have become faster.
    WeighRepeated,
    /// It pays to form the group anew.
    FoundWorth,
    /// A member has its end of the group ready.
    Prepared {
        node: NodeId,
        epoch: Epoch,
        /// How others reach it. No decision depends on it, so recordings leave it out.
        #[serde(skip)]
        end: Vec<u8>,
    },
    /// A member has left the group and stands by.
    Left { node: NodeId, epoch: Epoch, left: Left },
    /// A node is gone, or wants to go.
    NodeLost { node: NodeId, reason: String },
    /// The user wants the run to end.
    StopAsked,
    /// The result of the last steps was lost with a node: they are done again.
    Unfinished,
    /// Time has passed.
    Ticked,
}

impl FormationCore {
    /// Tells the core what happened.
    pub fn on(&mut self, now: Time, event: FormationEvent, out: &mut Outbox<FormationCommand>) {
        match event {
            FormationEvent::NodeFound { node } => self.on_node(now, node, out),
            FormationEvent::Enlisted { node, step } => self.on_enlisted(now, &node, step, out),
            FormationEvent::Restored { node, step } => self.on_restored(now, &node, step, out),
            FormationEvent::Mustered { plan } => self.on_mustered(now, plan, out),
            FormationEvent::MusterRepeated => self.muster_again(out),
            FormationEvent::WeighRepeated => self.weigh_again(now, out),
            FormationEvent::FoundWorth => self.on_worth(out),
            FormationEvent::Prepared { node, epoch, end } => self.on_prepared(&node, epoch, end, out),
            FormationEvent::Left { node, epoch, left } => self.on_left(now, &node, epoch, left, out),
            FormationEvent::NodeLost { node, reason } => self.on_lost(now, &node, &reason, out),
            FormationEvent::StopAsked => self.on_stop(now, out),
            FormationEvent::Unfinished => self.on_unfinished(now, out),
            FormationEvent::Ticked => self.on_tick(now, out),
        }
    }
}

impl Replay for FormationCore {
    const CORE: &'static str = "driver";
    type Config = FormationSetup;
    type Event = FormationEvent;
    type Command = FormationCommand;

    fn new(setup: FormationSetup) -> Self {
        let FormationSetup { limits, planned } = setup;
        if planned { FormationCore::planned(limits) } else { FormationCore::new(limits) }
    }

    fn feed(&mut self, now: Time, event: FormationEvent, out: &mut Outbox<FormationCommand>) {
        self.on(now, event, out);
    }
}

impl fmt::Display for FormationEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FormationEvent::NodeFound { node } => write!(f, "{node} could take part"),
            FormationEvent::Enlisted { node, step: Some(step) } => {
                write!(f, "{node} has opened the run and holds step {step}")
            }
            FormationEvent::Enlisted { node, step: None } => write!(f, "{node} has opened the run"),
            FormationEvent::Restored { node, step } => {
                write!(f, "{node} holds the saved state of step {step}")
            }
            FormationEvent::Mustered { plan: Ok(members) } => {
                write!(f, "there is a plan: {}", Names(members))
            }
            FormationEvent::Mustered { plan: Err(shortfall) } => write!(f, "there is no plan: {shortfall}"),
            FormationEvent::MusterRepeated => f.write_str("more is known for a plan"),
            FormationEvent::WeighRepeated => f.write_str("waiting nodes may have become faster"),
            FormationEvent::FoundWorth => f.write_str("forming the group anew pays"),
            FormationEvent::Prepared { node, epoch, .. } => write!(f, "{node} is ready for group {epoch}"),
            FormationEvent::Left { node, epoch, left } => match left {
                Left::Broken { step, reason } => {
                    write!(f, "{node} left group {epoch} at step {step}: {reason}")
                }
                Left::Reformed { step } => write!(f, "{node} left group {epoch} at step {step} as agreed"),
                Left::Ended { step } => write!(f, "{node} has done the last step: {step}"),
                Left::Empty { reason: Some(reason) } => {
                    write!(f, "{node} left group {epoch} without a state: {reason}")
                }
                Left::Empty { reason: None } => write!(f, "{node} left group {epoch} without a state"),
            },
            FormationEvent::NodeLost { node, reason } => write!(f, "{node} is gone: {reason}"),
            FormationEvent::StopAsked => f.write_str("the run is asked to stop"),
            FormationEvent::Unfinished => f.write_str("the last steps were lost with a node"),
            FormationEvent::Ticked => f.write_str("time has passed"),
        }
    }
}

/// Nodes, one after the other.
struct Names<'a>(&'a [NodeId]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, node) in self.0.iter().enumerate() {
            write!(f, "{}{node}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl fmt::Display for FormationCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FormationCommand::Enlist { node } => write!(f, "enlist {node}: there is room for it"),
            FormationCommand::Restore { node } => {
                write!(f, "give {node} the saved state: no node holds a newer one")
            }
            FormationCommand::Muster { ready } => {
                write!(f, "plan a group: enough nodes are ready ({})", Names(ready))
            }
            FormationCommand::Weigh { waiting } => {
                write!(f, "find out whether a new group pays: {} could come in", Names(waiting))
            }
            FormationCommand::Prepare { epoch, members } => {
                write!(f, "prepare group {epoch}: {} stand by", Names(members))
            }
            FormationCommand::Connect { epoch, seats } => {
                write!(f, "connect group {epoch}: all ends are ready;")?;
                for seat in seats {
                    match seat.step {
                        Some(step) => write!(f, " {} at step {step}", seat.node)?,
                        None => write!(f, " {} without a state", seat.node)?,
                    }
                }
                Ok(())
            }
            FormationCommand::Abort { epoch, reason } => write!(f, "abort group {epoch}: {reason}"),
            FormationCommand::AskReform { node } => {
                write!(f, "ask {node} to let the group come apart: others can come in")
            }
            FormationCommand::AskStop { node } => write!(f, "ask {node} to end: the run is asked to stop"),
            FormationCommand::Dismiss { node } => write!(f, "dismiss {node}: the run is over"),
            FormationCommand::Paused(pause) => write!(f, "say why the run waits: {pause}"),
            FormationCommand::Ended => {
                f.write_str("end the run: all have done the last step, or it was stopped")
            }
        }
    }
}
