//! Multicast DNS: finding the members of a keyed domain on the local network.

use super::inner::Inner;
use super::lock;
use crate::core::Event;
use crate::security::DomainKey;
use mdns_sd::{ResolvedService, ServiceDaemon, ServiceEvent, ServiceInfo};
use phalanx_types::NodeId;
use phalanx_wire::node::PeerAddr;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SERVICE: &str = "_phalanx._tcp.local.";
const FAREWELL: Duration = Duration::from_millis(500);
/// How long others have to answer: a responder does not repeat a multicast within a second.
const LISTEN: Duration = Duration::from_millis(1500);

/// Advertises this node, looks for others, and reports when the time to answer is over.
pub(crate) async fn listen(inner: &Arc<Inner>, key: &DomainKey) -> Option<Announcer> {
    let announcer = Announcer::start(inner, key);
    if announcer.is_none() {
        inner.tell(Event::Listened).await;
        return None;
    }
    let shared = inner.clone();
    inner.spawn(async move {
        tokio::time::sleep(LISTEN).await;
        shared.tell(Event::Listened).await;
    });
    announcer
}

/// This node's entry on the local network.
#[derive(Debug)]
pub(crate) struct Announcer {
    daemon: Mutex<Option<(ServiceDaemonHandle, String)>>,
}

struct ServiceDaemonHandle(ServiceDaemon);

impl std::fmt::Debug for ServiceDaemonHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ServiceDaemon")
    }
}

impl Announcer {
    /// Advertises this node and looks for others; `None` on a host without multicast.
    pub(crate) fn start(inner: &Arc<Inner>, key: &DomainKey) -> Option<Self> {
        match Self::try_start(inner, key) {
            Ok(announcer) => Some(announcer),
            Err(error) => {
                tracing::warn!(%error, "multicast DNS is not available");
                None
            }
        }
    }

    fn try_start(inner: &Arc<Inner>, key: &DomainKey) -> Result<Self, mdns_sd::Error> {
        let daemon = ServiceDaemon::new()?;
        let tag = key.fingerprint();
        let properties =
            [("domain", inner.domain.as_str()), ("tag", tag.as_str()), ("id", inner.id.as_str())];
        // A DNS label has no dots and at most 63 characters; the end of an id distinguishes nodes.
        let label = inner.id.as_str().replace('.', "-");
        let label = label.get(label.len().saturating_sub(60)..).unwrap_or(&label);
        let host = format!("{label}.local.");
        let port = inner.address.port();
        let info = ServiceInfo::new(SERVICE, label, &host, "", port, &properties[..])?;
        let info = info.enable_addr_auto();
        let name = info.get_fullname().to_owned();
        daemon.register(info)?;
        let found = daemon.browse(SERVICE)?;
        let shared = inner.clone();
        inner.spawn(async move {
            while let Ok(event) = found.recv_async().await {
                if let ServiceEvent::ServiceResolved(service) = event {
                    for learned in learn(&shared, &tag, &service) {
                        shared.tell(learned).await;
                    }
                }
            }
        });
        Ok(Self { daemon: Mutex::new(Some((ServiceDaemonHandle(daemon), name))) })
    }

    pub(crate) async fn stop(&self) {
        let Some((ServiceDaemonHandle(daemon), name)) = lock(&self.daemon).take() else { return };
        if let Ok(done) = daemon.unregister(&name)
            && tokio::time::timeout(FAREWELL, done.recv_async()).await.is_err()
        {
            tracing::debug!("multicast DNS did not say goodbye in time");
        }
        if let Err(error) = daemon.shutdown() {
            tracing::debug!(%error, "multicast DNS did not stop");
        }
    }
}

/// The content of an entry, if it belongs to the same domain.
fn learn(inner: &Inner, tag: &str, service: &ResolvedService) -> Vec<Event> {
    let property = |name| service.get_property_val_str(name);
    let ours = property("domain") == Some(inner.domain.as_str()) && property("tag") == Some(tag);
    let node = property("id").filter(|_| ours).and_then(|id| NodeId::new(id).ok());
    let Some(node) = node.filter(|id| *id != inner.id) else { return Vec::new() };
    let mut addresses: Vec<_> =
        service.get_addresses_v4().into_iter().filter(|ip| !ip.is_loopback()).collect();
    addresses.sort();
    let learned = addresses.into_iter().map(|ip| Event::Learned {
        node: node.clone(),
        address: PeerAddr::Tcp(SocketAddr::new(ip.into(), service.get_port())),
    });
    learned.collect()
}
