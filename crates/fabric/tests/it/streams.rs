use super::bulk::{pair, pattern};
use super::raw::{Raw, hello};
use super::relay::{far_apart, relay};
use super::secure::{YEAR, dial};
use super::*;
use phalanx_fabric::{FrameKind, StreamError, StreamKey, StreamSocket};
use phalanx_wire::handshake::{Channel, Hello, HelloReply, Refusal, Welcome};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::{Instant, SystemTime};
use tempfile::tempdir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

const AT_MOST: Duration = Duration::from_secs(20);
/// The most unaccepted streams that a link keeps.
const MAX_KEPT: u8 = 64;

fn key(n: u8) -> StreamKey {
    StreamKey([n; 16])
}

/// Both ends of a stream, opened by the first node and accepted by the second.
async fn connect(from: &Fabric, to: &Fabric, key: StreamKey) -> (StreamSocket, StreamSocket) {
    let peer = from.peer(to.id()).unwrap();
    let (opened, accepted) = within(async {
        tokio::join!(from.open_stream(&peer, key), to.accept_stream(from.id(), key, AT_MOST))
    })
    .await;
    (opened.unwrap(), accepted.unwrap())
}

/// Sends all of `mine`, ends that direction, and reads until the other has ended.
fn exchange(socket: StreamSocket, mine: bytes::Bytes) -> JoinHandle<Vec<u8>> {
    tokio::task::spawn_blocking(move || {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (&socket).write_all(&mine).unwrap();
                socket.shutdown(Shutdown::Write).unwrap();
            });
            let mut theirs = Vec::new();
            (&socket).read_to_end(&mut theirs).unwrap();
            theirs
        })
    })
}

async fn exchange_both_ways(one: StreamSocket, two: StreamSocket, seed: u64) {
    let (there, back) = (pattern(8 << 20, seed), pattern((8 << 20) + 1, seed + 1));
    let (at_one, at_two) = (exchange(one, there.clone()), exchange(two, back.clone()));
    assert!(within(at_one).await.unwrap() == back);
    assert!(within(at_two).await.unwrap() == there);
}

/// Waits in a thread of its own until a stream has ended.
fn ends(socket: StreamSocket) -> JoinHandle<StreamSocket> {
    tokio::task::spawn_blocking(move || {
        let mut rest = [0; 4096];
        while (&socket).read(&mut rest).unwrap_or(0) > 0 {}
        socket
    })
}

fn is_down<T: std::fmt::Debug>(result: Result<T, StreamError>) -> bool {
    matches!(result.unwrap_err(), StreamError::LinkDown { .. } | StreamError::NotConnected { .. })
}

async fn bytes_pass_both_ways(secret: Option<DomainKey>) {
    let secure = secret.is_some();
    let (_dir, a, b) = pair(secret).await;
    for (i, (from, to)) in [(1, (&a, &b)), (2, (&b, &a))] {
        let (opened, accepted) = connect(from, to, key(i)).await;
        for socket in [&opened, &accepted] {
            assert_eq!(matches!(socket, StreamSocket::Unix(_)), secure);
        }
        exchange_both_ways(opened, accepted, u64::from(i)).await;
    }
    within(a.shutdown()).await;
    within(b.shutdown()).await;
}

#[tokio::test]
async fn bytes_pass_both_ways_without_a_key() {
    bytes_pass_both_ways(None).await;
}

#[tokio::test]
async fn bytes_pass_both_ways_with_a_key() {
    bytes_pass_both_ways(Some(DomainKey::generate(&domain()).unwrap())).await;
}

#[tokio::test]
async fn bytes_pass_both_ways_through_a_relay() {
    let secret = DomainKey::generate(&domain()).unwrap();
    let relay = relay("127.0.0.1:0".parse().unwrap(), &secret).await;
    let (_dirs, a, b) = far_apart(&secret, &relay).await;
    meets(&a, b.id()).await;
    meets(&b, a.id()).await;
    for (i, (from, to)) in [(1, (&a, &b)), (2, (&b, &a))] {
        let (opened, accepted) = connect(from, to, key(i)).await;
        exchange_both_ways(opened, accepted, u64::from(i)).await;
    }
    let (opened, accepted) = connect(&a, &b, key(3)).await;
    let (opened, accepted) = (ends(opened), ends(accepted));
    within(relay.shutdown()).await;
    within(opened).await.unwrap();
    within(accepted).await.unwrap();
    within(a.shutdown()).await;
    within(b.shutdown()).await;
}

