//! Dialing: all addresses of a target, staggered and in parallel. The first to answer wins, unless its certificate
//! belongs to another node.

use super::handshake::{self, Challenged, HANDSHAKE_TIMEOUT};
use super::inner::{Incoming, Inner, Route};
use super::link::{Ends, Link, LinkPeer};
use super::link_io;
use super::refusal::ConnError;
use super::stream::Stream;
use crate::core::{DialEnd, DialTarget, Event, LinkKey, LinkOffer};
use phalanx_wire::handshake::{Channel, Refusal};
use phalanx_wire::node::PeerAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// How much later each further address is tried.
const STAGGER: Duration = Duration::from_millis(50);
/// How much later a relay is tried than the addresses that need none.
const RELAY_STAGGER: Duration = Duration::from_millis(250);
const MAX_RESOLVED: usize = 8;

/// Dials a target once and reports the result to the driver; `cancelled` ends it before it says hello.
pub(crate) async fn run(
    inner: Arc<Inner>,
    target: DialTarget,
    addresses: Vec<PeerAddr>,
    cancelled: oneshot::Receiver<()>,
) {
    let reached = tokio::select! {
        reached = reach(&inner, &target, addresses) => reached,
        _ = cancelled => return,
    };
    let result = match reached {
        Ok((challenged, route)) => establish(&inner, &target, challenged, route).await,
        Err(error) => Err(error),
    };
    match result {
        Ok(()) => inner.dial_worked(&target),
        Err(error) => {
            inner.dial_failed(&target, &error);
            let why = match error {
                ConnError::RefusedThere(Refusal::Myself) => DialEnd::Myself,
                ConnError::RefusedThere(Refusal::Duplicate) => DialEnd::Duplicate,
                _ => DialEnd::Failed,
            };
            inner.tell(Event::DialFailed { target, why }).await;
        }
    }
}

async fn reach(
    inner: &Arc<Inner>,
    target: &DialTarget,
    addresses: Vec<PeerAddr>,
) -> Result<(Challenged, Route), ConnError> {
    let mut attempts = JoinSet::new();
    let expected = match target {
        DialTarget::Peer(node) => Some(node),
        DialTarget::Seed(_) => None,
    };
    for (delay, route) in routes(target, addresses).await? {
        let (inner, expected) = (inner.clone(), expected.cloned());
        attempts.spawn(async move {
            tokio::time::sleep(delay).await;
            let approach = async {
                let tcp = inner.connect(&route).await?;
                handshake::approach(&inner, tcp, expected.as_ref()).await
            };
            let reached = tokio::time::timeout(HANDSHAKE_TIMEOUT, approach).await;
            reached.unwrap_or(Err(ConnError::Timeout)).map(|challenged| (challenged, route))
        });
    }
    let mut first_error = None;
    while let Some(attempt) = attempts.join_next().await {
        match attempt {
            Ok(Ok(reached)) => return Ok(reached),
            Ok(Err(error)) => first_error = first_error.or(Some(error)),
            Err(error) => tracing::error!(%error, "a dial panicked"),
        }
    }
    Err(first_error.unwrap_or(ConnError::NoAddress))
}

/// Every route to the target and the delay before it is tried.
async fn routes(target: &DialTarget, addresses: Vec<PeerAddr>) -> Result<Vec<(Duration, Route)>, ConnError> {
    let mut routes = Vec::new();
    match target {
        DialTarget::Seed(seed) => {
            let resolved = tokio::time::timeout(HANDSHAKE_TIMEOUT, tokio::net::lookup_host(seed.as_str()));
            let Ok(resolved) = resolved.await else { return Err(ConnError::Timeout) };
            for (i, addr) in (0..).zip(resolved?.take(MAX_RESOLVED)) {
                routes.push((STAGGER * i, Route::Tcp(addr)));
            }
        }
        DialTarget::Peer(node) => {
            let direct = addresses.iter().filter(|a| matches!(a, PeerAddr::Tcp(_))).count();
            let relay_delay = if direct == 0 { Duration::ZERO } else { RELAY_STAGGER };
            let mut delay = Duration::ZERO;
            for address in addresses {
                match address {
                    PeerAddr::Tcp(addr) => {
                        routes.push((delay, Route::Tcp(addr)));
                        delay += STAGGER;
                    }
                    PeerAddr::Relay(relay) => {
                        routes.push((relay_delay, Route::Relay { relay, to: node.clone() }));
                    }
                }
            }
        }
    }
    Ok(routes)
}

/// Introduces this node and makes the connection a link if the core accepts it.
async fn establish(
    inner: &Arc<Inner>,
    target: &DialTarget,
    challenged: Challenged,
    route: Route,
) -> Result<(), ConnError> {
    let introduction = handshake::introduce(inner, challenged, Channel::Control, None);
    let met = match tokio::time::timeout(HANDSHAKE_TIMEOUT, introduction).await {
        Ok(met) => met?,
        Err(_) => return Err(ConnError::Timeout),
    };
    let welcome = met.words;
    let other = LinkPeer {
        number: welcome.link,
        node: welcome.node.clone(),
        incarnation: welcome.incarnation,
        kind: welcome.kind,
    };
    let key = LinkKey(inner.next_number());
    let ends = match route {
        Route::Tcp(_) => Ends::of(met.stream.tcp()),
        Route::Relay { .. } => None,
    };
    let link = Arc::new(Link::new(key, other, Some(route), ends, inner.origin));
    let offer = LinkOffer {
        link: key,
        node: welcome.node,
        incarnation: welcome.incarnation,
        kind: welcome.kind,
        addresses: welcome.addresses,
        heartbeat: Duration::from_millis(u64::from(welcome.heartbeat_ms)),
        dialed: Some(target.clone()),
        present_heard: None,
    };
    match propose(inner, offer, link.clone()).await {
        Ok(()) => link_io::run(inner, link, met.stream),
        // The core has recorded the end of the dial already.
        Err(refusal) => tracing::debug!(%target, %refusal, "a dialed link is not needed"),
    }
    Ok(())
}

/// Dials a further connection of a link, by the route of the link.
pub(crate) async fn beside(
    inner: &Inner,
    link: &Link,
    route: &Route,
    channel: Channel,
) -> Result<Stream, ConnError> {
    let dial = async {
        let tcp = inner.connect(route).await?;
        let challenged = handshake::approach(inner, tcp, Some(&link.node)).await?;
        handshake::introduce(inner, challenged, channel, Some(&link.node)).await
    };
    let met = tokio::time::timeout(HANDSHAKE_TIMEOUT, dial).await;
    Ok(met.unwrap_or(Err(ConnError::Timeout))?.stream)
}

/// Asks the core whether to accept a link.
pub(crate) async fn propose(inner: &Inner, offer: LinkOffer, link: Arc<Link>) -> Result<(), Refusal> {
    let (reply, verdict) = oneshot::channel();
    if inner.events.send(Incoming::Offer { offer, link, reply }).await.is_err() {
        return Err(Refusal::Stopping);
    }
    verdict.await.unwrap_or(Err(Refusal::Stopping))
}
