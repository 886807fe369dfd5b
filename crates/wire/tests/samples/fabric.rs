//! Samples of what members of a domain say to each other, and of their bulk transfers.

use super::handshake::addresses;
use super::{Message, Samples, node};
use bytes::Bytes;
use phalanx_types::{ByteSize, Device, Host, Incarnation, Resources};
use phalanx_wire::bulk::{BlobId, BlobPiece, BulkMessage, SharedPlace};
use phalanx_wire::fabric::{FabricMessage, ReplyError};
use phalanx_wire::frame::FrameKind;
use phalanx_wire::node::{LostReason, NodeKind, NodeState, NodeStatus, StoreOffer};

impl Message for FabricMessage {
    const KIND: FrameKind = FrameKind::Fabric;
}

impl Message for BulkMessage {
    const KIND: FrameKind = FrameKind::Bulk;
}

pub(super) fn add(samples: &mut Samples) {
    samples.each("fabric", messages(), |message| message);
    samples.each("reply-error", reply_errors(), |error| FabricMessage::Reply { id: 11, result: Err(error) });
    samples.each("node-state", node_states(), |state| FabricMessage::Status(status(state)));
    samples.each("lost", lost_reasons(), |reason| FabricMessage::Status(status(NodeState::Lost(reason))));
    let transfers = [
        BulkMessage::Get { transfer: 5, blob: BlobId(9) },
        BulkMessage::Begin { transfer: 5, len: 3 << 30 },
        BulkMessage::Missing { transfer: 5, blob: BlobId(9) },
        BulkMessage::Cancel { transfer: 5 },
        BulkMessage::Borrow { transfer: 5, blob: BlobId(9) },
        BulkMessage::Lend { transfer: 5, lease: 3, pieces: pieces().into() },
        BulkMessage::Return { lease: 3 },
    ];
    samples.each("bulk", transfers, |transfer| transfer);
    samples.each("bulk-piece", pieces(), |piece| BulkMessage::Lend {
        transfer: 5,
        lease: 3,
        pieces: vec![piece],
    });
}

fn pieces() -> [BlobPiece; 2] {
    let place = SharedPlace { pid: 4711, fd: 12, token: [7; 16], offset: 64, len: 16 << 20 };
    [BlobPiece::Inline(Bytes::from_static(b"head")), BlobPiece::Shared(place)]
}

fn messages() -> [FabricMessage; 8] {
    let bare = NodeStatus {
        resources: Resources::default(),
        handles: Vec::new(),
        topics: Vec::new(),
        addresses: Vec::new(),
        store: None,
        ..status(NodeState::Stopped)
    };
    [
        FabricMessage::Heartbeat,
        FabricMessage::Status(status(NodeState::Running)),
        FabricMessage::Known(vec![status(NodeState::Running), bare]),
        FabricMessage::Goodbye,
        FabricMessage::OpenBulk,
        FabricMessage::Publish { topic: "loss".into(), body: Bytes::from_static(b"0.25") },
        FabricMessage::Request {
            id: 11,
            service: "clock".into(),
            deadline_ms: 5_000,
            body: Bytes::from_static(b"now?"),
        },
        FabricMessage::Reply { id: 11, result: Ok(Bytes::from_static(b"noon")) },
    ]
}

fn reply_errors() -> [ReplyError; 3] {
    [
        ReplyError::NoService { service: "clock".into() },
        ReplyError::Refused { message: "not today".into() },
        ReplyError::TooLong { len: 5 << 20 },
    ]
}

fn node_states() -> [NodeState; 4] {
    [NodeState::Running, NodeState::Draining, NodeState::Stopped, NodeState::Lost(LostReason::Replaced)]
}

fn lost_reasons() -> [LostReason; 5] {
    [
        LostReason::LinkBroken { detail: "connection reset".into() },
        LostReason::Silent { heartbeat_ms: 3_000 },
        LostReason::Misbehaved { detail: "malformed ToWorker".into() },
        LostReason::TooSlow { queued_bytes: 64 << 20 },
        LostReason::Replaced,
    ]
}

fn status(state: NodeState) -> NodeStatus {
    NodeStatus {
        id: node("n2"),
        incarnation: Incarnation(0xfeed_beef),
        kind: NodeKind::Computing,
        state,
        resources: Resources {
            cores: 16,
            memory: ByteSize::gib(64),
            devices: vec![Device { name: "gpu0".into(), memory: ByteSize::gib(24) }],
            speed_gflops: Some(812.5),
            host: Some(Box::new(host())),
        },
        handles: vec!["train".into(), "a-kind-of-job-with-a-rather-long-name".into()],
        topics: vec!["loss".into()],
        addresses: addresses().into(),
        jobs_running: 3,
        jobs_done: 1_000_000,
        uses: super::uses().into(),
        since_unix_ms: 1_700_000_000_000,
        version: 42,
        store: Some(Box::new(StoreOffer {
            addresses: vec![([10, 0, 0, 7], 6780).into()],
            shard: 2,
            shards: 3,
        })),
    }
}

fn host() -> Host {
    Host { name: "rack7".parse().expect("a name"), boot: 0x0123_4567_89ab_cdef, cores: 64 }
}
