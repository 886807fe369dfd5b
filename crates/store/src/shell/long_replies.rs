//! Which long replies are being sent now.
//!
//! A server that sends faster than its clients read fills the buffers of all their sockets, and what a client reads is
//! then no longer in the cache of the processor. So only a few connections send at a time, one after the other. A
//! connection gives its place up as soon as its client takes nothing for a moment: a slow client does not delay other clients.

use crate::core::ClientId;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

/// A reply of this size waits for a place.
pub(crate) const LONG_REPLY: usize = 256 << 10;

/// The places of a server.
#[derive(Debug)]
pub(crate) struct LongReplies {
    places: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    holders: BTreeSet<ClientId>,
    waiting: VecDeque<(ClientId, Waker)>,
}

impl LongReplies {
    /// This many connections send at a time.
    pub(crate) fn new(places: usize) -> Self {
        Self { places, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a client has a place now; if not, it is woken when it has.
    fn poll(&self, client: ClientId, context: &Context<'_>) -> bool {
        let mut state = self.lock();
        if state.holders.contains(&client) {
            return true;
        }
        if let Some((_, waker)) = state.waiting.iter_mut().find(|(waiting, _)| *waiting == client) {
            waker.clone_from(context.waker());
            return false;
        }
        if state.holders.len() < self.places {
            state.holders.insert(client);
            return true;
        }
        state.waiting.push_back((client, context.waker().clone()));
        false
    }

    fn leave(&self, client: ClientId) {
        let mut state = self.lock();
        state.waiting.retain(|(waiting, _)| *waiting != client);
        if !state.holders.remove(&client) {
            return;
        }
        let Some((next, waker)) = state.waiting.pop_front() else { return };
        state.holders.insert(next);
        drop(state);
        waker.wake();
    }
}

/// The place of one client, or its wait for one; it ends with this value.
#[derive(Debug)]
pub(crate) struct LongReplyPlace {
    all: Arc<LongReplies>,
    client: ClientId,
    is_known: bool,
}

impl LongReplyPlace {
    pub(crate) fn new(all: Arc<LongReplies>, client: ClientId) -> Self {
        Self { all, client, is_known: false }
    }

    /// Whether the client has a place now; if not, it is woken when it has.
    pub(crate) fn poll(&mut self, context: &Context<'_>) -> bool {
        self.is_known = true;
        self.all.poll(self.client, context)
    }

    /// Lets the next client send.
    pub(crate) fn give_up(&mut self) {
        if std::mem::take(&mut self.is_known) {
            self.all.leave(self.client);
        }
    }
}

impl Drop for LongReplyPlace {
    fn drop(&mut self) {
        self.give_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn places_are_given_in_the_order_of_asking() {
        let all = Arc::new(LongReplies::new(1));
        let woken: Vec<_> = (0..4).map(|_| Arc::new(Woken::default())).collect();
        let wakers: Vec<Waker> = woken.iter().map(|woken| woken.clone().into()).collect();
        let mut places: Vec<_> =
            (0..4).map(|client| LongReplyPlace::new(all.clone(), ClientId(client))).collect();
        let poll =
            |places: &mut Vec<LongReplyPlace>, n: usize| places[n].poll(&Context::from_waker(&wakers[n]));
        assert!(poll(&mut places, 0) && poll(&mut places, 0), "it keeps its place");
        assert!(
            !poll(&mut places, 1) && !poll(&mut places, 2) && !poll(&mut places, 3) && !poll(&mut places, 1)
        );
        places[2].give_up();
        places[0].give_up();
        let counts = |woken: &[Arc<Woken>]| -> Vec<usize> {
            woken.iter().map(|woken| woken.0.load(Ordering::Relaxed)).collect()
        };
        assert_eq!(counts(&woken), [0, 1, 0, 0]);
        assert!(!poll(&mut places, 0), "the place is promised to the one that waited");
        // A client that is gone does not delay the next one.
        drop(places.remove(1));
        assert_eq!(counts(&woken), [0, 1, 0, 1]);
        assert!(places[2].poll(&Context::from_waker(&wakers[3])));
    }
}
