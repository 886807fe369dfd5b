//! Claims of names by those who share a store.
//!
//! A claim is a chain of objects `lease/<name>/<version>` that are only ever created, so exactly one process makes each
//! version: some file systems and stores can create exclusively, but not replace conditionally. The highest version
//! counts. It is held by its owner until a time, or released; then the next version may be made by anyone.
//!
//! Whoever made a version lists once more before it believes that it has won: old versions are deleted, and a process
//! that was away for long may make one of these again.

use serde::{Deserialize, Serialize};

/// Clocks of hosts may differ by this much: a lease of another host ends so much later.
const SKEW_MS: u64 = 5_000;
/// How often others may be faster before this one gives up.
const ATTEMPTS: u32 = 32;
/// This many older versions stay.
pub(crate) const KEPT_VERSIONS: u64 = 16;

/// The content of a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeaseRecord {
    pub(crate) owner: String,
    /// Tells processes of one owner apart.
    pub(crate) token: String,
    /// Until when it is held, in milliseconds since 1970; `None` if it was released.
    pub(crate) until_ms: Option<u64>,
}

/// What the shell is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LeaseCommand {
    List,
    Read {
        version: u64,
    },
    Create {
        version: u64,
        record: LeaseRecord,
    },
    Won {
        version: u64,
        until_ms: u64,
    },
    Lost {
        version: u64,
        owner: String,
        until_ms: u64,
    },
    /// Others made versions faster, again and again.
    GiveUp,
}

/// Decides how one process claims a name.
#[derive(Debug)]
pub(crate) struct Claiming {
    owner: String,
    token: String,
    lasts_ms: u64,
    /// What this process has made, to be confirmed.
    created: Option<(u64, u64)>,
    attempts: u32,
}

impl Claiming {
    pub(crate) fn new(owner: String, token: String, lasts_ms: u64) -> Self {
        Self { owner, token, lasts_ms, created: None, attempts: 0 }
    }

    pub(crate) fn start(&self) -> LeaseCommand {
        LeaseCommand::List
    }

    /// The store has told the highest version there is.
    pub(crate) fn on_listed(&mut self, now_ms: u64, highest: Option<u64>) -> LeaseCommand {
        match (highest, self.created) {
            (Some(highest), Some((version, until_ms))) if highest == version => {
                LeaseCommand::Won { version, until_ms }
            }
            (Some(version), _) => LeaseCommand::Read { version },
            (None, _) => self.create(now_ms, 1),
        }
    }

    pub(crate) fn on_read(&mut self, now_ms: u64, version: u64, record: &LeaseRecord) -> LeaseCommand {
        match record.until_ms {
            // The answer to the creation was lost, and it was repeated.
            Some(until_ms) if record.token == self.token => LeaseCommand::Won { version, until_ms },
            Some(until_ms) if now_ms < until_ms.saturating_add(SKEW_MS) => {
                LeaseCommand::Lost { version, owner: record.owner.clone(), until_ms }
            }
            _ => self.create(now_ms, version.saturating_add(1)),
        }
    }

    /// This process has made the version.
    pub(crate) fn on_created(&mut self, version: u64, until_ms: u64) -> LeaseCommand {
        self.created = Some((version, until_ms));
        LeaseCommand::List
    }

    /// Another process has made the version, or it vanished while it was read.
    pub(crate) fn on_beaten(&mut self) -> LeaseCommand {
        self.attempts += 1;
        if self.attempts >= ATTEMPTS { LeaseCommand::GiveUp } else { LeaseCommand::List }
    }

    fn create(&mut self, now_ms: u64, version: u64) -> LeaseCommand {
        self.created = None;
        let until_ms = Some(now_ms.saturating_add(self.lasts_ms));
        let record = LeaseRecord { owner: self.owner.clone(), token: self.token.clone(), until_ms };
        LeaseCommand::Create { version, record }
    }
}

