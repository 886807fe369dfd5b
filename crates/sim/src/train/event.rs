use super::node::Process;
use phalanx_protocol::Left;
use phalanx_types::Epoch;

/// What can happen.
#[derive(Debug, Clone)]
pub(super) enum Event {
    /// A process begins on a node.
    Starts {
        node: usize,
    },
    Dies {
        process: Process,
    },
    /// The driver hears of a process.
    Seen {
        process: Process,
    },
    /// The driver hears that a process is gone.
    Lost {
        process: Process,
    },
    Enlisted {
        process: Process,
    },
    Restored {
        process: Process,
        step: u64,
    },
    Prepared {
        epoch: Epoch,
        processes: Vec<Process>,
    },
    /// A group is connected and level.
    Begins {
        epoch: Epoch,
    },
    /// All ranks have done a round.
    RoundEnds {
        epoch: Epoch,
        round: u64,
    },
    /// The driver has written down a step that it was sent.
    Saved {
        process: Process,
        step: u64,
    },
    /// A copy for a checkpoint is made.
    GoesOn {
        epoch: Epoch,
        round: u64,
    },
    /// A member is asked to let others in.
    Asked {
        process: Process,
        epoch: Epoch,
    },
    /// Members hear or notice that their group is over.
    Stops {
        epoch: Epoch,
    },
    /// The driver hears that processes have left.
    Left {
        epoch: Epoch,
        left: Vec<(Process, Left)>,
    },
    Tick,
}
