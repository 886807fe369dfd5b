//! Mutual TLS 1.3 with the domain's authority as the only root.

use super::{DomainKey, KeyError, hex};
use phalanx_types::NodeId;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme,
};
use std::sync::Arc;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The name that a node's certificate is issued to.
///
/// It is a hash, because node ids may have characters and lengths that a DNS label may not.
pub fn subject_name(node: &NodeId) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, node.as_str().as_bytes());
    format!("{}.node.phalanx", hex(&digest.as_ref()[..20]))
}

/// Whether the certificate was issued to this node.
pub(crate) fn is_issued_to(certificate: &CertificateDer<'_>, node: &NodeId) -> bool {
    let Ok(certificate) = webpki::EndEntityCert::try_from(certificate) else { return false };
    let Ok(name) = ServerName::try_from(subject_name(node)) else { return false };
    certificate.verify_is_valid_for_subject_name(&name).is_ok()
}

/// The TLS settings of one node, for both sides.
#[derive(Clone)]
pub(crate) struct TlsContext {
    pub(crate) acceptor: TlsAcceptor,
    pub(crate) connector: TlsConnector,
}

impl TlsContext {
    pub(crate) fn new(key: &DomainKey, node: &NodeId) -> Result<Self, KeyError> {
        let (provider, roots) = (provider(), roots(key)?);
        let clients = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone()).build()?;
        let mine = key.issue_now(node)?;
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![mine.certificate.clone()], mine.key.clone_key())?;
        server.send_tls13_tickets = 0;

        let chain = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build()?;
        let verifier = MemberVerifier::new(chain);
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_auth_cert(vec![mine.certificate], mine.key)?;
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        Ok(Self { acceptor: Arc::new(server).into(), connector: Arc::new(client).into() })
    }
}

pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The domain's authority as the only root.
pub(super) fn roots(key: &DomainKey) -> Result<Arc<RootCertStore>, KeyError> {
    let mut roots = RootCertStore::empty();
    roots.add(key.authority().clone())?;
    Ok(Arc::new(roots))
}

/// Accepts any member of the domain: which node listens at a dialed address is known only after the handshake, when the
/// claimed id is compared with the certificate.
#[derive(Debug)]
pub(super) struct MemberVerifier {
    chain: Arc<WebPkiServerVerifier>,
    provider: Arc<CryptoProvider>,
}

impl MemberVerifier {
    pub(super) fn new(chain: Arc<WebPkiServerVerifier>) -> Self {
        Self { chain, provider: provider() }
    }
}

impl ServerCertVerifier for MemberVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        // The chain, the dates and the signatures are checked before the name.
        match self.chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_types::DomainName;

    #[test]
    fn a_certificate_speaks_for_its_node_only() {
        let key = DomainKey::generate(&DomainName::new("lab").unwrap()).unwrap();
        let [a, b] = ["A_1.x-0001", "b-0002"].map(|id| NodeId::new(id).unwrap());
        let issued = key.issue_now(&a).unwrap();
        assert!(is_issued_to(&issued.certificate, &a));
        assert!(!is_issued_to(&issued.certificate, &b));
    }
}
