use bytes::Bytes;
use std::collections::BTreeMap;

/// What the surroundings of a store are, for `INFO` and `CLUSTER`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerFacts {
    /// The number of this process.
    pub process: u32,
    /// The port that clients connect to; 0 without one.
    pub port: u16,
    /// The address it listens at, as the user gave it.
    pub bind: String,
    /// The name that clients of a cluster are told, when it is not the one they connected to.
    pub announced_host: Option<String>,
    /// How many threads serve clients.
    pub io_threads: usize,
    /// Whether models can be run.
    pub runs_models: bool,
}

/// How a store is set up.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Seeds hashes, identities and random keys.
    pub seed: u64,
    /// What clients must give before anything else.
    pub password: Option<Bytes>,
    /// The most that keys and values may take; 0 for no limit.
    pub max_memory: u64,
    /// Whether [`super::Effects::changes`] are filled.
    pub record_changes: bool,
    /// Whether large values may leave memory: see [`super::Keyspace::spill_candidates`].
    pub spill: bool,
    /// What the surroundings are.
    pub facts: ServerFacts,
}

/// Parameters of Redis that programs set; they have no effect here but are given back.
const KEPT: [(&str, &str); 14] = [
    ("appendonly", "no"),
    ("client-output-buffer-limit", "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60"),
    ("dbfilename", "dump.rdb"),
    ("dir", "."),
    ("hz", "10"),
    ("io-threads-do-reads", "yes"),
    ("loglevel", "notice"),
    ("lua-time-limit", "5000"),
    ("maxclients", "10000"),
    ("notify-keyspace-events", ""),
    ("save", ""),
    ("slowlog-log-slower-than", "-1"),
    ("slowlog-max-len", "128"),
    ("timeout", "0"),
];

/// The parameters as `CONFIG` shows them.
#[derive(Debug)]
pub(crate) struct Parameters {
    kept: BTreeMap<&'static str, Bytes>,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            kept: KEPT
                .into_iter()
                .map(|(name, value)| (name, Bytes::from_static(value.as_bytes())))
                .collect(),
        }
    }
}

impl Parameters {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, Bytes)> {
        self.kept.iter().map(|(name, value)| (*name, value.clone()))
    }

    /// Says whether there is such a parameter.
    pub(crate) fn set(&mut self, name: &str, value: Bytes) -> bool {
        self.kept.get_mut(name).map(|kept| *kept = value).is_some()
    }
}
