//! The handshake of a connection, from both sides.

use super::inner::{Inner, Security};
use super::refusal::ConnError;
use super::stream::{Stream, tune};
use crate::security::{Claim, End, is_issued_to, random};
use bytes::{BufMut, BytesMut};
use phalanx_types::NodeId;
use phalanx_wire::codec;
use phalanx_wire::frame::{self, FrameError, FrameKind, HEADER_LEN};
use phalanx_wire::handshake::{
    Challenge, Channel, Hello, HelloReply, Nonce, PREFACE_LEN, Proof, Purpose, Refusal, Welcome,
    check_preface, preface,
};
use rustls::pki_types::{CertificateDer, ServerName};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// The time limit of a whole handshake.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection on which the acceptor has sent its challenge and the dialer has not identified itself yet.
#[derive(Debug)]
pub(crate) struct Challenged {
    stream: Stream,
    challenge: Nonce,
}

/// A connection whose other end is known.
#[derive(Debug)]
pub(crate) struct Met<T> {
    pub(crate) stream: Stream,
    pub(crate) words: T,
}

/// Dials up to the point where this node must identify itself.
///
/// With certificates it is known by then whether the other end is the expected node.
pub(crate) async fn approach(
    inner: &Inner,
    tcp: TcpStream,
    expected: Option<&NodeId>,
) -> Result<Challenged, ConnError> {
    tune(&tcp)?;
    let mut stream = match &inner.security {
        Security::Token(_) => Stream::Plain(tcp),
        Security::Key(keyed) => {
            let Ok(name) = ServerName::try_from("node.phalanx") else { return Err(ConnError::NoAddress) };
            let tls = keyed.tls.connector.connect(name, tcp).await.map_err(ConnError::from_io)?;
            Stream::Tls(Box::new(tls.into()))
        }
    };
    if let Some(node) = expected.filter(|node| !speaks_for(&stream, node)) {
        return Err(ConnError::RefusedHere(Refusal::IdentityMismatch { claimed: node.clone() }));
    }
    stream.write_all(&preface(Purpose::Node)).await?;
    stream.flush().await?;
    check_preface(read_preface(&mut stream).await?, Purpose::Node)?;
    let Challenge { nonce } = read_message(&mut stream, FrameKind::Handshake).await?;
    Ok(Challenged { stream, challenge: nonce })
}

/// Identifies this node and learns the identity of the other.
pub(crate) async fn introduce(
    inner: &Inner,
    challenged: Challenged,
    channel: Channel,
    expected: Option<&NodeId>,
) -> Result<Met<Welcome>, ConnError> {
    let Challenged { mut stream, challenge } = challenged;
    let nonce = random().ok_or_else(no_random)?;
    let listener = stream.tcp().peer_addr()?;
    let claim = Claim { challenge: &challenge, nonce: &nonce, node: &inner.id, listener };
    let proof = match &inner.security {
        Security::Token(token) => token.prove(End::Dialer, claim),
        Security::Key(_) => [0; 32],
    };
    let hello = Hello {
        domain: inner.domain.clone(),
        node: inner.id.clone(),
        incarnation: inner.incarnation,
        kind: inner.kind,
        channel,
        addresses: inner.addresses.clone(),
        heartbeat_ms: inner.heartbeat_ms(),
        nonce,
        proof,
    };
    write_message(&mut stream, FrameKind::Handshake, &hello).await?;
    let welcome = match read_message(&mut stream, FrameKind::Handshake).await? {
        HelloReply::Welcome(welcome) => welcome,
        HelloReply::Refused(refusal) => return Err(ConnError::RefusedThere(refusal)),
    };
    let good = match &inner.security {
        Security::Token(token) => {
            token.check(End::Acceptor, Claim { node: &welcome.node, ..claim }, &welcome.proof)
        }
        Security::Key(_) => true,
    };
    if !good {
        return Err(ConnError::RefusedHere(Refusal::BadProof));
    }
    let claimed = welcome.node.clone();
    if !speaks_for(&stream, &claimed) || expected.is_some_and(|id| *id != claimed) {
        return Err(ConnError::RefusedHere(Refusal::IdentityMismatch { claimed }));
    }
    Ok(Met { stream, words: welcome })
}

/// A dialer's checked hello, and the proof to answer with.
#[derive(Debug)]
pub(crate) struct Greeting {
    pub(crate) hello: Hello,
    pub(crate) proof: Proof,
}

/// Receives a dialer's identity and checks that it may connect.
pub(crate) async fn receive(inner: &Inner, tcp: TcpStream) -> Result<Met<Greeting>, ConnError> {
    tune(&tcp)?;
    let listener = tcp.local_addr()?;
    let mut stream = match &inner.security {
        Security::Token(_) => Stream::Plain(tcp),
        Security::Key(keyed) => {
            let tls = keyed.tls.acceptor.accept(tcp).await.map_err(ConnError::from_io)?;
            Stream::Tls(Box::new(tls.into()))
        }
    };
    let theirs = read_preface(&mut stream).await?;
    // Answered even if it does not match, so that the other side can report the difference.
    stream.write_all(&preface(Purpose::Node)).await?;
    check_preface(theirs, Purpose::Node)?;
    let challenge: Nonce = random().ok_or_else(no_random)?;
    write_message(&mut stream, FrameKind::Handshake, &Challenge { nonce: challenge }).await?;
    let hello: Hello = read_message(&mut stream, FrameKind::Handshake).await?;
    let claim = Claim { challenge: &challenge, nonce: &hello.nonce, node: &hello.node, listener };
    if let Err(refusal) = check_hello(inner, &stream, claim, &hello) {
        return Err(refuse(stream, refusal).await);
    }
    let proof = match &inner.security {
        Security::Token(token) => token.prove(End::Acceptor, Claim { node: &inner.id, ..claim }),
        Security::Key(_) => [0; 32],
    };
    Ok(Met { stream, words: Greeting { hello, proof } })
}

