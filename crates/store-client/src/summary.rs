//! What a store says of itself: keys, memory, disk, clients.

use crate::error::StoreError;
use crate::store::Store;
use phalanx_resp::Reply;
use serde::Serialize;
use std::collections::BTreeMap;

/// A store as a whole; the nodes of one that several share are added up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoreSummary {
    pub address: String,
    pub version: String,
    /// How many servers have a part of the keys.
    pub nodes: u64,
    pub uptime_seconds: u64,
    pub keys: u64,
    /// Of all keys and values, wherever they are.
    pub used_bytes: u64,
    /// Of those in memory.
    pub resident_bytes: u64,
    /// Of values that are on disk and not in memory.
    pub spilled_bytes: u64,
    /// Of the files of `--persist`.
    pub persisted_bytes: u64,
    /// What the store may hold; 0 for no limit.
    pub memory_bytes: u64,
    /// Why writes cannot be recorded, if they cannot.
    pub refuses_writes: Option<String>,
    pub clients: u64,
    pub commands: u64,
    pub refused_for_memory: u64,
}

impl StoreSummary {
    /// Reads the lines `name:value` of the reply.
    fn read(address: String, text: &str) -> Self {
        let fields: BTreeMap<&str, &str> =
            text.lines().filter_map(|line| line.trim_end().split_once(':')).collect();
        let number = |name: &str| fields.get(name).and_then(|value| value.parse().ok()).unwrap_or(0);
        let keys = fields.get("db0").and_then(|db| db.split(',').next()?.strip_prefix("keys=")?.parse().ok());
        let version = fields.get("phalanx_version").or(fields.get("redis_version")).copied().unwrap_or("?");
        let resident = fields.get("resident_bytes").and_then(|value| value.parse().ok());
        let refusal = fields.get("journal_refuses_because").filter(|reason| !reason.is_empty());
        Self {
            address,
            version: version.to_owned(),
            nodes: 1,
            uptime_seconds: number("uptime_in_seconds"),
            keys: keys.unwrap_or(0),
            used_bytes: number("used_memory"),
            resident_bytes: resident.unwrap_or(number("used_memory")),
            spilled_bytes: number("spilled_bytes"),
            persisted_bytes: ["journal_bytes", "snapshot_bytes", "persisted_value_file_bytes"]
                .map(number)
                .iter()
                .sum(),
            memory_bytes: number("maxmemory"),
            refuses_writes: refusal.map(|reason| (*reason).to_owned()),
            clients: number("connected_clients"),
            commands: number("total_commands_processed"),
            refused_for_memory: number("rejected_for_memory"),
        }
    }

    /// Adds what another node of the same store has.
    fn and(mut self, other: &Self) -> Self {
        self.nodes += other.nodes;
        self.uptime_seconds = self.uptime_seconds.max(other.uptime_seconds);
        self.keys += other.keys;
        self.used_bytes += other.used_bytes;
        self.resident_bytes += other.resident_bytes;
        self.spilled_bytes += other.spilled_bytes;
        self.persisted_bytes += other.persisted_bytes;
        self.refuses_writes = self.refuses_writes.or_else(|| other.refuses_writes.clone());
        self.memory_bytes += other.memory_bytes;
        self.clients += other.clients;
        self.commands += other.commands;
        self.refused_for_memory += other.refused_for_memory;
        self
    }
}

impl Store {
    /// What the store says of itself.
    ///
    /// # Errors
    /// A node cannot be reached, or is no store.
    pub fn summary(&self) -> Result<StoreSummary, StoreError> {
        let mut all: Option<StoreSummary> = None;
        for (_node, reply) in self.command_everywhere(&[b"INFO", b"EVERYTHING"])? {
            let (Reply::Bulk(text) | Reply::Verbatim(text)) = reply else {
                return Err(StoreError::Unexpected { what: "INFO" });
            };
            let node = StoreSummary::read(self.address(), &String::from_utf8_lossy(&text));
            all = Some(match all {
                Some(all) => all.and(&node),
                None => node,
            });
        }
        all.ok_or(StoreError::Unexpected { what: "no node has keys" })
    }
}
