//! The leader's core: matches operations of all ranks by name and puts them into one order.
//!
//! An operation happens when every rank of its set has announced it, or has joined. The leader alone decides what
//! runs next and what is fused; every rank computes in the order of the leader's messages, so no two ranks can wait
//! for each other in different collectives.

mod membership;
#[cfg(test)]
mod tests;

use super::failure::OpFailure;
use super::fusion::next_batch;
use super::messages::{OpKey, ToLeader, ToRank, UnitId};
use super::signature::{OpKind, OpSignature, SetId};
use phalanx_types::{Outbox, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// What a leader may do on its own.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LeaderLimits {
    /// The most bytes that are fused.
    pub(crate) bucket_bytes: usize,
    /// How long ready operations wait for others that some ranks have announced.
    pub(crate) hold: Duration,
    /// After this long an operation that waits is reported, and again after each further one.
    pub(crate) stall_report: Duration,
    /// After this long it fails.
    pub(crate) stall_limit: Option<Duration>,
    /// How many operations have numbers.
    pub(crate) known: usize,
}

/// A message for some ranks.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LeaderCommand {
    pub(crate) to: Vec<u32>,
    pub(crate) message: ToRank,
}

#[derive(Debug)]
struct Unit {
    key: OpKey,
    signature: OpSignature,
    /// When it was last announced, as a count of announcements.
    used: u64,
    /// Ranks that may still use its number, once all were told to forget it.
    retiring: Option<BTreeSet<u32>>,
}

#[derive(Debug)]
struct Pending {
    first_rank: u32,
    announced: BTreeSet<u32>,
    since: Time,
    reports: u32,
    failure: Option<OpFailure>,
    /// Ranks that know of the failure and have issued the operation again.
    ahead: Vec<(u32, OpSignature)>,
    ready: bool,
}

/// Decides for all ranks.
#[derive(Debug)]
pub(crate) struct Leader {
    ranks: u32,
    limits: LeaderLimits,
    sets: BTreeMap<SetId, Vec<u32>>,
    next_set: u32,
    units: BTreeMap<UnitId, Unit>,
    by_name: BTreeMap<OpKey, UnitId>,
    next_unit: UnitId,
    uses: u64,
    pending: BTreeMap<UnitId, Pending>,
    ready: VecDeque<UnitId>,
    /// How many pending operations some ranks have announced, but not all.
    partial: usize,
    hold_until: Option<Time>,
    joined: Vec<u32>,
    left: BTreeSet<u32>,
    lost: bool,
}

impl Leader {
    pub(crate) fn new(ranks: u32, limits: LeaderLimits) -> Self {
        Self {
            ranks,
            limits,
            sets: BTreeMap::from([(SetId::WORLD, (0..ranks).collect())]),
            next_set: 1,
            units: BTreeMap::new(),
            by_name: BTreeMap::new(),
            next_unit: 0,
            uses: 0,
            pending: BTreeMap::new(),
            ready: VecDeque::new(),
            partial: 0,
            hold_until: None,
            joined: Vec::new(),
            left: BTreeSet::new(),
            lost: false,
        }
    }

    pub(crate) fn set_bucket_bytes(&mut self, bytes: usize) {
        self.limits.bucket_bytes = bytes;
    }

    /// Takes a message of a rank.
    pub(crate) fn on_message(
        &mut self,
        now: Time,
        rank: u32,
        message: ToLeader,
        out: &mut Outbox<LeaderCommand>,
    ) {
        if self.lost {
            return;
        }
        match message {
            ToLeader::Announce { name, signature } => self.on_announce(now, rank, name, signature, out),
            ToLeader::Ready { unit } => self.on_ready(now, rank, unit, out),
            ToLeader::Forgotten { unit } => self.on_forgotten(rank, unit),
            ToLeader::Join => self.on_join(now, rank, out),
            ToLeader::Leave => self.on_leave(now, rank, out),
        }
    }

