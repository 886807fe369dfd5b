//! TLS towards stores: the authorities that the system trusts.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Variables that name a file of authorities, before the system's.
const VARIABLES: [&str; 2] = ["AWS_CA_BUNDLE", "SSL_CERT_FILE"];
/// Where systems keep them.
const PLACES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
];

#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("no file of certificate authorities was found; SSL_CERT_FILE names one")]
    NoAuthorities,
    #[error("no certificate authority could be read from {}", .0.display())]
    Unreadable(PathBuf),
    #[error("TLS could not be set up")]
    Setup(#[from] rustls::Error),
}

/// How connections are encrypted.
pub(crate) fn client() -> Result<Arc<ClientConfig>, TlsError> {
    let path = authorities().ok_or(TlsError::NoAuthorities)?;
    let mut roots = RootCertStore::empty();
    let found = CertificateDer::pem_file_iter(&path).map_err(|_bad| TlsError::Unreadable(path.clone()))?;
    let (added, _ignored) = roots.add_parsable_certificates(found.flatten());
    if added == 0 {
        return Err(TlsError::Unreadable(path));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

fn authorities() -> Option<PathBuf> {
    let named = VARIABLES.iter().filter_map(std::env::var_os).find(|path| !path.is_empty());
    let known = || PLACES.iter().map(Path::new).find(|path| path.is_file()).map(Path::to_owned);
    named.map(PathBuf::from).or_else(known)
}
