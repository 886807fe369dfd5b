//! What the shell of a node tells a replica that is in the middle of something.

use super::live_query::LiveQuery;
use bytes::Bytes;
use phalanx_collective::{GroupAborter, Socket};
use phalanx_protocol::Wish;
use phalanx_types::Epoch;
use phalanx_wire::train_reason::BreakReason;
use std::net::Shutdown;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Checkpoints of a group that wait for the driver, at most.
const MOST_UNTAKEN: usize = 2;

/// Shared between a replica and the shell that speaks for it.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    /// What the group of an epoch was asked for.
    wish: Mutex<Option<(Epoch, Wish)>>,
    group: Mutex<Ends>,
    /// Parts of a state that have come, of a group of some epoch.
    parts: Mutex<Vec<(Epoch, usize, Bytes)>>,
    /// What somebody asks the model of a group of some epoch, in the order of coming.
    queries: Mutex<Vec<(Epoch, LiveQuery)>>,
    /// The newest group that a checkpoint was made in, and how many of those the driver has not taken yet. What it does
    /// not want of groups before it never takes.
    untaken: Mutex<(Epoch, usize)>,
    /// One was taken, or a group is over.
    taken: Condvar,
    /// A group is over.
    ended: Notify,
}

/// A way to end what a replica waits for.
#[derive(Debug)]
pub(super) enum Ender {
    Group(GroupAborter),
    Socket(Socket),
}

impl Ender {
    fn end(&self, reason: &BreakReason) {
        match self {
            Ender::Group(aborter) => aborter.abort(reason.to_string()),
            // One that has ended already cannot be ended again.
            Ender::Socket(socket) => drop(socket.shutdown(Shutdown::Both)),
        }
    }
}

#[derive(Debug, Default)]
struct Ends {
    /// The group that the replica is in.
    current: Option<(Epoch, Vec<Ender>)>,
    /// The newest group that is over, and why.
    over: Option<(Epoch, BreakReason)>,
}

impl Mailbox {
    /// What this replica is to wish in the group of an epoch at its next boundary.
    pub(super) fn wish(&self, epoch: Epoch) -> Wish {
        let wish = *self.wish.lock().unwrap_or_else(PoisonError::into_inner);
        wish.filter(|(of, _)| *of == epoch).map_or(Wish::GoOn, |(_, wish)| wish)
    }

    pub(super) fn set_wish(&self, epoch: Epoch, wish: Wish) {
        let mut place = self.wish.lock().unwrap_or_else(PoisonError::into_inner);
        let before = place.filter(|(of, _)| *of == epoch).map_or(Wish::GoOn, |(_, wish)| wish);
        *place = Some((epoch, wish.max(before)));
    }

