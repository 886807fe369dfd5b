//! A hand-written peer that sends what no real node would.

use super::*;
use bytes::BytesMut;
use phalanx_types::Incarnation;
use phalanx_wire::codec;
use phalanx_wire::frame::{self, FrameKind};
use phalanx_wire::handshake::{Challenge, Channel, Hello, HelloReply, PREFACE_LEN, Purpose, preface};
use ring::hmac;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) struct Raw<S> {
    pub(crate) stream: S,
    buffer: BytesMut,
    /// Where the other side listens, which a proof of membership names.
    pub(crate) listener: Option<SocketAddr>,
}

impl Raw<TcpStream> {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = within(TcpStream::connect(address)).await.unwrap();
        Self { listener: Some(address), ..Self::over(stream) }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Raw<S> {
    pub(crate) fn over(stream: S) -> Self {
        Self { stream, buffer: BytesMut::new(), listener: None }
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        within(self.stream.write_all(bytes)).await.unwrap();
        within(self.stream.flush()).await.unwrap();
    }

    pub(crate) async fn send<T: Serialize>(&mut self, kind: FrameKind, message: &T) {
        let mut bytes = BytesMut::new();
        frame::put(kind, message, &mut bytes).unwrap();
        self.write(&bytes).await;
    }

    pub(crate) async fn read<T: DeserializeOwned>(&mut self) -> T {
        within(async {
            loop {
                if let Some(frame) = frame::take(&mut self.buffer).unwrap() {
                    return codec::decode(&frame.body).unwrap();
                }
                assert!(self.stream.read_buf(&mut self.buffer).await.unwrap() > 0, "closed");
            }
        })
        .await
    }

    /// Waits until the other side closes.
    pub(crate) async fn closed(&mut self) {
        within(async {
            let mut rest = [0; 4096];
            while self.stream.read(&mut rest).await.unwrap_or(0) > 0 {}
        })
        .await;
    }

    /// Exchanges prefaces and hears the challenge.
    pub(crate) async fn challenged(&mut self) -> Challenge {
        self.write(&preface(Purpose::Node)).await;
        let mut theirs = [0; PREFACE_LEN];
        within(self.stream.read_exact(&mut theirs)).await.unwrap();
        assert_eq!(theirs, preface(Purpose::Node));
        self.read().await
    }

    /// Joins as a member that can read the domain's token.
    pub(crate) async fn join(&mut self, runtime: &Path, hello: Hello) -> HelloReply {
        let challenge = self.challenged().await;
        let token = std::fs::read(runtime.join("lab/token")).unwrap();
        let listener = self.listener.unwrap().to_string();
        let node = hello.node.as_str().as_bytes();
        let parts: [&[u8]; 4] = [&challenge.nonce, &hello.nonce, node, listener.as_bytes()];
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &token));
        context.update(b"phalanx dialer");
        for part in parts {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        let mut hello = hello;
        hello.proof.copy_from_slice(context.sign().as_ref());
        self.send(FrameKind::Handshake, &hello).await;
        self.read().await
    }
}

pub(crate) fn hello(node: &str) -> Hello {
    Hello {
        domain: domain(),
        node: NodeId::new(node).unwrap(),
        incarnation: Incarnation(7),
        kind: NodeKind::Computing,
        channel: Channel::Control,
        addresses: Vec::new(),
        heartbeat_ms: 60_000,
        nonce: [3; 16],
        proof: [0; 32],
    }
}