/// The object name of a version; names sort as numbers do.
pub(crate) fn version_name(version: u64) -> String {
    format!("{version:020}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, VecDeque};

    fn record(owner: &str, token: &str, until_ms: Option<u64>) -> LeaseRecord {
        LeaseRecord { owner: owner.to_owned(), token: token.to_owned(), until_ms }
    }

    fn claiming(token: &str) -> Claiming {
        Claiming::new(format!("owner-{token}"), token.to_owned(), 1_000)
    }

    #[test]
    fn a_free_name_is_created_listed_and_won() {
        let mut me = claiming("a");
        assert_eq!(me.start(), LeaseCommand::List);
        let record = record("owner-a", "a", Some(1_100));
        assert_eq!(me.on_listed(100, None), LeaseCommand::Create { version: 1, record });
        assert_eq!(me.on_created(1, 1_100), LeaseCommand::List);
        assert_eq!(me.on_listed(101, Some(1)), LeaseCommand::Won { version: 1, until_ms: 1_100 });
    }

    #[test]
    fn a_held_name_is_lost_until_its_time_and_the_skew_are_over() {
        let mut me = claiming("a");
        let held = record("b", "tb", Some(500));
        assert_eq!(me.on_listed(100, Some(7)), LeaseCommand::Read { version: 7 });
        let lost = LeaseCommand::Lost { version: 7, owner: "b".to_owned(), until_ms: 500 };
        assert_eq!(me.on_read(100, 7, &held), lost);
        assert_eq!(me.on_read(500 + SKEW_MS - 1, 7, &held), lost);
        assert!(matches!(me.on_read(500 + SKEW_MS, 7, &held), LeaseCommand::Create { version: 8, .. }));
        assert!(matches!(
            me.on_read(0, 7, &record("b", "tb", None)),
            LeaseCommand::Create { version: 8, .. }
        ));
    }

    #[test]
    fn a_repeated_creation_is_our_own() {
        let mut me = claiming("a");
        let LeaseCommand::Create { record, .. } = me.on_listed(0, None) else { panic!() };
        assert_eq!(me.on_beaten(), LeaseCommand::List);
        assert_eq!(me.on_listed(1, Some(1)), LeaseCommand::Read { version: 1 });
        assert_eq!(me.on_read(1, 1, &record), LeaseCommand::Won { version: 1, until_ms: 1_000 });
    }

    #[test]
    fn a_deleted_version_that_is_made_again_does_not_win() {
        let mut me = claiming("a");
        assert!(matches!(
            me.on_read(0, 3, &record("b", "tb", None)),
            LeaseCommand::Create { version: 4, .. }
        ));
        assert_eq!(me.on_created(4, 1_000), LeaseCommand::List);
        assert_eq!(me.on_listed(1, Some(40)), LeaseCommand::Read { version: 40 });
        let held = record("c", "tc", Some(9_000));
        assert!(matches!(me.on_read(1, 40, &held), LeaseCommand::Lost { version: 40, .. }));
    }

    #[test]
    fn who_is_always_beaten_gives_up() {
        let mut me = claiming("a");
        let last = (0..ATTEMPTS).map(|_| me.on_beaten()).last();
        assert_eq!(last, Some(LeaseCommand::GiveUp));
    }

    /// Claimants take turns in every order; commands act on one store. Exactly one wins.
    #[test]
    fn one_of_many_wins_in_any_order() {
        for seed in 0..2_000_u64 {
            let mut dice = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut draw = |most: usize| {
                dice ^= dice << 13;
                dice ^= dice >> 7;
                dice ^= dice << 17;
                usize::try_from(dice % most as u64).unwrap()
            };
            let mut store: BTreeMap<u64, LeaseRecord> = BTreeMap::new();
            if seed % 3 == 1 {
                store.insert(5, record("old", "old", Some(0)));
            }
            let now = 100_000;
            let mut waiting: VecDeque<(Claiming, LeaseCommand)> = (0..5)
                .map(|n| {
                    let me = claiming(&format!("t{n}"));
                    let first = me.start();
                    (me, first)
                })
                .collect();
            let mut won = Vec::new();
            while !waiting.is_empty() {
                let (mut me, command) = waiting.remove(draw(waiting.len())).unwrap();
                let next = match command {
                    LeaseCommand::List => me.on_listed(now, store.keys().last().copied()),
                    LeaseCommand::Read { version } => me.on_read(now, version, &store[&version]),
                    LeaseCommand::Create { version, .. } if store.contains_key(&version) => me.on_beaten(),
                    LeaseCommand::Create { version, record } => {
                        store.insert(version, record);
                        // Sometimes the answer is lost and the creation repeated.
                        if draw(4) == 0 { me.on_beaten() } else { me.on_created(version, now + 1_000) }
                    }
                    LeaseCommand::Won { version, .. } => {
                        won.push(version);
                        continue;
                    }
                    LeaseCommand::Lost { .. } => continue,
                    LeaseCommand::GiveUp => panic!("gave up"),
                };
                waiting.push_back((me, next));
            }
            assert_eq!(won.len(), 1, "seed {seed}");
            assert_eq!(Some(&won[0]), store.keys().last());
        }
    }
}
