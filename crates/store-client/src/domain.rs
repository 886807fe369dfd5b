//! Stores of a domain, reached with the domain's key.

use crate::StoreError;
use crate::address::StoreAddress;
use phalanx_fabric::{DomainKey, Fabric, FabricConfig, NodeKind, NodeStatus, usual_key_file};
use phalanx_types::{DomainName, NodeId};
use phalanx_wire::node::StoreOffer;
use rustls::ClientConfig;
use std::collections::BTreeMap;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long to look for stores when none is there at once.
const LOOKING: Duration = Duration::from_secs(5);
/// How long an address of a store may take to answer before the next is tried.
const ANSWERING: Duration = Duration::from_secs(2);

/// The name under which clients of stores issue themselves certificates.
const MEMBER: &str = "store-client";

/// The key of a domain; none if the domain has none on this host.
///
/// # Errors
/// The file cannot be used, or is the key of another domain.
pub(crate) fn key_of(domain: &DomainName, file: Option<&Path>) -> Result<Option<DomainKey>, StoreError> {
    let usual = || usual_key_file(domain).filter(|path| path.exists());
    let from_variable = || std::env::var_os("PHALANX_KEY").filter(|path| !path.is_empty()).map(Into::into);
    let Some(path) = file.map(Path::to_owned).or_else(from_variable).or_else(usual) else { return Ok(None) };
    let key = DomainKey::load(&path).map_err(StoreError::DomainKey)?;
    match key.domain() == domain {
        true => Ok(Some(key)),
        false => Err(StoreError::OtherDomain { wanted: domain.clone(), found: key.domain().clone() }),
    }
}

/// Settings that make this program a member for the stores of the domain.
///
/// # Errors
/// The system gave no random numbers.
pub(crate) fn tls_of(key: &DomainKey) -> Result<Arc<ClientConfig>, StoreError> {
    let member = NodeId::with_suffix(MEMBER, std::process::id() as u16)
        .map_err(|_invalid| StoreError::Unexpected { what: "the name of a client" })?;
    key.member_tls(&member).map_err(StoreError::DomainKey)
}

/// Finds the stores that nodes of a domain announce.
///
/// # Errors
/// The domain cannot be joined, or no node of it serves a store.
pub(crate) fn discover(domain: &DomainName, key: Option<DomainKey>) -> Result<StoreAddress, StoreError> {
    let mut config = FabricConfig::new(domain.clone(), MEMBER, NodeKind::Observer);
    config.key = key;
    let seeds = std::env::var("PHALANX_CONNECT").unwrap_or_default();
    config.connect = seeds.split(',').filter(|seed| !seed.is_empty()).map(str::to_owned).collect();
    let failed = |source| StoreError::Discovery { domain: domain.clone(), source: Box::new(source) };
    let none = || StoreError::NoStore { domain: domain.clone() };
    // A thread of its own: the caller may be inside a runtime, and has no threads of ours afterwards.
    let look = move || -> Result<Vec<StoreOffer>, phalanx_fabric::StartError> {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
            return Ok(Vec::new());
        };
        runtime.block_on(async {
            let fabric = Fabric::start(config).await?;
            let offers = announced(&fabric).await;
            fabric.shutdown().await;
            Ok(offers)
        })
    };
    let looked = std::thread::spawn(look).join().map_err(|_panicked| none())?;
    let offers = looked.map_err(failed)?;
    let answers = |offer: &StoreOffer| {
        let found = offer.addresses.iter().find(|at| TcpStream::connect_timeout(at, ANSWERING).is_ok());
        found.map(ToString::to_string)
    };
    let mut nodes: Vec<String> = offers.iter().filter_map(answers).collect();
    match (nodes.pop(), nodes.is_empty()) {
        (None, _) => Err(none()),
        (Some(only), true) => Ok(StoreAddress::Tcp(only)),
        (Some(last), false) => {
            nodes.push(last);
            Ok(StoreAddress::Cluster(nodes))
        }
    }
}

/// The stores that are announced: all parts of one if possible, what there is after a while.
async fn announced(fabric: &Fabric) -> Vec<StoreOffer> {
    let mut watch = fabric.watch();
    let mut offers: BTreeMap<NodeId, StoreOffer> = BTreeMap::new();
    let all_parts = async {
        while let Some(event) = watch.next().await {
            let NodeStatus { id, state, store, .. } = event.status();
            match store.as_deref().filter(|_| state.is_live()) {
                Some(offer) => drop(offers.insert(id.clone(), offer.clone())),
                None => drop(offers.remove(id)),
            }
            let wanted = offers.values().map(|offer| usize::from(offer.shards)).max();
            if wanted.is_some_and(|wanted| offers.len() >= wanted) {
                return;
            }
        }
    };
    let _incomplete = tokio::time::timeout(LOOKING, all_parts).await;
    offers.into_values().collect()
}
