//! What a launcher asks of the place where its ranks run, and what it hears from there.

use crate::core::placement::{PlaceWait, Seat};
use crate::core::supervisor::ProcessExit;
use crate::launch::LaunchError;
use phalanx_types::NodeId;
use phalanx_wire::launch::RankSignal;
use std::collections::{BTreeMap, BTreeSet};

/// What happened to ranks, or to the launch.
#[derive(Debug)]
pub(crate) enum RankEvent {
    /// There is no place for these ranks yet.
    Waiting {
        workers: BTreeSet<u32>,
        reason: PlaceWait,
    },
    /// Ranks run on these nodes.
    Placed {
        nodes: BTreeMap<u32, NodeId>,
    },
    Exited {
        worker: u32,
        exit: ProcessExit,
    },
    /// A rank is gone with its node, or with the link to it.
    NodeLost {
        worker: u32,
        node: NodeId,
    },
    NotStarted {
        error: LaunchError,
    },
    Interrupted,
}

/// Where ranks run. All of them end when it is dropped.
pub(crate) trait Place {
    /// Starts these ranks together. What becomes of them is reported as [`RankEvent`]s.
    ///
    /// # Errors
    /// The system does not allow it.
    fn start(&mut self, workers: BTreeSet<u32>) -> Result<(), LaunchError>;

    /// Sends a rank a signal. A rank that has no place ends.
    fn signal(&mut self, worker: u32, signal: RankSignal);
}

/// Has the allocator of glibc keep what a step frees for the next one, which needs as much. Returned to the system and
/// fetched again page by page, it costs up to a twentieth of a training step.
pub(crate) const ALLOCATOR: [(&str, &str); 2] =
    [("MALLOC_MMAP_THRESHOLD_", "33554432"), ("MALLOC_TRIM_THRESHOLD_", "4294967296")];

/// What all ranks of a launch are told.
#[derive(Debug, Clone)]
pub(crate) struct Meeting {
    pub(crate) ranks: u32,
    pub(crate) secret: phalanx_ops::Secret,
    pub(crate) port: u16,
    /// Whether ranks may come later.
    pub(crate) grows: bool,
}

impl Meeting {
    /// The variables of a rank that reaches the launcher at `host`. Ranks of its machine share `local_cores`.
    pub(crate) fn variables(
        &self,
        worker: u32,
        host: std::net::IpAddr,
        seat: Seat,
        local_cores: u32,
    ) -> Vec<(&'static str, String)> {
        let address = std::net::SocketAddr::new(host, self.port);
        vec![
            ("PHALANX_RENDEZVOUS", address.to_string()),
            ("PHALANX_SECRET", self.secret.to_hex()),
            ("PHALANX_WORKER", worker.to_string()),
            ("PHALANX_RANK", worker.to_string()),
            ("PHALANX_SIZE", self.ranks.to_string()),
            ("PHALANX_LOCAL_RANK", seat.local_rank.to_string()),
            ("PHALANX_LOCAL_SIZE", seat.local_size.to_string()),
            ("PHALANX_CROSS_RANK", seat.cross_rank.to_string()),
            ("PHALANX_CROSS_SIZE", seat.cross_size.to_string()),
            ("PHALANX_LOCAL_CORES", local_cores.to_string()),
            ("PHALANX_ELASTIC", u32::from(self.grows).to_string()),
        ]
    }
}
