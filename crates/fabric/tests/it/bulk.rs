use super::raw::{Raw, hello};
use super::*;
use bytes::Bytes;
use phalanx_fabric::{BlobId, FetchError, FrameKind};
use phalanx_types::{Parcel, Tensor};
use phalanx_wire::bulk::{BlobPiece, BulkMessage, SharedPlace};
use phalanx_wire::fabric::FabricMessage;
use phalanx_wire::frame;
use phalanx_wire::handshake::{Channel, HelloReply, Welcome};
use tempfile::tempdir;
use tokio::net::TcpStream;

pub(crate) fn pattern(len: usize, seed: u64) -> Bytes {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&next());
    }
    bytes.truncate(len);
    bytes.into()
}

pub(crate) async fn pair(key: Option<DomainKey>) -> (tempfile::TempDir, Fabric, Fabric) {
    let dir = tempdir().unwrap();
    let a = start(FabricConfig { key: key.clone(), ..config(dir.path(), "a") }).await;
    let b = start(FabricConfig { key, ..config(dir.path(), "b") }).await;
    meets(&a, b.id()).await;
    meets(&b, a.id()).await;
    (dir, a, b)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_blob_arrives_whole_in_both_directions() {
    let (_dir, a, b) = pair(None).await;
    let body = pattern(200 << 20, 5);
    for (from, to) in [(&a, &b), (&b, &a)] {
        let blob = from.hold(Parcel::from_bytes(body.clone()));
        let peer = to.peer(from.id()).unwrap();
        let got = within(to.fetch(&peer, blob, body.len() as u64)).await.unwrap();
        assert!(got == body);
        from.release(blob);
        let missing = within(to.fetch(&peer, blob, 1)).await;
        assert_eq!(missing, Err(FetchError::Missing { node: from.id().clone(), blob }));
    }
    within(a.shutdown()).await;
    within(b.shutdown()).await;
}

#[tokio::test]
async fn several_transfers_share_a_connection() {
    let key = DomainKey::generate(&domain()).unwrap();
    let (_dir, a, b) = pair(Some(key)).await;
    let peer = b.peer(a.id()).unwrap();
    let mut fetches = Vec::new();
    for i in 0..6u64 {
        let values: Vec<f32> = (0..1000).map(|v| v as f32).collect();
        let parcel = Parcel::from_bytes(pattern(1 << (2 * i + 8), i))
            .with_tensor("x", Tensor::from_f32(vec![1000], &values).unwrap());
        let (body, blob) = (parcel.body(), a.hold(parcel));
        let (b, peer) = (b.clone(), peer.clone());
        fetches.push(tokio::spawn(async move {
            let got = b.fetch(&peer, blob, body.len() as u64).await.unwrap();
            assert!(got == body);
        }));
    }
    let empty = a.hold(Parcel::default());
    assert_eq!(within(b.fetch(&peer, empty, 0)).await.unwrap(), Bytes::new());
    for fetch in fetches {
        within(fetch).await.unwrap();
    }
    within(a.shutdown()).await;
    within(b.shutdown()).await;
}

#[tokio::test]
async fn a_wrong_length_is_a_typed_error_and_a_lost_link_ends_the_fetch() {
    let (_dir, a, b) = pair(None).await;
    let peer = b.peer(a.id()).unwrap();
    let blob = a.hold(Parcel::from_bytes("twelve bytes"));
    let node = a.id().clone();
    let lie = within(b.fetch(&peer, blob, 1 << 50)).await;
    assert_eq!(lie, Err(FetchError::Length { node: node.clone(), blob, expected: 1 << 50, got: 12 }));
    assert_eq!(within(b.fetch(&peer, blob, 12)).await.unwrap(), "twelve bytes");
    within(a.shutdown()).await;
    let mut watch = b.watch();
    sees_gone(&mut watch, &node).await;
    let down = within(b.fetch(&peer, BlobId(1), 12)).await;
    assert_eq!(down, Err(FetchError::LinkDown { node, blob: BlobId(1) }));
    within(b.shutdown()).await;
}

/// Waits for the link to the member made by hand.
async fn meets_raw(a: &Fabric) -> Peer {
    let id = NodeId::new("h-0001").unwrap();
    let mut watch = a.watch();
    see(&mut watch, |e| e.status().id == id).await;
    a.peer(&id).unwrap()
}

/// A member made by hand that holds one blob.
struct Holder {
    runtime: std::path::PathBuf,
    node: Fabric,
    control: Raw<TcpStream>,
    link: u64,
}

impl Holder {
    async fn join(node: &Fabric, runtime: &Path) -> Self {
        let mut control = Raw::connect(node.address()).await;
        let HelloReply::Welcome(Welcome { link, .. }) = control.join(runtime, hello("h-0001")).await else {
            panic!("refused")
        };
        Self { runtime: runtime.to_owned(), node: node.clone(), control, link }
    }

    /// Waits to be asked for a bulk connection, opens it and reads what is wanted.
    async fn asked(&mut self) -> (Raw<TcpStream>, u64) {
        while self.control.read::<FabricMessage>().await != FabricMessage::OpenBulk {}
        self.open().await
    }

    async fn connect(&self) -> Raw<TcpStream> {
        let mut bulk = Raw::connect(self.node.address()).await;
        let mut words = hello("h-0001");
        words.channel = Channel::Bulk { link: self.link };
        assert!(matches!(bulk.join(&self.runtime, words).await, HelloReply::Welcome(_)));
        bulk
    }

    /// Opens a bulk connection and reads what is wanted.
    async fn open(&self) -> (Raw<TcpStream>, u64) {
        let mut bulk = self.connect().await;
        let BulkMessage::Get { transfer, blob: BlobId(77) } = bulk.read().await else { panic!("not a get") };
        (bulk, transfer)
    }
}

#[tokio::test]
async fn a_broken_bulk_connection_is_opened_again_and_the_transfer_starts_over() {
    let dir = tempdir().unwrap();
    let a = start(config(dir.path(), "a")).await;
    let mut holder = Holder::join(&a, dir.path()).await;
    let body = pattern(1000, 3);
    let serve = async {
        for attempt in 0..4 {
            let (mut bulk, transfer) = holder.asked().await;
            bulk.send(FrameKind::Bulk, &BulkMessage::Begin { transfer, len: 1000 }).await;
            let half = if attempt == 3 { 1000 } else { 500 };
            bulk.write(&frame::chunk_header(transfer, half)).await;
            bulk.write(&body[..half]).await;
            if attempt == 3 {
                bulk.closed().await;
            }
        }
    };
    let fetch = async {
        let peer = meets_raw(&a).await;
        assert_eq!(within(a.fetch(&peer, BlobId(77), 1000)).await.unwrap(), body);
        within(a.shutdown()).await;
    };
    within(async { tokio::join!(serve, fetch) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replaced_bulk_connection_takes_no_orders_from_the_new_one() {
    let dir = tempdir().unwrap();
    let a = start(config(dir.path(), "a")).await;
    let mut holder = Holder::join(&a, dir.path()).await;
    let peer = meets_raw(&a).await;
    let fetch = || {
        let (a, peer) = (a.clone(), peer.clone());
        tokio::spawn(async move { a.fetch(&peer, BlobId(77), 10).await })
    };
    let mut fetches = vec![fetch()];
    let (mut old, transfer) = holder.asked().await;
    for i in 1..20 {
        let (mut bulk, again) = holder.open().await;
        assert_eq!(again, transfer);
        for _ in 1..i {
            assert!(matches!(bulk.read().await, BulkMessage::Get { .. }));
        }
        fetches.push(fetch());
        assert!(matches!(bulk.read().await, BulkMessage::Get { .. }));
        old.closed().await;
        old = bulk;
    }
    within(a.shutdown()).await;
    for fetch in fetches {
        assert!(matches!(within(fetch).await.unwrap(), Err(FetchError::LinkDown { .. })));
    }
}

#[tokio::test]
async fn a_transfer_that_breaks_again_and_again_or_overflows_fails() {
    let dir = tempdir().unwrap();
    let a = start(config(dir.path(), "a")).await;
    let mut holder = Holder::join(&a, dir.path()).await;
    let node = NodeId::new("h-0001").unwrap();
    let peer = meets_raw(&a).await;
    let serve = async {
        for _ in 0..4 {
            // More bytes than were announced: the connection is closed.
            let (mut bulk, transfer) = holder.asked().await;
            bulk.send(FrameKind::Bulk, &BulkMessage::Begin { transfer, len: 10 }).await;
            bulk.write(&frame::chunk_header(transfer, 11)).await;
            bulk.closed().await;
        }
    };
    let (result, ()) = within(async { tokio::join!(a.fetch(&peer, BlobId(77), 10), serve) }).await;
    assert_eq!(result, Err(FetchError::BulkLost { node, blob: BlobId(77), attempts: 4 }));
    assert_eq!(refusals(&a, "too-long"), 4);
    within(a.shutdown()).await;
}

#[tokio::test]
async fn a_fetch_under_way_ends_with_its_control_link() {
    let dir = tempdir().unwrap();
    let a = start(config(dir.path(), "a")).await;
    let mut holder = Holder::join(&a, dir.path()).await;
    let peer = meets_raw(&a).await;
    let lose = async {
        let (mut bulk, transfer) = holder.asked().await;
        bulk.send(FrameKind::Bulk, &BulkMessage::Begin { transfer, len: 10 }).await;
        drop(holder);
        bulk.closed().await;
    };
    let (result, ()) = within(async { tokio::join!(a.fetch(&peer, BlobId(77), 10), lose) }).await;
    assert_eq!(result, Err(FetchError::LinkDown { node: peer.id().clone(), blob: BlobId(77) }));
    within(a.shutdown()).await;
}

/// A parcel whose tensor lies in shared memory.
fn shared_parcel(len: usize, seed: u64) -> Parcel {
    let data = phalanx_shared::copy_together(&[&pattern(len, seed)]).unwrap().remove(0);
    let tensor = Tensor::new(phalanx_types::DType::U8, vec![len as u64], data).unwrap();
    Parcel::from_bytes("head").with_tensor("x", tensor)
}

fn token(bytes: &[u8]) -> phalanx_shared::Token {
    phalanx_shared::locate(bytes).unwrap().segment.token()
}

#[tokio::test]
async fn a_blob_in_shared_memory_is_lent_and_its_memory_used_again_when_it_is_returned() {
    let (_dir, a, b) = pair(None).await;
    let peer = b.peer(a.id()).unwrap();
    let parcel = shared_parcel(7 << 20, 1);
    let (len, segment) = (parcel.len(), token(parcel.tensors[0].1.data()));
    let (head, blob) = (parcel.head(), a.hold(parcel.clone()));
    let pieces = within(b.fetch_pieces(&peer, blob, len)).await.unwrap();
    let got = Parcel::from_pieces(head, pieces).unwrap();
    assert_eq!(got, parcel);
    assert_eq!(token(got.tensors[0].1.data()), segment, "it was sent instead of lent");
    let part = got.tensors[0].1.data().slice(100..200);
    drop((got, parcel));
    a.release(blob);
    let other = shared_parcel(7 << 20, 2);
    assert_ne!(token(other.tensors[0].1.data()), segment, "a part of it is still lent");
    assert_eq!(part, pattern(7 << 20, 1).slice(100..200));
    drop(part);
    // The holder is told in its own time.
    within(async {
        while token(shared_parcel(7 << 20, 3).tensors[0].1.data()) != segment {
            tokio::task::yield_now().await;
        }
    })
    .await;
    within(a.shutdown()).await;
    within(b.shutdown()).await;
}

#[tokio::test]
async fn memory_that_was_lent_is_not_written_again_after_the_link_is_lost() {
    let (_dir, a, b) = pair(None).await;
    let peer = b.peer(a.id()).unwrap();
    let parcel = shared_parcel(9 << 20, 1);
    let (len, segment) = (parcel.len(), token(parcel.tensors[0].1.data()));
    let blob = a.hold(parcel);
    let pieces = within(b.fetch_pieces(&peer, blob, len)).await.unwrap();
    a.release(blob);
    within(a.shutdown()).await;
    for seed in 2..6 {
        assert_ne!(token(shared_parcel(9 << 20, seed).tensors[0].1.data()), segment);
    }
    assert_eq!(pieces[1], pattern(9 << 20, 1));
    within(b.shutdown()).await;
}

#[tokio::test]
async fn memory_that_cannot_be_mapped_is_asked_for_again_and_sent() {
    let dir = tempdir().unwrap();
    let a = start(config(dir.path(), "a")).await;
    let mut holder = Holder::join(&a, dir.path()).await;
    let peer = meets_raw(&a).await;
    let body = pattern(300_000, 3);
    let own = phalanx_shared::copy_together(&[&body]).unwrap().remove(0);
    let serve = async {
        while holder.control.read::<FabricMessage>().await != FabricMessage::OpenBulk {}
        let mut bulk = holder.connect().await;
        let BulkMessage::Borrow { transfer, blob: BlobId(77) } = bulk.read().await else {
            panic!("not asked")
        };
        // Another segment than the token says, as if the process were on another host.
        let place = SharedPlace { token: [3; 16], ..phalanx_shared::locate(&own).unwrap().place() };
        let pieces = vec![BlobPiece::Shared(place)];
        bulk.send(FrameKind::Bulk, &BulkMessage::Lend { transfer, lease: 5, pieces }).await;
        let mut heard = [bulk.read::<BulkMessage>().await, bulk.read().await];
        heard.sort_by_key(|message| matches!(message, BulkMessage::Return { .. }));
        assert_eq!(
            heard,
            [BulkMessage::Get { transfer, blob: BlobId(77) }, BulkMessage::Return { lease: 5 }]
        );
        bulk.send(FrameKind::Bulk, &BulkMessage::Begin { transfer, len: 300_000 }).await;
        bulk.write(&frame::chunk_header(transfer, 300_000)).await;
        bulk.write(&body).await;
        bulk.closed().await;
    };
    let fetch = async {
        assert_eq!(within(a.fetch(&peer, BlobId(77), 300_000)).await.unwrap(), body);
        within(a.shutdown()).await;
    };
    within(async { tokio::join!(serve, fetch) }).await;
}
