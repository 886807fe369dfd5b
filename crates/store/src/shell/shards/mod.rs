//! A store that several nodes share: commands with keys of other nodes are passed on to them.
//!
//! ```text
//! client ──▶ Connection ──▶ Shards::plan ──▶ here, or Forwarding ──▶ Upstream ──▶ the node that has the key
//! ```
//! Every client has connections of its own to other nodes, so that commands that wait keep no other client waiting, and
//! replies come in the order of the commands.

pub(crate) mod datasets;
mod transfer;
mod transit;
mod upstream;

use crate::core::{Merge, Refusal, Route, ShardCommands, ShardMap, ShardMember, ShardPlace};
use bytes::Bytes;
use phalanx_resp::{Reply, slot};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};
use tokio::sync::Notify;
pub(crate) use transit::Transit;
use transit::TransitReserve;
pub(crate) use upstream::Upstreams;

/// The reply when a command or its reply cannot pass through this node.
const NO_ROOM: &str = "OOM this node has no memory to pass this on; the node that has the key can be asked itself (CLUSTER SLOTS)";

/// How a node reaches the other nodes of its store.
#[derive(Clone, Default)]
pub struct PeerAccess {
    /// With this, connections are encrypted and members are known by it.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// Without TLS: the password that all nodes of the store have.
    pub password: Option<String>,
}

impl fmt::Debug for PeerAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the password.
        f.debug_struct("PeerAccess").field("is_encrypted", &self.tls.is_some()).finish_non_exhaustive()
    }
}

/// A part of a store that several nodes share.
#[derive(Debug, Clone)]
pub struct ShardConfig {
    /// Which part this server has.
    pub place: ShardPlace,
    /// The name of this node.
    pub node: String,
    /// How other nodes are reached.
    pub access: PeerAccess,
}

/// What the connections of a server know of the other nodes.
#[derive(Debug)]
pub(crate) struct Shards {
    map: RwLock<ShardMap>,
    commands: ShardCommands,
    access: PeerAccess,
    reserve: TransitReserve,
    /// Told when the nodes are others.
    changed: Notify,
}

/// What to do with a command.
pub(crate) enum Plan {
    /// Carry it out here.
    Own,
    /// Answer it.
    Reply(Reply),
    /// Ask other nodes.
    Forward(Forwarding),
}

/// A command that other nodes carry out.
pub(crate) struct Forwarding {
    future: Pin<Box<dyn Future<Output = (Upstreams, Reply)> + Send>>,
    /// It may wait as long as it likes, and ends with its client.
    pub(crate) is_blocking: bool,
}

impl fmt::Debug for Forwarding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forwarding").field("is_blocking", &self.is_blocking).finish_non_exhaustive()
    }
}

impl Forwarding {
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<(Upstreams, Reply)> {
        self.future.as_mut().poll(context)
    }
}

impl Shards {
    pub(crate) fn new(config: ShardConfig) -> Self {
        let map = RwLock::new(ShardMap::new(config.place, config.node));
        let (commands, reserve) = (ShardCommands::default(), TransitReserve::default());
        Self { map, commands, access: config.access, reserve, changed: Notify::new() }
    }

    pub(crate) fn set_members(&self, members: Vec<ShardMember>) -> ShardMap {
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        map.set_members(members);
        self.changed.notify_waiters();
        map.clone()
    }

    /// Returns when the nodes are others.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// A part as people write it.
    fn part(&self, index: u16) -> String {
        let own = self.map.read().unwrap_or_else(PoisonError::into_inner).own();
        format!("{index}/{}", own.count())
    }

    /// Tells connections of this node where the other nodes are now.
    fn lend(&self, upstreams: &mut Upstreams, transit: Transit) {
        let members = members(&self.map.read().unwrap_or_else(PoisonError::into_inner));
        upstreams.prepare(members, self.access.clone(), transit);
    }

    /// Memory for what passes through.
    pub(crate) fn reserve(&self) -> &TransitReserve {
        &self.reserve
    }

    /// Whether a command, of which some arguments are still to come, is for another node.
    pub(crate) fn is_elsewhere(&self, args: &[Bytes]) -> bool {
        let Some(command) = self.commands.named(args) else { return false };
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        command.keys_of(args).next().is_some_and(|key| !map.is_own_part(key))
    }

