//! Hostile members: they join correctly and then send invalid messages.

use super::{Target, refused};
use bytes::Bytes;
use phalanx_testkit::{Process, Raw, Wire, hello};
use phalanx_types::{Epoch, JobId, LeaseId, Parcel, ParcelHead, SessionId};
use phalanx_wire::bulk::{BlobId, BlobPiece, BulkMessage, SharedPlace};
use phalanx_wire::fabric::FabricMessage;
use phalanx_wire::frame::{FrameKind, chunk_header};
use phalanx_wire::handshake::{Channel, Hello, HelloReply, Welcome};
use phalanx_wire::jobs::{
    Dispatch, Done, DoneResult, FromWorker, Input, InputPlace, MAX_INPUTS, MissingInput, Offer, OfferGroup,
    ParcelRef, ToWorker,
};
use phalanx_wire::node::NodeKind;
use std::cell::Cell;

/// Joins under an id.
type Join<'a> = &'a dyn Fn(&str) -> (Raw<Box<dyn Wire>>, Welcome);

/// A frame header that announces the longest possible body.
fn huge(kind: FrameKind) -> Vec<u8> {
    vec![255, 255, 255, 255, kind as u8]
}

/// Frames no member sends on a control connection, and why they end it.
fn bad_frames() -> Vec<(&'static str, Vec<u8>)> {
    let mut frames = vec![
        ("unknown frame kind 99", vec![1, 0, 0, 0, 99, 0]),
        ("unknown frame kind 0", vec![0, 0, 0, 0, 0]),
        ("malformed FabricMessage", vec![3, 0, 0, 0, 2, 255, 255, 255]),
        ("malformed FabricMessage", vec![0, 0, 0, 0, 2]),
        ("1 bytes left over after FabricMessage", vec![2, 0, 0, 0, 2, 0, 0]),
        ("unexpected Handshake frame, expected Fabric", vec![1, 0, 0, 0, 1, 0]),
        ("unexpected Bulk frame, expected Fabric", vec![1, 0, 0, 0, 4, 0]),
        ("unexpected Chunk frame, expected Fabric", vec![8, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0]),
        ("unexpected Relay frame, expected Fabric", vec![1, 0, 0, 0, 6, 0]),
        ("unexpected Launch frame, expected Fabric", vec![1, 0, 0, 0, 8, 0]),
        ("connection ended 7 bytes into a frame", vec![9, 0, 0, 0, 2, 0, 0]),
    ];
    for kind in FrameKind::ALL {
        let name: &'static str = match kind {
            FrameKind::Handshake => "Handshake frame of 4294967295 bytes",
            FrameKind::Fabric => "Fabric frame of 4294967295 bytes",
            FrameKind::Jobs => "Jobs frame of 4294967295 bytes",
            FrameKind::Bulk => "Bulk frame of 4294967295 bytes",
            FrameKind::Chunk => "Chunk frame of 4294967295 bytes",
            FrameKind::Relay => "Relay frame of 4294967295 bytes",
            FrameKind::Train => "Train frame of 4294967295 bytes",
            FrameKind::Launch => "Launch frame of 4294967295 bytes",
        };
        frames.push((name, huge(kind)));
    }
    frames
}

pub(crate) fn all(process: &Process, join: Join<'_>) {
    for (i, (words, bytes)) in bad_frames().into_iter().enumerate() {
        let id = format!("mad-{i:04}");
        let (mut raw, _) = join(&id);
        raw.say_last(&bytes);
        refused(process, &id, words);
    }
    for (i, body) in [&[][..], &[9], &[255; 40], &[1, 0, 255, 255, 255, 255, 15]].into_iter().enumerate() {
        let id = format!("mad-main-{i:04}");
        let (mut raw, _) = join(&id);
        raw.send_raw(FrameKind::Jobs as u8, body);
        raw.closed();
        cut_off(process, &format!("main={id} "), "malformed ToWorker");
    }
    for (i, body) in [&[][..], &[99], &[255; 40], &[5, 0, 0, 5, 255, 255, 255, 15]].into_iter().enumerate() {
        let id = format!("mad-driver-{i:04}");
        let (mut raw, _) = join(&id);
        raw.send_raw(FrameKind::Train as u8, body);
        raw.closed();
        cut_off(process, &format!("driver={id} "), "malformed ToReplica");
    }
    // A node serves one main node per link: the first would never be released.
    let (mut raw, _) = join("mad-main-many");
    for session in 0..2 {
        raw.send(FrameKind::Jobs, &ToWorker::Invite { session: SessionId(session), epoch: Epoch(1) });
    }
    raw.closed();
    cut_off(process, "main=mad-main-many ", "a second session on one link");
}

