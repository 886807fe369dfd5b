//! Encrypted connections to the server: TLS 1.3, and what is checked as `sslmode` says.

use crate::error::{SqlError, TlsError};
use crate::postgres_url::{Authorities, TlsMode};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres::{Client, Config, Connection, Socket};
use tokio_rustls::client::TlsStream as Encrypted;

/// Where systems keep the certificates of authorities.
const SYSTEM: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
/// Where PostgreSQL's own clients look for them, below the home of the user.
const USUAL: &str = ".postgresql/root.crt";
/// What a server may want to hear before it answers.
const PROTOCOL: &[u8] = b"postgresql";

/// Encrypts connections.
#[derive(Debug, Clone)]
pub(super) struct Connector(Arc<ClientConfig>);

impl Connector {
    pub(super) fn new(mode: TlsMode, authorities: &Authorities) -> Result<Self, TlsError> {
        let trusted = match mode {
            TlsMode::Disable | TlsMode::Prefer | TlsMode::Require => None,
            TlsMode::VerifyCa | TlsMode::VerifyFull => Some(Trusted::read(authorities)?),
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = Verifier { trusted, names: mode == TlsMode::VerifyFull, provider: provider.clone() };
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(TlsError::Handshake)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Self(Arc::new(config)))
    }

    /// Connects. Where encryption is only preferred and fails, or the server does not want it for this user, the
    /// connection is made without, as PostgreSQL's own clients do it.
    pub(super) async fn reach(
        self,
        mut config: Config,
    ) -> Result<(Client, Connection<Socket, Stream>), SqlError> {
        let preferred = config.get_ssl_mode() == SslMode::Prefer;
        match config.connect(self.clone()).await {
            Ok(connected) => Ok(connected),
            Err(error) if preferred && is_about_encryption(&error) => {
                config.ssl_mode(SslMode::Disable);
                Ok(config.connect(self).await?)
            }
            Err(error) => Err(match refusal(&error) {
                Some(refusal) => TlsError::of(refusal.clone()).into(),
                None => error.into(),
            }),
        }
    }
}

/// Whether the same connection may be possible without encryption.
fn is_about_encryption(error: &tokio_postgres::Error) -> bool {
    refusal(error).is_some() || error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION)
}

/// Why the two sides did not come to encrypt.
fn refusal(error: &tokio_postgres::Error) -> Option<&rustls::Error> {
    error.source()?.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref()
}

/// Certificates that are believed.
#[derive(Debug)]
struct Trusted {
    authorities: RootCertStore,
    /// The same certificates: a server that has signed its own is also named by it.
    themselves: Vec<CertificateDer<'static>>,
}

impl Trusted {
    fn read(authorities: &Authorities) -> Result<Self, TlsError> {
        let system = || SYSTEM.iter().map(PathBuf::from).find(|path| path.exists());
        let named = || std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
        let path = match authorities {
            Authorities::File(path) => path.clone(),
            Authorities::System => named().or_else(system).ok_or(TlsError::NoAuthorities)?,
            Authorities::Usual => {
                let usual = std::env::home_dir().map(|home| home.join(USUAL));
                usual.filter(|path| path.exists()).ok_or(TlsError::NoAuthorities)?
            }
        };
        let bad = |source| TlsError::Authorities { path: path.clone(), source };
        let themselves = certificates(&path).map_err(&bad)?;
        let mut authorities = RootCertStore::empty();
        // Systems have certificates that nothing can use.
        let (usable, _unusable) = authorities.add_parsable_certificates(themselves.iter().cloned());
        if usable == 0 {
            return Err(bad(io::Error::other("no certificate in it can be used")));
        }
        Ok(Self { authorities, themselves })
    }
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    // The file itself is read first: its error says more.
    let text = std::fs::read(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match all.map_err(io::Error::other)? {
        none if none.is_empty() => Err(io::Error::other("there is no certificate in it")),
        some => Ok(some),
    }
}

/// Checks the certificate of a server as far as is asked.
#[derive(Debug)]
struct Verifier {
    /// `None` if any certificate will do.
    trusted: Option<Trusted>,
    /// Whether the certificate has to be for the host.
    names: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(trusted) = &self.trusted else { return Ok(ServerCertVerified::assertion()) };
        let certificate = ParsedCertificate::try_from(end_entity)?;
        if !trusted.themselves.contains(end_entity) {
            verify_server_cert_signed_by_trust_anchor(
                &certificate,
                &trusted.authorities,
                intermediates,
                now,
                self.provider.signature_verification_algorithms.all,
            )?;
        }
        if self.names {
            verify_server_name(&certificate, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
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

impl MakeTlsConnect<Socket> for Connector {
    type Stream = Stream;
    type TlsConnect = ToHost;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> Result<ToHost, io::Error> {
        Ok(ToHost { connector: self.0.clone().into(), host: host.to_owned() })
    }
}

/// Encrypts one connection to a host.
pub(super) struct ToHost {
    connector: tokio_rustls::TlsConnector,
    /// Empty for a socket of this host, which is not encrypted.
    host: String,
}

impl TlsConnect<Socket> for ToHost {
    type Stream = Stream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, io::Error>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let name = ServerName::try_from(self.host).map_err(io::Error::other)?;
            Ok(Stream(Box::new(self.connector.connect(name, socket).await?)))
        })
    }
}

/// An encrypted connection.
pub(super) struct Stream(Box<Encrypted<Socket>>);

impl TlsStream for Stream {
    /// Passwords are not bound to the connection: no server asks for it by itself.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
