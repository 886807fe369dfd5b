//! One rank's end of a group, over one or several hosts.
//!
//! ```text
//!   Group::prepare -> GroupEnd --delivered by the caller to all--> needs -> streams -> connect
//!
//!   Reach::Host    all ranks share memory: SharedGroup does it
//!   Reach::Hosts   within each host (if several ranks are there), between the leaders of hosts, within each host
//!                  tiers: the steps of a call;  reduce, moves, join: the calls
//! ```
//! Every failure ends the group on all ranks: the rank that detects it aborts shared memory, links and the streams
//! within its host, and every rank that receives the abort does the same. Ranks in errors are numbers in the whole
//! group.

mod aborter;
mod adasum;
mod alarm;
mod background;
mod buffer;
mod calls;
mod compressed;
mod end;
mod join;
mod links_end;
mod moves;
mod prepare;
mod reduce;
mod tiers;

pub use aborter::GroupAborter;
pub use background::{Background, Done, Handle};
pub use buffer::GroupBuffer;
pub use compressed::Feedback;
pub use end::{GroupEnd, HostId};
pub use prepare::{GroupOptions, PreparedGroup};

use crate::core::hosts::Hosts;
use crate::core::select::{self, AlgorithmTable, GroupShape};
use crate::core::words::{Algorithm, Kind};
use crate::error::CollectiveError;
use crate::shell::shared::SharedGroup;
use links_end::LinksEnd;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// One rank's end of a group.
///
/// All ranks make the same calls in the same order. A call that fails on one rank ends the group on all of them.
pub struct Group {
    rank: usize,
    ranks: usize,
    epoch: u64,
    hosts: Hosts,
    reach: Reach,
    /// The group with the other ranks of this host.
    shared: Option<SharedGroup>,
    /// A leader's links to other leaders.
    links: Option<LinksEnd>,
    aborter: GroupAborter,
    watch: Option<JoinHandle<()>>,
    /// How many calls this rank has begun.
    sequence: u64,
    sent: u64,
    /// Scratch memory for tensors that are exchanged together.
    fused: Vec<f32>,
}

/// Whether a group spans one host or several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    Alone,
    Host,
    Hosts,
}

impl Group {
    pub fn rank(&self) -> usize {
        self.rank
    }

    pub fn ranks(&self) -> usize {
        self.ranks
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The number of hosts; a rank that shares no memory counts as one.
    pub fn hosts(&self) -> usize {
        self.hosts.count()
    }

    /// The algorithm that would be used; `bytes` is what a rank gets of one result.
    pub fn algorithm(&self, kind: Kind, bytes: u64) -> Algorithm {
        let (ranks, hosts) = (self.ranks, self.hosts());
        if self.reach == Reach::Hosts && ranks > hosts {
            return Algorithm::Hierarchical;
        }
        let place = GroupShape { ranks, hosts, shared: self.reach != Reach::Hosts };
        select::choose(kind, bytes, place, &AlgorithmTable::default())
    }

    /// The bytes that this rank has sent in all calls. For shared memory it is what a ring would have sent over a
    /// network: 2(n-1)/n of the tensor for an all-reduce among `n` ranks, and so on.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// A handle that aborts the group from any thread.
    pub fn aborter(&self) -> GroupAborter {
        self.aborter.clone()
    }

    /// Sets how long this rank looks for ranks of its host before it sleeps: not for long if other threads need its
    /// core.
    pub fn set_spin(&mut self, spin: Duration) {
        if let Some(shared) = &mut self.shared {
            shared.set_spin(spin);
        }
    }

    /// Sets a callback for long waits: it is called with the rank waited for and the time so far, each time a wait has
    /// lasted `after` longer. If the host's leader waits for another host, its other ranks wait for the leader.
    pub fn set_on_wait(&mut self, after: Duration, on_wait: impl FnMut(usize, Duration) + Send + 'static) {
        let on_wait = Arc::new(Mutex::new(on_wait));
        let call = move |rank: usize, waited: Duration| {
            (on_wait.lock().unwrap_or_else(PoisonError::into_inner))(rank, waited);
        };
        if let Some(shared) = &mut self.shared {
            let members = self.hosts.members(self.hosts.seat(self.rank).0).to_vec();
            let call = call.clone();
            shared.set_on_wait(after, move |place, waited| call(members[place], waited));
        }
        if let Some(links) = &self.links {
            links.on_wait(after, Box::new(call));
        }
    }

    fn aborted(&self) -> Option<CollectiveError> {
        let reason = self.aborter.reason()?.to_owned();
        Some(CollectiveError::Aborted { epoch: self.epoch, reason })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.aborter.abort(format!("rank {} panicked", self.rank));
        }
        self.aborter.leave();
        if let Some(watch) = self.watch.take() {
            // Its panic was reported on its own thread.
            let _ended = watch.join();
        }
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, ranks, epoch, hosts, sequence, .. } = self;
        f.debug_struct("Group")
            .field("rank", rank)
            .field("ranks", ranks)
            .field("epoch", epoch)
            .field("hosts", &hosts.count())
            .field("sequence", sequence)
            .field("over", &self.aborter.reason())
            .finish_non_exhaustive()
    }
}

fn system(what: &'static str, problem: impl fmt::Display) -> CollectiveError {
    CollectiveError::System { what, problem: problem.to_string() }
}
