//! A node's side of a relay.

use super::super::accept;
use super::super::handshake::HANDSHAKE_TIMEOUT;
use super::super::inner::{Inner, Security};
use super::super::refusal::ConnError;
use super::super::stream::tune;
use super::{PACE, SILENCE, expect_relay_preface, read_exactly, take_message, write_message};
use crate::core::{Backoff, Event};
use crate::security::{Ask, RelayToken};
use bytes::BytesMut;
use phalanx_types::NodeId;
use phalanx_wire::frame::FrameKind;
use phalanx_wire::handshake::{Nonce, Purpose, preface};
use phalanx_wire::relay::{FromRelay, RelayChallenge, ToRelay};
use smol_str::SmolStr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// The most calls through one relay that are answered at the same time.
const MAX_CALLS: usize = 64;

/// Keeps this node registered at a relay for as long as it runs.
pub(crate) async fn stay_registered(inner: Arc<Inner>, relay: SmolStr) {
    let mut backoff = Backoff::due_at(inner.now());
    let target = format!("relay {relay}");
    loop {
        let mut registered = false;
        if let Err(error) = stay(&inner, &relay, &mut registered).await {
            inner.dial_failed(&target, &error);
        }
        if registered {
            backoff = Backoff::due_at(inner.now());
        }
        inner.tell(Event::RelayFailed { relay: relay.clone() }).await;
        backoff.failed(inner.now());
        tokio::time::sleep(backoff.due().since(inner.now())).await;
    }
}

async fn stay(inner: &Arc<Inner>, relay: &SmolStr, registered: &mut bool) -> Result<(), ConnError> {
    let ask = async {
        let (mut stream, nonce, token) = approach(inner, relay).await?;
        let proof = token.prove(Ask::Register, &nonce, &inner.id);
        let register = ToRelay::Register { tag: *token.tag(), node: inner.id.clone(), proof };
        write_message(&mut stream, FrameKind::Relay, &register).await?;
        Ok::<_, ConnError>(stream)
    };
    let asked = tokio::time::timeout(HANDSHAKE_TIMEOUT, ask).await;
    let mut stream = asked.unwrap_or(Err(ConnError::Timeout))?;
    let mut buffer = BytesMut::new();
    let mut heard = Instant::now();
    let mut speak = tokio::time::interval(PACE);
    let calls = Arc::new(Semaphore::new(MAX_CALLS));
    loop {
        while let Some(words) = take_message(&mut buffer)? {
            match words {
                FromRelay::Present(nodes) => {
                    *registered = true;
                    inner.dial_worked(&format_args!("relay {relay}"));
                    inner.tell(Event::RelayPresent { relay: relay.clone(), nodes }).await;
                }
                FromRelay::Incoming { ticket, from } => {
                    let Ok(permit) = calls.clone().try_acquire_owned() else { continue };
                    let (shared, relay) = (inner.clone(), relay.clone());
                    inner.spawn(Box::pin(async move {
                        answer(&shared, &relay, ticket, &from).await;
                        drop(permit);
                    }));
                }
                FromRelay::Refused(refusal) => return Err(ConnError::Relay(refusal)),
                FromRelay::Heartbeat | FromRelay::Spliced => {}
            }
        }
        buffer.reserve(4096);
        tokio::select! {
            read = stream.read_buf(&mut buffer) => match read? {
                0 => return Err(ConnError::Closed),
                _ => heard = Instant::now(),
            },
            _ = speak.tick() => write_message(&mut stream, FrameKind::Relay, &ToRelay::Heartbeat).await?,
            () = tokio::time::sleep_until(heard + SILENCE) => return Err(ConnError::Timeout),
        }
    }
}

/// Accepts a call that came through the relay.
async fn answer(inner: &Arc<Inner>, relay: &SmolStr, ticket: u64, from: &NodeId) {
    let name = format!("{from} through relay {relay}");
    let call = async {
        let (mut stream, nonce, token) = approach(inner, relay).await?;
        let proof = token.prove(Ask::Accept(ticket), &nonce, &inner.id);
        let accept = ToRelay::Accept { tag: *token.tag(), node: inner.id.clone(), ticket, proof };
        write_message(&mut stream, FrameKind::Relay, &accept).await?;
        spliced(stream).await
    };
    let answered = tokio::time::timeout(HANDSHAKE_TIMEOUT, call).await;
    match answered.unwrap_or(Err(ConnError::Timeout)) {
        Ok(stream) => accept::receive(inner, stream, &name, None).await,
        Err(error) => inner.refused(&name, &error),
    }
}

/// Opens a stream to a node through a relay.
pub(crate) async fn dial(inner: &Inner, relay: &SmolStr, to: &NodeId) -> Result<TcpStream, ConnError> {
    let (mut stream, nonce, token) = approach(inner, relay).await?;
    let proof = token.prove(Ask::Dial(to), &nonce, &inner.id);
    let dial = ToRelay::Dial { tag: *token.tag(), node: inner.id.clone(), to: to.clone(), proof };
    write_message(&mut stream, FrameKind::Relay, &dial).await?;
    spliced(stream).await
}

async fn approach<'a>(
    inner: &'a Inner,
    relay: &SmolStr,
) -> Result<(TcpStream, Nonce, &'a RelayToken), ConnError> {
    let Security::Key(keyed) = &inner.security else { return Err(ConnError::NoAddress) };
    let mut stream = TcpStream::connect(relay.as_str()).await?;
    tune(&stream)?;
    stream.write_all(&preface(Purpose::Relay)).await?;
    expect_relay_preface(&mut stream).await?;
    let RelayChallenge { nonce } = read_exactly(&mut stream).await?;
    Ok((stream, nonce, &keyed.relay_token))
}

async fn spliced(mut stream: TcpStream) -> Result<TcpStream, ConnError> {
    match read_exactly(&mut stream).await? {
        FromRelay::Spliced => Ok(stream),
        FromRelay::Refused(refusal) => Err(ConnError::Relay(refusal)),
        _ => Err(ConnError::Closed),
    }
}
