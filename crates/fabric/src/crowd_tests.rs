//! Ten thousand members, honest ones and invented ones: work for each event, dials and memory stay bounded.

use super::membership::MAX_DIALS;
use super::roster::{DIAL_PACE, FREE_DIALS, MAX_HEARD};
use super::*;
use phalanx_types::{Incarnation, NodeId, Outbox, Time};
use phalanx_wire::node::{LostReason, NodeKind, NodeState, NodeStatus, PeerAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const HEARTBEAT: Duration = Duration::from_secs(2);
const MIB: u64 = 1 << 20;

fn id(number: usize) -> NodeId {
    NodeId::new(format!("n{number:05}")).unwrap()
}

fn status(number: usize, version: u64) -> NodeStatus {
    let port = 1_000 + (number % 60_000) as u16;
    NodeStatus {
        id: id(number),
        incarnation: Incarnation(5),
        kind: NodeKind::Computing,
        state: NodeState::Running,
        resources: Default::default(),
        handles: vec!["a-kind-of-job".into(); 4],
        topics: Vec::new(),
        addresses: vec![PeerAddr::Tcp(([10, 0, 0, 1], port).into())],
        jobs_running: 0,
        uses: Vec::new(),
        jobs_done: version,
        since_unix_ms: 0,
        version,
        store: None,
    }
}

/// Tests that measure memory run one after the other.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The core of one node, in virtual time, among members that answer at once.
struct Crowd {
    core: Membership,
    now: Time,
    members: usize,
    links: u64,
    dials: usize,
    events: u64,
    /// Numbers of nodes to be reached.
    dialed: Vec<usize>,
}

impl Crowd {
    fn new(members: usize) -> Self {
        let me = NodeId::new("m").unwrap();
        let settings =
            Settings { me: me.clone(), incarnation: Incarnation(1), heartbeat: HEARTBEAT, keyed: true };
        let own = NodeStatus { id: me, ..status(0, 1) };
        let core = Membership::new(settings, own);
        let now = Time::from_millis(1);
        Self { core, now, members, links: 0, dials: 0, events: 0, dialed: Vec::new() }
    }

    fn feed(&mut self, event: Event) {
        let mut out = Outbox::default();
        self.core.on(self.now, event, &mut out);
        self.events += 1;
        for command in out.drain() {
            if let Command::Dial { target: DialTarget::Peer(node), .. } = command {
                self.dials += 1;
                self.dialed.push(node.as_str()[1..].parse().unwrap());
            }
        }
    }

    /// A member is linked, and tells of some that follow it.
    fn link(&mut self, number: usize, was_dialed: bool, tells: usize) -> LinkKey {
        self.links += 1;
        let link = LinkKey(self.links);
        let offer = LinkOffer {
            link,
            node: id(number),
            incarnation: Incarnation(5),
            kind: NodeKind::Computing,
            addresses: status(number, 1).addresses,
            heartbeat: HEARTBEAT,
            dialed: was_dialed.then(|| DialTarget::Peer(id(number))),
            present_heard: None,
        };
        self.feed(Event::LinkOffered(offer));
        self.feed(Event::StatusHeard { link, status: status(number, 1) });
        let known = (number + 1..=number + tells).map(|other| status(other % self.members, 1)).collect();
        self.feed(Event::KnownHeard { link, known });
        link
    }

    fn tick(&mut self) {
        self.now = self.core.next_wake().max(self.now);
        let heard = self.now;
        let due = self.core.due_links(self.now);
        let sample = |link| LinkSample { link, heard, sent: Time::ZERO };
        self.feed(Event::Ticked(due.into_iter().map(sample).collect()));
    }

    /// What members do within a while; gives the time of this thread that an event took.
    fn live(&mut self) -> Duration {
        let (began, before) = (thread_time(), self.events);
        self.link(0, false, 48);
        while let Some(number) = self.dialed.pop() {
            self.link(number, true, 16);
        }
        assert_eq!(self.core.links.len(), self.members);
        assert!(self.core.is_settled());
        for number in 0..self.members {
            let link = self.core.peers.get(&id(number)).and_then(|peer| peer.link).unwrap();
            self.feed(Event::StatusHeard { link, status: status(number, 2) });
        }
        let until = self.now + HEARTBEAT;
        while self.now < until {
            self.tick();
        }
        for number in (0..self.members).step_by(10) {
            let link = self.core.peers.get(&id(number)).and_then(|peer| peer.link).unwrap();
            let reason = LostReason::LinkBroken { detail: "test".into() };
            self.feed(Event::LinkDown { link, reason, goodbye: false });
        }
        self.dialed.clear();
        (thread_time() - began) / u32::try_from(self.events - before).unwrap()
    }
}

/// The time that this thread has computed, in steps of 10 ms.
fn thread_time() -> Duration {
    let stat = read("/proc/thread-self/stat");
    let fields = stat.rsplit(") ").next().unwrap().split(' ');
    let ticks: u64 = fields.skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}

fn resident_bytes() -> u64 {
    read("/proc/self/statm").split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn work_for_an_event_hardly_grows_with_the_members_and_memory_suffices() {
    let _alone = alone();
    let few = Crowd::new(1_000).live();
    let before = resident_bytes();
    let mut crowd = Crowd::new(10_000);
    let many = crowd.live();
    crowd.core.peers.check();
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 100 * MIB, "{} MiB", grown / MIB);
    // Ten times the members: quadratic work would make it ten.
    assert!(many < few * 4, "{few:?} an event among 1,000, {many:?} among 10,000");
}

#[test]
fn members_invented_by_one_cost_little_and_are_hardly_dialed() {
    let _alone = alone();
    let mut crowd = Crowd::new(100_000);
    let liar = crowd.link(99_999, false, 0);
    let before = (resident_bytes(), thread_time());
    for first in (0..20_000).step_by(48) {
        let known = (first..first + 48).map(|number| status(number, 1)).collect();
        crowd.feed(Event::KnownHeard { link: liar, known });
    }
    assert!(crowd.core.peers.len() <= MAX_HEARD + 1);
    // No dial leads anywhere, for a minute.
    let seconds = 60;
    let until = crowd.now + Duration::from_secs(seconds);
    while crowd.now < until {
        for number in std::mem::take(&mut crowd.dialed) {
            crowd.feed(Event::DialFailed { target: DialTarget::Peer(id(number)), why: DialEnd::Failed });
        }
        crowd.tick();
    }
    let quota = FREE_DIALS as usize + seconds as usize * 1_000 / DIAL_PACE.as_millis() as usize + 1;
    assert!(crowd.dials <= quota, "{} dials, the quota is {quota}", crowd.dials);
    assert!(crowd.dials >= FREE_DIALS as usize && crowd.dials < MAX_DIALS);
    // A node that an honest member tells of is dialed at once, and found.
    crowd.dialed.clear();
    crowd.link(50_000, false, 1);
    assert_eq!(crowd.dialed, [50_001]);
    crowd.dialed.clear();
    crowd.link(50_001, true, 0);
    let (memory, time) = (resident_bytes().saturating_sub(before.0), thread_time() - before.1);
    assert!(memory < 64 * MIB && time < Duration::from_secs(10), "{} MiB, {time:?}", memory / MIB);
    // They go with the one that told of them.
    let reason = LostReason::LinkBroken { detail: "test".into() };
    crowd.feed(Event::LinkDown { link: liar, reason, goodbye: true });
    let until = crowd.now + Duration::from_secs(31);
    while crowd.now < until {
        crowd.tick();
    }
    assert_eq!(crowd.core.peers.len(), 3, "the two honest ones, and the liar that left");
    crowd.core.peers.check();
}

#[test]
fn one_liar_cannot_keep_others_from_telling() {
    let _alone = alone();
    let mut crowd = Crowd::new(100_000);
    for liar in [90_000, 91_000, 92_000] {
        let link = crowd.link(liar, false, 0);
        for first in (0..MAX_HEARD).step_by(48) {
            let first = first + (liar - 90_000) * 11;
            let known = (first..first + 48).map(|number| status(number, 1)).collect();
            crowd.feed(Event::KnownHeard { link, known });
        }
    }
    let honest = crowd.link(95_000, false, 0);
    crowd.feed(Event::KnownHeard { link: honest, known: vec![status(95_001, 1)] });
    assert!(crowd.core.peers.contains_key(&id(95_001)));
    crowd.core.peers.check();
}
