//! TLS of a service that members of a domain reach by the domain's key, and others with a password.

use super::tls::{MemberVerifier, provider, roots};
use super::{DomainKey, KeyError};
use phalanx_types::NodeId;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig};
use std::sync::Arc;

/// Names and addresses by which clients may know this host.
pub fn service_names() -> Vec<String> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let addresses = interfaces.into_iter().map(|interface| interface.ip().to_string());
    let named = ["localhost".to_owned(), name].into_iter().filter(|name| is_host_name(name));
    let mut names: Vec<String> = named.chain(addresses).collect();
    names.sort();
    names.dedup();
    names
}

/// Whether a name can stand in a certificate.
fn is_host_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
}

impl DomainKey {
    /// Settings of a service under these host names and addresses. A client with a certificate of the domain is a
    /// member; one without a certificate is let in, too, and has to be asked for a password.
    ///
    /// # Errors
    /// A name cannot stand in a certificate, or the system gave no random numbers.
    pub fn service_tls(&self, node: &NodeId, names: &[String]) -> Result<Arc<ServerConfig>, KeyError> {
        let roots = roots(self)?;
        let clients = WebPkiClientVerifier::builder_with_provider(roots, provider());
        let mine = self.issue_named(node, names)?;
        let mut server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(clients.allow_unauthenticated().build()?)
            .with_single_cert(vec![mine.certificate], mine.key)?;
        server.send_tls13_tickets = 0;
        Ok(Arc::new(server))
    }

    /// Settings with which a member reaches such a service, whatever its host is called.
    ///
    /// # Errors
    /// The system gave no random numbers.
    pub fn member_tls(&self, member: &NodeId) -> Result<Arc<ClientConfig>, KeyError> {
        let chain = WebPkiServerVerifier::builder_with_provider(roots(self)?, provider()).build()?;
        let mine = self.issue_now(member)?;
        let mut client = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(MemberVerifier::new(chain)))
            .with_client_auth_cert(vec![mine.certificate], mine.key)?;
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        Ok(Arc::new(client))
    }

    /// The certificate that clients without the key check a service against, as a PEM file.
    pub fn authority_pem(&self) -> String {
        super::key::pem("CERTIFICATE", self.authority())
    }
}
