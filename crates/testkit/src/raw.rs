//! A hand-written peer that sends what no real node would.

use crate::DEADLINE;
use bytes::BytesMut;
use phalanx_types::{DomainName, Incarnation, NodeId};
use phalanx_wire::codec;
use phalanx_wire::frame::{self, FrameKind};
use phalanx_wire::handshake::{Challenge, Channel, Hello, HelloReply, PREFACE_LEN, Proof, Purpose, preface};
use phalanx_wire::node::NodeKind;
use ring::hmac;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;

/// The connection of a raw peer.
pub trait Wire: Read + Write {
    /// Closes the sending side.
    ///
    /// # Errors
    /// The other side has closed.
    fn hang_up(&mut self) -> io::Result<()>;
}

impl Wire for TcpStream {
    fn hang_up(&mut self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

impl Wire for StreamOwned<ClientConnection, TcpStream> {
    fn hang_up(&mut self) -> io::Result<()> {
        self.conn.send_close_notify();
        self.flush()
    }
}

impl Wire for Box<dyn Wire> {
    fn hang_up(&mut self) -> io::Result<()> {
        (**self).hang_up()
    }
}

/// One connection on which the test chooses every byte.
#[derive(Debug)]
pub struct Raw<S> {
    pub stream: S,
    buffer: BytesMut,
    /// The address of the other side, which a proof of membership names.
    listener: Option<SocketAddr>,
}

/// A connection inside TLS.
pub type TlsRaw = Raw<StreamOwned<ClientConnection, TcpStream>>;

impl Raw<TcpStream> {
    /// # Panics
    /// The connection is refused.
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap_or_else(|error| panic!("{address}: {error}"));
        for set in [TcpStream::set_read_timeout, TcpStream::set_write_timeout] {
            set(&stream, Some(DEADLINE)).expect("a socket takes a timeout");
        }
        Self { listener: Some(address), ..Self::over(stream) }
    }

    /// The name by which the other side identifies this connection.
    ///
    /// # Panics
    /// It has none any more.
    pub fn name(&self) -> String {
        self.stream.local_addr().expect("an address").to_string()
    }
}

impl<S: Wire + 'static> Raw<S> {
    /// The same with a boxed connection.
    pub fn boxed(self) -> Raw<Box<dyn Wire>> {
        Raw { stream: Box::new(self.stream), buffer: self.buffer, listener: self.listener }
    }
}

impl<S: Wire> Raw<S> {
    /// Sends these bytes and closes the sending side, then waits until the other side closes.
    pub fn say_last(&mut self, bytes: &[u8]) {
        // The other side may have closed in the middle, which is its answer.
        let _refused = self.stream.write_all(bytes).and_then(|()| self.stream.hang_up());
        self.closed();
    }
}

impl<S: Read + Write> Raw<S> {
    pub fn over(stream: S) -> Self {
        Self { stream, buffer: BytesMut::new(), listener: None }
    }