    fn on_ready(&mut self, now: Time, rank: u32, unit: UnitId, out: &mut Outbox<LeaderCommand>) {
        // A number that was never given is a peer's mistake; there is no name to answer with.
        let Some(known) = self.units.get(&unit) else { return };
        if self.by_name.get(&known.key) == Some(&unit) {
            self.note(now, rank, unit, None, out);
        } else {
            let (name, signature) = (known.key.1.clone(), known.signature.clone());
            self.on_announce(now, rank, name, signature, out);
        }
    }

    fn on_forgotten(&mut self, rank: u32, unit: UnitId) {
        let Some(known) = self.units.get_mut(&unit) else { return };
        if let Some(retiring) = &mut known.retiring {
            retiring.remove(&rank);
        }
        self.drop_retired(unit);
    }

    fn drop_retired(&mut self, unit: UnitId) {
        let unused = |known: &Unit| {
            let retiring = known.retiring.as_ref();
            retiring.is_some_and(|ranks| ranks.iter().all(|rank| self.left.contains(rank)))
        };
        if self.units.get(&unit).is_some_and(unused) {
            self.units.remove(&unit);
        }
    }

    fn on_announce(
        &mut self,
        now: Time,
        rank: u32,
        name: String,
        signature: OpSignature,
        out: &mut Outbox<LeaderCommand>,
    ) {
        let members = self.sets.get(&signature.set);
        if !members.is_some_and(|members| members.contains(&rank)) {
            let set = signature.set;
            let failure = OpFailure::NoSet { name, set: set.0 };
            return out.push(LeaderCommand { to: vec![rank], message: ToRank::Fail { set, failure } });
        }
        let key = (signature.set, name);
        let current = self.by_name.get(&key).copied();
        let (_, name) = key;
        let current = current.and_then(|unit| self.units.get(&unit).map(|known| (unit, known)));
        let Some((unit, known)) = current else {
            let unit = self.define(name, signature, out);
            return self.note(now, rank, unit, None, out);
        };
        let Some(difference) = known.signature.difference(&signature) else {
            return self.note(now, rank, unit, None, out);
        };
        let Some(pending) = self.pending.get_mut(&unit) else {
            let unit = self.define(name, signature, out);
            return self.note(now, rank, unit, None, out);
        };
        if pending.failure.is_none() {
            pending.failure = Some(OpFailure::Mismatch {
                name,
                difference,
                rank: pending.first_rank,
                other_rank: rank,
                first: Box::new(known.signature.clone()),
                second: Box::new(signature.clone()),
            });
            let told = pending.announced.iter().copied().collect();
            self.tell_failure(unit, told, out);
        }
        self.note(now, rank, unit, Some(signature), out);
    }

    /// Gives an operation a number and tells its set.
    fn define(&mut self, name: String, signature: OpSignature, out: &mut Outbox<LeaderCommand>) -> UnitId {
        self.forget_oldest(out);
        let unit = self.next_unit;
        self.next_unit += 1;
        let to = self.present(signature.set);
        let message = ToRank::Define { unit, name: name.clone(), signature: signature.clone() };
        out.push(LeaderCommand { to, message });
        let key = (signature.set, name);
        self.by_name.insert(key.clone(), unit);
        self.units.insert(unit, Unit { key, signature, used: self.uses, retiring: None });
        unit
    }

    fn forget_oldest(&mut self, out: &mut Outbox<LeaderCommand>) {
        let in_use = |known: &Unit| known.retiring.is_none();
        if self.units.values().filter(|known| in_use(known)).count() < self.limits.known {
            return;
        }
        let idle = self.units.iter().filter(|(unit, _)| !self.pending.contains_key(unit));
        let oldest = idle.filter(|(_, known)| in_use(known)).min_by_key(|(_, known)| known.used);
        let Some(unit) = oldest.map(|(unit, _)| *unit) else { return };
        let set = self.units[&unit].signature.set;
        let to = self.present(set);
        let Some(known) = self.units.get_mut(&unit) else { return };
        known.retiring = Some(to.iter().copied().collect());
        if self.by_name.get(&known.key) == Some(&unit) {
            self.by_name.remove(&known.key);
        }
        out.push(LeaderCommand { to, message: ToRank::Forget { unit } });
        self.drop_retired(unit);
    }

