//! `CLUSTER`: one node that owns all slots, or the nodes that share a store, so that clients of a cluster can use it.

use super::super::error::CommandError;
use super::super::keyspace::Keyspace;
use super::super::number::{integer_argument, is};
use super::super::session::ClientId;
use super::super::shards::ShardMember;
use super::{Call, Command, Flags, NO_KEYS};
use phalanx_resp::{Reply, SLOTS, slot};
use phalanx_types::Seed;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

pub(super) const COMMANDS: &[Command] = &[Command::new("cluster", -2, Flags::OTHER, NO_KEYS, cluster)];

impl Keyspace {
    /// Forty hexadecimal digits that name this server while it runs.
    pub(crate) fn identity(&self) -> String {
        if let Some(shards) = &self.shards {
            return identity_of(shards.node());
        }
        let part = |name| Seed(self.settings.seed).derive(name).0;
        format!("{:016x}{:016x}{:08x}", part("first"), part("second"), part("third") >> 32)
    }

    /// The address by which a client reached this server: clients compare it with what they were given, as text.
    fn address(&self, client: ClientId) -> (String, u16) {
        let facts = &self.settings.facts;
        let origin = self.sessions.get(&client).map(|session| &session.origin);
        let host = facts.announced_host.clone().or_else(|| origin.map(|origin| origin.host.clone()));
        let port = origin.map_or(facts.port, |origin| origin.port);
        (host.unwrap_or_default(), port)
    }
}

/// What a node of a store that several share is called, by all of them.
fn identity_of(node: &str) -> String {
    let part = |name: &str| Seed(0).derive(&format!("{name} {node}")).0;
    format!("{:016x}{:016x}{:08x}", part("first"), part("second"), part("third") >> 32)
}

fn cluster(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let subcommand = call.arg(1);
    let named = |name: &str| is(subcommand, name);
    match call.rest(2) {
        [] if named("slots") => Ok(slots(call)),
        [] if named("shards") => Ok(shards(call)),
        [] if named("nodes") => Ok(nodes(call)),
        [] if named("info") => Ok(Reply::Verbatim(info(call).into())),
        [] if named("myid") => Ok(Reply::bulk(call.store.identity())),
        [key] if named("keyslot") => Ok(Reply::Integer(i64::from(slot(key)))),
        [number] if named("countkeysinslot") => {
            let number = u16::try_from(integer_argument(number)?).ok().filter(|number| *number < SLOTS);
            let number = number.ok_or(CommandError::Slot)?;
            let keys = call.store.database.table().iter();
            Ok(Reply::count(keys.filter(|(key, _)| slot(key) == number).count()))
        }
        _ => Err(call.unknown_subcommand()),
    }
}

fn info(call: &Call<'_>) -> String {
    let nodes: BTreeSet<_> = ranges(call).into_iter().map(|range| range.id).collect();
    let count = nodes.len();
    format!(
        "cluster_enabled:1\r\ncluster_state:ok\r\ncluster_slots_assigned:16384\r\ncluster_slots_ok:16384\r\n\
         cluster_slots_pfail:0\r\ncluster_slots_fail:0\r\ncluster_known_nodes:{count}\r\ncluster_size:{count}\r\n\
         cluster_current_epoch:1\r\ncluster_my_epoch:1\r\ncluster_stats_messages_sent:0\r\n\
         cluster_stats_messages_received:0\r\n"
    )
}

/// Slots and the node that clients ask for them.
struct SlotRange {
    first: u16,
    last: u16,
    host: String,
    port: u16,
    id: String,
    is_own: bool,
}

/// All slots in their order, without gaps.
fn ranges(call: &Call<'_>) -> Vec<SlotRange> {
    let (host, port) = call.store.address(call.client);
    let own = |slots: RangeInclusive<u16>| SlotRange {
        first: *slots.start(),
        last: *slots.end(),
        host: host.clone(),
        port,
        id: call.store.identity(),
        is_own: true,
    };
    let Some(shards) = &call.store.shards else { return vec![own(0..=SLOTS - 1)] };
    let range = |(slots, holder): (RangeInclusive<u16>, Option<&ShardMember>)| match holder {
        Some(holder) if !shards.is_me(holder) => SlotRange {
            first: *slots.start(),
            last: *slots.end(),
            host: if holder.is_same_host { host.clone() } else { holder.host.clone() },
            port: holder.port,
            id: identity_of(&holder.node),
            is_own: false,
        },
        _ => own(slots),
    };
    shards.ranges().into_iter().map(range).collect()
}

fn number(n: u16) -> Reply {
    Reply::Integer(i64::from(n))
}

fn slots(call: &Call<'_>) -> Reply {
    let range = |range: SlotRange| {
        let node = Reply::Array(vec![Reply::bulk(range.host), number(range.port), Reply::bulk(range.id)]);
        Reply::Array(vec![number(range.first), number(range.last), node])
    };
    Reply::Array(ranges(call).into_iter().map(range).collect())
}

fn shards(call: &Call<'_>) -> Reply {
    let shard = |range: SlotRange| {
        let node = [
            ("id", Reply::bulk(range.id)),
            ("port", number(range.port)),
            ("ip", Reply::bulk(range.host.clone())),
            ("endpoint", Reply::bulk(range.host)),
            ("role", Reply::bulk("master")),
            ("replication-offset", Reply::Integer(0)),
            ("health", Reply::bulk("online")),
        ];
        let node = Reply::Map(node.into_iter().map(|(name, value)| (Reply::bulk(name), value)).collect());
        let slots = Reply::Array(vec![number(range.first), number(range.last)]);
        let shard = vec![(Reply::bulk("slots"), slots), (Reply::bulk("nodes"), Reply::Array(vec![node]))];
        Reply::Map(shard)
    };
    Reply::Array(ranges(call).into_iter().map(shard).collect())
}

fn nodes(call: &Call<'_>) -> Reply {
    let mut text = String::new();
    let mut lines: BTreeMap<String, (String, Vec<String>)> = BTreeMap::new();
    for SlotRange { first, last, host, port, id, is_own } in ranges(call) {
        let myself = if is_own { "myself," } else { "" };
        let line = format!("{id} {host}:{port}@0 {myself}master - 0 0 1 connected");
        lines.entry(id).or_insert((line, Vec::new())).1.push(format!("{first}-{last}"));
    }
    for (line, slots) in lines.into_values() {
        text.push_str(&format!("{line} {}\n", slots.join(" ")));
    }
    Reply::Verbatim(text.into())
}
