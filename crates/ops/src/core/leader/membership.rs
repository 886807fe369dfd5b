//! Ranks that have no more data, leave or are lost.

use super::{Leader, LeaderCommand};
use crate::core::messages::{ToRank, UnitId};
use phalanx_types::{Outbox, Time};

impl Leader {
    pub(super) fn on_join(&mut self, now: Time, rank: u32, out: &mut Outbox<LeaderCommand>) {
        if self.joined.contains(&rank) {
            return;
        }
        self.joined.push(rank);
        let everyone: Vec<u32> = (0..self.ranks).collect();
        let all = everyone.iter().all(|rank| self.joined.contains(rank) || self.left.contains(rank));
        // Whatever the last rank issued before it joined runs first.
        self.review_all(now, out);
        if all {
            while self.dispatch(Time::NEVER, out) {}
            self.joined.clear();
            let to = everyone.into_iter().filter(|rank| !self.left.contains(rank)).collect();
            out.push(LeaderCommand { to, message: ToRank::AllJoined { last: rank } });
        }
    }

    pub(super) fn on_leave(&mut self, now: Time, rank: u32, out: &mut Outbox<LeaderCommand>) {
        self.left.insert(rank);
        self.review_all(now, out);
        out.push(LeaderCommand { to: vec![rank], message: ToRank::Goodbye });
    }

    /// A rank is lost: all others hear of it, and nothing more happens.
    pub(crate) fn on_lost(&mut self, rank: u32, out: &mut Outbox<LeaderCommand>) {
        if self.left.contains(&rank) || std::mem::replace(&mut self.lost, true) {
            return;
        }
        let to = (0..self.ranks).filter(|other| *other != rank && !self.left.contains(other)).collect();
        out.push(LeaderCommand { to, message: ToRank::Lost { rank } });
    }

    fn review_all(&mut self, now: Time, out: &mut Outbox<LeaderCommand>) {
        let units: Vec<UnitId> = self.pending.keys().copied().collect();
        for unit in units {
            self.review(now, unit, out);
        }
    }
}
