//! `phalanx store info`.

use super::at::{At, failure};
use crate::failure::Failure;
use crate::output::{Output, Render};
use anyhow::anyhow;
use clap::Args;
use phalanx_resp::Reply;
use phalanx_types::ByteSize;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx store info
  phalanx store info --at n1.example:6780 --password-file secret --output json")]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Serialize)]
struct Info {
    address: String,
    version: String,
    /// How many servers have a part of the keys.
    nodes: u64,
    uptime_seconds: u64,
    keys: u64,
    /// Of all keys and values, wherever they are.
    used_bytes: u64,
    /// Of those in memory.
    resident_bytes: u64,
    /// Of values that are on disk and not in memory.
    spilled_bytes: u64,
    /// Of the files of `--persist`.
    persisted_bytes: u64,
    memory_bytes: u64,
    /// Why writes cannot be recorded, if they cannot.
    refuses_writes: Option<String>,
    clients: u64,
    commands: u64,
    refused_for_memory: u64,
}

impl Info {
    /// Reads the lines `name:value` of the reply.
    fn read(address: String, text: &str) -> Self {
        let fields: BTreeMap<&str, &str> =
            text.lines().filter_map(|line| line.trim_end().split_once(':')).collect();
        let number = |name: &str| fields.get(name).and_then(|value| value.parse().ok()).unwrap_or(0);
        let keys = fields.get("db0").and_then(|db| db.split(',').next()?.strip_prefix("keys=")?.parse().ok());
        Self {
            address,
            version: fields
                .get("phalanx_version")
                .or(fields.get("redis_version"))
                .copied()
                .unwrap_or("?")
                .to_owned(),
            nodes: 1,
            uptime_seconds: number("uptime_in_seconds"),
            keys: keys.unwrap_or(0),
            used_bytes: number("used_memory"),
            resident_bytes: fields
                .get("resident_bytes")
                .and_then(|value| value.parse().ok())
                .unwrap_or(number("used_memory")),
            spilled_bytes: number("spilled_bytes"),
            persisted_bytes: ["journal_bytes", "snapshot_bytes", "persisted_value_file_bytes"]
                .map(number)
                .iter()
                .sum(),
            memory_bytes: number("maxmemory"),
            refuses_writes: fields
                .get("journal_refuses_because")
                .filter(|reason| !reason.is_empty())
                .map(|reason| (*reason).to_owned()),
            clients: number("connected_clients"),
            commands: number("total_commands_processed"),
            refused_for_memory: number("rejected_for_memory"),
        }
    }
}

impl Info {
    /// Adds what another node of the same store has.
    fn and(mut self, other: &Info) -> Self {
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

impl Render for Info {
    fn table(&self) -> String {
        let limit = match self.memory_bytes {
            0 => "no limit".to_owned(),
            bytes => format!("of {}", ByteSize(bytes)),
        };
        let uptime = humantime::format_duration(Duration::from_secs(self.uptime_seconds));
        let nodes = if self.nodes == 1 { String::new() } else { format!("{} nodes, ", self.nodes) };
        let mut disk = String::new();
        if self.spilled_bytes > 0 || self.persisted_bytes > 0 {
            let (spilled, kept) = (ByteSize(self.spilled_bytes), ByteSize(self.persisted_bytes));
            disk = format!("\ndisk      {spilled} out of memory, {kept} kept");
        }
        if let Some(reason) = &self.refuses_writes {
            disk.push_str(&format!("\nrefuses   {reason}"));
        }
        format!(
            "store     {} ({nodes}version {}, up {uptime})\nkeys      {}\nmemory    {} {limit}{disk}\nclients   {}\n\
             commands  {}, {} refused for memory",
            self.address,
            self.version,
            self.keys,
            ByteSize(self.resident_bytes),
            self.clients,
            self.commands,
            self.refused_for_memory,
        )
    }

    fn quiet(&self) -> String {
        self.keys.to_string()
    }
}

pub(crate) fn run(args: &InfoArgs, output: Output) -> Result<(), Failure> {
    let store = args.at.connect()?;
    let mut all: Option<Info> = None;
    for (_node, reply) in store.command_everywhere(&[b"INFO", b"EVERYTHING"]).map_err(failure)? {
        let (Reply::Bulk(text) | Reply::Verbatim(text)) = reply else {
            return Err(Failure::infrastructure(anyhow!("the server at {} is no store", store.address())));
        };
        let info = Info::read(store.address(), &String::from_utf8_lossy(&text));
        all = Some(match all {
            Some(all) => all.and(&info),
            None => info,
        });
    }
    match all {
        Some(info) => output.print(&info),
        None => Err(Failure::infrastructure(anyhow!("no node of {} answered", store.address()))),
    }
}
