//! Which run or node changed when, for the viewers that wait for it.

use crate::runs::lock;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// Counts changes. A later process counts on from higher versions than an earlier one.
#[derive(Debug)]
pub(crate) struct Hub {
    began: u64,
    version: watch::Sender<u64>,
    changes: Mutex<Changes>,
}

#[derive(Debug, Default)]
struct Changes {
    /// The version of the last change of each run.
    runs: BTreeMap<PathBuf, u64>,
    /// The same of searches.
    searches: BTreeMap<PathBuf, u64>,
    domain: u64,
    stores: u64,
    /// The listing as a whole.
    listing: u64,
}

impl Hub {
    pub(crate) fn new() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began = u64::try_from(since.as_millis()).unwrap_or(0) * 1000;
        Self { began, version: watch::Sender::new(began), changes: Mutex::default() }
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    pub(crate) fn version(&self) -> u64 {
        *self.version.borrow()
    }

    /// Whether all changes since a version are known.
    pub(crate) fn knows(&self, version: u64) -> bool {
        (self.began..=self.version()).contains(&version)
    }

    pub(crate) fn run_changed(&self, dir: &Path) {
        let mut changes = lock(&self.changes);
        let next = self.version() + 1;
        changes.runs.insert(dir.to_owned(), next);
        self.version.send_replace(next);
    }

    pub(crate) fn search_changed(&self, dir: &Path) {
        let mut changes = lock(&self.changes);
        let next = self.version() + 1;
        changes.searches.insert(dir.to_owned(), next);
        self.version.send_replace(next);
    }

    /// Listings have to be read anew.
    pub(crate) fn listing_changed(&self) {
        let mut changes = lock(&self.changes);
        changes.listing = self.version() + 1;
        self.version.send_replace(changes.listing);
    }

    pub(crate) fn listing_since(&self, version: u64) -> bool {
        lock(&self.changes).listing > version
    }

    pub(crate) fn domain_changed(&self) {
        let mut changes = lock(&self.changes);
        changes.domain = self.version() + 1;
        self.version.send_replace(changes.domain);
    }

    pub(crate) fn stores_changed(&self) {
        let mut changes = lock(&self.changes);
        changes.stores = self.version() + 1;
        self.version.send_replace(changes.stores);
    }

    pub(crate) fn runs_since(&self, version: u64) -> Vec<PathBuf> {
        let changes = lock(&self.changes);
        let newer = changes.runs.iter().filter(|(_, at)| **at > version);
        newer.map(|(dir, _)| dir.clone()).collect()
    }

    /// The names of searches that changed.
    pub(crate) fn searches_since(&self, version: u64) -> Vec<String> {
        let changes = lock(&self.changes);
        let newer = changes.searches.iter().filter(|(_, at)| **at > version);
        newer.filter_map(|(dir, _)| Some(dir.file_name()?.to_string_lossy().into_owned())).collect()
    }

    pub(crate) fn stores_since(&self, version: u64) -> bool {
        lock(&self.changes).stores > version
    }

    pub(crate) fn domain_since(&self, version: u64) -> bool {
        lock(&self.changes).domain > version
    }
}