    /// # Panics
    /// The other side has closed.
    pub fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).and_then(|()| self.stream.flush()).expect("the other side listens");
    }

    /// # Panics
    /// The other side has closed.
    pub fn send<T: Serialize>(&mut self, kind: FrameKind, message: &T) {
        let mut bytes = BytesMut::new();
        frame::put(kind, message, &mut bytes).expect("a message fits a frame");
        self.write(&bytes);
    }

    /// Sends a frame with any kind and body.
    ///
    /// # Panics
    /// The other side has closed.
    pub fn send_raw(&mut self, kind: u8, body: &[u8]) {
        let len = u32::try_from(body.len()).expect("a length").to_le_bytes();
        self.write(&[&len[..], &[kind], body].concat());
    }

    /// The next message, which must be a `T`.
    ///
    /// # Panics
    /// The other side closes or sends something else.
    pub fn read<T: DeserializeOwned>(&mut self) -> T {
        loop {
            if let Some(frame) = frame::take(&mut self.buffer).expect("a frame") {
                return codec::decode(&frame.body).expect("the message expected");
            }
            assert!(self.fill().expect("the other side speaks") > 0, "the other side closed");
        }
    }

    /// The next matching message of type `T`; others are skipped.
    ///
    /// # Panics
    /// The other side closes first.
    pub fn read_where<T: DeserializeOwned>(&mut self, kind: FrameKind, wanted: impl Fn(&T) -> bool) -> T {
        loop {
            while let Some(frame) = frame::take(&mut self.buffer).expect("a frame") {
                if frame.kind == kind
                    && let Some(message) = codec::decode(&frame.body).ok().filter(&wanted)
                {
                    return message;
                }
            }
            assert!(self.fill().expect("the other side speaks") > 0, "the other side closed");
        }
    }

    fn fill(&mut self) -> io::Result<usize> {
        let mut bytes = [0; 4096];
        let n = self.stream.read(&mut bytes)?;
        self.buffer.extend_from_slice(bytes.get(..n).unwrap_or_default());
        Ok(n)
    }

    /// Waits until the other side closes.
    ///
    /// # Panics
    /// It does not before the deadline.
    pub fn closed(&mut self) {
        let mut rest = [0; 4096];
        loop {
            match self.stream.read(&mut rest) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    panic!("the other side kept the connection for {DEADLINE:?}")
                }
                Err(_closed_hard) => return,
            }
        }
    }

    /// Exchanges prefaces and receives the challenge.
    ///
    /// # Panics
    /// The other side is not a node of this version.
    pub fn challenged(&mut self) -> Challenge {
        self.meet(Purpose::Node);
        self.read()
    }

    /// Exchanges prefaces.
    ///
    /// # Panics
    /// The other side is not a node.
    pub fn meet(&mut self, purpose: Purpose) {
        self.write(&preface(purpose));
        let mut theirs = [0; PREFACE_LEN];
        self.stream.read_exact(&mut theirs).expect("a preface");
        assert_eq!(theirs, preface(purpose));
    }

    /// Joins as a member; `token` is the content of the token file of a domain without a key.
    ///
    /// # Panics
    /// The other side is not a node of this version, or a token is given for a foreign connection.
    pub fn join(&mut self, token: Option<&[u8]>, mut hello: Hello) -> HelloReply {
        let challenge = self.challenged();
        if let Some(token) = token {
            let node = hello.node.as_str().as_bytes();
            let listener = self.listener.expect("a connection made here").to_string();
            let parts: [&[u8]; 4] = [&challenge.nonce, &hello.nonce, node, listener.as_bytes()];
            hello.proof = prove(token, "phalanx dialer", &parts);
        }
        self.send(FrameKind::Handshake, &hello);
        self.read()
    }
}

/// The hello of a member.
///
/// # Panics
/// A name is invalid.
pub fn hello(domain: &str, node: &str, kind: NodeKind) -> Hello {
    Hello {
        domain: DomainName::new(domain).expect("a domain name"),
        node: NodeId::new(node).expect("a node id"),
        incarnation: Incarnation(7),
        kind,
        channel: Channel::Control,
        addresses: Vec::new(),
        heartbeat_ms: 60_000,
        nonce: [3; 16],
        proof: [0; 32],
    }
}

/// The keyed hash that proves knowledge of a secret.
pub fn prove(secret: &[u8], label: &str, parts: &[&[u8]]) -> Proof {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, secret));
    context.update(label.as_bytes());
    for part in parts {
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part);
    }
    let mut proof = [0; 32];
    proof.copy_from_slice(context.sign().as_ref());
    proof
}

/// A certificate with its private key.
pub type Credentials = (CertificateDer<'static>, PrivateKeyDer<'static>);

/// A TLS client over a connection that accepts `name` if `authority` issued its certificate.
///
/// Nothing is exchanged before the first read or write.
///
/// # Panics
/// The certificates are unusable.
pub fn tls(
    tcp: TcpStream,
    authority: &CertificateDer<'static>,
    name: String,
    mine: Option<Credentials>,
) -> TlsRaw {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone()).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .with_root_certificates(roots);
    let config = match mine {
        Some((certificate, key)) => {
            builder.with_client_auth_cert(vec![certificate], key).expect("a certificate with its key")
        }
        None => builder.with_no_client_auth(),
    };
    let name = ServerName::try_from(name).expect("a server name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("a TLS client");
    Raw::over(StreamOwned::new(connection, tcp))
}
