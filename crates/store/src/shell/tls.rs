//! Clients of a store that speaks TLS: the first byte tells an encrypted connection from a plain one.

use super::connection;
use super::hang_up::HangUp;
use super::hub::Hub;
use crate::core::{Admission, AdmissionRules, Channel, Origin, admit};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How long a client may take until its connection is encrypted.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The first byte of TLS; no request begins with it.
const TLS_HANDSHAKE: u8 = 0x16;

/// How a store speaks TLS.
#[derive(Clone)]
pub struct ServerTls {
    acceptor: TlsAcceptor,
    knows_members: bool,
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("knows_members", &self.knows_members).finish_non_exhaustive()
    }
}

/// Why files cannot be used for TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsFilesError {
    /// A file is not there, or holds no certificate or key.
    #[error("there is no usable {what} in {path}")]
    File {
        /// What was looked for.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// Why it was not found.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// They do not belong together.
    #[error("the certificate and the key do not go together")]
    Pair(#[from] rustls::Error),
}

impl ServerTls {
    /// For the clients of a domain: one whose certificate `config` accepts needs no password.
    pub fn for_members(config: Arc<rustls::ServerConfig>) -> Self {
        Self { acceptor: config.into(), knows_members: true }
    }

    /// With a certificate (and those that it depends on) and its private key in PEM files. Clients need a password.
    ///
    /// # Errors
    /// A file cannot be read, or they do not belong together.
    pub fn from_files(certificate: &Path, key: &Path) -> Result<Self, TlsFilesError> {
        let wrong = |what: &'static str, path: &Path| {
            let path = path.to_owned();
            move |source| TlsFilesError::File { what, path, source }
        };
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(wrong("certificate", certificate))?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(wrong("private key", key))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        Ok(Self { acceptor: Arc::new(config).into(), knows_members: false })
    }

    pub(crate) fn knows_members(&self) -> bool {
        self.knows_members
    }
}

/// Where clients of a store that speaks TLS come in.
#[derive(Debug)]
pub(crate) struct Entrance {
    pub(crate) tls: ServerTls,
    pub(crate) rules: AdmissionRules,
    /// Clients that are not yet known to the hub.
    pub(crate) entering: AtomicUsize,
    pub(crate) most: usize,
}

impl Entrance {
    pub(crate) fn new(tls: ServerTls, rules: AdmissionRules, most: usize) -> Self {
        Self { tls, rules, entering: AtomicUsize::new(0), most }
    }

    /// Lets a client in and serves it until it leaves.
    pub(crate) async fn serve(&self, hub: Arc<Hub>, stream: TcpStream, origin: Origin, peer: SocketAddr) {
        // A client that says nothing must not keep others out for long.
        if self.entering.fetch_add(1, Ordering::Relaxed) >= self.most {
            self.entering.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let entered = tokio::select! {
            entered = tokio::time::timeout(HANDSHAKE, self.enter(stream)) => Some(entered),
            () = hub.stopped() => None,
        };
        self.entering.fetch_sub(1, Ordering::Relaxed);
        let is_loopback = peer.ip().to_canonical().is_loopback();
        let Some(entered) = entered else { return };
        match entered {
            Ok(Ok(Entered::Plain(stream))) => {
                self.go_on(hub, stream, (Channel::Plain, origin, is_loopback)).await;
            }
            Ok(Ok(Entered::Tls(stream))) => {
                let has_certificate = stream.get_ref().1.peer_certificates().is_some();
                let is_member = has_certificate && self.tls.knows_members;
                let channel = if is_member { Channel::Member } else { Channel::Tls };
                self.go_on(hub, *stream, (channel, origin, is_loopback)).await;
            }
            Ok(Err(error)) => tracing::debug!(%peer, %error, "a client did not get in"),
            Err(_late) => tracing::debug!(%peer, "a client said nothing"),
        }
    }

    async fn enter(&self, stream: TcpStream) -> std::io::Result<Entered> {
        let mut first = [0];
        if stream.peek(&mut first).await? == 1 && first == [TLS_HANDSHAKE] {
            return Ok(Entered::Tls(Box::new(self.tls.acceptor.accept(stream).await?)));
        }
        Ok(Entered::Plain(stream))
    }

    async fn go_on<S: AsyncRead + AsyncWrite + HangUp + Unpin>(
        &self,
        hub: Arc<Hub>,
        mut stream: S,
        (channel, mut origin, is_loopback): (Channel, Origin, bool),
    ) {
        match admit(self.rules, channel, is_loopback) {
            Admission::Trusted => origin.trusted = true,
            Admission::Anyone => {}
            Admission::Refused(turned) => return turn_away(stream, turned.text()).await,
        }
        // The same address on both ends: memory can be shared.
        let same_host =
            origin.peer.rsplit_once(':').is_some_and(|(host, _)| unbracketed(host) == origin.host);
        match hub.connect(origin) {
            Some(connected) => connection::serve(stream, hub, connected, same_host).await,
            // It is told why, if it still listens.
            None => drop(stream.write_all(b"-ERR max number of clients reached\r\n").await),
        }
    }
}

fn unbracketed(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

enum Entered {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

async fn turn_away<S: AsyncWrite + Unpin>(mut stream: S, text: &str) {
    let told = async {
        stream.write_all(format!("-{text}\r\n").as_bytes()).await?;
        stream.shutdown().await
    };
    // A client that does not listen is not told.
    let _told = tokio::time::timeout(HANDSHAKE, told).await;
}

impl HangUp for TlsStream<TcpStream> {
    fn has_hung_up(&self) -> bool {
        self.get_ref().0.has_hung_up()
    }

    fn refused_writes(&self) -> bool {
        self.get_ref().0.refused_writes()
    }
}
