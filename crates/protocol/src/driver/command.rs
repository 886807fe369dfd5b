//! Outputs of the driver's core: what its shell has to do, in this order.

use super::{DriverFailure, Notice, Ticket};
use crate::Seat;
use crate::progress::End;
use phalanx_types::{Epoch, NodeId};
use phalanx_wire::train::{
    Layout, Ops, PassStart, Recorded, Start, StateRef, StepReport, ToReplica, ValidSums,
};
use phalanx_wire::train_reason::{BreakReason, QueryRefusal};
use serde::Serialize;

/// Something that the driver's shell has to do.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum DriverCommand {
    /// Tell a node what the run is, and to open it.
    Enlist {
        /// The node.
        node: NodeId,
    },
    /// Send a message to a node.
    Send {
        /// The node.
        node: NodeId,
        /// The message.
        message: ToReplica,
    },
    /// Give a node the state of the newest checkpoint, or tell it to begin.
    Restore {
        /// The node.
        node: NodeId,
    },
    /// Tell nodes, in the order of their ranks, to get ready for a group.
    Prepare {
        /// Of the group.
        epoch: Epoch,
        /// By rank.
        members: Vec<NodeId>,
        /// Who holds which part, in a run with stages.
        layout: Option<Layout>,
    },
    /// Let a group begin.
    Begin(GroupStart),
    /// Tell nodes that a group is over.
    Abort {
        /// Of the group.
        epoch: Epoch,
        /// Its members.
        nodes: Vec<NodeId>,
        /// Why it is over.
        reason: BreakReason,
    },
    /// Measure nodes: [`super::DriverEvent::Measured`] is the reply.
    Measure {
        /// The nodes, in the order in which they are measured.
        nodes: Vec<NodeToMeasure>,
    },
    /// Plan a group: [`super::DriverEvent::Planned`] is the reply.
    Plan(PlanRequest),
    /// Compare the present formation with one that has other nodes: [`super::DriverEvent::Compared`] is the reply.
    Compare(CompareRequest),
    /// Correct the costs of the model: [`super::DriverEvent::Calibrated`] is the reply.
    Calibrate {
        /// Of this request.
        ticket: Ticket,
        /// Of the plan whose group was observed.
        plan: Ticket,
        /// Its ranks.
        members: Vec<NodeId>,
        /// Seconds of a step that each rank computed.
        took_s: Vec<f64>,
    },
    /// Fetch a state that a node holds: [`super::DriverEvent::Fetched`] is the reply.
    Fetch {
        /// Of this request.
        ticket: Ticket,
        /// The node.
        node: NodeId,
        /// The state.
        state: StateRef,
    },
    /// Take a part of the state that a node was told to give: [`super::DriverEvent::Fetched`] is the reply.
    FetchPart {
        /// Of this request.
        ticket: Ticket,
        /// The node.
        node: NodeId,
        /// The epoch it was told.
        epoch: Epoch,
        /// The operators of the part.
        ops: Ops,
    },
    /// Let go of something that was fetched.
    Discard {
        /// Of the fetch.
        ticket: Ticket,
    },
    /// Let go of the state that groups began with: their members have it.
    ReleaseStart,
    /// Append a step to the records.
    RecordStep(StepReport),
    /// Append a validation to the records.
    RecordValidation {
        /// The step after which the model was validated.
        step: u64,
        /// What it came to.
        sums: ValidSums,
    },
    /// Note the length of the records for a checkpoint of the step that was recorded last.
    Draft {
        /// The step.
        step: u64,
    },
    /// Forget a draft: its state does not come.
    DropDraft {
        /// The step.
        step: u64,
    },
    /// Write the checkpoint that was drafted at a step.
    Save {
        /// The step.
        step: u64,
        /// Its parts, in the order of operators.
        states: Vec<Ticket>,
    },
    /// Tell the store once more that a checkpoint has the steps up to this one: it may free their samples.
    CommitStream {
        /// The step.
        step: u64,
    },
    /// Write a checkpoint of an earlier step than the last one recorded; the records stay.
    SaveEarlier {
        /// The step.
        step: u64,
        /// Its parts, in the order of operators.
        states: Vec<Ticket>,
    },
    /// Cut the records after a step: nobody holds what came later.
    CutRecords {
        /// The last step that stays.
        after: u64,
    },
    /// Go back to the newest checkpoint: [`super::DriverEvent::Rewound`] is the reply, before any other event.
    Rewind,
    /// Pass a client's query on to a node of the group.
    ForwardQuery {
        /// Its number.
        query: u64,
        /// The node.
        node: NodeId,
        /// Of the group.
        epoch: Epoch,
    },
    /// Fetch the answer to a query. If that fails, the query is asked again.
    FetchAnswer {
        /// Its number.
        query: u64,
        /// The node that has it.
        node: NodeId,
        /// Of all outputs together.
        shape: Vec<u64>,
        /// Where they are.
        outputs: StateRef,
    },
    /// Tell a client that its query has no answer.
    RefuseQuery {
        /// Its number.
        query: u64,
        /// Why.
        refusal: QueryRefusal,
    },
    /// Tell the user something.
    Tell(Notice),
    /// Write the result: the run is over.
    Finish {
        /// Steps that are done.
        step: u64,
        /// Whether all of them are.
        end: End,
        /// The parts of the model, in the order of operators; the state on disk where it is empty.
        states: Vec<Ticket>,
    },
    /// The run failed.
    Fail(DriverFailure),
}

/// A group that begins.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupStart {
    /// Of the group.
    pub epoch: Epoch,
    /// By rank.
    pub seats: Vec<Seat>,
    /// What ranks need not report again.
    pub recorded: Recorded,
    /// Steps that are done.
    pub from_step: u64,
    /// With what stages begin.
    pub stages: Option<StageStart>,
    /// A pass that begins no later than after these steps.
    pub pass: PassStart,
}

/// A group of stages that begins.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StageStart {
    /// Of its plan.
    pub plan: Ticket,
    /// Who holds which part.
    pub layout: Layout,
    /// What each rank gets from other nodes; nothing when all of it comes from the newest checkpoint, or from the seed.
    pub starts: Option<Vec<Start>>,
}

/// A node whose speed and links the planner needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeToMeasure {
    /// The node.
    pub node: NodeId,
    /// What was known of it may have changed.
    pub again: bool,
}

/// What a planner has to know besides the model and the machines.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlanRequest {
    /// Of this request.
    pub ticket: Ticket,
    /// Nodes that can be used.
    pub nodes: Vec<NodeId>,
    /// Parts that a batch must be cut into, so that the same numbers come out.
    pub micro_batches: Option<usize>,
    /// Parts of the model that nodes hold already; nothing when the state comes from disk.
    pub held: Option<Vec<(NodeId, Ops)>>,
    /// Whether nodes that trained wait for the plan.
    pub urgent: bool,
}

/// Two formations that are compared.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CompareRequest {
    /// Of this request.
    pub ticket: Ticket,
    /// Of the present plan.
    pub plan: Ticket,
    /// Its ranks.
    pub members: Vec<NodeId>,
    /// Nodes that could be used besides.
    pub candidates: Vec<NodeId>,
    /// Parts that a batch is cut into now.
    pub micro_batches: Option<usize>,
}
