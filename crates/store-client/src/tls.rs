//! Encrypted connections.

use crate::StoreError;
use crate::url::TlsFiles;
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where systems keep the certificates of authorities.
const SYSTEM: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

pub(crate) type TlsSocket = StreamOwned<ClientConnection, TcpStream>;

/// Settings from files: the authorities that a server's certificate may come from, and a certificate of the client.
///
/// # Errors
/// A file cannot be used.
pub(crate) fn from_files(files: &TlsFiles) -> Result<Arc<ClientConfig>, StoreError> {
    let bad = |path: &Path, source: io::Error| StoreError::TlsFile { path: path.to_owned(), source };
    let mut roots = RootCertStore::empty();
    let named = files.ca.clone().or_else(|| std::env::var_os("SSL_CERT_FILE").map(PathBuf::from));
    let system = || SYSTEM.iter().map(PathBuf::from).find(|path| path.exists());
    let Some(path) = named.or_else(system) else {
        let missing =
            io::Error::new(io::ErrorKind::NotFound, "the system has no certificates of authorities");
        return Err(bad(Path::new("ca"), missing));
    };
    for certificate in certificates(&path).map_err(|source| bad(&path, source))? {
        if files.ca.is_some() {
            roots.add(certificate).map_err(|error| bad(&path, io::Error::other(error)))?;
        } else {
            // Systems have certificates that nothing can use.
            let _unusable = roots.add(certificate);
        }
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| bad(&path, io::Error::other(error)))?
        .with_root_certificates(roots);
    let mut config = match (&files.cert, &files.key) {
        (Some(cert), Some(key)) => {
            let chain = certificates(cert).map_err(|source| bad(cert, source))?;
            let read =
                PrivateKeyDer::from_pem_file(key).map_err(|error| bad(key, io::Error::other(error)))?;
            builder.with_client_auth_cert(chain, read).map_err(|error| bad(cert, io::Error::other(error)))?
        }
        _ => builder.with_no_client_auth(),
    };
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match all {
        Ok(all) if all.is_empty() => Err(io::Error::other("there is no certificate in it")),
        other => other.map_err(io::Error::other),
    }
}

/// Encrypts a connection to a server of this address.
///
/// # Errors
/// The server does not speak TLS, or one side does not accept the other.
pub(crate) fn encrypt(
    config: &Arc<ClientConfig>,
    address: &str,
    mut tcp: TcpStream,
) -> io::Result<TlsSocket> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(host).map_err(io::Error::other)?;
    let mut connection = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
    while connection.is_handshaking() {
        connection.complete_io(&mut tcp)?;
    }
    Ok(StreamOwned::new(connection, tcp))
}
