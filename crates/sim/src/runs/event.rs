//! What can happen to a simulated cluster.

use super::cluster::Process;
use super::shell::Fetch;
use phalanx_protocol::driver::DriverEvent;
use phalanx_types::Epoch;
use phalanx_wire::train::ToReplica;

/// What can happen.
#[derive(Debug)]
pub(super) enum Event {
    Starts {
        node: usize,
    },
    /// A process dies or freezes, or its link is cut.
    Fails {
        process: Process,
    },
    /// A process ends because another one is to take its place.
    Replaced {
        process: Process,
    },
    /// A process has a link to the driver again.
    Relinks {
        process: Process,
    },
    /// The oldest thing on the way from a process is there.
    Arrives {
        process: Process,
    },
    /// A message of the driver is there.
    Hears {
        process: Process,
        link: u32,
        message: Box<ToReplica>,
    },
    ToDriver(Box<DriverEvent>),
    /// A transfer to the driver ends.
    FetchEnds {
        process: Option<Process>,
        fetch: Fetch,
    },
    /// A member of a group has got its part of the state, or cannot.
    Acquired {
        process: Process,
        epoch: Epoch,
    },
    /// A part of the state has come to a replica that catches up.
    Caught {
        process: Process,
        epoch: Epoch,
        part: u32,
    },
    /// What a group does ends.
    WorkEnds {
        epoch: Epoch,
        serial: u64,
    },
    /// A copy has arrived at the next stage.
    CopyArrives {
        epoch: Epoch,
        step: u64,
        rank: usize,
    },
    /// A survivor notices that its group is broken.
    Notices {
        process: Process,
        epoch: Epoch,
    },
    /// A client asks the model something.
    Query,
    /// The driver is not scheduled for a while.
    Slow,
    /// The driver's process dies.
    DriverDies,
    /// A new driver takes the run up.
    Resumes,
    /// The user stops the run.
    StopAsked,
    Tick,
}

impl Event {
    /// Whether it happens whatever becomes of the driver that there is now.
    pub(super) fn outlives_the_driver(&self) -> bool {
        match self {
            Event::Starts { .. }
            | Event::Fails { .. }
            | Event::Replaced { .. }
            | Event::Relinks { .. }
            | Event::Query
            | Event::Slow
            | Event::DriverDies
            | Event::Resumes
            | Event::StopAsked => true,
            Event::Arrives { .. }
            | Event::Hears { .. }
            | Event::ToDriver(_)
            | Event::FetchEnds { .. }
            | Event::Acquired { .. }
            | Event::Caught { .. }
            | Event::WorkEnds { .. }
            | Event::CopyArrives { .. }
            | Event::Notices { .. }
            | Event::Tick => false,
        }
    }
}