#[tokio::test]
async fn a_stream_may_be_opened_before_or_after_it_is_accepted() {
    let (_dir, a, b) = pair(None).await;
    for (i, (from, to)) in [(1, (&a, &b)), (2, (&b, &a))] {
        let peer = from.peer(to.id()).unwrap();
        let opened = within(from.open_stream(&peer, key(i))).await.unwrap();
        (&opened).write_all(b"early").unwrap();
        let accepted = within(to.accept_stream(from.id(), key(i), AT_MOST)).await.unwrap();
        let mut heard = [0; 5];
        (&accepted).read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"early");

        let waits = to.accept_stream(from.id(), key(i), AT_MOST);
        tokio::pin!(waits);
        tokio::select! {
            biased;
            early = &mut waits => panic!("{early:?}"),
            () = async {} => {}
        }
        let (opened, accepted) = within(async { tokio::join!(from.open_stream(&peer, key(i)), waits) }).await;
        (&accepted.unwrap()).write_all(b"late!").unwrap();
        (&opened.unwrap()).read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"late!");
    }
    let waited = Duration::from_millis(30);
    let error = within(a.accept_stream(b.id(), key(9), waited)).await.unwrap_err();
    assert!(matches!(error, StreamError::NotOpened { within, .. } if within == waited), "{error:?}");
    within(a.shutdown()).await;
    within(b.shutdown()).await;
}

#[tokio::test]
async fn both_nodes_may_open_streams_of_one_key_at_the_same_time() {
    let (_dir, a, b) = pair(None).await;
    let (from_a, from_b) =
        within(async { tokio::join!(connect(&a, &b, key(1)), connect(&b, &a, key(1))) }).await;
    for (i, (opened, accepted)) in [(1, from_a), (2, from_b)] {
        (&opened).write_all(&[i]).unwrap();
        let mut heard = [0];
        (&accepted).read_exact(&mut heard).unwrap();
        assert_eq!(heard, [i]);
    }
    within(a.shutdown()).await;
    within(b.shutdown()).await;
}

#[tokio::test]
async fn a_dropped_stream_ends_at_the_other_end() {
    for secret in [None, Some(DomainKey::generate(&domain()).unwrap())] {
        let (_dir, a, b) = pair(secret).await;
        for (i, (from, to)) in [(1, (&a, &b)), (2, (&b, &a))] {
            let (opened, accepted) = connect(from, to, key(i)).await;
            drop(opened);
            within(ends(accepted)).await.unwrap();
            let (opened, accepted) = connect(from, to, key(i)).await;
            drop(accepted);
            within(ends(opened)).await.unwrap();
        }
        within(a.shutdown()).await;
        within(b.shutdown()).await;
    }
}

#[tokio::test]
async fn streams_end_with_their_node_and_there_are_none_without_a_link() {
    for secret in [None, Some(DomainKey::generate(&domain()).unwrap())] {
        let (_dir, a, b) = pair(secret).await;
        let (at_a, at_b) = connect(&a, &b, key(1)).await;
        let (at_a, at_b) = (ends(at_a), ends(at_b));
        let peer = a.peer(b.id()).unwrap();
        let (accepted, ()) =
            within(async { tokio::join!(a.accept_stream(b.id(), key(2), AT_MOST), b.shutdown()) }).await;
        assert!(is_down(accepted));
        let at_a = within(at_a).await.unwrap();
        within(at_b).await.unwrap();
        // Nothing can be sent any more, either.
        within(tokio::task::spawn_blocking(move || while (&at_a).write(&[1]).is_ok() {})).await.unwrap();
        assert!(is_down(within(a.open_stream(&peer, key(3))).await));
        assert!(is_down(within(a.accept_stream(b.id(), key(3), AT_MOST)).await));
        within(a.shutdown()).await;
    }
}

/// A member made by hand, with its control connection.
struct Member<S> {
    control: Raw<S>,
    link: u64,
}

fn stream_hello(link: u64, n: u8) -> Hello {
    Hello { channel: Channel::Stream { link, key: key(n).0 }, ..hello("h-0001") }
}

impl Member<TcpStream> {
    async fn join(node: &Fabric, runtime: &Path) -> Self {
        let mut control = Raw::connect(node.address()).await;
        let HelloReply::Welcome(Welcome { link, .. }) = control.join(runtime, hello("h-0001")).await else {
            panic!("refused")
        };
        Self { control, link }
    }

    async fn open(&self, address: SocketAddr, runtime: &Path, n: u8) -> (Raw<TcpStream>, HelloReply) {
        let mut raw = Raw::connect(address).await;
        let reply = raw.join(runtime, stream_hello(self.link, n)).await;
        (raw, reply)
    }
}