    pub(crate) fn map(&self) -> ShardMap {
        self.map.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Answers `PHALANX.SHARD i/n`, with which another node says that it passes commands on; whether it may.
    pub(crate) fn greet(&self, args: &[Bytes]) -> (bool, Reply) {
        let own = self.map.read().unwrap_or_else(PoisonError::into_inner).own();
        let asked = args.get(1).and_then(|word| std::str::from_utf8(word).ok()?.parse::<ShardPlace>().ok());
        match asked == Some(own) {
            true => (true, Reply::OK),
            false => (false, Reply::error(format!("ERR this node has part {own} of its store"))),
        }
    }

    /// Refuses a command of shared memory that belongs to another node; clients follow.
    pub(crate) fn refuse_shared(&self, args: &[Bytes]) -> Option<Reply> {
        let command = self.commands.named(args)?;
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        let key = command.keys_of(args).find(|key| !map.is_own(key))?;
        let holder = map.holder(map.part_of(key));
        Some(match holder {
            Some(holder) => Reply::error(format!("MOVED {} {}:{}", slot(key), holder.host, holder.port)),
            None => Reply::error(map.missing(key).text()),
        })
    }

    /// Decides what becomes of a command. `upstreams` are lent to what is passed on. `transit` counts its memory, and is
    /// made for a command that is passed on.
    pub(crate) fn plan(
        &self,
        args: &[Bytes],
        upstreams: &mut Upstreams,
        transit: impl FnOnce() -> Option<Transit>,
    ) -> Plan {
        let Some(command) = self.commands.find(args) else { return Plan::Own };
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        let route = map.route(command, args);
        if route == Route::Own {
            return Plan::Own;
        }
        if let Route::Refused(refusal) = &route {
            return Plan::Reply(Reply::error(refusal.text()));
        }
        let members = members(&map);
        drop(map);
        let Some(transit) = transit() else { return Plan::Reply(Reply::error(NO_ROOM)) };
        let is_blocking = command.is_blocking();
        let mut lent = std::mem::take(upstreams);
        lent.prepare(members, self.access.clone(), transit);
        let (args, keys) = (args.to_vec(), command.key_groups(args));
        let future = async move {
            let reply = match route {
                Route::Other(part) => lent.call(part, vec![args], !is_blocking).await.and_then(first),
                Route::Split(parts, merge) => split(&mut lent, (&args, &keys), &parts, merge).await,
                Route::Everywhere => everywhere(&mut lent, &args).await,
                Route::Transfer { from, to } => transfer::run(&mut lent, &args, (from, to)).await,
                Route::Own | Route::Refused(_) => Err(Reply::error(Refusal::Apart.text())),
            };
            (lent, reply.unwrap_or_else(|error| error))
        };
        Plan::Forward(Forwarding { future: Box::pin(future), is_blocking })
    }
}

/// The nodes that serve parts.
fn members(map: &ShardMap) -> BTreeMap<u16, ShardMember> {
    (1..=map.own().count()).filter_map(|part| Some((part, map.holder(part)?.clone()))).collect()
}

fn first(replies: Vec<Reply>) -> Result<Reply, Reply> {
    replies.into_iter().next().ok_or_else(|| Reply::error("ERR a node gave no reply"))
}

/// Has every node carry out its part of a command, and makes one reply of theirs.
async fn split(
    upstreams: &mut Upstreams,
    (args, keys): (&[Bytes], &[Vec<Bytes>]),
    parts: &BTreeMap<u16, Vec<usize>>,
    merge: Merge,
) -> Result<Reply, Reply> {
    let mut sum = 0i64;
    let mut elements: Vec<Reply> = keys.iter().map(|_| Reply::Null).collect();
    for (part, numbers) in parts {
        let mut command: Vec<Bytes> = args.first().cloned().into_iter().collect();
        command.extend(numbers.iter().filter_map(|number| keys.get(*number)).flatten().cloned());
        match first(upstreams.call(*part, vec![command], true).await?)? {
            Reply::Integer(count) => sum = sum.saturating_add(count),
            Reply::Array(found) => {
                for (number, element) in numbers.iter().zip(found) {
                    elements.get_mut(*number).into_iter().for_each(|place| *place = element.clone());
                }
            }
            error @ Reply::Error(_) => return Err(error),
            _ => {}
        }
    }
    Ok(match merge {
        Merge::Sum => Reply::Integer(sum),
        Merge::Elements => Reply::Array(elements),
        Merge::Ok => Reply::OK,
    })
}

/// Has every node carry out a command; adds the numbers.
async fn everywhere(upstreams: &mut Upstreams, args: &[Bytes]) -> Result<Reply, Reply> {
    let mut sum = 0i64;
    for part in upstreams.parts() {
        if let Reply::Integer(count) = first(upstreams.call(part, vec![args.to_vec()], true).await?)? {
            sum = sum.saturating_add(count);
        }
    }
    Ok(Reply::Integer(sum))
}
