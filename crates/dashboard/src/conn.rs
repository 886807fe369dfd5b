//! Connections of browsers: plain or TLS, counted, and closed when the other side takes nothing or says nothing.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{Instant, Sleep};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Bounds on what clients can make a server hold.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub connections: usize,
    /// How long a client may take nothing of what is sent to it.
    pub stalled: Duration,
    /// How long a connection may do nothing.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 512, stalled: Duration::from_secs(20), idle: Duration::from_secs(75) }
    }
}

/// Clients that were disconnected, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Disconnected {
    /// They took nothing of what was sent.
    pub stalled: u64,
    /// They did nothing.
    pub idle: u64,
}

/// How long a client may take until its connection is encrypted.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Gives accepted connections to the server.
pub(crate) struct Clients {
    accepted: mpsc::Receiver<(Connection, SocketAddr)>,
    address: SocketAddr,
}

impl Clients {
    /// Accepts clients in a task of its own, so that a slow handshake keeps no other client waiting.
    pub(crate) fn new(
        listener: TcpListener,
        tls: Option<TlsAcceptor>,
        limits: Limits,
    ) -> io::Result<(Self, watch::Receiver<Disconnected>)> {
        let address = listener.local_addr()?;
        let (tell, accepted) = mpsc::channel(16);
        let (disconnected, told) = watch::channel(Disconnected::default());
        let rules = Rules { limits, disconnected: Arc::new(disconnected) };
        tokio::spawn(accept(listener, tls, rules, tell));
        Ok((Self { accepted, address }, told))
    }
}

impl axum::serve::Listener for Clients {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        match self.accepted.recv().await {
            Some(client) => client,
            // The task that accepts ends only with the runtime.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

async fn accept(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    rules: Rules,
    tell: mpsc::Sender<(Connection, SocketAddr)>,
) {
    let room = Arc::new(Semaphore::new(rules.limits.connections));
    loop {
        let (socket, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Too many open files, or a client that left: the next one may fare better.
                tracing::debug!(%error, "could not accept a client");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
            tracing::debug!(%address, "a client is turned away: there are too many");
            continue;
        };
        let (tell, tls, rules) = (tell.clone(), tls.clone(), rules.clone());
        tokio::spawn(async move {
            let _nodelay = socket.set_nodelay(true);
            let io = match tls {
                None => Io::Plain(socket),
                Some(tls) => match tokio::time::timeout(HANDSHAKE, tls.accept(socket)).await {
                    Ok(Ok(stream)) => Io::Tls(Box::new(stream)),
                    Ok(Err(_)) | Err(_) => return,
                },
            };
            let _served = tell.send((Connection::new(io, rules, permit), address)).await;
        });
    }
}

enum Io {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// What all connections are held to.
#[derive(Clone)]
struct Rules {
    limits: Limits,
    disconnected: Arc<watch::Sender<Disconnected>>,
}

/// A client that is served.
pub(crate) struct Connection {
    io: Io,
    rules: Rules,
    /// Ends when the client took nothing for too long; set while something waits to be sent.
    stalled: Option<Pin<Box<Sleep>>>,
    idle: Pin<Box<Sleep>>,
    _permit: OwnedSemaphorePermit,
}

impl Connection {
    fn new(io: Io, rules: Rules, permit: OwnedSemaphorePermit) -> Self {
        let idle = Box::pin(tokio::time::sleep(rules.limits.idle));
        Self { io, rules, stalled: None, idle, _permit: permit }
    }

    fn progressed(&mut self) {
        self.idle.as_mut().reset(Instant::now() + self.rules.limits.idle);
    }

    /// Closes the connection when a write has waited for too long.
    fn sent<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.stalled = None;
            self.progressed();
            return result;
        }
        let limit = self.rules.limits.stalled;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        match stalled.as_mut().poll(cx) {
            Poll::Ready(()) => {
                self.rules.disconnected.send_modify(|count| count.stalled += 1);
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let result = match &mut self.io {
            Io::Plain(io) => Pin::new(io).poll_read(cx, buf),
            Io::Tls(io) => Pin::new(io).poll_read(cx, buf),
        };
        if result.is_ready() {
            self.progressed();
            return result;
        }
        match self.idle.as_mut().poll(cx) {
            Poll::Ready(()) => {
                self.rules.disconnected.send_modify(|count| count.idle += 1);
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = match &mut self.io {
            Io::Plain(io) => Pin::new(io).poll_write(cx, buf),
            Io::Tls(io) => Pin::new(io).poll_write(cx, buf),
        };
        self.sent(cx, result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = match &mut self.io {
            Io::Plain(io) => Pin::new(io).poll_flush(cx),
            Io::Tls(io) => Pin::new(io).poll_flush(cx),
        };
        match result {
            Poll::Ready(result) => {
                self.stalled = None;
                Poll::Ready(result)
            }
            Poll::Pending => self.sent(cx, Poll::Pending),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = match &mut self.io {
            Io::Plain(io) => Pin::new(io).poll_shutdown(cx),
            Io::Tls(io) => Pin::new(io).poll_shutdown(cx),
        };
        self.sent(cx, result)
    }
}
