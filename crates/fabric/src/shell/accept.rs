//! The listening side: which connections are admitted, and as what.

use super::bulk;
use super::dial::propose;
use super::handshake::{self, Greeting, HANDSHAKE_TIMEOUT, Met};
use super::inner::Inner;
use super::link::{Ends, Link, LinkPeer};
use super::link_io;
use super::refusal::ConnError;
use super::streams::{self, StreamKey};
use super::unfinished::{HandshakeSlot, Unfinished};
use crate::core::{LinkKey, LinkOffer};
use crate::security::random;
use phalanx_wire::frame::FrameKind;
use phalanx_wire::handshake::{Channel, Hello, HelloReply, Proof, Refusal, Welcome};
use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// The most connections that have not finished their handshake.
const MAX_UNFINISHED: usize = 256;
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(50);

pub(crate) async fn run(inner: Arc<Inner>, listener: TcpListener) {
    let mut unfinished = Unfinished::new(MAX_UNFINISHED);
    loop {
        let (tcp, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Usually out of descriptors; the connection stays in the queue meanwhile.
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(PAUSE_AFTER_ERROR).await;
                continue;
            }
        };
        let (shared, place) = (inner.clone(), unfinished.enter());
        inner.spawn(Box::pin(async move { receive(&shared, tcp, &from, Some(place)).await }));
    }
}

/// Shakes hands with a dialing node, direct or through a relay.
pub(crate) async fn receive(
    inner: &Arc<Inner>,
    tcp: TcpStream,
    from: &(dyn Display + Send + Sync),
    place: Option<HandshakeSlot>,
) {
    // Those that dial directly wait in the queue of unfinished handshakes.
    let direct = place.is_some();
    let greeting = async {
        let greeting = handshake::receive(inner, tcp);
        match place {
            Some(place) => place.hold(greeting).await,
            None => greeting.await,
        }
    };
    let result = match in_time(greeting).await {
        // Not cancelled halfway: the core would have a link without a reader.
        Ok(met) => admit(inner, met, direct).await,
        Err(error) => Err(error),
    };
    if let Err(error) = result {
        inner.refused(from, &error);
    }
}

async fn in_time<T>(work: impl Future<Output = Result<T, ConnError>>) -> Result<T, ConnError> {
    tokio::time::timeout(HANDSHAKE_TIMEOUT, work).await.unwrap_or(Err(ConnError::Timeout))
}

async fn admit(inner: &Arc<Inner>, met: Met<Greeting>, direct: bool) -> Result<(), ConnError> {
    match met.words.hello.channel {
        Channel::Control => admit_control(inner, met, direct).await,
        Channel::Bulk { link } => admit_bulk(inner, met, link).await,
        Channel::Stream { link, key } => admit_stream(inner, met, link, StreamKey(key)).await,
    }
}

fn welcome(inner: &Inner, link: u64, proof: Proof) -> HelloReply {
    HelloReply::Welcome(Welcome {
        node: inner.id.clone(),
        incarnation: inner.incarnation,
        kind: inner.kind,
        addresses: inner.addresses.clone(),
        heartbeat_ms: inner.heartbeat_ms(),
        link,
        proof,
    })
}

async fn admit_control(inner: &Arc<Inner>, met: Met<Greeting>, direct: bool) -> Result<(), ConnError> {
    let Met { stream, words: Greeting { hello, proof } } = met;
    let Hello { node, incarnation, kind, addresses, heartbeat_ms, .. } = hello;
    let number = random().map_or_else(|| inner.next_number(), u64::from_le_bytes);
    let key = LinkKey(inner.next_number());
    let other = LinkPeer { number, node: node.clone(), incarnation, kind };
    let ends = Ends::of(stream.tcp()).filter(|_| direct);
    let link = Arc::new(Link::new(key, other, None, ends, inner.origin));
    // Queued before the core may queue anything: it must be the first frame.
    if let Err(error) = link.send(FrameKind::Handshake, &welcome(inner, number, proof)) {
        return Err(ConnError::Io(std::io::Error::other(error)));
    }
    let heartbeat = Duration::from_millis(u64::from(heartbeat_ms));
    let offer = LinkOffer {
        link: key,
        node,
        incarnation,
        kind,
        addresses,
        heartbeat,
        dialed: None,
        present_heard: None,
    };
    match propose(inner, offer, link.clone()).await {
        Ok(()) => {
            link_io::run(inner, link, stream);
            Ok(())
        }
        Err(refusal) => Err(handshake::refuse(stream, refusal).await),
    }
}

/// The link that a further connection of a peer belongs to; only the side that dialed it opens more.
fn attached_to(inner: &Inner, hello: &Hello, number: u64) -> Option<Arc<Link>> {
    let link = inner.links.to_node(&hello.node)?;
    let same = link.number == number && link.incarnation == hello.incarnation && link.route.is_none();
    same.then_some(link)
}

async fn admit_bulk(inner: &Arc<Inner>, met: Met<Greeting>, number: u64) -> Result<(), ConnError> {
    let Met { mut stream, words: Greeting { hello, proof } } = met;
    let Some(link) = attached_to(inner, &hello, number) else {
        return Err(handshake::refuse(stream, Refusal::UnknownLink { link: number }).await);
    };
    let reply = welcome(inner, number, proof);
    in_time(handshake::write_message(&mut stream, FrameKind::Handshake, &reply)).await?;
    bulk::attach(inner, &link, stream);
    Ok(())
}

async fn admit_stream(
    inner: &Arc<Inner>,
    met: Met<Greeting>,
    number: u64,
    key: StreamKey,
) -> Result<(), ConnError> {
    let Met { mut stream, words: Greeting { hello, proof } } = met;
    let Some(link) = attached_to(inner, &hello, number) else {
        return Err(handshake::refuse(stream, Refusal::UnknownLink { link: number }).await);
    };
    if !link.streams.has_room(key) {
        return Err(handshake::refuse(stream, Refusal::Busy).await);
    }
    let reply = welcome(inner, number, proof);
    in_time(handshake::write_message(&mut stream, FrameKind::Handshake, &reply)).await?;
    streams::arrive(inner, &link, key, stream).map_err(ConnError::RefusedHere)
}
