//! Many cores on a simulated network: after any cuts all nodes are linked to each other in the end.

use super::*;
use phalanx_types::{Incarnation, NodeId, Outbox, Seed, Time};
use phalanx_wire::handshake::Refusal;
use phalanx_wire::node::{LostReason, NodeKind, NodeState, NodeStatus, PeerAddr};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const NODES: usize = 5;
const HEARTBEAT: Duration = Duration::from_millis(500);

fn id(i: usize) -> NodeId {
    NodeId::new(format!("n{i}")).unwrap()
}

fn index(id: &NodeId) -> usize {
    id.as_str()[1..].parse().unwrap()
}

/// A message in transit to a node.
#[derive(Debug)]
enum Letter {
    Hello { from: usize, target: DialTarget, link: LinkKey },
    Welcome { from: usize, target: DialTarget, link: LinkKey },
    Refused { target: DialTarget, why: DialEnd },
    ControlMessage { link: LinkKey, words: ControlMessage },
    Closed { link: LinkKey },
}

struct Net {
    now: Time,
    cores: Vec<Membership>,
    /// Both ends of every link, and which of them still have it.
    links: BTreeMap<LinkKey, BTreeSet<usize>>,
    ends: BTreeMap<LinkKey, [usize; 2]>,
    heard: BTreeMap<(usize, LinkKey), (Time, Time)>,
    post: BTreeMap<(Time, u64), (usize, Letter)>,
    cut: BTreeSet<(usize, usize)>,
    seed: Seed,
    drawn: u64,
    next: u64,
}

