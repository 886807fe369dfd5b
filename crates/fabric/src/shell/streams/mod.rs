//! Streams of bytes besides a control link, for users that block.
//!
//! ```text
//! opener                                     acceptor
//!   | -- Hello{Stream{link, key}} ------------> |   kept until the key is accepted
//!   | <-- Welcome ----------------------------- |   then only bytes of the users
//! ```
//! Only the side that dialed the control link is known to reach the other, so it dials the streams of both. When the
//! other side opens a stream, it asks to be dialed, under a one-time key:
//! ```text
//! opener (was dialed)                        acceptor (dialed)
//!   | -- Request{key, once} ------------------> |
//!   | <----------- Hello{Stream{link, once}} -- |   its own end is kept under `key`
//!   | -- Welcome -----------------------------> |
//! ```
//! Every stream ends when its control link goes down: a peer that is frozen or cut off is silent on its streams, and
//! only the heartbeats of the link show it.

mod arrivals;
mod open;
mod socket;

pub(crate) use open::{call_back, open};
pub use socket::StreamSocket;

use super::inner::Inner;
use super::link::Link;
use super::lock;
use super::stream::Stream;
use crate::error::StreamError;
use arrivals::{Arrivals, Arrived, Wait};
use phalanx_types::NodeId;
use phalanx_wire::handshake::Refusal;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

/// The most unaccepted streams of one link.
const MAX_KEPT: usize = 64;
/// How long a stream is kept until it is accepted.
const KEPT_FOR: Duration = Duration::from_secs(30);
/// The most streams of one link that are dialed at the same time at the peer's request.
const MAX_CALLED_BACK: usize = 16;
/// The service name for asking a peer to dial a stream; the fabric answers it itself.
pub(crate) const SERVICE: &str = "fabric.stream";

/// 16 bytes that both ends derive from something they agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKey(pub [u8; 16]);

/// The streams of one link.
#[derive(Debug)]
pub(crate) struct Streams {
    state: Mutex<StreamsState>,
    down: watch::Sender<bool>,
    called_back: Semaphore,
}

#[derive(Debug)]
struct StreamsState {
    closed: bool,
    arrivals: Arrivals<Stream>,
    /// Connections that users read and write themselves. Weak, so that a connection is closed when its user drops it.
    plain: Vec<Weak<TcpStream>>,
}

impl Default for Streams {
    fn default() -> Self {
        let state = StreamsState { closed: false, arrivals: Arrivals::new(MAX_KEPT), plain: Vec::new() };
        let called_back = Semaphore::new(MAX_CALLED_BACK);
        Self { state: Mutex::new(state), down: watch::Sender::new(false), called_back }
    }
}

impl Streams {
    /// Whether one more stream could be kept, or this one is waited for.
    pub(crate) fn has_room(&self, key: StreamKey) -> bool {
        lock(&self.state).arrivals.has_room(key)
    }

    /// Ends every stream and every wait for one when the control link is down.
    pub(crate) fn close(&self) {
        let (arrivals, plain) = {
            let mut state = lock(&self.state);
            state.closed = true;
            (state.arrivals.take_all(), std::mem::take(&mut state.plain))
        };
        drop(arrivals);
        for tcp in plain.iter().filter_map(Weak::upgrade) {
            // Wakes threads that block in a read or a write.
            if let Err(error) = tcp.shutdown(Shutdown::Both) {
                tracing::debug!(%error, "a stream had ended before its link");
            }
        }
        self.down.send_replace(true);
    }

    /// Makes a connection end with the link; `false` if the link is down already.
    fn end_with_link(&self, tcp: &Arc<TcpStream>) -> bool {
        let mut state = lock(&self.state);
        if state.closed {
            return false;
        }
        state.plain.retain(|other| other.strong_count() > 0);
        state.plain.push(Arc::downgrade(tcp));
        true
    }

    /// Waits until the control link is down.
    async fn down(&self) {
        let mut down = self.down.subscribe();
        if down.wait_for(|down| *down).await.is_err() {
            tracing::debug!("a link was dropped before it was closed");
        }
    }
}

/// Hands a stream to the accept that waits for its key, or keeps it for a while.
pub(crate) fn arrive(
    inner: &Arc<Inner>,
    link: &Arc<Link>,
    key: StreamKey,
    stream: Stream,
) -> Result<(), Refusal> {
    let arrived = {
        let mut state = lock(&link.streams.state);
        if state.closed {
            return Err(Refusal::UnknownLink { link: link.number });
        }
        state.arrivals.arrive(key, stream, Instant::now())
    };
    match arrived {
        Arrived::Taken => Ok(()),
        Arrived::Full => Err(Refusal::Busy),
        Arrived::Kept(removed) => {
            let link = link.clone();
            inner.spawn(async move {
                tokio::select! {
                    _ = removed => {}
                    () = tokio::time::sleep(KEPT_FOR) => {
                        let now = Instant::now();
                        lock(&link.streams.state).arrivals.expire(now, KEPT_FOR);
                    }
                }
            });
            Ok(())
        }
    }
}

pub(crate) async fn accept(
    inner: &Arc<Inner>,
    from: &NodeId,
    key: StreamKey,
    at_most: Duration,
) -> Result<StreamSocket, StreamError> {
    let Some(link) = inner.links.to_node(from) else {
        return Err(StreamError::NotConnected { node: from.clone() });
    };
    let stream = match tokio::time::timeout(at_most, arrival(&link, key)).await {
        Ok(stream) => stream?,
        Err(_) => return Err(StreamError::NotOpened { node: from.clone(), within: at_most }),
    };
    socket::hand_over(inner, &link, stream)
}

/// Waits for the stream of a key.
async fn arrival(link: &Link, key: StreamKey) -> Result<Stream, StreamError> {
    let down = || StreamError::LinkDown { node: link.node.clone() };
    let wait = {
        let mut state = lock(&link.streams.state);
        if state.closed {
            return Err(down());
        }
        state.arrivals.wait(key)
    };
    match wait {
        Wait::Over(stream) => Ok(stream),
        Wait::Until(arrives) => match arrives.await {
            Ok(stream) => Ok(stream),
            Err(_) if lock(&link.streams.state).closed => Err(down()),
            Err(_) => Err(StreamError::Replaced { node: link.node.clone() }),
        },
    }
}