    /// A part of the state has come, for a replica that is new to a group.
    pub(super) fn add_part(&self, epoch: Epoch, part: usize, bytes: Bytes) {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).push((epoch, part, bytes));
    }

    /// The parts that have come for a group; those of others are forgotten.
    pub(super) fn take_parts(&self, epoch: Epoch) -> Vec<(usize, Bytes)> {
        let parts = std::mem::take(&mut *self.parts.lock().unwrap_or_else(PoisonError::into_inner));
        parts.into_iter().filter(|(of, ..)| *of == epoch).map(|(_, part, bytes)| (part, bytes)).collect()
    }

    /// Somebody asks the model of the group of an epoch.
    pub(super) fn add_query(&self, epoch: Epoch, ask: LiveQuery) {
        self.queries.lock().unwrap_or_else(PoisonError::into_inner).push((epoch, ask));
    }

    /// The next question to the model of a group; those to groups before are forgotten.
    pub(super) fn take_query(&self, epoch: Epoch) -> Option<LiveQuery> {
        let mut asks = self.queries.lock().unwrap_or_else(PoisonError::into_inner);
        asks.retain(|(of, _)| *of >= epoch);
        let first = asks.iter().position(|(of, _)| *of == epoch)?;
        Some(asks.remove(first).1)
    }

    /// The driver is told of a checkpoint. Whoever makes them faster than they are taken waits here, until the group is
    /// over.
    pub(super) fn on_snapshot(&self, epoch: Epoch) {
        let mut untaken = self.untaken.lock().unwrap_or_else(PoisonError::into_inner);
        while untaken.0 == epoch && untaken.1 >= MOST_UNTAKEN && self.why_over(epoch).is_none() {
            untaken = self.taken.wait(untaken).unwrap_or_else(PoisonError::into_inner);
        }
        *untaken = if untaken.0 == epoch { (epoch, untaken.1 + 1) } else { (epoch, 1) };
    }

    /// The driver has taken one.
    pub(super) fn on_taken(&self, epoch: Epoch) {
        let mut untaken = self.untaken.lock().unwrap_or_else(PoisonError::into_inner);
        if untaken.0 == epoch {
            untaken.1 = untaken.1.saturating_sub(1);
            self.taken.notify_all();
        }
    }

    /// Whether a checkpoint of the group of an epoch waits for the driver.
    pub(super) fn is_saving(&self, epoch: Epoch) -> bool {
        let untaken = self.untaken.lock().unwrap_or_else(PoisonError::into_inner);
        untaken.0 == epoch && untaken.1 > 0
    }

    /// The replica is in a group now, with these ways to end it; or it is over already, and why.
    pub(super) fn enter(&self, epoch: Epoch, enders: Vec<Ender>) -> Option<BreakReason> {
        let mut ends = self.ends();
        let over = ends.over.as_ref().filter(|(over, _)| *over >= epoch).map(|(_, reason)| reason.clone());
        if over.is_none() {
            ends.current = Some((epoch, enders));
        }
        over
    }

    /// Why the group of an epoch is over, if it is.
    pub(super) fn why_over(&self, epoch: Epoch) -> Option<BreakReason> {
        self.ends().over.as_ref().filter(|(over, _)| *over >= epoch).map(|(_, reason)| reason.clone())
    }

    /// Waits until the group of an epoch is over, and says why.
    pub(super) async fn over(&self, epoch: Epoch) -> BreakReason {
        loop {
            let next = self.ended.notified();
            tokio::pin!(next);
            // From here on nothing is missed.
            next.as_mut().enable();
            if let Some(reason) = self.why_over(epoch) {
                return reason;
            }
            next.await;
        }
    }

    pub(super) fn leave(&self) {
        self.ends().current = None;
    }

    /// Ends the group of an epoch, and those before.
    pub(super) fn abort(&self, epoch: Epoch, reason: BreakReason) {
        let mut ends = self.ends();
        if let Some((current, enders)) = &ends.current
            && *current <= epoch
        {
            enders.iter().for_each(|ender| ender.end(&reason));
        }
        ends.over = Some((epoch, reason));
        drop(ends);
        self.ended.notify_waiters();
        // Whoever is about to wait has looked whether it is over, and waits, or has not, and sees it.
        drop(self.untaken.lock().unwrap_or_else(PoisonError::into_inner));
        self.taken.notify_all();
    }

    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn lost(node: &str) -> BreakReason {
        BreakReason::StateLost { node: node.parse().unwrap() }
    }

    #[test]
    fn whoever_waits_hears_of_the_end_of_its_group() {
        let mailbox = Arc::new(Mailbox::default());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let other = mailbox.clone();
        let aborts = std::thread::spawn(move || {
            other.abort(Epoch(1), lost("n1"));
            other.abort(Epoch(3), lost("n2"));
        });
        assert_eq!(runtime.block_on(mailbox.over(Epoch(2))), lost("n2"));
        aborts.join().unwrap();
        assert_eq!(mailbox.why_over(Epoch(3)), Some(lost("n2")));
        assert_eq!(mailbox.why_over(Epoch(4)), None);
    }

    #[test]
    fn a_checkpoint_waits_until_it_is_taken_or_its_group_is_over() {
        let mailbox = Mailbox::default();
        mailbox.on_snapshot(Epoch(1));
        mailbox.on_snapshot(Epoch(1));
        mailbox.on_taken(Epoch(1));
        assert!(mailbox.is_saving(Epoch(1)) && !mailbox.is_saving(Epoch(2)));
        mailbox.on_snapshot(Epoch(2));
        mailbox.on_taken(Epoch(1));
        assert!(mailbox.is_saving(Epoch(2)));
        mailbox.on_taken(Epoch(2));
        assert!(!mailbox.is_saving(Epoch(2)));
    }

    #[test]
    fn whoever_makes_checkpoints_faster_than_they_are_taken_waits() {
        let mailbox = Arc::new(Mailbox::default());
        let (other, (said, heard)) = (mailbox.clone(), std::sync::mpsc::channel());
        let makes = std::thread::spawn(move || {
            (0..5).for_each(|number| {
                other.on_snapshot(Epoch(1));
                said.send(number).unwrap();
            });
        });
        let pause = std::time::Duration::from_millis(50);
        assert_eq!((heard.recv(), heard.recv()), (Ok(0), Ok(1)));
        assert!(heard.recv_timeout(pause).is_err(), "two wait already");
        mailbox.on_taken(Epoch(1));
        assert_eq!(heard.recv(), Ok(2));
        assert!(heard.recv_timeout(pause).is_err(), "two wait again");
        mailbox.abort(Epoch(1), lost("n1"));
        makes.join().unwrap();
    }
}
