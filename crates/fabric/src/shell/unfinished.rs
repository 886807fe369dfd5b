//! Handshakes in progress. When there are too many the oldest is dropped, so that a crowd of silent connections cannot
//! keep out a member, which speaks at once.

use super::refusal::ConnError;
use phalanx_wire::handshake::Refusal;
use std::collections::VecDeque;
use std::future::Future;
use tokio::sync::oneshot;

#[derive(Debug)]
pub(crate) struct Unfinished {
    places: VecDeque<oneshot::Sender<()>>,
    most: usize,
}

/// The slot of one handshake, until it ends or a newer one takes it.
#[derive(Debug)]
pub(crate) struct HandshakeSlot(oneshot::Receiver<()>);

impl Unfinished {
    pub(crate) fn new(most: usize) -> Self {
        Self { places: VecDeque::new(), most }
    }

    /// Takes a slot; the oldest one if all are taken.
    pub(crate) fn enter(&mut self) -> HandshakeSlot {
        self.places.retain(|place| !place.is_closed());
        if self.places.len() >= self.most {
            self.places.pop_front();
        }
        let (place, taken) = oneshot::channel();
        self.places.push_back(place);
        HandshakeSlot(taken)
    }
}

impl HandshakeSlot {
    /// Runs a handshake for as long as it has its slot.
    pub(crate) async fn hold<T>(
        self,
        handshake: impl Future<Output = Result<T, ConnError>>,
    ) -> Result<T, ConnError> {
        tokio::select! {
            biased;
            done = handshake => done,
            _ = self.0 => Err(ConnError::RefusedHere(Refusal::Busy)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_oldest_gives_way_and_a_finished_handshake_takes_no_slot() {
        let mut unfinished = Unfinished::new(2);
        let (first, second) = (unfinished.enter(), unfinished.enter());
        second.hold(async { Ok(()) }).await.unwrap();
        let _third = unfinished.enter();
        let fourth = unfinished.enter();
        let refused = first.hold(std::future::pending::<Result<(), _>>()).await;
        assert!(matches!(refused, Err(ConnError::RefusedHere(Refusal::Busy))));
        fourth.hold(async { Ok(()) }).await.unwrap();
    }
}
