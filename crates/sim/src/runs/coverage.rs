//! Which kinds of events and commands of the driver's core a run had.

use phalanx_protocol::driver::{DriverCommand, DriverEvent, DriverFailure, NoPlanKind, Notice};
use phalanx_wire::train::{Asked, FromReplica, LeftWhy, ToReplica};
use phalanx_wire::train_reason::{RankFailure, RunRefusal};
use std::collections::BTreeSet;

/// Names the kinds of a type, in a list and by value. A kind without a name does not compile.
macro_rules! kinds {
    ($all:ident, $kind:ident, $of:ty { $($pattern:pat => $name:literal,)* }) => {
        const $all: &[&str] = &[$($name),*];

        fn $kind(value: &$of) -> &'static str {
            match value {
                $($pattern => $name,)*
            }
        }
    };
}

kinds!(EVENTS, event_kind, DriverEvent {
    DriverEvent::Started => "Started",
    DriverEvent::NodeUp { .. } => "NodeUp",
    DriverEvent::NodeDown { .. } => "NodeDown",
    DriverEvent::Message { .. } => "Message",
    DriverEvent::Measured { .. } => "Measured",
    DriverEvent::Planned { plan: Ok(_), .. } => "Planned",
    DriverEvent::Planned { plan: Err(_), .. } => "Planned: not",
    DriverEvent::Compared { comparison: Some(_), .. } => "Compared",
    DriverEvent::Compared { comparison: None, .. } => "Compared: not",
    DriverEvent::Calibrated { .. } => "Calibrated",
    DriverEvent::Fetched { result: Ok(_), .. } => "Fetched",
    DriverEvent::Fetched { result: Err(_), .. } => "Fetched: not",
    DriverEvent::Rewound { .. } => "Rewound",
    DriverEvent::QueryAsked { .. } => "QueryAsked",
    DriverEvent::QueryDropped { .. } => "QueryDropped",
    DriverEvent::StopAsked => "StopAsked",
    DriverEvent::Tick => "Tick",
});

kinds!(MESSAGES, message_kind, FromReplica {
    FromReplica::Enlisted { .. } => "says Enlisted",
    FromReplica::Refused { refusal: RunRefusal::OtherDriver, .. } => "says Refused: busy",
    FromReplica::Refused { .. } => "says Refused",
    FromReplica::Restored { .. } => "says Restored",
    FromReplica::Prepared { .. } => "says Prepared",
    FromReplica::Left { why: LeftWhy::Broken { .. }, .. } => "says Left: Broken",
    FromReplica::Left { why: LeftWhy::Reformed, .. } => "says Left: Reformed",
    FromReplica::Left { why: LeftWhy::Ended, .. } => "says Left: Ended",
    FromReplica::Left { why: LeftWhy::Failed(RankFailure::WrongInput { .. }), .. } => "says Left: WrongInput",
    FromReplica::Left { why: LeftWhy::Failed(_), .. } => "says Left: Failed",
    FromReplica::Steps { .. } => "says Steps",
    FromReplica::Validated { .. } => "says Validated",
    FromReplica::Snapshot { .. } => "says Snapshot",
    FromReplica::Part { .. } => "says Part",
    FromReplica::Spans { .. } => "says Spans",
    FromReplica::Waits { .. } => "says Waits",
    FromReplica::Computed { .. } => "says Computed",
    FromReplica::NotComputed { .. } => "says NotComputed",
    FromReplica::StreamWaits { .. } => "says StreamWaits",
    FromReplica::StreamEnded { .. } => "says StreamEnded",
});

kinds!(NO_PLANS, no_plan_kind, NoPlanKind {
    NoPlanKind::NeedsNodes => "no plan: NeedsNodes",
    NoPlanKind::NeedsOtherNodes => "no plan: NeedsOtherNodes",
    NoPlanKind::Hopeless => "no plan: Hopeless",
});

kinds!(COMMANDS, command_kind, DriverCommand {
    DriverCommand::Enlist { .. } => "Enlist",
    DriverCommand::Send { .. } => "Send",
    DriverCommand::Restore { .. } => "Restore",
    DriverCommand::Prepare { .. } => "Prepare",
    DriverCommand::Begin(_) => "Begin",
    DriverCommand::Abort { .. } => "Abort",
    DriverCommand::Measure { .. } => "Measure",
    DriverCommand::Plan(_) => "Plan",
    DriverCommand::Compare(_) => "Compare",
    DriverCommand::Calibrate { .. } => "Calibrate",
    DriverCommand::Fetch { .. } => "Fetch",
    DriverCommand::FetchPart { .. } => "FetchPart",
    DriverCommand::Discard { .. } => "Discard",
    DriverCommand::ReleaseStart => "ReleaseStart",
    DriverCommand::RecordStep(_) => "RecordStep",
    DriverCommand::RecordValidation { .. } => "RecordValidation",
    DriverCommand::Draft { .. } => "Draft",
    DriverCommand::DropDraft { .. } => "DropDraft",
    DriverCommand::Save { .. } => "Save",
    DriverCommand::CommitStream { .. } => "CommitStream",
    DriverCommand::SaveEarlier { .. } => "SaveEarlier",
    DriverCommand::CutRecords { .. } => "CutRecords",
    DriverCommand::Rewind => "Rewind",
    DriverCommand::ForwardQuery { .. } => "ForwardQuery",
    DriverCommand::FetchAnswer { .. } => "FetchAnswer",
    DriverCommand::RefuseQuery { .. } => "RefuseQuery",
    DriverCommand::Tell(_) => "Tell",
    DriverCommand::Finish { .. } => "Finish",
    DriverCommand::Fail(_) => "Fail",
});

