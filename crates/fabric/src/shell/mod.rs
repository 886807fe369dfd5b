//! skeleton
#![expect(clippy::todo, clippy::unused_async, dead_code, reason = "skeleton")]
use crate::*;
use bytes::Bytes;
use phalanx_types::*;
use serde::Serialize;
use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::mpsc;

#[derive(Debug, Clone)]
pub struct Fabric;
impl Fabric {
    pub async fn start(_config: FabricConfig) -> Result<Fabric, StartError> { todo!() }
    pub fn id(&self) -> &NodeId { todo!() }
    pub fn incarnation(&self) -> Incarnation { todo!() }
    pub fn address(&self) -> SocketAddr { todo!() }
    pub fn is_secure(&self) -> bool { todo!() }
    pub fn now(&self) -> Time { todo!() }
    /// # Panics
    /// taken twice
    pub fn channel(&self, _kind: FrameKind) -> mpsc::Receiver<LinkEvent> { todo!() }
    pub fn update_status(&self, _f: impl FnOnce(&mut NodeStatus)) { todo!() }
    pub fn nodes(&self) -> Vec<NodeStatus> { todo!() }
    pub fn watch(&self) -> NodeWatch { todo!() }
    pub async fn settled(&self, _at_most: Duration) { todo!() }
    pub async fn request(&self, _to: &NodeId, _service: &str, _body: Bytes, _deadline: Duration) -> Result<Bytes, RequestError> { todo!() }
    pub fn serve<F, Fut>(&self, _service: &str, _f: F)
    where
        F: Fn(NodeId, Bytes) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Bytes, String>> + Send + 'static,
    { todo!() }
    pub fn publish(&self, _topic: &str, _body: Bytes) -> Result<usize, PublishError> { todo!() }
    pub fn subscribe(&self, _topic: &str) -> Subscription { todo!() }
    pub fn hold(&self, _parcel: Parcel) -> BlobId { todo!() }
    pub fn release(&self, _blob: BlobId) { todo!() }
    pub async fn fetch(&self, _from: &Peer, _blob: BlobId, _len: u64) -> Result<Bytes, FetchError> { todo!() }
    pub async fn shutdown(&self) { todo!() }
    pub fn refused(&self) -> Vec<(&'static str, u64)> { todo!() }
}
#[derive(Debug, Clone)]
pub enum LinkEvent { Up(Peer), Frame { link: LinkKey, body: Bytes }, Down { link: LinkKey, node: NodeId, reason: LostReason, goodbye: bool } }
#[derive(Debug, Clone)]
pub struct Peer;
impl Peer {
    pub fn id(&self) -> &NodeId { todo!() }
    pub fn kind(&self) -> NodeKind { todo!() }
    pub fn key(&self) -> LinkKey { todo!() }
    /// Closes the link for a reason that both sides see.
    pub fn close(&self, _reason: LostReason) { todo!() }
    pub fn send<T: Serialize>(&self, _kind: FrameKind, _m: &T) -> Result<(), SendError> { todo!() }
}
#[derive(Debug)]
pub struct NodeWatch;
impl NodeWatch { pub async fn next(&mut self) -> Option<NodeEvent> { todo!() } }
#[derive(Debug)]
pub struct Subscription;
impl Subscription { pub async fn next(&mut self) -> Option<Published> { todo!() } }
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Published { Message { from: NodeId, body: Bytes }, Lost(u64) }
#[derive(Debug)]
pub struct RelayConfig { pub bind: SocketAddr, pub tokens: Vec<RelayToken> }
#[derive(Debug, thiserror::Error)]
#[error("relay")]
pub struct RelayError;
#[derive(Debug)]
pub struct Relay;
impl Relay {
    pub async fn start(_config: RelayConfig) -> Result<Relay, RelayError> { todo!() }
    pub fn address(&self) -> SocketAddr { todo!() }
    pub async fn shutdown(&self) { todo!() }
}
