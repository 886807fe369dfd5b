//! What streams show of themselves.

use super::super::keyspace::Keyspace;
use super::waiters::{json, said};
use bytes::Bytes;
use phalanx_resp::Reply;
use phalanx_streams::StreamInfo;
use phalanx_types::{ByteSize, Time};

impl Keyspace {
    /// Everything that there is to show of a stream.
    pub(crate) fn stream_info(&self, now: Time, name: &Bytes) -> Option<StreamInfo> {
        let entry = self.streams.entries.get(name)?;
        Some(StreamInfo {
            name: String::from_utf8_lossy(name).into_owned(),
            at: now,
            stream: entry.core()?.overview(now),
            fields: entry.fields.clone(),
            first_upload: entry.first_upload,
            last_upload: entry.last_upload,
            arrived_since: entry.arrived_since,
            pending_datasets: entry.pending.len() as u64,
            list_wait: self.list_wait(name),
            store_used: ByteSize(self.used()),
            store_memory: ByteSize(self.max_memory()),
            store_on_disk: ByteSize(self.used().saturating_sub(self.resident())),
            read_back_values: self.statistics.read_back,
            read_back: ByteSize(self.statistics.read_back_bytes),
            reports: entry.reports.iter().cloned().collect(),
        })
    }

    /// What a client that follows a stream is shown, or all streams with an empty name; nothing if it has seen that.
    pub(super) fn watch_answer(
        &self,
        now: Time,
        stream: &Bytes,
        seen: u64,
        time_is_up: bool,
    ) -> Option<Reply> {
        let version = match stream.is_empty() {
            true => self.streams.version,
            false => self.streams.entries.get(stream).map_or(0, |entry| entry.version),
        };
        // Versions begin at 1: a client that has seen nothing is shown what there is, be it nothing.
        let version = version.max(1);
        if version <= seen {
            return time_is_up.then(|| said("UNCHANGED", []));
        }
        let named = self.streams.entries.keys().filter(|name| stream.is_empty() || *name == stream);
        let infos: Vec<StreamInfo> = named.filter_map(|name| self.stream_info(now, name)).collect();
        Some(said("STREAMS", [Reply::bulk(version.to_string()), json(&infos)]))
    }
}
