//! How a connection waits in the middle of a large value.
//!
//! A client on the same host sends the rest of a value, or reads it, within microseconds. Would this thread sleep in
//! between, then the client had to wake it for every piece of 64 KiB, and waking a processor takes longer than copying
//! the piece. So the connection only lets others have their turn, for a moment after each piece.

use crate::core::ClientId;
use crate::shell::hub::Hub;
use crate::shell::long_replies::{LONG_REPLY, LongReplyPlace};
use std::task::Context;
use std::time::{Duration, Instant};

/// A client that moves nothing for this long has to wake the connection.
const MOMENT: Duration = Duration::from_micros(50);

/// The large value that a connection receives or sends.
#[derive(Debug)]
pub(super) struct Transfer {
    /// None for clients on other hosts, and where this thread would keep the client from running.
    place: Option<LongReplyPlace>,
    /// When a piece of a large value was moved.
    moved: Option<Instant>,
    /// A long reply is being sent.
    sends: bool,
}

impl Transfer {
    pub(super) fn new(hub: &Hub, client: ClientId, same_host: bool) -> Self {
        let places = hub.long_replies().filter(|_| same_host);
        let place = places.map(|all| LongReplyPlace::new(all.clone(), client));
        Self { place, moved: None, sends: false }
    }

    /// Whether this much may be sent now; if not, the connection is woken when it may.
    pub(super) fn may_send(&mut self, len: usize, context: &Context<'_>) -> bool {
        let Some(place) = &mut self.place else { return true };
        if len < LONG_REPLY && !self.sends {
            return true;
        }
        let sent = std::mem::replace(&mut self.sends, place.poll(context));
        if self.sends && !sent {
            self.on_moved();
        }
        self.sends
    }

    /// A part of a reply was written or not, and this much is left.
    pub(super) fn on_written(&mut self, any: bool, left: usize) {
        if self.sends && left == 0 {
            self.stop();
        } else if self.sends && any {
            self.on_moved();
        }
    }

    /// Some bytes of a large argument have arrived.
    pub(super) fn on_arrived(&mut self, n: usize) {
        if n > 0 {
            self.on_moved();
        }
    }

    pub(super) fn on_moved(&mut self) {
        if self.place.is_some() {
            self.moved = Some(Instant::now());
        }
    }

    /// Whether the next piece is expected at once.
    pub(super) fn goes_on(&self, arrives: bool) -> bool {
        let in_time = || self.moved.is_some_and(|moved| moved.elapsed() < MOMENT);
        self.place.is_some() && (arrives || self.sends) && in_time()
    }

    /// The client is too slow, or has all of it. One that waits for a place goes on waiting.
    pub(super) fn stop(&mut self) {
        self.moved = None;
        if std::mem::take(&mut self.sends)
            && let Some(place) = &mut self.place
        {
            place.give_up();
        }
    }
}
