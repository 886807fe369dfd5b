use super::raw::{Raw, hello};
use super::*;
use phalanx_fabric::NodeCertificate;
use phalanx_wire::frame::FrameKind;
use phalanx_wire::handshake::{HelloReply, Refusal};
use rustls::pki_types::ServerName;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;
use tempfile::tempdir;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub(crate) const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Dials a node of the domain of `trusted` with any certificate.
pub(crate) async fn dial(
    address: SocketAddr,
    of: &NodeId,
    trusted: &DomainKey,
    mine: Option<NodeCertificate>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(trusted.authority().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match mine {
        Some(mine) => builder.with_client_auth_cert(vec![mine.certificate], mine.key).unwrap(),
        None => builder.with_no_client_auth(),
    };
    let name = ServerName::try_from(phalanx_fabric::subject_name(of)).unwrap();
    let tcp = TcpStream::connect(address).await?;
    TlsConnector::from(Arc::new(config)).connect(name, tcp).await
}

#[tokio::test]
async fn members_of_a_keyed_domain_talk() {
    let dir = tempdir().unwrap();
    let key = DomainKey::generate(&domain()).unwrap();
    let a = start(keyed(dir.path(), "a", &key)).await;
    let b = start(keyed(dir.path(), "B_x.y", &key)).await;
    assert!(a.is_secure());
    meets(&a, b.id()).await;
    b.serve("echo", |_, body| async { Ok(body) });
    let answer = within(a.request(b.id(), "echo", "secret".into(), Duration::from_secs(10))).await;
    assert_eq!(answer.unwrap(), "secret");
    within(a.shutdown()).await;
    within(b.shutdown()).await;
}

#[tokio::test]
async fn a_node_with_a_foreign_key_is_refused() {
    let (one, two) = (tempdir().unwrap(), tempdir().unwrap());
    let keys = [0; 2].map(|_| DomainKey::generate(&domain()).unwrap());
    let a = start(keyed(one.path(), "a", &keys[0])).await;
    let connect = vec![a.address().to_string()];
    let b = start(FabricConfig { connect: connect.clone(), ..keyed(two.path(), "b", &keys[1]) }).await;
    within(b.settled(Duration::from_secs(20))).await;
    counts(&b, "certificate-foreign", 0).await;
    counts(&a, "certificate-foreign", 0).await;
    assert_eq!((a.nodes().len(), b.nodes().len()), (1, 1));
    // The node that is refused can say so.
    let unreached = b.unreached();
    let told = unreached.iter().find(|target| target.target == connect[0]);
    assert!(told.is_some_and(|target| target.refused), "{unreached:?}");
    assert!(told.is_some_and(|target| target.reason.contains("issued by another domain")), "{unreached:?}");

    // A stranger that trusts the domain but was not let in by it.
    let node = NodeId::new("x-0001").unwrap();
    let before = refusals(&a, "certificate-foreign");
    let now = SystemTime::now();
    let foreign = keys[1].issue(&node, now - YEAR, now + YEAR).unwrap();
    if let Ok(stream) = within(dial(a.address(), a.id(), &keys[0], Some(foreign))).await {
        Raw::over(stream).closed().await;
    }
    counts(&a, "certificate-foreign", before).await;
    let keyless = start(FabricConfig { connect, ..config(two.path(), "c") }).await;
    counts(&a, "tls", 0).await;
    within(keyless.shutdown()).await;
    within(a.shutdown()).await;
    within(b.shutdown()).await;
}

#[tokio::test]
async fn an_address_of_another_node_is_left_before_anything_is_sent() {
    let dir = tempdir().unwrap();
    let key = DomainKey::generate(&domain()).unwrap();
    let a = start(keyed(dir.path(), "a", &key)).await;
    let file = |id: &str| dir.path().join(format!("lab/{id}.json"));
    let access = std::fs::read_to_string(file(a.id().as_str())).unwrap();
    std::fs::write(file("gone-0001"), access.replace(a.id().as_str(), "gone-0001")).unwrap();
    let b = start(keyed(dir.path(), "b", &key)).await;
    counts(&b, "identity-mismatch", 0).await;
    meets(&b, a.id()).await;
    assert!(b.peer(&NodeId::new("gone-0001").unwrap()).is_none());
    within(a.shutdown()).await;
    within(b.shutdown()).await;
}

#[tokio::test]
async fn expired_missing_and_borrowed_certificates_are_refused() {
    let dir = tempdir().unwrap();
    let key = DomainKey::generate(&domain()).unwrap();
    let a = start(keyed(dir.path(), "a", &key)).await;
    let node = NodeId::new("x-0001").unwrap();
    let now = SystemTime::now();

    let expired = key.issue(&node, now - YEAR * 2, now - YEAR).unwrap();
    if let Ok(stream) = within(dial(a.address(), a.id(), &key, Some(expired))).await {
        Raw::over(stream).closed().await;
    }
    counts(&a, "certificate-expired", 0).await;
    if let Ok(stream) = within(dial(a.address(), a.id(), &key, None)).await {
        Raw::over(stream).closed().await;
    }
    counts(&a, "certificate-missing", 0).await;

    let mine = key.issue(&node, now - YEAR, now + YEAR).unwrap();
    let mut raw = Raw::over(within(dial(a.address(), a.id(), &key, Some(mine))).await.unwrap());
    raw.challenged().await;
    let impostor = hello("somebody-else");
    raw.send(FrameKind::Handshake, &impostor).await;
    let refusal = Refusal::IdentityMismatch { claimed: impostor.node };
    assert_eq!(raw.read::<HelloReply>().await, HelloReply::Refused(refusal));
    counts(&a, "identity-mismatch", 0).await;
    within(a.shutdown()).await;
}
