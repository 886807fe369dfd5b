use std::collections::BTreeMap;

/// What is on disk, as the surroundings of the keyspace know it; for `INFO`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StorageFacts {
    /// The journal, with `--persist`.
    pub persist: Option<PersistFacts>,
    /// Values that are not in memory.
    pub spill: Option<SpillFacts>,
}

/// What a journal holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PersistFacts {
    /// `every-write`, `every-second` or `never`.
    pub durability: &'static str,
    /// Bytes of the journal since the newest snapshot.
    pub journal_bytes: u64,
    /// Bytes of the newest snapshot.
    pub snapshot_bytes: u64,
    /// Bytes of large values.
    pub value_bytes: u64,
    /// Bytes of the files with large values.
    pub value_file_bytes: u64,
    /// Bytes that wait to be written.
    pub waiting_bytes: u64,
    /// Records since the newest snapshot.
    pub records_since_snapshot: u64,
    /// Whether a snapshot is being written.
    pub saving: bool,
    /// Why the last snapshot failed, if it did.
    pub save_error: Option<String>,
    /// Why writes are refused, if they are.
    pub refused: Option<String>,
}

/// What lies in the files of a spill.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpillFacts {
    /// Bytes of its files.
    pub file_bytes: u64,
    /// The most that they may be.
    pub limit_bytes: u64,
    /// Why the last value was not spilled, if it was not.
    pub error: Option<String>,
}

impl StorageFacts {
    /// The lines of `INFO persistence` that depend on a journal.
    pub(crate) fn persistence(&self) -> BTreeMap<&'static str, String> {
        let Some(facts) = &self.persist else { return BTreeMap::from([("aof_enabled", "0".into())]) };
        let status = |good: bool| if good { "ok" } else { "err" }.to_owned();
        BTreeMap::from([
            ("aof_enabled", "1".into()),
            ("aof_last_write_status", status(facts.refused.is_none())),
            ("journal_bytes", facts.journal_bytes.to_string()),
            ("journal_durability", facts.durability.into()),
            ("journal_refuses_because", facts.refused.clone().unwrap_or_default()),
            ("journal_waiting_bytes", facts.waiting_bytes.to_string()),
            ("persisted_value_bytes", facts.value_bytes.to_string()),
            ("persisted_value_file_bytes", facts.value_file_bytes.to_string()),
            ("rdb_bgsave_in_progress", u8::from(facts.saving).to_string()),
            ("rdb_changes_since_last_save", facts.records_since_snapshot.to_string()),
            ("rdb_last_bgsave_status", status(facts.save_error.is_none())),
            ("snapshot_bytes", facts.snapshot_bytes.to_string()),
            ("snapshot_failed_because", facts.save_error.clone().unwrap_or_default()),
        ])
    }
}