    /// Notes that a rank has issued an operation; `other` is its signature if that differs from the known one.
    fn note(
        &mut self,
        now: Time,
        rank: u32,
        unit: UnitId,
        other: Option<OpSignature>,
        out: &mut Outbox<LeaderCommand>,
    ) {
        self.uses += 1;
        let Some(known) = self.units.get_mut(&unit) else { return };
        known.used = self.uses;
        let pending = self.pending.entry(unit).or_insert_with(|| {
            self.partial += 1;
            Pending {
                first_rank: rank,
                announced: BTreeSet::new(),
                since: now,
                reports: 0,
                failure: None,
                ahead: Vec::new(),
                ready: false,
            }
        });
        if !pending.announced.insert(rank) {
            let signature = other.unwrap_or_else(|| known.signature.clone());
            return pending.ahead.push((rank, signature));
        }
        if pending.failure.is_some() {
            self.tell_failure(unit, vec![rank], out);
        }
        self.review(now, unit, out);
    }

    /// Looks whether an operation can happen, can never happen, or is over.
    fn review(&mut self, now: Time, unit: UnitId, out: &mut Outbox<LeaderCommand>) {
        let (Some(known), Some(pending)) = (self.units.get(&unit), self.pending.get_mut(&unit)) else {
            return;
        };
        if pending.ready {
            return;
        }
        let members = self.sets.get(&known.signature.set).map(Vec::as_slice).unwrap_or_default();
        let missing = |rank: &&u32| !pending.announced.contains(rank);
        if pending.failure.is_none() {
            let name = || known.key.1.clone();
            let gone = members.iter().filter(missing).find(|rank| self.left.contains(rank));
            let joined = members.iter().filter(missing).find(|rank| self.joined.contains(rank));
            pending.failure = match (gone, joined) {
                (Some(rank), _) => Some(OpFailure::ShutDown { name: name(), rank: *rank }),
                (None, Some(rank)) if !known.signature.kind.takes_joined() => {
                    let kind = known.signature.kind.word().to_owned();
                    Some(OpFailure::Joined { name: name(), kind, rank: *rank })
                }
                _ => set_failure(&self.sets, &known.key.1, &known.signature.kind, self.ranks),
            };
            if pending.failure.is_some() {
                let told = pending.announced.iter().copied().collect();
                self.tell_failure(unit, told, out);
                return self.review(now, unit, out);
            }
        }
        let absent = |rank: &u32| !self.joined.contains(rank) && !self.left.contains(rank);
        if members.iter().filter(missing).any(absent) {
            return;
        }
        self.partial = self.partial.saturating_sub(1);
        if pending.failure.is_none() {
            pending.ready = true;
            return self.ready.push_back(unit);
        }
        let name = known.key.1.clone();
        let ahead = self.pending.remove(&unit).map(|pending| pending.ahead).unwrap_or_default();
        for (rank, signature) in ahead {
            self.on_announce(now, rank, name.clone(), signature, out);
        }
    }

    fn tell_failure(&self, unit: UnitId, to: Vec<u32>, out: &mut Outbox<LeaderCommand>) {
        let failure = self.pending.get(&unit).and_then(|pending| pending.failure.clone());
        let set = self.units.get(&unit).map(|known| known.signature.set);
        if let (Some(failure), Some(set)) = (failure.filter(|_| !to.is_empty()), set) {
            out.push(LeaderCommand { to, message: ToRank::Fail { set, failure } });
        }
    }

    /// Says what runs next, if anything is ready. The shell calls it when it has computed what ran before.
    ///
    /// Ready operations that fill no bucket wait shortly for operations that some ranks have announced already.
    pub(crate) fn dispatch(&mut self, now: Time, out: &mut Outbox<LeaderCommand>) -> bool {
        if self.lost || self.ready.is_empty() {
            return false;
        }
        let signature = |unit: &UnitId| &self.units[unit].signature;
        let batch = next_batch(self.ready.iter().map(signature), self.limits.bucket_bytes);
        let bytes: usize = batch.iter().map(|place| signature(&self.ready[*place]).bytes()).sum();
        let more_may_come = self.partial > 0 && bytes < self.limits.bucket_bytes / 4;
        if more_may_come && self.limits.hold > Duration::ZERO {
            let until = *self.hold_until.get_or_insert(now + self.limits.hold);
            if now < until {
                return false;
            }
        }
        self.hold_until = None;
        let units: Vec<UnitId> = batch.iter().map(|place| self.ready[*place]).collect();
        for place in batch.iter().rev() {
            self.ready.remove(*place);
        }
        let mut set = SetId::WORLD;
        for unit in &units {
            self.pending.remove(unit);
            if let Some(known) = self.units.get(unit) {
                set = known.signature.set;
                self.on_run(&known.signature.kind.clone());
            }
        }
        out.push(LeaderCommand { to: self.present(set), message: ToRank::Run { units } });
        true
    }

