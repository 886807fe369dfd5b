//! The relay server.

use super::super::handshake::HANDSHAKE_TIMEOUT;
use super::super::refusal::{ConnError, RefusalStats};
use super::super::stream::tune;
use super::super::unfinished::{HandshakeSlot, Unfinished};
use super::registry::{Places, Registration, Registry};
use super::{PACE, SILENCE, expect_relay_preface, read_exactly, take_message, write_message};
use crate::security::{Ask, RelayToken, random};
use bytes::BytesMut;
use phalanx_types::{Class, NodeId};
use phalanx_wire::frame::{FrameError, FrameKind};
use phalanx_wire::handshake::{Nonce, Purpose, Refusal, preface};
use phalanx_wire::relay::{DomainTag, FromRelay, RelayChallenge, RelayRefusal, ToRelay};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::Instant;

const MAX_CONNECTIONS: usize = 4096;
const MAX_UNFINISHED: usize = 256;
/// The most bytes from a registered node at a time: it sends only heartbeats.
const MAX_WORDS: usize = 1024;
/// How long one direction of a stream may continue after the other has ended.
const LAST_WORDS: Duration = Duration::from_secs(5);
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(50);

/// How a relay is started.
#[derive(Debug, Clone)]
pub struct RelayConfig {
    pub bind: SocketAddr,
    /// The domains it serves.
    pub tokens: Vec<RelayToken>,
}

/// Why a relay could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RelayError {
    #[error("could not listen on {bind}")]
    Bind {
        bind: SocketAddr,
        #[source]
        source: std::io::Error,
    },
}

impl RelayError {
    pub fn class(&self) -> Class {
        Class::Fatal
    }
}

struct Shared {
    registry: Registry,
    refusals: RefusalStats,
}

/// A meeting point for nodes that cannot reach each other; it passes their bytes on unread.
pub struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    ended: tokio::sync::Mutex<mpsc::Receiver<()>>,
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Relay {
    /// Listens and serves on the current runtime, until [`Relay::shutdown`] or the relay is dropped.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub async fn start(config: RelayConfig) -> Result<Relay, RelayError> {
        let bind = config.bind;
        let failed = |source| RelayError::Bind { bind, source };
        let listener = TcpListener::bind(bind).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let registry = Registry::new(config.tokens, MAX_CONNECTIONS);
        let shared = Arc::new(Shared { registry, refusals: RefusalStats::default() });
        let (alive, ended) = mpsc::channel(1);
        let stop = watch::Sender::new(false);
        tokio::spawn(listen(shared.clone(), listener, stop.subscribe(), alive));
        tracing::info!(%address, "relay started");
        Ok(Self { address, shared, stop, ended: tokio::sync::Mutex::new(ended) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections failed or were refused, by the name of the reason.
    pub fn refused(&self) -> Vec<(String, u64)> {
        self.shared.refusals.snapshot()
    }

    /// Closes every connection and the port.
    pub async fn shutdown(&self) {
        self.stop.send_replace(true);
        self.ended.lock().await.recv().await;
    }
}

async fn listen(
    shared: Arc<Shared>,
    listener: TcpListener,
    mut stop: watch::Receiver<bool>,
    alive: mpsc::Sender<()>,
) {
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut unfinished = Unfinished::new(MAX_UNFINISHED);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stopped| *stopped) => return,
        };
        let (tcp, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(PAUSE_AFTER_ERROR).await;
                continue;
            }
        };
        let Ok(place) = connections.clone().try_acquire_owned() else {
            refused(&shared, from, &ConnError::RefusedHere(Refusal::Busy));
            continue;
        };
        let handshake = unfinished.enter();
        let (shared, mut stop, alive) = (shared.clone(), stop.clone(), alive.clone());
        tokio::spawn(async move {
            let _alive = alive;
            let served = Box::pin(serve(&shared, tcp, place, handshake));
            let result = tokio::select! {
                result = served => result,
                _ = stop.wait_for(|stopped| *stopped) => return,
            };
            if let Err(error) = result {
                refused(&shared, from, &error);
            }
        });
    }
}

