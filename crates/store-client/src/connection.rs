//! One socket to a server, without a thread: the caller writes, and reads until its replies are there.

use crate::StoreError;
use crate::address::StoreAddress;
use crate::tls::{self, TlsSocket};
use bytes::{Buf, Bytes, BytesMut};
use phalanx_resp::{Reply, ReplyParser, ReplyProgress, ReplyQueue, Version};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustls::ClientConfig;
use std::io::{self, IoSlice, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(10);
const READ: usize = 64 << 10;

/// The arguments of a command.
pub(crate) type Command = Vec<Bytes>;

/// What a server wants to see.
#[derive(Clone, Default)]
pub(crate) struct Access {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) tls: Option<Arc<ClientConfig>>,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the password.
        f.debug_struct("Access").field("is_encrypted", &self.tls.is_some()).finish_non_exhaustive()
    }
}

enum Socket {
    Tcp(TcpStream),
    Tls(Box<TlsSocket>),
    Unix(UnixStream),
}

impl Socket {
    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.set_read_timeout(timeout),
            Socket::Tls(stream) => stream.sock.set_read_timeout(timeout),
            Socket::Unix(stream) => stream.set_read_timeout(timeout),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.read(buffer),
            Socket::Tls(stream) => stream.read(buffer),
            Socket::Unix(stream) => stream.read(buffer),
        }
    }

    /// Reads a number of bytes straight into the memory of a vector.
    fn read_onto(&mut self, buffer: &mut Vec<u8>, len: u64) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.take(len).read_to_end(buffer),
            Socket::Tls(stream) => stream.take(len).read_to_end(buffer),
            Socket::Unix(stream) => stream.take(len).read_to_end(buffer),
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.write_vectored(slices),
            Socket::Tls(stream) => stream.write_vectored(slices),
            Socket::Unix(stream) => stream.write_vectored(slices),
        }
    }

    /// Sends what is held back to be encrypted together.
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Socket::Tls(stream) => stream.flush(),
            Socket::Tcp(_) | Socket::Unix(_) => Ok(()),
        }
    }
}

/// See the module.
pub(crate) struct Connection {
    socket: Socket,
    address: String,
    parser: ReplyParser,
    input: BytesMut,
    scratch: Vec<u8>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Connection {
    /// Connects, encrypts, and gives the password if there is one.
    ///
    /// # Errors
    /// No server answers there, one side does not accept the other, or the server refuses the password.
    pub(crate) fn open(address: &StoreAddress, access: &Access) -> Result<Self, StoreError> {
        let name = address.to_string();
        let failed = |source| StoreError::Connect { address: name.clone(), source };
        let socket = match address {
            StoreAddress::Tcp(host) => {
                let tcp = connect(host).map_err(failed)?;
                match &access.tls {
                    None => Socket::Tcp(tcp),
                    Some(tls) => {
                        let refused = |source| StoreError::Tls { address: name.clone(), source };
                        tcp.set_read_timeout(Some(CONNECT)).map_err(failed)?;
                        Socket::Tls(Box::new(tls::encrypt(tls, host, tcp).map_err(refused)?))
                    }
                }
            }
            StoreAddress::Unix(path) => Socket::Unix(UnixStream::connect(path).map_err(failed)?),
            StoreAddress::Cluster(_) => {
                return Err(StoreError::Unexpected { what: "a cluster has many addresses" });
            }
        };
        let (parser, input, scratch) = (ReplyParser::default(), BytesMut::new(), vec![0; READ]);
        let mut connection = Self { socket, address: name, parser, input, scratch };
        if let Some(password) = &access.password {
            let words = std::iter::once("AUTH").chain(access.user.as_deref()).chain([password.as_str()]);
            let login = words.map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
            checked(connection.call(vec![login], None)?.pop())?;
        }
        Ok(connection)
    }

    /// Sends commands together; gives their replies. A reply must come within `patience`, if that is given.
    ///
    /// # Errors
    /// The connection is lost; the replies that came until then are lost with it.
    pub(crate) fn call(
        &mut self,
        commands: Vec<Command>,
        patience: Option<Duration>,
    ) -> Result<Vec<Reply>, StoreError> {
        let count = commands.len();
        let mut output = ReplyQueue::default();
        for command in commands {
            let words = command.into_iter().map(Reply::Bulk).collect();
            output.push(Reply::Array(words), Version::Resp2);
        }
        let done = self.write(&mut output).and_then(|()| self.socket.set_read_timeout(patience));
        done.map_err(|source| self.lost(source))?;
        (0..count).map(|_| self.reply()).collect()
    }

    fn write(&mut self, output: &mut ReplyQueue) -> io::Result<()> {
        while output.remaining() > 0 {
            let mut slices = [IoSlice::new(&[]); 32];
            let filled = output.slices(&mut slices, usize::MAX);
            let written = match self.socket.write_vectored(slices.get(..filled).unwrap_or_default()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            output.advance(written);
        }
        self.socket.flush()
    }

    fn reply(&mut self) -> Result<Reply, StoreError> {
        loop {
            let progress = self.parser.parse(&mut self.input);
            let progress =
                progress.map_err(|source| StoreError::Protocol { address: self.address.clone(), source })?;
            match progress {
                ReplyProgress::Reply(Reply::Push(_)) => {}
                ReplyProgress::Reply(reply) => return Ok(reply),
                ReplyProgress::More | ReplyProgress::Large => {
                    self.read().map_err(|source| self.lost(source))?
                }
            }
        }
    }

    fn read(&mut self) -> io::Result<()> {
        if let Some(bulk) = self.parser.large() {
            let mut room = bulk.room();
            let wanted = room.limit();
            let read = self.socket.read_onto(room.get_mut(), wanted as u64)?;
            return if read == wanted { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
        loop {
            let read = self.socket.read(&mut self.scratch);
            match read {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    self.input.extend_from_slice(self.scratch.get(..read).unwrap_or_default());
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether the connection stands and nothing has arrived that was not asked for.
    pub(crate) fn is_quiet(&self) -> bool {
        let socket = match &self.socket {
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Tls(stream) => stream.sock.as_fd(),
            Socket::Unix(stream) => stream.as_fd(),
        };
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let waits = rustix::net::recv(socket, &mut [0u8; 1][..], flags);
        self.input.is_empty() && matches!(waits, Err(Errno::AGAIN))
    }

    fn lost(&self, source: io::Error) -> StoreError {
        StoreError::Lost { address: self.address.clone(), source }
    }
}

fn connect(host: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in host.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The reply, unless it is the server's refusal.
///
/// # Errors
/// The server's error.
pub(crate) fn checked(reply: Option<Reply>) -> Result<Reply, StoreError> {
    match reply {
        None => Err(StoreError::Unexpected { what: "no reply" }),
        Some(Reply::Error(text)) => {
            let text = String::from_utf8_lossy(&text).into_owned();
            Err(if text.starts_with("OOM") {
                StoreError::Full { text }
            } else {
                StoreError::Refused { text }
            })
        }
        Some(reply) => Ok(reply),
    }
}