    /// Keeps the sets as every rank has them after the operation.
    fn on_run(&mut self, kind: &OpKind) {
        match kind {
            OpKind::AddSet { ranks } => {
                self.sets.insert(SetId(self.next_set), ranks.clone());
                self.next_set += 1;
            }
            OpKind::RemoveSet { set } => {
                self.sets.remove(set);
            }
            _ => {}
        }
    }

    /// The ranks of a set that have not left.
    fn present(&self, set: SetId) -> Vec<u32> {
        let members = self.sets.get(&set).map(Vec::as_slice).unwrap_or_default();
        members.iter().copied().filter(|rank| !self.left.contains(rank)).collect()
    }

    /// Reports what waits for too long.
    pub(crate) fn on_time(&mut self, now: Time, out: &mut Outbox<LeaderCommand>) {
        let mut failed = Vec::new();
        for (unit, pending) in &mut self.pending {
            if pending.ready || pending.failure.is_some() {
                continue;
            }
            let (waited, Some(known)) = (now.since(pending.since), self.units.get(unit)) else { continue };
            let members = self.sets.get(&known.signature.set).map(Vec::as_slice).unwrap_or_default();
            let absent = |rank: &u32| !pending.announced.contains(rank) && !self.joined.contains(rank);
            let missing: Vec<u32> = members.iter().copied().filter(absent).collect();
            let name = known.key.1.clone();
            if self.limits.stall_limit.is_some_and(|limit| waited >= limit) {
                pending.failure = Some(OpFailure::Stalled { name, missing, waited });
                failed.push(*unit);
            } else if waited >= self.limits.stall_report.saturating_mul(pending.reports + 1) {
                pending.reports += 1;
                let to = (0..self.ranks).filter(|rank| !self.left.contains(rank)).collect();
                out.push(LeaderCommand { to, message: ToRank::Stalled { name, missing, waited } });
            }
        }
        for unit in failed {
            let announced =
                self.pending.get(&unit).map(|pending| pending.announced.iter().copied().collect());
            self.tell_failure(unit, announced.unwrap_or_default(), out);
        }
    }

    /// When [`Leader::dispatch`] or [`Leader::on_time`] has something to do without a message.
    pub(crate) fn next_time(&self) -> Option<Time> {
        let waits = self.pending.values().filter(|pending| !pending.ready && pending.failure.is_none());
        let stall = waits.map(|pending| {
            let report = pending.since + self.limits.stall_report.saturating_mul(pending.reports + 1);
            self.limits.stall_limit.map_or(report, |limit| report.min(pending.since + limit))
        });
        let hold = self.hold_until.filter(|_| !self.ready.is_empty());
        stall.min().into_iter().chain(hold).min()
    }
}

fn set_failure(sets: &BTreeMap<SetId, Vec<u32>>, name: &str, kind: &OpKind, ranks: u32) -> Option<OpFailure> {
    let bad = match kind {
        OpKind::RemoveSet { set } => (*set == SetId::WORLD || !sets.contains_key(set)).then_some(set.0),
        OpKind::AddSet { ranks: members } => {
            let distinct: BTreeSet<&u32> = members.iter().collect();
            let sound = !members.is_empty()
                && distinct.len() == members.len()
                && members.iter().all(|rank| *rank < ranks);
            (!sound).then_some(u32::MAX)
        }
        _ => None,
    };
    bad.map(|set| OpFailure::NoSet { name: name.to_owned(), set })
}
