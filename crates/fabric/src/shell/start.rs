//! Starting a node.

use super::access::{Access, AccessDir};
use super::driver::Driver;
use super::fabric::warn_if_too_long;
use super::inner::{Incoming, Inner, Keyed, Security};
use super::link::{Channels, LinkTable};
use super::watch::NodeTable;
use super::{Fabric, accept, mdns, relay};
use crate::config::FabricConfig;
use crate::core::{Event, Membership, NodeEvent, Settings};
use crate::error::StartError;
use crate::security::{DomainToken, TlsContext, random};
use phalanx_types::{Incarnation, NodeId};
use phalanx_wire::node::{NodeState, NodeStatus, PeerAddr};
use smol_str::SmolStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, watch};

/// Link events that the driver may be behind before their readers wait for it.
const EVENTS: usize = 1024;
const HEARTBEATS: std::ops::RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(3600);
/// The most interfaces that are advertised.
const MAX_ADVERTISED: usize = 8;

pub(super) async fn start(config: FabricConfig) -> Result<Fabric, StartError> {
    let bind = config.bind_address();
    validate(&config, bind)?;
    let suffix = u16::from_le_bytes(random().ok_or(StartError::Random)?);
    let id = NodeId::with_suffix(&config.name, suffix)
        .map_err(|source| StartError::Name { name: config.name.clone(), source })?;
    let bound = |source| StartError::Bind { bind, source };
    let listener = TcpListener::bind(bind).await.map_err(bound)?;
    let address = listener.local_addr().map_err(bound)?;
    let directory = AccessDir::open(&config.runtime_dir, &config.domain)?;
    let security = match &config.key {
        None => Security::Token(DomainToken::new(&directory.token()?)),
        Some(key) => {
            Security::Key(Box::new(Keyed { tls: TlsContext::new(key, &id)?, relay_token: key.relay_token() }))
        }
    };
    let (events, incoming) = mpsc::channel(EVENTS);
    let inner = Arc::new(make_inner(&config, id, address, security, events));
    let own = inner.own.lock().map_or_else(|e| e.into_inner().clone(), |own| own.clone());
    warn_if_too_long(&own);
    inner.nodes.announce(NodeEvent::Appeared(own.clone()));

    // Written before the others are listed, so that of two nodes that start at once one sees the other.
    directory.write(&Access {
        id: inner.id.clone(),
        address: local_address(address),
        pid: std::process::id(),
        incarnation: inner.incarnation,
    })?;
    let settings = Settings {
        me: inner.id.clone(),
        incarnation: inner.incarnation,
        heartbeat: inner.heartbeat,
        keyed: config.key.is_some(),
    };
    let driver = Driver::new(inner.clone(), Membership::new(settings, own));
    inner.spawn_to_end(Box::pin(driver.run(incoming)));
    inner.spawn(accept::run(inner.clone(), listener));
    let mut first = first_events(&config, &inner, &directory).await;
    let multicast = config.key.as_ref().filter(|_| config.mdns && !address.ip().is_loopback());
    first.extend(multicast.map(|_| Event::Listening));
    if inner.events.send(Incoming::Begin(first)).await.is_err() {
        tracing::error!("the driver ended at once");
    }
    for name in &config.relays {
        inner.spawn(Box::pin(relay::stay_registered(inner.clone(), name.as_str().into())));
    }
    let announcer = match multicast {
        Some(key) => mdns::listen(&inner, key).await,
        None => None,
    };
    tracing::info!(node = %inner.id, domain = %inner.domain, %address, "node started");
    Ok(Fabric::new(inner, directory, announcer))
}

fn validate(config: &FabricConfig, bind: SocketAddr) -> Result<(), StartError> {
    match &config.key {
        None if !bind.ip().is_loopback() => return Err(StartError::KeyRequired { bind }),
        None if !config.relays.is_empty() => return Err(StartError::RelayNeedsKey),
        Some(key) if *key.domain() != config.domain => {
            let (key, domain) = (key.domain().clone(), config.domain.clone());
            return Err(StartError::WrongKey { key, domain });
        }
        _ => {}
    }
    if HEARTBEATS.contains(&config.heartbeat) { Ok(()) } else { Err(StartError::Heartbeat(config.heartbeat)) }
}