impl Net {
    fn new(seed: u64) -> Self {
        let cores = (0..NODES).map(|i| {
            let settings =
                Settings { me: id(i), incarnation: Incarnation(1), heartbeat: HEARTBEAT, keyed: false };
            Membership::new(settings, status(i))
        });
        Self {
            now: Time::ZERO,
            cores: cores.collect(),
            links: BTreeMap::new(),
            ends: BTreeMap::new(),
            heard: BTreeMap::new(),
            post: BTreeMap::new(),
            cut: BTreeSet::new(),
            seed: Seed(seed),
            drawn: 0,
            next: 0,
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.drawn += 1;
        self.seed.derive(&self.drawn.to_string()).0 % below
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn is_cut(&self, a: usize, b: usize) -> bool {
        self.cut.contains(&(a.min(b), a.max(b)))
    }

    fn mail(&mut self, to: usize, letter: Letter) {
        let at = self.now + Duration::from_micros(200 + self.draw(4000));
        let number = self.number();
        self.post.insert((at, number), (to, letter));
    }

    /// Frames of one link arrive in order: each at the same distance.
    fn mail_on_link(&mut self, to: usize, letter: Letter) {
        let at = self.now + Duration::from_millis(5);
        let number = self.number();
        self.post.insert((at, number), (to, letter));
    }

    fn feed(&mut self, node: usize, event: Event, answer: Option<(usize, DialTarget, LinkKey)>) {
        let mut out = Outbox::default();
        self.cores[node].on(self.now, event, &mut out);
        for command in out.drain().collect::<Vec<_>>() {
            match command {
                Command::Dial { target, .. } => {
                    let DialTarget::Peer(to) = &target else { panic!("no seeds here") };
                    let (to, link) = (index(to), LinkKey(self.number()));
                    if self.is_cut(node, to) {
                        self.mail(node, Letter::Refused { target, why: DialEnd::Failed });
                    } else {
                        self.mail(to, Letter::Hello { from: node, target, link });
                    }
                }
                Command::Accept { link } => {
                    self.links.entry(link).or_default().insert(node);
                    self.heard.insert((node, link), (self.now, self.now));
                    if let Some((from, target, _)) = &answer {
                        self.ends.insert(link, [node, *from]);
                        let welcome = Letter::Welcome { from: node, target: target.clone(), link };
                        self.mail_on_link(*from, welcome);
                    }
                }
                Command::Refuse { link, refusal } => match &answer {
                    Some((from, target, _)) => {
                        let duplicate = refusal == Refusal::Duplicate;
                        let why = if duplicate { DialEnd::Duplicate } else { DialEnd::Failed };
                        self.mail(*from, Letter::Refused { target: target.clone(), why });
                    }
                    None => self.close(node, link),
                },
                Command::Close { link, .. } => self.close(node, link),
                Command::Send { link, words } => {
                    self.heard.entry((node, link)).and_modify(|times| times.1 = self.now);
                    let other = self.other(node, link);
                    self.mail_on_link(other, Letter::ControlMessage { link, words });
                }
                Command::CancelDial { .. }
                | Command::Announce(_)
                | Command::JoinRelay(_)
                | Command::Forget(_) => {}
            }
        }
    }

    fn other(&self, node: usize, link: LinkKey) -> usize {
        let [a, b] = self.ends[&link];
        if a == node { b } else { a }
    }

    fn close(&mut self, node: usize, link: LinkKey) {
        self.links.entry(link).or_default().remove(&node);
        let other = self.other(node, link);
        self.mail_on_link(other, Letter::Closed { link });
    }

    fn offer(&self, node: usize, from: usize, link: LinkKey, dialed: Option<DialTarget>) -> Event {
        let present =
            self.links.iter().rfind(|(l, ends)| ends.contains(&node) && self.ends[l].contains(&from));
        Event::LinkOffered(LinkOffer {
            link,
            node: id(from),
            incarnation: Incarnation(1),
            kind: NodeKind::Computing,
            addresses: status(from).addresses,
            heartbeat: HEARTBEAT,
            dialed,
            present_heard: present.map(|(l, _)| self.heard[&(node, *l)].0),
        })
    }

    fn deliver(&mut self, node: usize, letter: Letter) {
        match letter {
            Letter::Hello { from, target, link } => {
                let offer = self.offer(node, from, link, None);
                self.feed(node, offer, Some((from, target, link)));
            }
            Letter::Welcome { from, target, link } => {
                let offer = self.offer(node, from, link, Some(target));
                self.feed(node, offer, None);
            }
            Letter::Refused { target, why } => self.feed(node, Event::DialFailed { target, why }, None),
            Letter::ControlMessage { link, words } => {
                if self.is_cut(node, self.other(node, link)) || !self.links[&link].contains(&node) {
                    return;
                }
                self.heard.entry((node, link)).and_modify(|times| times.0 = self.now);
                match words {
                    ControlMessage::Status(status) => {
                        self.feed(node, Event::StatusHeard { link, status: *status }, None)
                    }
                    ControlMessage::Known(known) => self.feed(node, Event::KnownHeard { link, known }, None),
                    ControlMessage::Heartbeat | ControlMessage::Goodbye => {}
                }
            }
            Letter::Closed { link } => {
                if self.links.entry(link).or_default().remove(&node) {
                    let reason = LostReason::LinkBroken { detail: "closed".into() };
                    self.feed(node, Event::LinkDown { link, reason, goodbye: false }, None);
                }
            }
        }
    }

    fn run_until(&mut self, end: Time) {
        loop {
            let letter = self.post.keys().next().map(|(at, _)| *at).unwrap_or(Time::NEVER);
            let wakes = self.cores.iter().map(Membership::next_wake).enumerate();
            let (waker, wake) = wakes.min_by_key(|(_, at)| *at).unwrap();
            let wake = wake.max(self.now + Duration::from_micros(1));
            if letter.min(wake) > end {
                self.now = end;
                return;
            }
            if letter <= wake {
                let ((at, _), (to, letter)) = self.post.pop_first().unwrap();
                self.now = at;
                self.deliver(to, letter);
            } else {
                self.now = wake;
                let mine = self.links.iter().filter(|(_, ends)| ends.contains(&waker));
                let samples = mine.map(|(link, _)| {
                    let (heard, sent) = self.heard[&(waker, *link)];
                    LinkSample { link: *link, heard, sent }
                });
                let samples = samples.collect();
                self.feed(waker, Event::Ticked(samples), None);
            }
        }
    }

    fn check_mesh(&self, seed: u64) {
        for a in 0..NODES {
            for b in (0..NODES).filter(|b| *b != a) {
                let at = |x: usize, y: usize| self.cores[x].peers.get(&id(y)).and_then(|p| p.link);
                assert!(at(a, b).is_some(), "seed {seed}: n{a} has no link to n{b}");
                assert_eq!(at(a, b), at(b, a), "seed {seed}: n{a} and n{b} do not use the same link");
            }
        }
    }
}

fn status(i: usize) -> NodeStatus {
    NodeStatus {
        id: id(i),
        incarnation: Incarnation(1),
        kind: NodeKind::Computing,
        state: NodeState::Running,
        resources: Default::default(),
        handles: Vec::new(),
        topics: Vec::new(),
        addresses: vec![PeerAddr::Tcp(([127, 0, 0, 1], 1000 + i as u16).into())],
        jobs_running: 0,
        uses: Vec::new(),
        jobs_done: 0,
        since_unix_ms: 0,
        version: 1,
        store: None,
    }
}

#[test]
fn everyone_meets_everyone_whatever_was_cut_before() {
    for seed in 0..20 {
        let mut net = Net::new(seed);
        // A chain of introductions: each knows one other.
        for i in 1..NODES {
            let node = net.draw(i as u64) as usize;
            let address = status(node).addresses[0].clone();
            net.feed(i, Event::Learned { node: id(node), address }, None);
        }
        net.run_until(Time::from_millis(2000));
        net.check_mesh(seed);
        // Silent cuts, some so short that only one side may notice.
        for _ in 0..6 {
            let (a, b) = (net.draw(NODES as u64) as usize, net.draw(NODES as u64) as usize);
            if a != b {
                net.cut.insert((a.min(b), a.max(b)));
            }
            let pause = Duration::from_millis(net.draw(1200));
            net.run_until(net.now + pause);
            if net.draw(3) == 0 {
                net.cut.pop_first();
            }
        }
        net.cut.clear();
        net.run_until(net.now + Duration::from_secs(15));
        net.check_mesh(seed);
    }
}

#[test]
fn a_pair_apart_for_so_long_that_it_forgot_each_other_meets_again() {
    let mut net = Net::new(1);
    for i in 1..NODES {
        net.feed(i, Event::Learned { node: id(0), address: status(0).addresses[0].clone() }, None);
    }
    net.run_until(Time::from_millis(2000));
    net.check_mesh(1);
    net.cut.insert((1, 2));
    net.run_until(net.now + Duration::from_secs(11 * 60));
    assert!(net.cores[1].peers.get(&id(2)).is_none_or(|p| p.link.is_none()));
    net.cut.clear();
    net.run_until(net.now + Duration::from_secs(5 * 60));
    net.check_mesh(1);
}
