//! All peers, with what is due of them in order: finding it costs the logarithm of their number.
//!
//! A peer that is only known because a linked node told of it is charged to that node, its teller. A teller has a quota
//! of memory, and of dials: as many as lead somewhere, and few more.

use super::LinkKey;
use super::peer::PeerEntry;
use phalanx_types::{NodeId, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The most peers of one teller that this node was never linked to, and what they may take together.
pub(super) const MAX_HEARD: usize = 10_240;
const MAX_HEARD_BYTES: usize = 16 << 20;
/// What such peers of all tellers may take.
const MAX_HEARSAY_BYTES: usize = 48 << 20;
/// Dials of peers of one teller that need not have led anywhere, and how long until there may be another one.
pub(super) const FREE_DIALS: u32 = 64;
pub(super) const DIAL_PACE: Duration = Duration::from_secs(1);
/// Dials that one success is worth.
const REWARD: u32 = 2;
const MOST_CREDIT: u32 = 256;

/// A peer's part of the sets below.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Indexed {
    due: Option<Time>,
    forget: Option<Time>,
    /// Whether it was ever linked, and the last news of it.
    unlinked: Option<(bool, Time)>,
    link: Option<LinkKey>,
    dialing: bool,
    unsettled: bool,
    charged: Option<(NodeId, usize)>,
}

impl Indexed {
    fn of(peer: &PeerEntry, forget_after: Duration) -> Self {
        let unlinked = peer.link.is_none();
        Self {
            due: peer.wants_dial().then(|| peer.backoff.due()),
            forget: unlinked.then(|| peer.forget_at(forget_after)),
            unlinked: unlinked.then_some((peer.linked_as.is_some(), peer.last_news)),
            link: peer.link,
            dialing: peer.dialing,
            unsettled: !peer.is_settled(),
            charged: peer.charged_to().map(|teller| (teller.clone(), peer.weight())),
        }
    }
}

/// A linked node as the source of hearsay.
#[derive(Debug)]
struct Teller {
    peers: BTreeSet<NodeId>,
    bytes: usize,
    due: BTreeSet<(Time, NodeId)>,
    credit: u32,
    refilled: Time,
    /// Its part of [`Roster::teller_due`].
    listed: Option<Time>,
}

impl Teller {
    fn new() -> Self {
        let (peers, due) = (BTreeSet::new(), BTreeSet::new());
        Self { peers, bytes: 0, due, credit: FREE_DIALS, refilled: Time::ZERO, listed: None }
    }

    fn refill(&mut self, now: Time) {
        let earned = now.since(self.refilled).as_millis() / DIAL_PACE.as_millis();
        if earned > 0 || self.credit >= FREE_DIALS {
            let earned = u32::try_from(earned).unwrap_or(u32::MAX);
            self.credit = self.credit.max(self.credit.saturating_add(earned).min(FREE_DIALS));
            self.refilled = now;
        }
    }