fn make_inner(
    config: &FabricConfig,
    id: NodeId,
    address: SocketAddr,
    security: Security,
    events: mpsc::Sender<Incoming>,
) -> Inner {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // The time of the start, so that a later incarnation has a higher number.
    let incarnation = Incarnation(u64::try_from(since.as_micros()).unwrap_or(u64::MAX));
    let addresses = advertised(config, address);
    let own = NodeStatus {
        id: id.clone(),
        incarnation,
        kind: config.kind,
        state: NodeState::Running,
        resources: config.resources.clone(),
        handles: config.handles.clone(),
        topics: Vec::new(),
        addresses: addresses.clone(),
        jobs_running: 0,
        uses: Vec::new(),
        jobs_done: 0,
        since_unix_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
        version: 1,
        store: None,
    };
    let (alive, ended) = mpsc::channel(1);
    Inner {
        domain: config.domain.clone(),
        id,
        incarnation,
        kind: config.kind,
        address,
        addresses,
        heartbeat: config.heartbeat,
        security,
        origin: Instant::now(),
        events,
        own: Mutex::new(own),
        own_changed: Notify::new(),
        nodes: NodeTable::default(),
        links: LinkTable::default(),
        channels: Channels::default(),
        services: Default::default(),
        topics: Default::default(),
        blobs: Default::default(),
        pool: Default::default(),
        refusals: Default::default(),
        settled: watch::Sender::new(false),
        stop: watch::Sender::new(false),
        alive: Mutex::new(Some(alive)),
        ended: tokio::sync::Mutex::new(ended),
        counter: AtomicU64::new(0),
        unreached: Mutex::default(),
    }
}

async fn first_events(config: &FabricConfig, inner: &Inner, directory: &AccessDir) -> Vec<Event> {
    let others = directory.others(&inner.id).await.into_iter();
    let learned = others.map(|a| Event::Learned { node: a.id, address: PeerAddr::Tcp(a.address) });
    let seeds = config.connect.iter().map(|seed| Event::Seeded(SmolStr::from(seed.as_str())));
    let relays = config.relays.iter().map(|relay| Event::RelayAdded(SmolStr::from(relay.as_str())));
    learned.chain(seeds).chain(relays).collect()
}

/// The address of this node for its own host.
fn local_address(address: SocketAddr) -> SocketAddr {
    let host = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        other => other,
    };
    SocketAddr::new(host, address.port())
}

/// The addresses of this node for other nodes.
fn advertised(config: &FabricConfig, address: SocketAddr) -> Vec<PeerAddr> {
    let mut addresses = Vec::new();
    let ip = address.ip();
    if ip.is_unspecified() {
        addresses.extend(interface_addresses(ip).into_iter().map(|ip| SocketAddr::new(ip, address.port())));
    } else if !ip.is_loopback() || config.relays.is_empty() {
        // A node with relays has peers on other hosts, where its loopback address means another machine.
        addresses.push(address);
    }
    let direct = addresses.into_iter().map(PeerAddr::Tcp);
    direct.chain(config.relays.iter().map(|r| PeerAddr::Relay(r.as_str().into()))).collect()
}

fn interface_addresses(bound: IpAddr) -> Vec<IpAddr> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_else(|error| {
        tracing::warn!(%error, "could not list the network interfaces");
        Vec::new()
    });
    let usable = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local(),
        // Link-local addresses mean nothing without the number of an interface.
        IpAddr::V6(ip) => bound.is_ipv6() && !ip.is_loopback() && !ip.is_unicast_link_local(),
    };
    interfaces.into_iter().map(|i| i.ip()).filter(usable).take(MAX_ADVERTISED).collect()
}
