//! The streams that a link can use.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// A connected stream to another rank.
#[derive(Debug)]
pub enum Socket {
    Tcp(Arc<TcpStream>),
    /// A rank of the same host, or one end of a pair whose other end is proxied to the rank.
    Unix(UnixStream),
}

impl Socket {
    /// Duplicates the handle of the connection.
    ///
    /// # Errors
    /// The process has too many files open.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Socket::Tcp(stream) => Socket::Tcp(Arc::clone(stream)),
            Socket::Unix(stream) => Socket::Unix(stream.try_clone()?),
        })
    }

    pub(crate) fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.set_nonblocking(nonblocking),
            Socket::Unix(stream) => stream.set_nonblocking(nonblocking),
        }
    }

    /// Ends reading, writing or both.
    ///
    /// # Errors
    /// It has ended already.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.shutdown(how),
            Socket::Unix(stream) => stream.shutdown(how),
        }
    }

    /// Sends small messages at once.
    ///
    /// # Errors
    /// The system refuses.
    pub fn set_nodelay(&self) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.set_nodelay(true),
            Socket::Unix(_) => Ok(()),
        }
    }

    /// Whether the other end is on this host.
    pub(super) fn is_local(&self) -> io::Result<bool> {
        match self {
            Socket::Tcp(stream) => Ok(stream.peer_addr()?.ip() == stream.local_addr()?.ip()),
            Socket::Unix(_) => Ok(true),
        }
    }
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        Socket::Tcp(Arc::new(stream))
    }
}

/// Another holder of the stream may shut it down.
impl From<Arc<TcpStream>> for Socket {
    fn from(stream: Arc<TcpStream>) -> Self {
        Socket::Tcp(stream)
    }
}

impl From<UnixStream> for Socket {
    fn from(stream: UnixStream) -> Self {
        Socket::Unix(stream)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Read for &Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&**stream).read(into),
            Socket::Unix(stream) => (&*stream).read(into),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&**stream).write(bytes),
            Socket::Unix(stream) => (&*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