/// Waits until the log says that a peer was cut off for this.
fn cut_off(process: &Process, peer: &str, words: &str) {
    process.says_where(&format!("{peer}… {words}"), |said| {
        said.lines().any(|line| line.contains(peer) && line.contains("cut off") && line.contains(words))
    });
}

/// Opens the bulk connection of a member's link.
fn bulk(target: &Target, id: &str, welcome: &Welcome) -> Raw<Box<dyn Wire>> {
    let mut raw = target.open().0;
    let hello =
        Hello { channel: Channel::Bulk { link: welcome.link }, ..hello("default", id, NodeKind::Main) };
    let reply = raw.join(Some(&target.token), hello);
    assert!(matches!(reply, HelloReply::Welcome(_)), "{reply:?}");
    raw
}

/// Members whose messages are well-formed and useless, many and large.
pub(crate) fn rude(target: &Target) {
    let process = &target.node.process;
    for (i, (words, bytes)) in [
        ("unknown frame kind 2", vec![1, 0, 0, 0, 2, 0]),
        ("Bulk frame of 4294967295 bytes", huge(FrameKind::Bulk)),
        ("Chunk frame of 4294967295 bytes", huge(FrameKind::Chunk)),
        ("malformed BulkMessage", vec![1, 0, 0, 0, 4, 99]),
        ("connection ended 3 bytes into a frame", vec![3, 0, 0, 0, 5, 1, 2, 3]),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("rude-{i:04}");
        let (_control, welcome) = target.join(&id, NodeKind::Main);
        bulk(target, &id, &welcome).say_last(&bytes);
        let from = format!("bulk of {id}");
        refused(process, &from, words);
    }
    talkers(target);
    endless_blob(target);
    false_references(target);
}

/// Messages about topics, services, answers, blobs and leases that do not exist.
fn talkers(target: &Target) {
    let (mut raw, welcome) = target.join("rude-talker", NodeKind::Main);
    let body = Bytes::from(vec![7; 64 << 10]);
    for i in 0..100 {
        raw.send(
            FrameKind::Fabric,
            &FabricMessage::Publish { topic: format!("t{i}").into(), body: body.clone() },
        );
    }
    for id in 0..20_000 {
        let request =
            FabricMessage::Request { id, service: "none".into(), deadline_ms: u64::MAX, body: Bytes::new() };
        raw.send(FrameKind::Fabric, &request);
        raw.send(FrameKind::Fabric, &FabricMessage::Reply { id, result: Ok(Bytes::new()) });
    }
    let mut bulk = bulk(target, "rude-talker", &welcome);
    for transfer in 0..20_000 {
        bulk.send(FrameKind::Bulk, &BulkMessage::Get { transfer, blob: BlobId(transfer) });
        bulk.send(FrameKind::Bulk, &BulkMessage::Begin { transfer, len: u64::MAX });
        bulk.send(FrameKind::Bulk, &BulkMessage::Cancel { transfer });
        bulk.send(FrameKind::Bulk, &BulkMessage::Lend { transfer, lease: transfer, pieces: Vec::new() });
        bulk.send(FrameKind::Bulk, &BulkMessage::Return { lease: u64::MAX - transfer });
    }
    for transfer in 0..50 {
        bulk.write(&chunk_header(transfer, 1 << 20));
        bulk.write(&vec![7; 1 << 20]);
    }
    let last = 20_000;
    bulk.send(FrameKind::Bulk, &BulkMessage::Get { transfer: last, blob: BlobId(last) });
    let missing = BulkMessage::Missing { transfer: last, blob: BlobId(last) };
    bulk.read_where(FrameKind::Bulk, |message: &BulkMessage| *message == missing);
}

/// Lends memory that is not there, and waits until the blob is asked for over the connection.
fn not_there(bulk: &mut Raw<Box<dyn Wire>>, transfer: u64, len: u64) -> u64 {
    // A file of the node itself that is no segment: it must not be opened.
    let place = SharedPlace { pid: 1, fd: 0, token: [7; 16], offset: u64::MAX, len };
    let pieces = vec![BlobPiece::Shared(place); 300];
    bulk.send(FrameKind::Bulk, &BulkMessage::Lend { transfer, lease: 1, pieces });
    bulk.read_where(FrameKind::Bulk, |m: &BulkMessage| matches!(m, BulkMessage::Get { .. }));
    transfer
}