kinds!(NOTICES, notice_kind, Notice {
    Notice::NodeLost { .. } => "tells NodeLost",
    Notice::NodeLeft { .. } => "tells NodeLeft",
    Notice::NodeRefused { .. } => "tells NodeRefused",
    Notice::NodeUnused { .. } => "tells NodeUnused",
    Notice::NotFaster { .. } => "tells NotFaster",
    Notice::Paused { .. } => "tells Paused",
    Notice::RankWaits { .. } => "tells RankWaits",
    Notice::StreamWaits { .. } => "tells StreamWaits",
    Notice::NoCheckpoint { .. } => "tells NoCheckpoint",
    Notice::NoModel { .. } => "tells NoModel",
    Notice::WentBack { held: true, .. } => "tells WentBack: held",
    Notice::WentBack { held: false, .. } => "tells WentBack",
    Notice::StepsUnknown { .. } => "tells StepsUnknown",
    Notice::ValidationUnknown { .. } => "tells ValidationUnknown",
});

kinds!(FAILURES, failure_kind, DriverFailure {
    DriverFailure::Rank { failure: RankFailure::WrongInput { .. }, .. } => "fails: WrongInput",
    DriverFailure::Rank { .. } => "fails: Rank",
    DriverFailure::AllRefuse { .. } => "fails: AllRefuse",
    DriverFailure::NoPlan { .. } => "fails: NoPlan",
    DriverFailure::ModelLost => "fails: ModelLost",
});

kinds!(SENT, sent_kind, ToReplica {
    ToReplica::Enlist { .. } => "sends Enlist",
    ToReplica::Restore { .. } => "sends Restore",
    ToReplica::Prepare { .. } => "sends Prepare",
    ToReplica::Connect { .. } => "sends Connect",
    ToReplica::Give { .. } => "sends Give",
    ToReplica::Abort { .. } => "sends Abort",
    ToReplica::Ask { wish: Asked::Reform, .. } => "sends Ask: Reform",
    ToReplica::Ask { wish: Asked::Stop, .. } => "sends Ask: Stop",
    ToReplica::Snapshot { .. } => "sends Snapshot",
    ToReplica::Part { .. } => "sends Part",
    ToReplica::Taken { .. } => "sends Taken",
    ToReplica::Dismiss { .. } => "sends Dismiss",
    ToReplica::Compute { .. } => "sends Compute",
});

/// Kinds that the core never hears or says: its shell keeps timelines, and sends these messages by itself.
const OF_THE_SHELL: [&str; 8] = [
    "says Spans",
    "sends Enlist",
    "sends Restore",
    "sends Prepare",
    "sends Connect",
    "sends Abort",
    "sends Dismiss",
    "sends Compute",
];

/// Kinds for nodes that break their word: a rank that remembers a step remembers its validation, too.
const OF_WRONG_NODES: [&str; 1] = ["tells ValidationUnknown"];

/// Every kind of event and command that a run can have.
pub fn kinds() -> BTreeSet<&'static str> {
    let all = [EVENTS, MESSAGES, NO_PLANS, COMMANDS, NOTICES, FAILURES, SENT].into_iter().flatten().copied();
    all.filter(|kind| !OF_THE_SHELL.contains(kind) && !OF_WRONG_NODES.contains(kind)).collect()
}

/// The kinds that a run had.
#[derive(Debug, Default)]
pub(super) struct Coverage(BTreeSet<&'static str>);

impl Coverage {
    pub(super) fn on_event(&mut self, event: &DriverEvent) {
        self.0.insert(event_kind(event));
        match event {
            DriverEvent::Message { message, .. } => drop(self.0.insert(message_kind(message))),
            DriverEvent::Planned { plan: Err(no_plan), .. } => {
                self.0.insert(no_plan_kind(&no_plan.kind));
            }
            _ => {}
        }
    }

    pub(super) fn on_command(&mut self, command: &DriverCommand) {
        self.0.insert(command_kind(command));
        match command {
            DriverCommand::Send { message, .. } => drop(self.0.insert(sent_kind(message))),
            DriverCommand::Tell(notice) => drop(self.0.insert(notice_kind(notice))),
            DriverCommand::Fail(failure) => drop(self.0.insert(failure_kind(failure))),
            _ => {}
        }
    }

    pub(super) fn into_kinds(self) -> BTreeSet<&'static str> {
        self.0
    }
}
