//! `CLUSTER`: one node that owns all slots, so that clients of a cluster can use it.

use super::super::error::CommandError;
use super::super::keyspace::Keyspace;
use super::super::number::{integer_argument, is};
use super::super::session::ClientId;
use super::{Call, Command, Flags, NO_KEYS};
use phalanx_resp::{Reply, SLOTS, slot};
use phalanx_types::Seed;

pub(super) const COMMANDS: &[Command] = &[Command::new("cluster", -2, Flags::OTHER, NO_KEYS, cluster)];

impl Keyspace {
    /// Forty hexadecimal digits that name this server while it runs.
    pub(crate) fn identity(&self) -> String {
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

fn cluster(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let subcommand = call.arg(1);
    let named = |name: &str| is(subcommand, name);
    match call.rest(2) {
        [] if named("slots") => Ok(slots(call)),
        [] if named("shards") => Ok(shards(call)),
        [] if named("nodes") => Ok(nodes(call)),
        [] if named("info") => Ok(Reply::Verbatim(INFO.into())),
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

const INFO: &str = "cluster_enabled:1\r\ncluster_state:ok\r\ncluster_slots_assigned:16384\r\ncluster_slots_ok:16384\r\n\
                    cluster_slots_pfail:0\r\ncluster_slots_fail:0\r\ncluster_known_nodes:1\r\ncluster_size:1\r\n\
                    cluster_current_epoch:1\r\ncluster_my_epoch:1\r\ncluster_stats_messages_sent:0\r\n\
                    cluster_stats_messages_received:0\r\n";

const LAST: i64 = SLOTS as i64 - 1;

fn slots(call: &Call<'_>) -> Reply {
    let (host, port) = call.store.address(call.client);
    let node = Reply::Array(vec![
        Reply::bulk(host),
        Reply::Integer(i64::from(port)),
        Reply::bulk(call.store.identity()),
    ]);
    Reply::Array(vec![Reply::Array(vec![Reply::Integer(0), Reply::Integer(LAST), node])])
}

fn shards(call: &Call<'_>) -> Reply {
    let (host, port) = call.store.address(call.client);
    let node = [
        ("id", Reply::bulk(call.store.identity())),
        ("port", Reply::Integer(i64::from(port))),
        ("ip", Reply::bulk(host.clone())),
        ("endpoint", Reply::bulk(host)),
        ("role", Reply::bulk("master")),
        ("replication-offset", Reply::Integer(0)),
        ("health", Reply::bulk("online")),
    ];
    let node = Reply::Map(node.into_iter().map(|(name, value)| (Reply::bulk(name), value)).collect());
    let range = Reply::Array(vec![Reply::Integer(0), Reply::Integer(LAST)]);
    let shard = vec![(Reply::bulk("slots"), range), (Reply::bulk("nodes"), Reply::Array(vec![node]))];
    Reply::Array(vec![Reply::Map(shard)])
}

fn nodes(call: &Call<'_>) -> Reply {
    let (host, port) = call.store.address(call.client);
    let id = call.store.identity();
    Reply::Verbatim(format!("{id} {host}:{port}@0 myself,master - 0 0 1 connected 0-{LAST}\n").into())
}