/// Jobs whose payloads are announced with more bytes than any machine has, which fail before anything is fetched, and
/// one that would fit, but never comes whole.
fn endless_blob(target: &Target) {
    for (i, len) in [1u64 << 40, u64::MAX, 1 << 30].into_iter().enumerate() {
        let id = format!("rude-blob-{i}");
        let (mut raw, welcome) = target.join(&id, NodeKind::Main);
        let (session, epoch) = (SessionId(1_000 + i as u64), Epoch(1));
        raw.send(FrameKind::Jobs, &ToWorker::Invite { session, epoch });
        raw.read_where(FrameKind::Jobs, |answer: &FromWorker| matches!(answer, FromWorker::Join(_)));
        let head = ParcelHead { bytes_len: len, tensors: Vec::new() };
        let payload = ParcelRef::Blob { head, blob: BlobId(7) };
        let lease = LeaseId { job: JobId(1), number: 1 };
        let offers = vec![Offer { lease, priority: 0, careful: false, payload, inputs: Vec::new() }];
        let offers = vec![OfferGroup { kind: "echo".into(), needs: Default::default(), offers }];
        raw.send(
            FrameKind::Jobs,
            &ToWorker::Dispatch(Dispatch { epoch, number: 1, offers, ..Default::default() }),
        );
        if len > 1 << 30 {
            let failed = |answer: &FromWorker| match answer {
                FromWorker::Report(report) => {
                    report.done.iter().any(|done| matches!(done.result, DoneResult::Failed { .. }))
                }
                FromWorker::Join(_) => false,
            };
            raw.read_where(FrameKind::Jobs, failed);
            continue;
        }
        let mut bulk = bulk(target, &id, &welcome);
        let asks = |m: &BulkMessage| matches!(m, BulkMessage::Get { .. } | BulkMessage::Borrow { .. });
        let transfer = match bulk.read_where(FrameKind::Bulk, asks) {
            BulkMessage::Borrow { transfer, blob: BlobId(7) } => not_there(&mut bulk, transfer, len),
            BulkMessage::Get { transfer, blob: BlobId(7) } => transfer,
            other => panic!("{other:?}"),
        };
        bulk.send(FrameKind::Bulk, &BulkMessage::Begin { transfer, len });
        for _ in 0..4 {
            bulk.write(&chunk_header(transfer, 1 << 20));
            bulk.write(&vec![7; 1 << 20]);
        }
    }
}

/// Jobs that take solutions of other main nodes, by names that were guessed, and more of them than there may be.
fn false_references(target: &Target) {
    let (mut raw, welcome) = target.join("rude-reference", NodeKind::Main);
    let (session, epoch) = (SessionId(2_000), Epoch(1));
    raw.send(FrameKind::Jobs, &ToWorker::Invite { session, epoch });
    raw.read_where(FrameKind::Jobs, |answer: &FromWorker| matches!(answer, FromWorker::Join(_)));
    let input = |blob| {
        let head = ParcelHead { bytes_len: u64::MAX, tensors: Vec::new() };
        let place = InputPlace::At { node: welcome.node.clone(), head, blob: BlobId(blob) };
        Input { job: JobId(blob), place }
    };
    let offer = |job, inputs: Vec<Input>| {
        let lease = LeaseId { job: JobId(job), number: 1 };
        let payload = ParcelRef::inline(&Parcel::default());
        Offer { lease, priority: 0, careful: false, payload, inputs }
    };
    let offers =
        vec![offer(1, vec![input(1), input(2)]), offer(2, (0..=MAX_INPUTS as u64).map(input).collect())];
    let offers = vec![OfferGroup { kind: "echo".into(), needs: Default::default(), offers }];
    let lease = LeaseId { job: JobId(99), number: 1 };
    let dispatch = Dispatch {
        epoch,
        number: 1,
        keeps: vec![lease],
        drops: vec![JobId(98)],
        offers,
        ..Default::default()
    };
    raw.send(FrameKind::Jobs, &ToWorker::Dispatch(dispatch));
    let (is_missing, is_refused) = (Cell::new(false), Cell::new(false));
    raw.read_where(FrameKind::Jobs, |answer: &FromWorker| {
        let FromWorker::Report(report) = answer else { return false };
        let missing = |m: &MissingInput| m.lease.job == JobId(1) && m.is_gone;
        is_missing.set(is_missing.get() || report.missing.iter().any(missing));
        let failed =
            |d: &Done| d.lease.job == JobId(2) && matches!(d.result, DoneResult::Failed { retry: false, .. });
        is_refused.set(is_refused.get() || report.done.iter().any(failed));
        is_missing.get() && is_refused.get()
    });
}