fn refused(shared: &Shared, from: SocketAddr, error: &ConnError) {
    shared.refusals.count(error.name());
    if error.is_ordinary() {
        return;
    }
    if shared.refusals.is_worth_a_warning(error.name(), std::time::Instant::now()) {
        tracing::warn!(%from, reason = error.name(), %error, "connection refused");
    } else {
        tracing::debug!(%from, reason = error.name(), %error, "connection refused again");
    }
}

async fn serve(
    shared: &Shared,
    tcp: TcpStream,
    place: OwnedSemaphorePermit,
    handshake: HandshakeSlot,
) -> Result<(), ConnError> {
    let greeted = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake.hold(greet(tcp))).await;
    let (mut stream, nonce, words) = greeted.unwrap_or(Err(ConnError::Timeout))?;
    let good = match &words {
        ToRelay::Register { tag, node, proof } => check(shared, tag, Ask::Register, &nonce, node, proof),
        ToRelay::Dial { tag, node, to, proof } => check(shared, tag, Ask::Dial(to), &nonce, node, proof),
        ToRelay::Accept { tag, node, ticket, proof } => {
            check(shared, tag, Ask::Accept(*ticket), &nonce, node, proof)
        }
        ToRelay::Heartbeat => false,
    };
    let (ToRelay::Register { tag, .. } | ToRelay::Dial { tag, .. } | ToRelay::Accept { tag, .. }) = &words
    else {
        return refuse(&mut stream, RelayRefusal::BadProof).await;
    };
    if !good {
        return refuse(&mut stream, RelayRefusal::BadProof).await;
    }
    let Some(of_domain) = shared.registry.enter(tag) else {
        return refuse(&mut stream, RelayRefusal::Busy).await;
    };
    match grant(shared, stream, (place, of_domain), words).await {
        // Members come and go; that is not a refusal.
        Err(ConnError::Io(error)) => {
            tracing::debug!(%error, "a member went away");
            Ok(())
        }
        other => other,
    }
}

/// Carries out a member's request.
async fn grant(
    shared: &Shared,
    mut stream: TcpStream,
    places: Places,
    words: ToRelay,
) -> Result<(), ConnError> {
    match words {
        ToRelay::Register { tag, node, .. } => {
            let Some(registration) = shared.registry.register(&tag, &node) else { return Ok(()) };
            let number = registration.number;
            let result = attend(shared, stream, &tag, &node, registration).await;
            shared.registry.leave(&tag, &node, number);
            result
        }
        ToRelay::Dial { tag, node, to, .. } => connect(shared, stream, &tag, node, &to).await,
        ToRelay::Accept { tag, node, ticket, .. } => match shared.registry.redeem(&tag, &node, ticket) {
            Some(answered) => {
                if answered.send((stream, places)).is_err() {
                    tracing::debug!("the caller is gone");
                }
                Ok(())
            }
            None => refuse(&mut stream, RelayRefusal::UnknownTicket).await,
        },
        ToRelay::Heartbeat => Ok(()),
    }
}

async fn greet(mut stream: TcpStream) -> Result<(TcpStream, Nonce, ToRelay), ConnError> {
    tune(&stream)?;
    expect_relay_preface(&mut stream).await?;
    stream.write_all(&preface(Purpose::Relay)).await?;
    let nonce: Nonce = random().ok_or_else(|| std::io::Error::other("no random numbers"))?;
    write_message(&mut stream, FrameKind::Relay, &RelayChallenge { nonce }).await?;
    let words = read_exactly(&mut stream).await?;
    Ok((stream, nonce, words))
}

fn check(
    shared: &Shared,
    tag: &DomainTag,
    ask: Ask<'_>,
    nonce: &Nonce,
    node: &NodeId,
    proof: &[u8; 32],
) -> bool {
    shared.registry.token(tag).is_some_and(|token| token.check(ask, nonce, node, proof))
}

