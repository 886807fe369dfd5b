//! The user's end of a stream.

use super::super::inner::Inner;
use super::super::link::Link;
use super::super::stream::Stream;
use crate::error::StreamError;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};

/// The buffer of each direction of an encrypted stream.
const BUFFER: usize = 256 << 10;

/// A connected stream, in blocking mode.
///
/// Dropping it closes it. When the link to the peer goes down it ends as if the peer had closed it, and wakes every
/// blocked call.
#[derive(Debug)]
pub enum StreamSocket {
    /// The connection itself, without a domain key.
    ///
    /// The fabric does not own it, but can end it while it lives. A duplicate of its descriptor that outlives it is out
    /// of the fabric's reach.
    Tcp(Arc<TcpStream>),
    /// One end of a socket pair, with a domain key; the node's runtime encrypts and forwards the bytes of the other
    /// end.
    Unix(UnixStream),
}

impl StreamSocket {
    /// Ends reading, writing or both.
    ///
    /// # Errors
    /// The stream has ended already.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            StreamSocket::Tcp(tcp) => tcp.shutdown(how),
            StreamSocket::Unix(unix) => unix.shutdown(how),
        }
    }

    /// Whether reading and writing block.
    ///
    /// # Errors
    /// The system refuses.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        match self {
            StreamSocket::Tcp(tcp) => tcp.set_nonblocking(nonblocking),
            StreamSocket::Unix(unix) => unix.set_nonblocking(nonblocking),
        }
    }
}

impl AsFd for StreamSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            StreamSocket::Tcp(tcp) => tcp.as_fd(),
            StreamSocket::Unix(unix) => unix.as_fd(),
        }
    }
}

impl Read for &StreamSocket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            StreamSocket::Tcp(tcp) => (&**tcp).read(into),
            StreamSocket::Unix(unix) => (&*unix).read(into),
        }
    }
}

impl Write for &StreamSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            StreamSocket::Tcp(tcp) => (&**tcp).write(bytes),
            StreamSocket::Unix(unix) => (&*unix).write(bytes),
        }
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            StreamSocket::Tcp(tcp) => (&**tcp).write_vectored(parts),
            StreamSocket::Unix(unix) => (&*unix).write_vectored(parts),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Makes a socket for the user of a connection, which from now on ends with the link.
pub(super) fn hand_over(
    inner: &Arc<Inner>,
    link: &Arc<Link>,
    stream: Stream,
) -> Result<StreamSocket, StreamError> {
    match stream {
        Stream::Plain(tcp) => {
            let tcp = Arc::new(tcp.into_std().map_err(StreamError::System)?);
            tcp.set_nonblocking(false).map_err(StreamError::System)?;
            if !link.streams.end_with_link(&tcp) {
                return Err(StreamError::LinkDown { node: link.node.clone() });
            }
            Ok(StreamSocket::Tcp(tcp))
        }
        Stream::Tls(tls) => {
            let (near, far) = tokio::net::UnixStream::pair().map_err(StreamError::System)?;
            let near = near.into_std().map_err(StreamError::System)?;
            near.set_nonblocking(false).map_err(StreamError::System)?;
            inner.spawn(Box::pin(send_on(link.clone(), far, tls)));
            Ok(StreamSocket::Unix(near))
        }
    }
}

/// Copies both ways until both directions have ended, either breaks, or the link is down.
async fn send_on<N, F>(link: Arc<Link>, mut near: N, mut far: F)
where
    N: AsyncRead + AsyncWrite + Unpin,
    F: AsyncRead + AsyncWrite + Unpin,
{
    tokio::select! {
        biased;
        () = link.streams.down() => {}
        copied = tokio::io::copy_bidirectional_with_sizes(&mut near, &mut far, BUFFER, BUFFER) => {
            if let Err(error) = copied {
                tracing::debug!(?link, %error, "a stream broke");
            }
        }
    }
}
