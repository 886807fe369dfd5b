//! When to look at which link: heartbeats are due, or silence is the end.

use super::LinkKey;
use super::links::LinkEntry;
use phalanx_types::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The links of this node, with what is due of them in order.
#[derive(Debug)]
pub(crate) struct Links {
    heartbeat: Duration,
    all: BTreeMap<LinkKey, LinkEntry>,
    due: BTreeSet<(Time, LinkKey)>,
    /// How many links have each interval of heartbeats.
    intervals: BTreeMap<Duration, usize>,
    /// Links whose table has not arrived.
    silent: BTreeSet<LinkKey>,
}

impl Links {
    pub(super) fn new(heartbeat: Duration) -> Self {
        let (all, due) = (BTreeMap::new(), BTreeSet::new());
        Self { heartbeat, all, due, intervals: BTreeMap::new(), silent: BTreeSet::new() }
    }

    fn due_of(&self, entry: &LinkEntry) -> Time {
        let speak = entry.sent + self.heartbeat.min(entry.peer_heartbeat) / 4;
        speak.min(entry.heard + self.heartbeat)
    }

    pub(super) fn insert(&mut self, link: LinkKey, entry: LinkEntry) {
        self.remove(&link);
        self.due.insert((self.due_of(&entry), link));
        *self.intervals.entry(entry.peer_heartbeat).or_default() += 1;
        if !entry.known_arrived {
            self.silent.insert(link);
        }
        self.all.insert(link, entry);
    }

    pub(super) fn remove(&mut self, link: &LinkKey) -> Option<LinkEntry> {
        let entry = self.all.remove(link)?;
        self.due.remove(&(self.due_of(&entry), *link));
        self.silent.remove(link);
        if let Some(count) = self.intervals.get_mut(&entry.peer_heartbeat) {
            *count -= 1;
            if *count == 0 {
                self.intervals.remove(&entry.peer_heartbeat);
            }
        }
        Some(entry)
    }

    /// Changes a link.
    pub(super) fn change<T>(&mut self, link: LinkKey, change: impl FnOnce(&mut LinkEntry) -> T) -> Option<T> {
        let mut entry = self.remove(&link)?;
        let changed = change(&mut entry);
        self.insert(link, entry);
        Some(changed)
    }

    pub(super) fn get(&self, link: &LinkKey) -> Option<&LinkEntry> {
        self.all.get(link)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &LinkKey> {
        self.all.keys()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &LinkEntry> {
        self.all.values()
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = (&LinkKey, &LinkEntry)> {
        self.all.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Links to look at now.
    pub(super) fn due(&self, now: Time) -> Vec<LinkKey> {
        self.due.iter().take_while(|(at, _)| *at <= now).map(|(_, link)| *link).collect()
    }

    /// When a link is to be looked at next.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The shortest interval of heartbeats.
    pub(super) fn shortest_interval(&self) -> Duration {
        self.intervals
            .first_key_value()
            .map_or(self.heartbeat, |(interval, _)| (*interval).min(self.heartbeat))
    }

    /// Whether the tables of all links have arrived.
    pub(super) fn have_told(&self) -> bool {
        self.silent.is_empty()
    }
}