#[tokio::test]
async fn kept_streams_are_limited_and_a_newer_one_replaces_its_key() {
    let dir = tempdir().unwrap();
    let heartbeat = Duration::from_secs(60);
    let a = start(FabricConfig { heartbeat, ..config(dir.path(), "a") }).await;
    let member = Member::join(&a, dir.path()).await;
    let id = NodeId::new("h-0001").unwrap();
    let mut kept = Vec::new();
    for n in 0..MAX_KEPT {
        let (raw, reply) = member.open(a.address(), dir.path(), n).await;
        assert!(matches!(reply, HelloReply::Welcome(_)), "{n}: {reply:?}");
        kept.push(raw);
    }
    let (_, reply) = member.open(a.address(), dir.path(), MAX_KEPT).await;
    assert_eq!(reply, HelloReply::Refused(Refusal::Busy));

    let (mut newer, reply) = member.open(a.address(), dir.path(), 0).await;
    assert!(matches!(reply, HelloReply::Welcome(_)));
    kept[0].closed().await;
    newer.write(b"newer").await;
    let socket = within(a.accept_stream(&id, key(0), AT_MOST)).await.unwrap();
    let mut heard = [0; 5];
    (&socket).read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"newer");

    // The accepted one has left its place to another.
    let (last, reply) = member.open(a.address(), dir.path(), MAX_KEPT).await;
    assert!(matches!(reply, HelloReply::Welcome(_)));
    kept.push(last);
    drop(member.control);
    for raw in &mut kept {
        raw.closed().await;
    }
    within(ends(socket)).await.unwrap();
    within(a.shutdown()).await;
}

#[tokio::test]
async fn a_stream_of_another_link_is_refused() {
    let dir = tempdir().unwrap();
    let a = start(config(dir.path(), "a")).await;
    let mut member = Member::join(&a, dir.path()).await;
    member.link ^= 1;
    let (_, reply) = member.open(a.address(), dir.path(), 1).await;
    assert_eq!(reply, HelloReply::Refused(Refusal::UnknownLink { link: member.link }));
    within(a.shutdown()).await;
}

/// Accepts the stream of a member that says nothing more and checks when it ends.
async fn ends_within_the_heartbeat<S: AsyncRead + AsyncWrite + Unpin>(
    a: &Fabric,
    heartbeat: Duration,
    mut far: Raw<S>,
) {
    let id = NodeId::new("h-0001").unwrap();
    let socket = within(a.accept_stream(&id, key(1), AT_MOST)).await.unwrap();
    (&socket).write_all(b"x").unwrap();
    within(far.stream.read_exact(&mut [0])).await.unwrap();
    let (waits, since) = (a.accept_stream(&id, key(2), AT_MOST), Instant::now());
    let (socket, waited) = within(async { tokio::join!(ends(socket), waits) }).await;
    let took = since.elapsed();
    assert!(took < heartbeat * 3, "{took:?}");
    assert!(is_down(waited));
    assert!(is_down(within(a.accept_stream(&id, key(1), AT_MOST)).await));
    drop(socket);
    far.closed().await;
}

#[tokio::test]
async fn the_stream_of_a_frozen_peer_ends_within_the_heartbeat() {
    let dir = tempdir().unwrap();
    let heartbeat = Duration::from_secs(1);
    let a = start(FabricConfig { heartbeat, ..config(dir.path(), "a") }).await;
    let member = Member::join(&a, dir.path()).await;
    let (far, reply) = member.open(a.address(), dir.path(), 1).await;
    assert!(matches!(reply, HelloReply::Welcome(_)));
    ends_within_the_heartbeat(&a, heartbeat, far).await;
    drop(member.control);
    within(a.shutdown()).await;
}

#[tokio::test]
async fn the_encrypted_stream_of_a_frozen_peer_ends_within_the_heartbeat() {
    let dir = tempdir().unwrap();
    let heartbeat = Duration::from_secs(1);
    let secret = DomainKey::generate(&domain()).unwrap();
    let a = start(FabricConfig { heartbeat, ..keyed(dir.path(), "a", &secret) }).await;
    let now = SystemTime::now();
    let greet = async |hello: Hello| {
        let mine = secret.issue(&hello.node, now - YEAR, now + YEAR).unwrap();
        let mut raw = Raw::over(within(dial(a.address(), a.id(), &secret, Some(mine))).await.unwrap());
        raw.challenged().await;
        raw.send(FrameKind::Handshake, &hello).await;
        let HelloReply::Welcome(welcome) = raw.read().await else { panic!("refused") };
        (raw, welcome)
    };
    let (control, welcome) = greet(hello("h-0001")).await;
    let member = Member { control, link: welcome.link };
    let (far, _) = greet(stream_hello(member.link, 1)).await;
    ends_within_the_heartbeat(&a, heartbeat, far).await;
    drop(member.control);
    within(a.shutdown()).await;
}
