//! Connections of one client to the nodes that have its keys.

use super::{NO_ROOM, PeerAccess, Transit};
use crate::core::ShardMember;
use bytes::{Buf, Bytes, BytesMut};
use phalanx_resp::{Reply, ReplyParser, ReplyProgress, ReplyQueue, Version};
use rustls::pki_types::ServerName;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How long a node may take to accept a connection, and to answer a command that does not wait.
const PATIENCE: Duration = Duration::from_secs(10);

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}

struct Upstream {
    address: String,
    stream: Box<dyn Duplex>,
    parser: ReplyParser,
    input: BytesMut,
    /// Nothing of the last call was sent.
    is_unused: bool,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Upstreams {
    open: BTreeMap<u16, Upstream>,
    members: BTreeMap<u16, ShardMember>,
    access: PeerAccess,
    /// Memory of the command that is passed on, and of its reply.
    transit: Option<Transit>,
}

impl Upstreams {
    /// Takes note of where the nodes are now; connections to nodes that are elsewhere end.
    pub(super) fn prepare(
        &mut self,
        members: BTreeMap<u16, ShardMember>,
        access: PeerAccess,
        transit: Transit,
    ) {
        let is_current = |part: &u16, upstream: &mut Upstream| {
            members.get(part).is_some_and(|member| address(member) == upstream.address)
        };
        self.open.retain(is_current);
        self.members = members;
        self.access = access;
        self.transit = Some(transit);
    }

    /// What the reply takes, until it is sent.
    pub(crate) fn take_transit(&mut self) -> Option<Transit> {
        self.transit.take()
    }

    /// The parts that nodes serve.
    pub(super) fn parts(&self) -> Vec<u16> {
        self.members.keys().copied().collect()
    }

    /// Has the node of a part carry out commands; gives their replies.
    ///
    /// # Errors
    /// The reply for the client, when the node cannot be reached.
    pub(super) async fn call(
        &mut self,
        part: u16,
        commands: Vec<Vec<Bytes>>,
        is_bounded: bool,
    ) -> Result<Vec<Reply>, Reply> {
        let Some(member) = self.members.get(&part) else {
            return Err(Reply::error(format!("CLUSTERDOWN no node serves part {part} of this store")));
        };
        let lost = |error: io::Error| match error.kind() {
            io::ErrorKind::OutOfMemory => Reply::error(NO_ROOM),
            _ => Reply::error(format!(
                "CLUSTERDOWN node {}, which has this key, is not reached: {error}",
                member.node
            )),
        };
        let is_new = !self.open.contains_key(&part);
        let mut upstream = match self.open.remove(&part) {
            Some(upstream) => upstream,
            None => bounded(Upstream::open(member, &self.access)).await.map_err(lost)?,
        };
        let transit = self.transit.as_mut();
        let called = match is_bounded {
            true => bounded(upstream.call(commands.clone(), transit)).await,
            false => upstream.call(commands.clone(), transit).await,
        };
        let replies = match called {
            // The node may have ended and come back since: nothing was carried out if nothing was sent.
            Err(_closed) if !is_new && upstream.is_unused => {
                upstream = bounded(Upstream::open(member, &self.access)).await.map_err(lost)?;
                let again = upstream.call(commands, self.transit.as_mut());
                if is_bounded { bounded(again).await } else { again.await }.map_err(lost)?
            }
            other => other.map_err(lost)?,
        };
        self.open.insert(part, upstream);
        Ok(replies)
    }
}

async fn bounded<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let late = |_late| io::Error::from(io::ErrorKind::TimedOut);
    tokio::time::timeout(PATIENCE, work).await.map_err(late)?
}

fn address(member: &ShardMember) -> String {
    match member.host.contains(':') {
        true => format!("[{}]:{}", member.host, member.port),
        false => format!("{}:{}", member.host, member.port),
    }
}

impl Upstream {
    async fn open(member: &ShardMember, access: &PeerAccess) -> io::Result<Self> {
        let address = address(member);
        let tcp = TcpStream::connect(&address).await?;
        tcp.set_nodelay(true)?;
        let stream: Box<dyn Duplex> = match &access.tls {
            None => Box::new(tcp),
            Some(tls) => {
                let name = ServerName::try_from(member.host.clone()).map_err(io::Error::other)?;
                Box::new(TlsConnector::from(tls.clone()).connect(name, tcp).await?)
            }
        };
        let (parser, input) = (ReplyParser::default(), BytesMut::new());
        let mut upstream = Self { address, stream, parser, input, is_unused: true };
        let mut greeting = Vec::new();
        if let Some(password) = access.password.as_ref().filter(|_| access.tls.is_none()) {
            greeting.push(vec![Bytes::from_static(b"AUTH"), Bytes::from(password.clone())]);
        }
        greeting.push(vec![Bytes::from_static(b"PHALANX.SHARD"), Bytes::from(member.place.to_string())]);
        for reply in upstream.call(greeting, None).await? {
            if let Reply::Error(text) = reply {
                return Err(io::Error::other(String::from_utf8_lossy(&text).into_owned()));
            }
        }
        Ok(upstream)
    }

    /// Sends commands and reads their replies. An error is `OutOfMemory` if `transit` has no room for them.
    async fn call(
        &mut self,
        commands: Vec<Vec<Bytes>>,
        mut transit: Option<&mut Transit>,
    ) -> io::Result<Vec<Reply>> {
        let count = commands.len();
        let mut output = ReplyQueue::default();
        for command in commands {
            output.push(Reply::Array(command.into_iter().map(Reply::Bulk).collect()), Version::Resp2);
        }
        self.is_unused = true;
        while output.remaining() > 0 {
            self.stream.write_buf(&mut output).await?;
            self.is_unused = false;
        }
        self.stream.flush().await?;
        let mut replies = Vec::with_capacity(count);
        while replies.len() < count {
            match self.parser.parse(&mut self.input).map_err(io::Error::other)? {
                ReplyProgress::Reply(Reply::Push(_)) => {}
                ReplyProgress::Reply(reply) => replies.push(reply),
                ReplyProgress::More | ReplyProgress::Large => {
                    let read = self.read().await? as u64;
                    if transit.as_mut().is_some_and(|transit| !transit.take(read)) {
                        return Err(io::ErrorKind::OutOfMemory.into());
                    }
                }
            }
        }
        Ok(replies)
    }

    async fn read(&mut self) -> io::Result<usize> {
        let read = match self.parser.large() {
            Some(bulk) => self.stream.read_buf(&mut bulk.room()).await?,
            None => {
                self.input.reserve(16 << 10);
                self.stream.read_buf(&mut self.input).await?
            }
        };
        if read == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(read) }
    }
}
