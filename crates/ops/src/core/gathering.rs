//! Who is in a group of ranks, and with which number: the core of a rendezvous.

use phalanx_collective::HostId;
use phalanx_types::Outbox;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A connection to the rendezvous.
pub(crate) type GuestId = u64;

/// What a process says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JoinRequest {
    /// Its number among the processes that were started; its rank where ranks are fixed.
    pub(crate) worker: u32,
    /// The last epoch it was a rank of; 0 if none. Ranks of a later epoch have lower numbers, so that rank 0 has state.
    pub(crate) last_epoch: u64,
    pub(crate) host: HostId,
    /// Where it listens for other ranks.
    pub(crate) address: String,
}

/// One rank of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    pub(crate) worker: u32,
    pub(crate) host: HostId,
    pub(crate) address: String,
}

/// Why a process is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// Another process has the same number.
    #[error("another process has the same number")]
    Duplicate,
    /// There is no rank of this number.
    #[error("there is no rank of this number")]
    NoSuchRank,
    /// A rank went away before all were connected.
    #[error("a rank went away before all were connected")]
    MemberGone,
}

/// What the rendezvous says to a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToGuest {
    Formed {
        epoch: u64,
        rank: u32,
        members: Vec<Member>,
    },
    Exchanged {
        blobs: Vec<Vec<u8>>,
    },
    Refused {
        refusal: Refusal,
    },
    /// To a newcomer: a group goes on without it until its ranks meet again, however long that takes.
    Queued,
    /// To rank 0 of a group: processes wait to become ranks.
    Newcomers,
}

/// What a process says to the rendezvous.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FromGuest {
    Join(JoinRequest),
    Exchange { blob: Vec<u8> },
}

#[derive(Debug)]
struct Round {
    members: Vec<GuestId>,
    blobs: BTreeMap<GuestId, Vec<u8>>,
}

/// Forms a group when all expected processes have come.
#[derive(Debug)]
pub(crate) struct Gathering {
    /// Processes that are alive, as far as known. A group waits for all of them.
    expected: BTreeSet<u32>,
    /// Processes that are starting. No group waits for them; those that are here become ranks.
    newcomers: BTreeSet<u32>,
    /// Rank 0 of the last group, while its connection lasts, and the processes of that group.
    leader: Option<GuestId>,
    members: BTreeSet<u32>,
    waiting: BTreeMap<GuestId, JoinRequest>,
    epoch: u64,
    round: Option<Round>,
}

impl Gathering {
    pub(crate) fn new(workers: impl IntoIterator<Item = u32>) -> Self {
        let expected = workers.into_iter().collect();
        Self {
            expected,
            newcomers: BTreeSet::new(),
            leader: None,
            members: BTreeSet::new(),
            waiting: BTreeMap::new(),
            epoch: 0,
            round: None,
        }
    }

    /// Changes who is expected, and who may come beside them.
    pub(crate) fn expect(
        &mut self,
        workers: BTreeSet<u32>,
        newcomers: BTreeSet<u32>,
        out: &mut Outbox<(GuestId, ToGuest)>,
    ) {
        self.expected = workers;
        self.newcomers = newcomers;
        self.form(out);
    }

    /// The processes of the last group that was formed.
    pub(crate) fn members(&self) -> &BTreeSet<u32> {
        &self.members
    }