async fn refuse(stream: &mut TcpStream, refusal: RelayRefusal) -> Result<(), ConnError> {
    write_message(stream, FrameKind::Relay, &FromRelay::Refused(refusal.clone())).await?;
    stream.shutdown().await?;
    Err(ConnError::Relay(refusal))
}

/// Keeps a registered node informed while it sends heartbeats.
async fn attend(
    shared: &Shared,
    mut stream: TcpStream,
    tag: &DomainTag,
    node: &NodeId,
    mut registration: Registration,
) -> Result<(), ConnError> {
    let mut buffer = BytesMut::new();
    let mut heard = Instant::now();
    let mut speak = tokio::time::interval(PACE);
    loop {
        while take_message::<ToRelay>(&mut buffer)?.is_some() {}
        if buffer.len() > MAX_WORDS {
            let (kind, len) = (FrameKind::Relay, buffer.len());
            return Err(FrameError::TooLong { kind, len, max: MAX_WORDS }.into());
        }
        buffer.reserve(256);
        let words = tokio::select! {
            read = stream.read_buf(&mut buffer) => {
                if read? == 0 {
                    return Ok(());
                }
                heard = Instant::now();
                continue;
            }
            call = registration.calls.recv() => match call {
                Some(call) => call,
                // The node registered anew on another connection.
                None => return Ok(()),
            },
            _ = registration.changed.changed() => FromRelay::Present(shared.registry.present(tag, node)),
            _ = speak.tick() => FromRelay::Heartbeat,
            () = tokio::time::sleep_until(heard + SILENCE) => return Err(ConnError::Timeout),
        };
        let written = tokio::time::timeout(SILENCE, write_message(&mut stream, FrameKind::Relay, &words));
        written.await.unwrap_or(Err(ConnError::Timeout))?;
    }
}

/// Calls the other node and splices both streams once it answers.
async fn connect(
    shared: &Shared,
    mut stream: TcpStream,
    tag: &DomainTag,
    from: NodeId,
    to: &NodeId,
) -> Result<(), ConnError> {
    let ticket = random().ok_or_else(|| std::io::Error::other("no random numbers"))?;
    let ticket = u64::from_le_bytes(ticket);
    let answer = match shared.registry.call(tag, from, to, ticket) {
        Ok(answer) => answer,
        Err(refusal) => return refuse(&mut stream, refusal).await,
    };
    let answered = tokio::time::timeout(HANDSHAKE_TIMEOUT, answer).await;
    shared.registry.forget(ticket);
    let Ok(Ok((mut other, _places))) = answered else {
        return refuse(&mut stream, RelayRefusal::NoAnswer { node: to.clone() }).await;
    };
    write_message(&mut other, FrameKind::Relay, &FromRelay::Spliced).await?;
    write_message(&mut stream, FrameKind::Relay, &FromRelay::Spliced).await?;
    splice(stream, other).await;
    Ok(())
}

/// Copies bytes both ways until either side has ended and the other has had time to finish.
async fn splice(mut one: TcpStream, mut two: TcpStream) {
    let ((mut from_one, mut to_one), (mut from_two, mut to_two)) = (one.split(), two.split());
    let mut there = std::pin::pin!(pass_on(&mut from_one, &mut to_two));
    let mut back = std::pin::pin!(pass_on(&mut from_two, &mut to_one));
    // Otherwise a peer that vanished silently would keep its permits for ever.
    let answered = tokio::select! {
        () = &mut there => tokio::time::timeout(LAST_WORDS, back).await,
        () = &mut back => tokio::time::timeout(LAST_WORDS, there).await,
    };
    if answered.is_err() {
        tracing::debug!("one end of a stream vanished");
    }
}

async fn pass_on(from: &mut ReadHalf<'_>, to: &mut WriteHalf<'_>) {
    if let Err(error) = tokio::io::copy(from, to).await {
        tracing::debug!(%error, "a spliced stream broke");
    }
    if let Err(error) = to.shutdown().await {
        tracing::debug!(%error, "the end of a spliced stream could not be passed on");
    }
}
