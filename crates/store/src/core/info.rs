//! What `INFO` says.

use super::keyspace::Keyspace;
use super::number::is;
use bytes::Bytes;
use phalanx_types::{ByteSize, Time};
use std::fmt::Write as _;

/// The version of Redis whose commands and texts this server follows; clients look at it.
pub(crate) const REDIS_VERSION: &str = "7.2.0";

type Fields = Vec<(&'static str, String)>;

impl Keyspace {
    /// The sections that were asked for; all of them without names, or with `all`, `default` or `everything`.
    pub(crate) fn info(&self, now: Time, names: &[Bytes]) -> String {
        let all = names.iter().any(|name| ["all", "default", "everything"].iter().any(|word| is(name, word)));
        let mut text = String::new();
        for (title, fields) in self.sections(now) {
            if !(names.is_empty() || all || names.iter().any(|name| is(name, title))) {
                continue;
            }
            let between = if text.is_empty() { "" } else { "\r\n" };
            // Writing to a string cannot fail.
            let _written = write!(text, "{between}# {title}\r\n");
            for (name, value) in fields {
                let _written = write!(text, "{name}:{value}\r\n");
            }
        }
        text
    }

    fn sections(&self, now: Time) -> [(&'static str, Fields); 10] {
        [
            ("Server", self.server(now)),
            ("Clients", self.clients()),
            ("Memory", self.memory()),
            ("Persistence", self.persistence()),
            ("Stats", self.counts()),
            ("Replication", vec![("role", "master".into()), ("connected_slaves", "0".into())]),
            ("CPU", Vec::new()),
            ("Modules", vec![("module", "name=ai,ver=10207,api=1,filters=0".into())]),
            ("Cluster", vec![("cluster_enabled", "1".into())]),
            ("Keyspace", self.keys()),
        ]
    }

    fn server(&self, now: Time) -> Fields {
        let facts = &self.settings.facts;
        let uptime = now.since(self.began).as_secs();
        vec![
            ("redis_version", REDIS_VERSION.into()),
            ("phalanx_version", env!("CARGO_PKG_VERSION").into()),
            ("redis_mode", "cluster".into()),
            ("phalanx_shards", self.shards.as_ref().map_or(1, |shards| shards.own().count()).to_string()),
            ("arch_bits", "64".into()),
            ("process_id", facts.process.to_string()),
            ("run_id", self.identity()),
            ("tcp_port", facts.port.to_string()),
            ("server_time_usec", now.0.to_string()),
            ("uptime_in_seconds", uptime.to_string()),
            ("uptime_in_days", (uptime / 86400).to_string()),
            ("io_threads_active", facts.io_threads.to_string()),
        ]
    }

    fn clients(&self) -> Fields {
        vec![
            ("connected_clients", self.sessions.len().to_string()),
            ("blocked_clients", self.waiting.count().to_string()),
            ("pubsub_clients", self.sessions.values().filter(|s| s.subscriptions() > 0).count().to_string()),
        ]
    }

    fn memory(&self) -> Fields {
        let (used, limit) = (self.used(), self.settings.max_memory);
        let spill = self.storage.spill.clone().unwrap_or_default();
        let short = |bytes| ByteSize(bytes).to_string().replace(' ', "").replace("iB", "");
        vec![
            ("used_memory", used.to_string()),
            ("used_memory_human", short(used)),
            ("used_memory_dataset", used.to_string()),
            ("resident_bytes", self.resident().to_string()),
            ("spilled_bytes", self.database.away().to_string()),
            ("read_back_values", self.statistics.read_back.to_string()),
            ("read_back_bytes", self.statistics.read_back_bytes.to_string()),
            ("spill_file_bytes", spill.file_bytes.to_string()),
            ("spill_limit_bytes", spill.limit_bytes.to_string()),
            ("spill_refuses_because", spill.error.clone().unwrap_or_default()),
            ("maxmemory", limit.to_string()),
            ("maxmemory_human", short(limit)),
            ("maxmemory_policy", "noeviction".into()),
        ]
    }

    fn persistence(&self) -> Fields {
        let mut fields =
            vec![("loading", "0".into()), ("rdb_last_save_time", (self.last_save.0 / 1_000_000).to_string())];
        if self.storage.persist.is_none() {
            let none = [
                ("rdb_changes_since_last_save", "0"),
                ("rdb_bgsave_in_progress", "0"),
                ("rdb_last_bgsave_status", "ok"),
            ];
            fields.extend(none.map(|(name, value)| (name, value.to_owned())));
        }
        fields.extend(self.storage.persistence());
        fields
    }

    fn counts(&self) -> Fields {
        let counts = &self.statistics;
        vec![
            ("total_connections_received", counts.connections.to_string()),
            ("total_commands_processed", counts.commands.to_string()),
            ("total_error_replies", counts.errors.to_string()),
            ("rejected_for_memory", counts.out_of_memory.to_string()),
            ("repeated_appends_dropped", counts.repeated_appends.to_string()),
            ("expired_keys", self.database.expired().to_string()),
            ("evicted_keys", "0".into()),
            ("keyspace_hits", counts.hits.to_string()),
            ("keyspace_misses", counts.misses.to_string()),
            ("pubsub_channels", self.listeners.channels.len().to_string()),
            ("pubsub_patterns", self.listeners.patterns.len().to_string()),
        ]
    }

    fn keys(&self) -> Fields {
        match (self.database.table().len(), self.database.expiring()) {
            (0, _) => Vec::new(),
            (keys, expiring) => vec![("db0", format!("keys={keys},expires={expiring},avg_ttl=0"))],
        }
    }
}
