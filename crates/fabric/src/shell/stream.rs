//! A connection, plain or encrypted, whole or split into halves.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio_rustls::TlsStream;

type Tls = TlsStream<TcpStream>;

/// After this much silence on a connection the kernel probes the other end.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;
/// How long sent bytes may stay unacknowledged. It also ends a connection to a reader that stalls for this long; so it
/// is longer than the probes would take.
#[cfg(target_os = "linux")]
const UNANSWERED: Duration = Duration::from_secs(120);

/// Sets the options of every connection: no delays, and keepalive to detect a dead host.
pub(crate) fn tune(tcp: &TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    if let Err(error) = keep_alive(tcp) {
        tracing::debug!(%error, "the system does not watch over a connection");
    }
    Ok(())
}

fn keep_alive(tcp: &TcpStream) -> rustix::io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(tcp, true)?;
    sockopt::set_tcp_keepidle(tcp, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(tcp, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(tcp, KEEPALIVE_PROBES)?;
    #[cfg(target_os = "linux")]
    sockopt::set_tcp_user_timeout(tcp, u32::try_from(UNANSWERED.as_millis()).unwrap_or(u32::MAX))?;
    Ok(())
}

#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<Tls>),
}

#[derive(Debug)]
pub(crate) enum ReadHalf {
    Plain(OwnedReadHalf),
    Tls(tokio::io::ReadHalf<Tls>),
}

#[derive(Debug)]
pub(crate) enum WriteHalf {
    Plain(OwnedWriteHalf),
    Tls(tokio::io::WriteHalf<Tls>),
}

impl Stream {
    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            Stream::Plain(tcp) => tcp,
            Stream::Tls(tls) => tls.get_ref().0,
        }
    }

    pub(crate) fn split(self) -> (ReadHalf, WriteHalf) {
        match self {
            Stream::Plain(tcp) => {
                let (read, write) = tcp.into_split();
                (ReadHalf::Plain(read), WriteHalf::Plain(write))
            }
            Stream::Tls(tls) => {
                let (read, write) = tokio::io::split(*tls);
                (ReadHalf::Tls(read), WriteHalf::Tls(write))
            }
        }
    }
}

macro_rules! delegate_read {
    ($name:ident) => {
        impl AsyncRead for $name {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                match self.get_mut() {
                    $name::Plain(inner) => Pin::new(inner).poll_read(cx, buf),
                    $name::Tls(inner) => Pin::new(inner).poll_read(cx, buf),
                }
            }
        }
    };
}

macro_rules! delegate_write {
    ($name:ident) => {
        impl AsyncWrite for $name {
            fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, b: &[u8]) -> Poll<io::Result<usize>> {
                match self.get_mut() {
                    $name::Plain(inner) => Pin::new(inner).poll_write(cx, b),
                    $name::Tls(inner) => Pin::new(inner).poll_write(cx, b),
                }
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() {
                    $name::Plain(inner) => Pin::new(inner).poll_flush(cx),
                    $name::Tls(inner) => Pin::new(inner).poll_flush(cx),
                }
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() {
                    $name::Plain(inner) => Pin::new(inner).poll_shutdown(cx),
                    $name::Tls(inner) => Pin::new(inner).poll_shutdown(cx),
                }
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                match self.get_mut() {
                    $name::Plain(inner) => Pin::new(inner).poll_write_vectored(cx, bufs),
                    $name::Tls(inner) => Pin::new(inner).poll_write_vectored(cx, bufs),
                }
            }

            fn is_write_vectored(&self) -> bool {
                match self {
                    $name::Plain(inner) => inner.is_write_vectored(),
                    $name::Tls(inner) => inner.is_write_vectored(),
                }
            }
        }
    };
}

delegate_read!(Stream);
delegate_read!(ReadHalf);
delegate_write!(Stream);
delegate_write!(WriteHalf);