    /// When the next of its peers may be dialed.
    fn next(&self) -> Option<Time> {
        let (first, _) = self.due.first()?;
        Some(if self.credit > 0 { *first } else { (*first).max(self.refilled + DIAL_PACE) })
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Roster {
    forget_after: Duration,
    peers: BTreeMap<NodeId, PeerEntry>,
    /// Peers that may have changed since the sets were brought up to date.
    touched: Vec<NodeId>,
    due: BTreeSet<(Time, NodeId)>,
    forget: BTreeSet<(Time, NodeId)>,
    never_linked: BTreeSet<(Time, NodeId)>,
    once_linked: BTreeSet<(Time, NodeId)>,
    linked: BTreeMap<NodeId, LinkKey>,
    dialing: usize,
    unsettled: usize,
    tellers: BTreeMap<NodeId, Teller>,
    /// When a peer of each teller may be dialed.
    teller_due: BTreeSet<(Time, NodeId)>,
    by_bytes: BTreeSet<(usize, NodeId)>,
    hearsay_bytes: usize,
}

impl Roster {
    pub(super) fn new(forget_after: Duration) -> Self {
        Self {
            forget_after,
            peers: BTreeMap::new(),
            touched: Vec::new(),
            due: BTreeSet::new(),
            forget: BTreeSet::new(),
            never_linked: BTreeSet::new(),
            once_linked: BTreeSet::new(),
            linked: BTreeMap::new(),
            dialing: 0,
            unsettled: 0,
            tellers: BTreeMap::new(),
            teller_due: BTreeSet::new(),
            by_bytes: BTreeSet::new(),
            hearsay_bytes: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.peers.len()
    }

    pub(super) fn contains_key(&self, id: &NodeId) -> bool {
        self.peers.contains_key(id)
    }

    pub(super) fn get(&self, id: &NodeId) -> Option<&PeerEntry> {
        self.peers.get(id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&NodeId, &PeerEntry)> {
        self.peers.iter()
    }

    pub(super) fn get_mut(&mut self, id: &NodeId) -> Option<&mut PeerEntry> {
        let peer = self.peers.get_mut(id)?;
        self.touched.push(id.clone());
        Some(peer)
    }

    pub(super) fn get_or_insert(&mut self, id: &NodeId, new: impl FnOnce() -> PeerEntry) -> &mut PeerEntry {
        self.touched.push(id.clone());
        self.peers.entry(id.clone()).or_insert_with(new)
    }

    pub(super) fn remove(&mut self, id: &NodeId) -> Option<PeerEntry> {
        let removed = self.peers.remove(id)?;
        self.take_out(id, &removed.indexed);
        Some(removed)
    }

    /// Brings the sets up to date.
    pub(super) fn settle(&mut self) {
        while let Some(id) = self.touched.pop() {
            let Some(peer) = self.peers.get_mut(&id) else { continue };
            let now = Indexed::of(peer, self.forget_after);
            if now == peer.indexed {
                continue;
            }
            let before = std::mem::replace(&mut peer.indexed, now.clone());
            self.take_out(&id, &before);
            self.put_in(&id, now);
        }
    }

    fn put_in(&mut self, id: &NodeId, part: Indexed) {
        let Indexed { due, forget, unlinked, link, dialing, unsettled, charged } = part;
        self.forget.extend(forget.map(|at| (at, id.clone())));
        if let Some((once, news)) = unlinked {
            if once { &mut self.once_linked } else { &mut self.never_linked }.insert((news, id.clone()));
        }
        self.linked.extend(link.map(|link| (id.clone(), link)));
        self.dialing += usize::from(dialing);
        self.unsettled += usize::from(unsettled);
        let Some((name, bytes)) = charged else {
            self.due.extend(due.map(|at| (at, id.clone())));
            return;
        };
        self.change(&name, |teller| {
            teller.peers.insert(id.clone());
            teller.bytes += bytes;
            teller.due.extend(due.map(|at| (at, id.clone())));
        });
        self.hearsay_bytes += bytes;
    }

    fn take_out(&mut self, id: &NodeId, part: &Indexed) {
        let Indexed { due, forget, unlinked, link, dialing, unsettled, charged } = part;
        if let Some(at) = forget {
            self.forget.remove(&(*at, id.clone()));
        }
        if let Some((once, news)) = unlinked {
            if *once { &mut self.once_linked } else { &mut self.never_linked }.remove(&(*news, id.clone()));
        }
        if link.is_some() {
            self.linked.remove(id);
        }
        self.dialing -= usize::from(*dialing);
        self.unsettled -= usize::from(*unsettled);
        let key = due.map(|at| (at, id.clone()));
        let Some((name, bytes)) = charged else {
            if let Some(key) = key {
                self.due.remove(&key);
            }
            return;
        };
        self.change(name, |teller| {
            teller.peers.remove(id);
            teller.bytes -= bytes;
            if let Some(key) = key {
                teller.due.remove(&key);
            }
        });
        self.hearsay_bytes -= bytes;
    }

    /// Changes a teller, and where it stands among all.
    fn change(&mut self, name: &NodeId, change: impl FnOnce(&mut Teller)) {
        let teller = self.tellers.entry(name.clone()).or_insert_with(Teller::new);
        let (bytes, listed) = (teller.bytes, teller.listed);
        change(teller);
        let next = teller.next();
        teller.listed = next;
        if teller.bytes != bytes || bytes == 0 {
            self.by_bytes.remove(&(bytes, name.clone()));
            self.by_bytes.insert((teller.bytes, name.clone()));
        }
        if next != listed {
            if let Some(at) = listed {
                self.teller_due.remove(&(at, name.clone()));
            }
            self.teller_due.extend(next.map(|at| (at, name.clone())));
        }
    }

    /// When a peer is to be dialed next.
    pub(super) fn next_dial(&self) -> Option<Time> {
        let first = |set: &BTreeSet<(Time, NodeId)>| set.first().map(|(at, _)| *at);
        [first(&self.due), first(&self.teller_due)].into_iter().flatten().min()
    }

    /// The peer that has been due longest, and since when. The dial is counted.
    pub(super) fn take_due(&mut self, now: Time) -> Option<(Time, NodeId)> {
        let own = self.due.first().filter(|(at, _)| *at <= now).cloned();
        let heard = self.teller_due.first().filter(|(at, _)| *at <= now).cloned();
        match (own, heard) {
            (Some(own), Some((at, _))) if own.0 <= at => Some(own),
            (Some(own), None) => Some(own),
            (_, Some((_, name))) => {
                let mut first = None;
                self.change(&name, |teller| {
                    teller.refill(now);
                    if teller.credit > 0 {
                        teller.credit -= 1;
                        first = teller.due.first().cloned();
                    }
                });
                first
            }
            (None, None) => None,
        }
    }

    /// A dial of a peer led to it: more that its teller tells of may be dialed.
    pub(super) fn reward(&mut self, teller: &NodeId) {
        if self.tellers.contains_key(teller) {
            self.change(teller, |teller| teller.credit = (teller.credit + REWARD).min(MOST_CREDIT));
        }
    }

    /// A linked node is gone: the peers that were charged to it.
    pub(super) fn charged_to(&self, teller: &NodeId) -> Vec<NodeId> {
        self.tellers.get(teller).into_iter().flat_map(|teller| teller.peers.iter().cloned()).collect()
    }

    /// Forgets how a teller did that told of nothing that is still known.
    pub(super) fn drop_teller(&mut self, name: &NodeId) {
        if let Some(teller) = self.tellers.get(name).filter(|teller| teller.peers.is_empty()) {
            self.by_bytes.remove(&(teller.bytes, name.clone()));
            self.tellers.remove(name);
        }
    }

    /// Whether a teller may tell of so many bytes more, of a new peer or of a known one.
    pub(super) fn may_tell(&self, teller: &NodeId, more: usize, is_new: bool) -> bool {
        self.tellers.get(teller).is_none_or(|teller| {
            teller.bytes + more <= MAX_HEARD_BYTES && !(is_new && teller.peers.len() >= MAX_HEARD)
        })
    }

    /// Whether so many bytes of hearsay more are too much for all tellers together.
    pub(super) fn is_full_of_hearsay(&self, more: usize) -> bool {
        self.hearsay_bytes + more > MAX_HEARSAY_BYTES
    }

    /// A peer to forget for the sake of one that this teller tells of: of a teller whose peers take more.
    pub(super) fn heard_too_much(&self, teller: &NodeId, more: usize) -> Option<NodeId> {
        let own = self.tellers.get(teller).map_or(0, |teller| teller.bytes);
        let (bytes, greatest) = self.by_bytes.last()?;
        let is_greater = greatest != teller && *bytes > own + more;
        self.tellers.get(greatest).filter(|_| is_greater)?.peers.last().cloned()
    }

    /// The peer to forget for the sake of one that has proved its identity.
    pub(super) fn least(&self) -> Option<NodeId> {
        let first = self.never_linked.first().or_else(|| self.once_linked.first());
        first.map(|(_, id)| id.clone())
    }

    /// When a peer is to be forgotten next.
    pub(super) fn next_forget(&self) -> Option<(Time, &NodeId)> {
        self.forget.first().map(|(at, id)| (*at, id))
    }

    pub(super) fn dialing(&self) -> usize {
        self.dialing
    }

    /// Whether every peer without a link was dialed in vain, or is not to be dialed.
    pub(super) fn is_settled(&self) -> bool {
        self.unsettled == 0
    }

    /// Linked peers, in the order of ids, from one on and round.
    pub(super) fn linked_from(&self, id: &NodeId) -> impl Iterator<Item = (&NodeId, LinkKey)> {
        let after =
            self.linked.range::<NodeId, _>((std::ops::Bound::Excluded(id), std::ops::Bound::Unbounded));
        let before = self.linked.range::<NodeId, _>(..=id);
        after.chain(before).map(|(id, link)| (id, *link))
    }

    /// Peers that were linked once, the latest news first.
    pub(super) fn once_linked(&self) -> impl Iterator<Item = (&NodeId, &PeerEntry)> {
        self.once_linked.iter().rev().filter_map(|(_, id)| Some((id, self.peers.get(id)?)))
    }

    /// Compares the sets with the peers; for tests.
    #[cfg(test)]
    pub(super) fn check(&self) {
        assert!(self.touched.is_empty(), "the sets are not up to date");
        let mut other = Self::new(self.forget_after);
        for (id, peer) in &self.peers {
            let part = Indexed::of(peer, self.forget_after);
            assert_eq!(part, peer.indexed, "{id}");
            other.put_in(id, part);
        }
        assert_eq!((&other.due, &other.forget, &other.linked), (&self.due, &self.forget, &self.linked));
        assert_eq!((&other.never_linked, &other.once_linked), (&self.never_linked, &self.once_linked));
        let sums = |roster: &Self| (roster.dialing, roster.unsettled, roster.hearsay_bytes);
        assert_eq!(sums(&other), sums(self));
        for (name, teller) in &other.tellers {
            let known = &self.tellers[name];
            assert_eq!((&known.peers, known.bytes, &known.due), (&teller.peers, teller.bytes, &teller.due));
            assert!(self.by_bytes.contains(&(known.bytes, name.clone())));
        }
        let listed = |(name, teller): (&NodeId, &Teller)| teller.listed.map(|at| (at, name.clone()));
        assert_eq!(self.teller_due, self.tellers.iter().filter_map(listed).collect());
    }
}
