//! Numbers of a store, as its own `INFO` says them.

use phalanx_resp::Reply;
use phalanx_store::StoreClient;
use phalanx_telemetry::{Exposition, Kind, Source, add_process};
use std::collections::BTreeMap;
use std::pin::Pin;
use tokio::sync::Mutex;

/// Which fields of `INFO` are served, under which name.
const FIELDS: [(&str, Kind, &str, &str); 16] = [
    ("used_memory", Kind::Gauge, "phalanx_store_used_bytes", "Bytes of keys and values"),
    ("resident_bytes", Kind::Gauge, "phalanx_store_resident_bytes", "Bytes of keys and values in memory"),
    ("spilled_bytes", Kind::Gauge, "phalanx_store_spilled_bytes", "Bytes of values on disk only"),
    ("maxmemory", Kind::Gauge, "phalanx_store_memory_limit_bytes", "Memory that keys and values may take"),
    ("connected_clients", Kind::Gauge, "phalanx_store_clients", "Connected clients"),
    ("blocked_clients", Kind::Gauge, "phalanx_store_waiting_clients", "Clients whose command waits"),
    ("keys", Kind::Gauge, "phalanx_store_keys", "Keys"),
    ("uptime_in_seconds", Kind::Gauge, "phalanx_store_uptime_seconds", "Time since the start"),
    ("total_connections_received", Kind::Counter, "phalanx_store_connections", "Accepted connections"),
    ("total_commands_processed", Kind::Counter, "phalanx_store_commands", "Executed commands"),
    ("total_error_replies", Kind::Counter, "phalanx_store_errors", "Commands that failed"),
    ("rejected_for_memory", Kind::Counter, "phalanx_store_rejected_writes", "Writes without room in memory"),
    ("repeated_appends_dropped", Kind::Counter, "phalanx_store_repeated_appends", "Appends that came twice"),
    ("expired_keys", Kind::Counter, "phalanx_store_expired_keys", "Keys that expired"),
    ("keyspace_hits", Kind::Counter, "phalanx_store_hits", "Keys that were read and there"),
    ("keyspace_misses", Kind::Counter, "phalanx_store_misses", "Keys that were read and not there"),
];

/// A store in this process, as collectors see it.
#[derive(Debug)]
pub(crate) struct StoreSource {
    client: Mutex<StoreClient>,
}

impl StoreSource {
    pub(crate) fn new(client: StoreClient) -> Self {
        Self { client: Mutex::new(client) }
    }
}

impl Source for StoreSource {
    fn collect(&self) -> Pin<Box<dyn Future<Output = Exposition> + Send + '_>> {
        Box::pin(async {
            let reply = self.client.lock().await.execute(["INFO"]).await;
            let mut metrics = match reply {
                Reply::Bulk(text) | Reply::Verbatim(text) => exposition(&String::from_utf8_lossy(&text)),
                _ => Exposition::default(),
            };
            add_process(&mut metrics);
            metrics
        })
    }
}

fn exposition(info: &str) -> Exposition {
    let mut fields: BTreeMap<&str, &str> =
        info.lines().filter_map(|line| line.trim_end().split_once(':')).collect();
    let keys = fields.get("db0").and_then(|db| db.strip_prefix("keys=")?.split(',').next());
    fields.insert("keys", keys.unwrap_or("0"));
    let mut metrics = Exposition::default();
    for (field, kind, name, help) in FIELDS {
        if let Some(value) = fields.get(field).and_then(|value| value.parse::<f64>().ok()) {
            metrics.add(kind, name, help, [value]);
        }
    }
    metrics
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_becomes_metrics() {
        let text = exposition("# Memory\r\nused_memory:17\r\ndb0:keys=3,expires=0\r\nwords:x\r\n").finish();
        assert!(
            text.contains("phalanx_store_used_bytes 17\n") && text.contains("phalanx_store_keys 3\n"),
            "{text}"
        );
        assert!(exposition("").finish().contains("phalanx_store_keys 0\n"));
    }
}
