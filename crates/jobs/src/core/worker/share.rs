//! The part of the node that jobs may use.

use super::{LeaseState, WorkerCore};
use phalanx_types::{LeaseId, Needs};
use phalanx_wire::usage::{self, NodeUse};

impl WorkerCore {
    /// Others than jobs use this much of the node from now on, or are about to.
    ///
    /// What runs goes on. A lease that does not fit into the rest goes back: it could wait here for as long as a
    /// training run takes. Main nodes hear of it with the next report.
    pub fn on_taken(&mut self, taken: Vec<NodeUse>) {
        self.share = usage::free(self.config.capacity, &taken);
        self.taken = taken;
        let share = self.share;
        for session in self.sessions.values_mut() {
            session.dirty = true;
            let mut too_large = Vec::new();
            for (job, lease) in &mut session.leases {
                if lease.needs.fit(share.cores, share.memory) {
                    continue;
                }
                match lease.state {
                    LeaseState::Unfetched { .. } | LeaseState::Ready { .. } => {
                        too_large.push(LeaseId { job: *job, number: lease.number });
                    }
                    // It goes back when its payload is here, unless there is room for it by then.
                    LeaseState::Fetching { .. } => lease.recalled = true,
                    LeaseState::Asking { .. } | LeaseState::Running | LeaseState::Done(_) => {}
                }
            }
            for lease in too_large {
                session.remove(lease);
                session.hand_back(lease);
            }
        }
    }

    /// What jobs may use together.
    pub fn share(&self) -> Needs {
        self.share
    }
}