fn check_hello(inner: &Inner, stream: &Stream, claim: Claim<'_>, hello: &Hello) -> Result<(), Refusal> {
    if hello.domain != inner.domain {
        let (ours, theirs) = (inner.domain.clone(), hello.domain.clone());
        return Err(Refusal::WrongDomain { ours, theirs });
    }
    if let Security::Token(token) = &inner.security
        && !token.check(End::Dialer, claim, &hello.proof)
    {
        return Err(Refusal::BadProof);
    }
    if !speaks_for(stream, &hello.node) {
        return Err(Refusal::IdentityMismatch { claimed: hello.node.clone() });
    }
    Ok(())
}

/// Tells the dialer the reason, if it still listens.
pub(crate) async fn refuse(mut stream: Stream, refusal: Refusal) -> ConnError {
    let reply = HelloReply::Refused(refusal.clone());
    let told = async {
        write_message(&mut stream, FrameKind::Handshake, &reply).await?;
        stream.shutdown().await?;
        // Closing with unread bytes would reset the connection before the answer is read.
        let mut rest = [0; 256];
        while stream.read(&mut rest).await? > 0 {}
        Ok::<(), ConnError>(())
    };
    if let Ok(Err(error)) = tokio::time::timeout(Duration::from_millis(500), told).await {
        tracing::debug!(%error, "a refusal could not be delivered");
    }
    ConnError::RefusedHere(refusal)
}

/// Whether the other end holds the certificate of this node, where certificates are used.
fn speaks_for(stream: &Stream, node: &NodeId) -> bool {
    match stream {
        Stream::Plain(_) => true,
        Stream::Tls(tls) => {
            let certificates: Option<&[CertificateDer<'_>]> = tls.get_ref().1.peer_certificates();
            certificates.and_then(<[_]>::first).is_some_and(|c| is_issued_to(c, node))
        }
    }
}

fn no_random() -> ConnError {
    ConnError::Io(std::io::Error::other("no random numbers"))
}

pub(crate) async fn read_preface<R: AsyncRead + Unpin>(
    stream: &mut R,
) -> Result<[u8; PREFACE_LEN], ConnError> {
    let mut bytes = [0; PREFACE_LEN];
    let mut have = 0;
    while let Some(rest) = bytes.get_mut(have..).filter(|rest| !rest.is_empty()) {
        match stream.read(rest).await.map_err(ConnError::from_io)? {
            0 if have == 0 => return Err(ConnError::Closed),
            0 => return Err(FrameError::Truncated { have }.into()),
            n => have += n,
        }
    }
    Ok(bytes)
}

pub(crate) async fn write_message<W: AsyncWrite + Unpin, T: Serialize>(
    stream: &mut W,
    kind: FrameKind,
    message: &T,
) -> Result<(), ConnError> {
    let mut bytes = BytesMut::with_capacity(512);
    frame::put(kind, message, &mut bytes).map_err(|error| ConnError::Io(std::io::Error::other(error)))?;
    stream.write_all(&bytes).await?;
    stream.flush().await?;
    Ok(())
}

/// Reads one message and no byte more: the bytes after it may belong to another reader of the socket.
pub(crate) async fn read_message<R: AsyncRead + Unpin, T: DeserializeOwned>(
    stream: &mut R,
    expected: FrameKind,
) -> Result<T, ConnError> {
    let mut buffer = BytesMut::with_capacity(1024);
    loop {
        if let Some(frame) = frame::take(&mut buffer)? {
            if frame.kind != expected {
                return Err(FrameError::Unexpected { expected, got: frame.kind }.into());
            }
            return Ok(codec::decode(&frame.body)?);
        }
        let missing = missing(&buffer);
        if stream.read_buf(&mut (&mut buffer).limit(missing)).await.map_err(ConnError::from_io)? == 0 {
            let have = buffer.len();
            return Err(if have == 0 { ConnError::Closed } else { FrameError::Truncated { have }.into() });
        }
    }
}

/// How many bytes an incomplete frame still needs: first of its header, then of its body.
fn missing(buffer: &[u8]) -> usize {
    let whole = match buffer.first_chunk::<HEADER_LEN>() {
        // The length was checked when the frame could not be taken.
        Some([l0, l1, l2, l3, _]) => HEADER_LEN + u32::from_le_bytes([*l0, *l1, *l2, *l3]) as usize,
        None => HEADER_LEN,
    };
    whole - buffer.len()
}
