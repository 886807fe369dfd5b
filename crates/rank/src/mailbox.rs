//! What the shell of a node tells a replica that is in the middle of something.

use super::budget::Charge;
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
    parts: Mutex<Vec<(Epoch, usize, Bytes, Charge)>>,
    /// Live queries in order of arrival, with the epoch of the group that is to answer.
    queries: Mutex<Vec<(Epoch, LiveQuery, Charge)>>,
    /// The newest group that made a checkpoint, and how many of its checkpoints the driver has not taken. The driver does
    /// not take checkpoints of older groups.
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
    pub(super) fn add_part(&self, epoch: Epoch, part: usize, bytes: Bytes, charge: Charge) {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).push((epoch, part, bytes, charge));
    }

    /// Takes the parts that have come for a group; parts for other groups are dropped.
    pub(super) fn take_parts(&self, epoch: Epoch) -> Vec<(usize, Bytes)> {
        let parts = std::mem::take(&mut *self.parts.lock().unwrap_or_else(PoisonError::into_inner));
        parts.into_iter().filter(|(of, ..)| *of == epoch).map(|(_, part, bytes, _)| (part, bytes)).collect()
    }

    /// Adds a live query for the group of an epoch.
    pub(super) fn add_query(&self, epoch: Epoch, ask: LiveQuery, charge: Charge) {
        self.queries.lock().unwrap_or_else(PoisonError::into_inner).push((epoch, ask, charge));
    }

    /// Takes the next live query for a group; queries for older groups are dropped.
    pub(super) fn take_query(&self, epoch: Epoch) -> Option<LiveQuery> {
        let mut asks = self.queries.lock().unwrap_or_else(PoisonError::into_inner);
        asks.retain(|(of, ..)| *of >= epoch);
        let first = asks.iter().position(|(of, ..)| *of == epoch)?;
        Some(asks.remove(first).1)
    }

    /// Counts a checkpoint that the driver is told of. Blocks while the driver has not taken the last
    /// [`MOST_UNTAKEN`] and the group goes on.
    pub(super) fn on_snapshot(&self, epoch: Epoch) {
        self.count_snapshot(epoch, || {});
    }

    /// Calls `blocks` once before it blocks, while it holds the lock that [`Mailbox::on_taken`] and
    /// [`Mailbox::abort`] need.
    fn count_snapshot(&self, epoch: Epoch, blocks: impl FnOnce()) {
        let is_full = |untaken: &mut (Epoch, usize)| {
            untaken.0 == epoch && untaken.1 >= MOST_UNTAKEN && self.why_over(epoch).is_none()
        };
        let mut untaken = self.untaken.lock().unwrap_or_else(PoisonError::into_inner);
        if is_full(&mut untaken) {
            blocks();
        }
        untaken = self.taken.wait_while(untaken, is_full).unwrap_or_else(PoisonError::into_inner);
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
        // Taking the lock orders this with `count_snapshot`: it either sees the end or waits already and is woken.
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
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Wake, Waker};
    use std::time::Duration;

    const DEADLINE: Duration = Duration::from_secs(30);

    #[derive(Debug, Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn lost(node: &str) -> BreakReason {
        BreakReason::StateLost { node: node.parse().unwrap() }
    }

    #[test]
    fn a_wait_for_the_end_of_a_group_is_woken_by_it() {
        let mailbox = Mailbox::default();
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        let mut over = pin!(mailbox.over(Epoch(2)));
        let mut poll = || over.as_mut().poll(&mut Context::from_waker(&waker));
        assert_eq!(poll(), Poll::Pending);
        mailbox.abort(Epoch(1), lost("n1"));
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert_eq!(poll(), Poll::Pending, "another group is over");
        mailbox.abort(Epoch(3), lost("n2"));
        assert_eq!(wakes.0.load(Ordering::Relaxed), 2);
        assert_eq!(poll(), Poll::Ready(lost("n2")));
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
    fn checkpoints_that_the_driver_does_not_take_block_the_next() {
        #[derive(Debug, PartialEq)]
        enum Event {
            Blocks,
            Counted(usize),
        }
        let mailbox = Arc::new(Mailbox::default());
        let (other, (tell, told)) = (mailbox.clone(), std::sync::mpsc::channel());
        let rank = std::thread::spawn(move || {
            (0..5).for_each(|number| {
                // `on_taken` and `abort` need the lock under which this is sent: they come when the thread waits.
                other.count_snapshot(Epoch(1), || tell.send(Event::Blocks).unwrap());
                tell.send(Event::Counted(number)).unwrap();
            });
        });
        let next = |count| -> Vec<_> { (0..count).map(|_| told.recv_timeout(DEADLINE).unwrap()).collect() };
        assert_eq!(next(3), [Event::Counted(0), Event::Counted(1), Event::Blocks]);
        mailbox.on_taken(Epoch(1));
        assert_eq!(next(2), [Event::Counted(2), Event::Blocks]);
        mailbox.abort(Epoch(1), lost("n1"));
        assert_eq!(next(2), [Event::Counted(3), Event::Counted(4)]);
        rank.join().unwrap();
    }
}