    /// The last group that was formed.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(crate) fn on_message(
        &mut self,
        guest: GuestId,
        message: FromGuest,
        out: &mut Outbox<(GuestId, ToGuest)>,
    ) {
        match message {
            FromGuest::Join(request) => {
                let known =
                    self.expected.contains(&request.worker) || self.newcomers.contains(&request.worker);
                let refusal = if !known {
                    Some(Refusal::NoSuchRank)
                } else if self.waiting.values().any(|other| other.worker == request.worker) {
                    Some(Refusal::Duplicate)
                } else {
                    None
                };
                match refusal {
                    Some(refusal) => out.push((guest, ToGuest::Refused { refusal })),
                    None => {
                        self.waiting.insert(guest, request);
                        self.form(out);
                        self.announce(guest, out);
                    }
                }
            }
            FromGuest::Exchange { blob } => {
                let Some(round) = &mut self.round else {
                    let refusal = Refusal::MemberGone;
                    return out.push((guest, ToGuest::Refused { refusal }));
                };
                if !round.members.contains(&guest) {
                    return out.push((guest, ToGuest::Refused { refusal: Refusal::MemberGone }));
                }
                round.blobs.insert(guest, blob);
                if round.blobs.len() == round.members.len()
                    && let Some(mut round) = self.round.take()
                {
                    let blob = |guest: &GuestId| round.blobs.remove(guest).unwrap_or_default();
                    let blobs: Vec<Vec<u8>> = round.members.iter().map(blob).collect();
                    for guest in round.members {
                        out.push((guest, ToGuest::Exchanged { blobs: blobs.clone() }));
                    }
                }
            }
        }
    }

    /// A connection has ended.
    pub(crate) fn on_gone(&mut self, guest: GuestId, out: &mut Outbox<(GuestId, ToGuest)>) {
        self.waiting.remove(&guest);
        self.leader.take_if(|leader| *leader == guest);
        if let Some(round) = self.round.take_if(|round| round.members.contains(&guest)) {
            for member in round.members.into_iter().filter(|member| *member != guest) {
                out.push((member, ToGuest::Refused { refusal: Refusal::MemberGone }));
            }
        }
    }

    /// Tells the group that goes on, and a newcomer that waits, of each other.
    fn announce(&self, guest: GuestId, out: &mut Outbox<(GuestId, ToGuest)>) {
        let Some((leader, request)) = self.leader.zip(self.waiting.get(&guest)) else { return };
        if request.last_epoch == 0 && self.newcomers.contains(&request.worker) {
            out.push((guest, ToGuest::Queued));
            out.push((leader, ToGuest::Newcomers));
        }
    }

    fn form(&mut self, out: &mut Outbox<(GuestId, ToGuest)>) {
        let here: BTreeSet<u32> = self.waiting.values().map(|request| request.worker).collect();
        if self.expected.is_empty() || !self.expected.iter().all(|worker| here.contains(worker)) {
            return;
        }
        self.epoch += 1;
        let mut all: Vec<(GuestId, JoinRequest)> = std::mem::take(&mut self.waiting).into_iter().collect();
        all.sort_by_key(|(_, request)| (Reverse(request.last_epoch), request.worker));
        let member = |(_, request): &(GuestId, JoinRequest)| Member {
            worker: request.worker,
            host: request.host,
            address: request.address.clone(),
        };
        let members: Vec<Member> = all.iter().map(member).collect();
        self.members = members.iter().map(|member| member.worker).collect();
        self.leader = all.first().map(|(guest, _)| *guest);
        for (rank, (guest, _)) in all.iter().enumerate() {
            let (epoch, rank, members) = (self.epoch, rank as u32, members.clone());
            out.push((*guest, ToGuest::Formed { epoch, rank, members }));
        }
        let members = all.into_iter().map(|(guest, _)| guest).collect();
        if let Some(old) = self.round.replace(Round { members, blobs: BTreeMap::new() }) {
            for guest in old.members {
                out.push((guest, ToGuest::Refused { refusal: Refusal::MemberGone }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(worker: u32, last_epoch: u64) -> FromGuest {
        let host = HostId::from_bytes([1; 16]);
        FromGuest::Join(JoinRequest { worker, last_epoch, host, address: format!("h:{worker}") })
    }

    fn tell(
        gathering: &mut Gathering,
        act: impl FnOnce(&mut Gathering, &mut Outbox<(GuestId, ToGuest)>),
    ) -> Vec<(GuestId, ToGuest)> {
        let mut out = Outbox::default();
        act(gathering, &mut out);
        out.drain().collect()
    }

    fn formed(commands: &[(GuestId, ToGuest)]) -> Vec<(GuestId, u64, u32, usize)> {
        let formed = |(guest, message): &(GuestId, ToGuest)| match message {
            ToGuest::Formed { epoch, rank, members } => Some((*guest, *epoch, *rank, members.len())),
            _ => None,
        };
        commands.iter().filter_map(formed).collect()
    }

    #[test]
    fn a_group_is_formed_when_all_have_come_and_exchanges_what_they_bring() {
        let mut gathering = Gathering::new(0..2);
        assert_eq!(tell(&mut gathering, |g, out| g.on_message(7, join(1, 0), out)), []);
        let refused = tell(&mut gathering, |g, out| g.on_message(8, join(1, 0), out));
        assert_eq!(refused, [(8, ToGuest::Refused { refusal: Refusal::Duplicate })]);
        let refused = tell(&mut gathering, |g, out| g.on_message(8, join(2, 0), out));
        assert_eq!(refused, [(8, ToGuest::Refused { refusal: Refusal::NoSuchRank })]);
        let commands = tell(&mut gathering, |g, out| g.on_message(9, join(0, 0), out));
        assert_eq!(formed(&commands), [(9, 1, 0, 2), (7, 1, 1, 2)]);
        let blob = |byte| FromGuest::Exchange { blob: vec![byte] };
        assert_eq!(tell(&mut gathering, |g, out| g.on_message(7, blob(70), out)), []);
        let commands = tell(&mut gathering, |g, out| g.on_message(9, blob(90), out));
        let blobs = vec![vec![90], vec![70]];
        let exchanged = |guest| (guest, ToGuest::Exchanged { blobs: blobs.clone() });
        assert_eq!(commands, [exchanged(9), exchanged(7)]);
    }

    #[test]
    fn survivors_come_before_newcomers_and_no_rank_waits_for_the_dead() {
        let mut gathering = Gathering::new(0..3);
        for (guest, worker) in [(1, 0), (2, 1), (3, 2)] {
            tell(&mut gathering, |g, out| g.on_message(guest, join(worker, 0), out));
        }
        assert_eq!(gathering.epoch(), 1);
        // Worker 0 died; a new one with its number comes before the others are back.
        tell(&mut gathering, |g, out| g.on_message(4, join(0, 0), out));
        tell(&mut gathering, |g, out| g.on_message(5, join(2, 1), out));
        let commands = tell(&mut gathering, |g, out| g.on_message(6, join(1, 1), out));
        assert_eq!(formed(&commands), [(6, 2, 0, 3), (5, 2, 1, 3), (4, 2, 2, 3)]);
        // Worker 2 died and is not started again.
        for (guest, worker) in [(7, 0), (8, 1)] {
            assert_eq!(tell(&mut gathering, |g, out| g.on_message(guest, join(worker, 2), out)).len(), 0);
        }
        let commands = tell(&mut gathering, |g, out| g.expect(BTreeSet::from([0, 1]), BTreeSet::new(), out));
        assert_eq!(formed(&commands).len(), 2);
    }

    #[test]
    fn a_group_hears_of_newcomers_and_waits_for_none() {
        let mut gathering = Gathering::new(0..2);
        for (guest, worker) in [(1, 0), (2, 1)] {
            tell(&mut gathering, |g, out| g.on_message(guest, join(worker, 0), out));
        }
        let (workers, newcomers) = (BTreeSet::from([0, 1]), BTreeSet::from([2, 3]));
        assert_eq!(tell(&mut gathering, |g, out| g.expect(workers, newcomers, out)), []);
        let commands = tell(&mut gathering, |g, out| g.on_message(3, join(2, 0), out));
        assert_eq!(commands, [(3, ToGuest::Queued), (1, ToGuest::Newcomers)]);
        // Both ranks meet again. Worker 3 has not come yet.
        for guest in [1, 2] {
            tell(&mut gathering, |g, out| g.on_gone(guest, out));
        }
        assert_eq!(tell(&mut gathering, |g, out| g.on_message(4, join(1, 1), out)), []);
        let commands = tell(&mut gathering, |g, out| g.on_message(5, join(0, 1), out));
        assert_eq!(formed(&commands), [(5, 2, 0, 3), (4, 2, 1, 3), (3, 2, 2, 3)]);
        assert_eq!(commands.len(), 3);
        assert_eq!(gathering.members(), &BTreeSet::from([0, 1, 2]));
        // The next one is told to the rank 0 of the new group.
        let commands = tell(&mut gathering, |g, out| g.on_message(6, join(3, 0), out));
        assert_eq!(commands, [(6, ToGuest::Queued), (5, ToGuest::Newcomers)]);
    }

    #[test]
    fn a_member_that_goes_away_before_the_exchange_ends_it() {
        let mut gathering = Gathering::new(0..2);
        tell(&mut gathering, |g, out| g.on_message(1, join(0, 0), out));
        tell(&mut gathering, |g, out| g.on_message(2, join(1, 0), out));
        let commands = tell(&mut gathering, |g, out| g.on_gone(1, out));
        assert_eq!(commands, [(2, ToGuest::Refused { refusal: Refusal::MemberGone })]);
        let late = tell(&mut gathering, |g, out| g.on_message(2, FromGuest::Exchange { blob: vec![] }, out));
        assert_eq!(late, [(2, ToGuest::Refused { refusal: Refusal::MemberGone })]);
    }
}
