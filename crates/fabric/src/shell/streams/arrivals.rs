//! Streams that are not accepted yet, and accepts whose stream has not arrived yet.

use super::StreamKey;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

#[derive(Debug)]
pub(super) struct Arrivals<S> {
    most: usize,
    kept: BTreeMap<StreamKey, Kept<S>>,
    waiting: BTreeMap<StreamKey, oneshot::Sender<S>>,
}

#[derive(Debug)]
struct Kept<S> {
    stream: S,
    since: Instant,
    /// Dropped on removal, which tells the expiry task that there is nothing to watch any more.
    _removed: oneshot::Sender<()>,
}

/// What happened to an arrived stream.
#[derive(Debug)]
pub(super) enum Arrived {
    /// A waiting accept took it.
    Taken,
    /// It is kept; the receiver ends when it is removed.
    Kept(oneshot::Receiver<()>),
    Full,
}

/// What an accept has to do.
#[derive(Debug)]
pub(super) enum Wait<S> {
    Over(S),
    Until(oneshot::Receiver<S>),
}

impl<S> Arrivals<S> {
    pub(super) fn new(most: usize) -> Self {
        Self { most, kept: BTreeMap::new(), waiting: BTreeMap::new() }
    }

    pub(super) fn has_room(&self, key: StreamKey) -> bool {
        let waited_for = self.waiting.get(&key).is_some_and(|waiting| !waiting.is_closed());
        waited_for || self.kept.len() < self.most || self.kept.contains_key(&key)
    }

    /// Adds a stream; an earlier unaccepted stream of the same key is closed.
    pub(super) fn arrive(&mut self, key: StreamKey, mut stream: S, now: Instant) -> Arrived {
        if let Some(waiting) = self.waiting.remove(&key) {
            match waiting.send(stream) {
                Ok(()) => return Arrived::Taken,
                Err(unwanted) => stream = unwanted,
            }
        }
        if !self.has_room(key) {
            return Arrived::Full;
        }
        let (removed, watch) = oneshot::channel();
        self.kept.insert(key, Kept { stream, since: now, _removed: removed });
        Arrived::Kept(watch)
    }

    /// Takes the stream of a key, or waits for it; an earlier wait for the same key ends.
    pub(super) fn wait(&mut self, key: StreamKey) -> Wait<S> {
        if let Some(kept) = self.kept.remove(&key) {
            return Wait::Over(kept.stream);
        }
        self.waiting.retain(|_, waiting| !waiting.is_closed());
        let (sender, receiver) = oneshot::channel();
        self.waiting.insert(key, sender);
        Wait::Until(receiver)
    }

    /// Closes streams that were kept for `kept_for`.
    pub(super) fn expire(&mut self, now: Instant, kept_for: Duration) {
        self.kept.retain(|_, kept| now.duration_since(kept.since) < kept_for);
    }

    /// Empties this, so that everything ends when the result is dropped.
    pub(super) fn take_all(&mut self) -> Self {
        let empty = Self::new(self.most);
        std::mem::replace(self, empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> StreamKey {
        StreamKey([n; 16])
    }

    fn over(wait: Wait<u32>) -> Option<u32> {
        match wait {
            Wait::Over(stream) => Some(stream),
            Wait::Until(_) => None,
        }
    }

    #[test]
    fn a_stream_meets_its_accept_in_either_order() {
        let (mut arrivals, now) = (Arrivals::new(2), Instant::now());
        assert!(matches!(arrivals.arrive(key(1), 10, now), Arrived::Kept(_)));
        assert_eq!(over(arrivals.wait(key(1))), Some(10));
        let Wait::Until(mut first) = arrivals.wait(key(2)) else { panic!("nothing came") };
        let Wait::Until(mut second) = arrivals.wait(key(2)) else { panic!("nothing came") };
        assert!(first.try_recv().is_err());
        assert!(matches!(arrivals.arrive(key(2), 20, now), Arrived::Taken));
        assert_eq!(second.try_recv(), Ok(20));
        drop(arrivals.wait(key(3)));
        assert!(matches!(arrivals.arrive(key(3), 30, now), Arrived::Kept(_)));
        assert_eq!(over(arrivals.wait(key(3))), Some(30));
    }

    #[test]
    fn the_newest_stream_of_a_key_is_kept_and_keys_are_limited() {
        let (mut arrivals, now) = (Arrivals::new(2), Instant::now());
        let Arrived::Kept(mut first) = arrivals.arrive(key(1), 10, now) else { panic!("not kept") };
        assert!(matches!(arrivals.arrive(key(2), 20, now), Arrived::Kept(_)));
        assert!(!arrivals.has_room(key(3)) && arrivals.has_room(key(1)));
        assert!(matches!(arrivals.arrive(key(3), 30, now), Arrived::Full));
        assert_eq!(first.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        assert!(matches!(arrivals.arrive(key(1), 11, now), Arrived::Kept(_)));
        assert_eq!(first.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        let Wait::Until(mut waits) = arrivals.wait(key(3)) else { panic!("nothing came") };
        assert!(matches!(arrivals.arrive(key(3), 30, now), Arrived::Taken));
        assert_eq!(waits.try_recv(), Ok(30));
        assert_eq!(over(arrivals.wait(key(1))), Some(11));
    }

    #[test]
    fn unaccepted_streams_are_closed_after_a_while() {
        let (mut arrivals, start) = (Arrivals::new(2), Instant::now());
        let second = Duration::from_secs(1);
        let Arrived::Kept(mut old) = arrivals.arrive(key(1), 10, start) else { panic!("not kept") };
        let Arrived::Kept(mut young) = arrivals.arrive(key(2), 20, start + second) else {
            panic!("not kept")
        };
        arrivals.expire(start + second * 30, second * 30);
        assert_eq!(old.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        assert_eq!(young.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        assert_eq!(over(arrivals.wait(key(1))), None);
        assert_eq!(over(arrivals.wait(key(2))), Some(20));
    }
}
