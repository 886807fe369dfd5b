use super::membership::{MAX_DIALS, MAX_PEERS};
use super::*;
use phalanx_types::{Incarnation, NodeId, Outbox, Time};
use phalanx_wire::detail::Detail;
use phalanx_wire::handshake::Refusal;
use phalanx_wire::node::{LostReason, NodeKind, NodeState, NodeStatus, PeerAddr};
use std::time::Duration;

const HEARTBEAT: Duration = Duration::from_millis(2000);

fn n(id: &str) -> NodeId {
    NodeId::new(id).unwrap()
}

fn ms(ms: u64) -> Time {
    Time::from_millis(ms)
}

fn addr(port: u16) -> PeerAddr {
    PeerAddr::Tcp(([127, 0, 0, 1], port).into())
}

fn status(id: &str, life: u64, version: u64) -> NodeStatus {
    NodeStatus {
        id: n(id),
        incarnation: Incarnation(life),
        kind: NodeKind::Computing,
        state: NodeState::Running,
        resources: Default::default(),
        handles: Vec::new(),
        topics: Vec::new(),
        addresses: vec![addr(id.bytes().map(u16::from).sum())],
        jobs_running: 0,
        uses: Vec::new(),
        jobs_done: 0,
        since_unix_ms: 0,
        version,
        store: None,
    }
}

fn with_state(mut status: NodeStatus, state: NodeState) -> NodeStatus {
    status.state = state;
    status
}

fn broken() -> LostReason {
    LostReason::LinkBroken { detail: "test".into() }
}

fn offer(link: u64, id: &str, life: u64, dialed: Option<DialTarget>) -> LinkOffer {
    LinkOffer {
        link: LinkKey(link),
        node: n(id),
        incarnation: Incarnation(life),
        kind: NodeKind::Computing,
        addresses: status(id, life, 0).addresses,
        heartbeat: HEARTBEAT,
        dialed,
        present_heard: None,
    }
}

fn dial(id: &str) -> Command {
    Command::Dial { target: DialTarget::Peer(n(id)), addresses: status(id, 0, 0).addresses }
}

fn send(link: u64, words: ControlMessage) -> Command {
    Command::Send { link: LinkKey(link), words }
}

/// The core of node `m`.
struct Bench(Membership);

impl Bench {
    fn new() -> Self {
        let settings =
            Settings { me: n("m"), incarnation: Incarnation(1), heartbeat: HEARTBEAT, keyed: true };
        Self(Membership::new(settings, status("m", 1, 1)))
    }

    fn feed(&mut self, now: Time, event: Event) -> Vec<Command> {
        let mut out = Outbox::default();
        self.0.on(now, event, &mut out);
        self.check_invariants();
        out.drain().collect()
    }

    /// Makes a link to a peer whose status and table have arrived.
    fn link(&mut self, now: Time, link: u64, id: &str, dialed: Option<DialTarget>) {
        self.feed(now, Event::LinkOffered(offer(link, id, 5, dialed)));
        self.feed(now, Event::StatusHeard { link: LinkKey(link), status: status(id, 5, 1) });
        self.feed(now, Event::KnownHeard { link: LinkKey(link), known: Vec::new() });
    }

    fn down(&mut self, now: Time, link: u64, goodbye: bool) -> Vec<Command> {
        self.feed(now, Event::LinkDown { link: LinkKey(link), reason: broken(), goodbye })
    }

    fn tick(&mut self, now: Time, samples: &[(u64, Time, Time)]) -> Vec<Command> {
        let sample = |(link, heard, sent): &(u64, Time, Time)| LinkSample {
            link: LinkKey(*link),
            heard: *heard,
            sent: *sent,
        };
        self.feed(now, Event::Ticked(samples.iter().map(sample).collect()))
    }

    fn check_invariants(&self) {
        self.0.peers.check();
        for (key, link) in self.0.links.iter() {
            assert_eq!(
                self.0.peers.get(&link.node).unwrap().link,
                Some(*key),
                "every link is the link of its peer"
            );
        }
        for (id, peer) in self.0.peers.iter() {
            assert_ne!(*id, self.0.settings.me);
            if let Some(link) = peer.link {
                assert_eq!(self.0.links.get(&link).unwrap().node, *id);
                assert!(peer.is_live(), "{id} is linked and not live");
            }
        }
    }
}

#[test]
fn a_learned_peer_is_dialed_at_once_and_then_ever_more_slowly() {
    let mut b = Bench::new();
    let learned = Event::Learned { node: n("a"), address: addr(97) };
    assert_eq!(b.feed(ms(0), learned.clone()), [dial("a")]);
    assert_eq!(b.feed(ms(1), learned), []);
    let failed = || Event::DialFailed { target: DialTarget::Peer(n("a")), why: DialEnd::Failed };
    assert!(!b.0.is_settled());
    assert_eq!(b.feed(ms(10), failed()), []);
    assert!(b.0.is_settled());
    assert_eq!(b.0.next_wake(), ms(110));
    assert_eq!(b.tick(ms(109), &[]), []);
    assert_eq!(b.tick(ms(110), &[]), [dial("a")]);
    b.feed(ms(120), failed());
    assert_eq!(b.0.next_wake(), ms(320));
}

#[test]
fn a_new_link_gets_the_own_status_and_everyone_known() {
    let mut b = Bench::new();
    b.link(ms(0), 1, "a", None);
    let fresh = NodeStatus { since_unix_ms: 0, ..status("c", 5, 0) };
    assert_eq!(
        b.feed(ms(5), Event::LinkOffered(offer(2, "c", 5, None))),
        [
            Command::Accept { link: LinkKey(2) },
            send(2, ControlMessage::Status(Box::new(status("m", 1, 1)))),
            send(2, ControlMessage::Known(vec![status("a", 5, 1)])),
            Command::Announce(NodeEvent::Appeared(fresh)),
        ]
    );
    assert!(!b.0.is_settled());
    let heard = Event::StatusHeard { link: LinkKey(2), status: status("c", 5, 3) };
    assert_eq!(
        b.feed(ms(6), heard.clone()),
        [
            Command::Announce(NodeEvent::Changed(status("c", 5, 3))),
            send(1, ControlMessage::Known(vec![status("c", 5, 3)])),
        ]
    );
    assert_eq!(b.feed(ms(7), heard), []);
    b.feed(ms(8), Event::KnownHeard { link: LinkKey(2), known: Vec::new() });
    assert!(b.0.is_settled());
}

#[test]
fn the_link_that_the_smaller_id_dialed_wins_on_both_sides() {
    let to = |id: &str| Some(DialTarget::Peer(n(id)));
    // (the other id, who dialed the present link, who dialed the new one, whether the new one wins)
    let cases = [
        ("a", to("a"), None, true),
        ("a", None, to("a"), false),
        ("z", to("z"), None, false),
        ("z", None, to("z"), true),
        ("a", None, None, true),
        ("z", to("z"), to("z"), true),
    ];
    for (id, present, new, wins) in cases {
        let mut b = Bench::new();
        b.link(ms(0), 1, id, present.clone());
        let out = b.feed(ms(10), Event::LinkOffered(offer(2, id, 5, new.clone())));
        let expected = if wins {
            vec![
                Command::Close { link: LinkKey(1), reason: LostReason::Replaced },
                Command::Accept { link: LinkKey(2) },
                send(2, ControlMessage::Status(Box::new(status("m", 1, 1)))),
                send(2, ControlMessage::Known(Vec::new())),
            ]
        } else {
            vec![Command::Refuse { link: LinkKey(2), refusal: Refusal::Duplicate }]
        };
        assert_eq!(out, expected, "{id}: {present:?} then {new:?}");
        // The end of the replaced link is no news.
        assert_eq!(b.down(ms(11), if wins { 1 } else { 2 }, false), []);
    }
}

#[test]
fn a_link_from_the_other_side_cancels_the_dial() {
    let mut b = Bench::new();
    b.feed(ms(0), Event::Learned { node: n("a"), address: addr(97) });
    let out = b.feed(ms(1), Event::LinkOffered(offer(1, "a", 5, None)));
    assert_eq!(out[0], Command::CancelDial { target: DialTarget::Peer(n("a")) });
    assert_eq!(out[1], Command::Accept { link: LinkKey(1) });
}

#[test]
fn a_new_life_replaces_a_silent_one_but_not_one_that_is_heard() {
    for (heard, taken) in [(ms(900), true), (ms(0), false)] {
        let mut b = Bench::new();
        b.link(ms(0), 1, "a", None);
        let mut newer = offer(2, "a", 6, None);
        newer.present_heard = Some(heard);
        let out = b.feed(ms(1000), Event::LinkOffered(newer));
        if taken {
            let refusal = Refusal::IdTaken { id: n("a") };
            assert_eq!(out, [Command::Refuse { link: LinkKey(2), refusal }]);
            continue;
        }
        let past = with_state(status("a", 5, 1), NodeState::Lost(LostReason::Replaced));
        assert_eq!(
            out,
            [
                Command::Close { link: LinkKey(1), reason: LostReason::Replaced },
                Command::Accept { link: LinkKey(2) },
                send(2, ControlMessage::Status(Box::new(status("m", 1, 1)))),
                send(2, ControlMessage::Known(Vec::new())),
                Command::Announce(NodeEvent::Gone(past)),
                Command::Announce(NodeEvent::Appeared(status("a", 6, 0))),
            ]
        );
    }
}

#[test]
fn this_node_itself_is_recognised() {
    let mut b = Bench::new();
    let out = b.feed(ms(0), Event::LinkOffered(offer(1, "m", 1, None)));
    assert_eq!(out, [Command::Refuse { link: LinkKey(1), refusal: Refusal::Myself }]);
    let out = b.feed(ms(0), Event::LinkOffered(offer(2, "m", 9, None)));
    assert_eq!(out, [Command::Refuse { link: LinkKey(2), refusal: Refusal::IdTaken { id: n("m") } }]);
    assert_eq!(b.feed(ms(0), Event::Learned { node: n("m"), address: addr(1) }), []);
}

#[test]
fn a_broken_link_is_told_to_the_others_and_dialed_again() {
    let mut b = Bench::new();
    b.link(ms(0), 1, "z", None);
    b.link(ms(0), 2, "a", None);
    let lost = with_state(status("z", 5, 1), NodeState::Lost(broken()));
    assert_eq!(
        b.down(ms(5000), 1, false),
        [
            Command::Announce(NodeEvent::Gone(lost.clone())),
            send(2, ControlMessage::Known(vec![lost])),
            dial("z"),
        ]
    );
    // The larger id leaves the other side a moment to dial first.
    let out = b.down(ms(5000), 2, false);
    assert_eq!(
        out,
        [Command::Announce(NodeEvent::Gone(with_state(status("a", 5, 1), NodeState::Lost(broken()))))]
    );
    assert_eq!(b.0.next_wake(), ms(5030));
    assert_eq!(b.tick(ms(5030), &[]), [dial("a")]);
    // Back again: the same life appears anew.
    let out = b.feed(ms(5040), Event::LinkOffered(offer(3, "z", 5, Some(DialTarget::Peer(n("z"))))));
    assert_eq!(out.last(), Some(&Command::Announce(NodeEvent::Appeared(status("z", 5, 1)))));
}

#[test]
fn a_goodbye_is_not_dialed_again_and_forgotten_in_the_end() {
    let mut b = Bench::new();
    b.link(ms(0), 1, "z", None);
    let stopped = with_state(status("z", 5, 1), NodeState::Stopped);
    assert_eq!(b.down(ms(5000), 1, true), [Command::Announce(NodeEvent::Gone(stopped))]);
    assert_eq!(b.0.next_wake(), ms(605_000));
    assert_eq!(b.tick(ms(604_999), &[]), []);
    assert_eq!(b.tick(ms(605_000), &[]), [Command::Forget(n("z"))]);
    assert_eq!(b.0.next_wake(), Time::NEVER);
}

#[test]
fn a_link_that_broke_soon_or_misbehaved_is_not_dialed_at_once() {
    let mut b = Bench::new();
    b.link(ms(0), 1, "z", None);
    b.down(ms(100), 1, false);
    assert_eq!(b.0.next_wake(), ms(200));
    b.link(ms(150), 2, "z", None);
    let reason = LostReason::Misbehaved { detail: "test".into() };
    b.feed(ms(9000), Event::LinkDown { link: LinkKey(2), reason, goodbye: false });
    assert_eq!(b.0.next_wake(), ms(12_000));
}

#[test]
fn heartbeats_are_sent_when_idle_and_silence_is_the_end() {
    let mut b = Bench::new();
    b.link(ms(0), 1, "z", None);
    assert_eq!(b.0.next_wake(), ms(500));
    assert_eq!(b.tick(ms(500), &[(1, ms(400), ms(0))]), [send(1, ControlMessage::Heartbeat)]);
    assert_eq!(b.tick(ms(1000), &[(1, ms(400), ms(900))]), []);
    assert_eq!(b.0.next_wake(), ms(1400));
    b.tick(ms(1400), &[(1, ms(400), ms(1400))]);
    b.tick(ms(1900), &[(1, ms(400), ms(1900))]);
    let reason = LostReason::Silent { heartbeat_ms: 2000 };
    let lost = with_state(status("z", 5, 1), NodeState::Lost(reason.clone()));
    assert_eq!(
        b.tick(ms(2400), &[(1, ms(400), ms(2400))]),
        [Command::Close { link: LinkKey(1), reason }, Command::Announce(NodeEvent::Gone(lost)), dial("z"),]
    );
}

#[test]
fn a_peer_with_a_shorter_heartbeat_hears_more_often() {
    let mut b = Bench::new();
    let mut quick = offer(1, "z", 5, None);
    quick.heartbeat = Duration::from_millis(400);
    b.feed(ms(0), Event::LinkOffered(quick));
    assert_eq!(b.0.next_wake(), ms(100));
    assert_eq!(b.tick(ms(100), &[(1, ms(0), ms(0))]), [send(1, ControlMessage::Heartbeat)]);
}

#[test]
fn a_suspended_node_blames_no_peer_for_silence() {
    let mut b = Bench::new();
    b.link(ms(0), 1, "z", None);
    b.tick(ms(500), &[(1, ms(500), ms(500))]);
    assert_eq!(b.tick(ms(60_000), &[(1, ms(500), ms(59_999))]), []);
    b.tick(ms(61_000), &[(1, ms(500), ms(61_000))]);
    let out = b.tick(ms(62_000), &[(1, ms(500), ms(62_000))]);
    assert!(matches!(out[..], [Command::Close { .. }, Command::Announce(_), Command::Dial { .. }]));
}

#[test]
fn an_introduced_peer_is_dialed_and_the_larger_id_waits_a_moment() {
    let mut b = Bench::new();
    b.link(ms(0), 1, "z", None);
    let known = vec![status("a", 5, 4), status("q", 5, 2), status("m", 0, 99)];
    assert_eq!(
        b.feed(ms(10), Event::KnownHeard { link: LinkKey(1), known }),
        [
            Command::Announce(NodeEvent::Appeared(status("a", 5, 4))),
            Command::Announce(NodeEvent::Appeared(status("q", 5, 2))),
            dial("q"),
        ]
    );
    assert_eq!(b.tick(ms(40), &[(1, ms(40), ms(40))]), [dial("a")]);
}

#[test]
fn gossip_never_overrides_what_this_node_saw() {
    let mut b = Bench::new();
    b.link(ms(0), 1, "a", None);
    b.link(ms(0), 2, "z", None);
    let gone = |life, version| with_state(status("z", life, version), NodeState::Lost(broken()));
    let tell = |status| Event::KnownHeard { link: LinkKey(1), known: vec![status] };
    assert_eq!(b.feed(ms(1), tell(gone(5, 9))), []);
    assert_eq!(b.feed(ms(1), tell(with_state(status("z", 5, 9), NodeState::Stopped))), []);
    b.down(ms(2000), 2, false);
    assert_eq!(b.feed(ms(2001), tell(status("z", 5, 9))), []);
    assert_eq!(b.feed(ms(2001), tell(status("z", 4, 9))), []);
    // A goodbye that another node heard is the end of that incarnation ...
    let stopped = with_state(status("z", 5, 1), NodeState::Stopped);
    assert_eq!(b.feed(ms(2002), tell(stopped.clone())), [Command::Announce(NodeEvent::Gone(stopped))]);
    assert_eq!(b.feed(ms(2003), tell(status("z", 5, 9))), []);
    // ... and a later life is news again; the dial of before is still under way.
    let out = b.feed(ms(2004), tell(status("z", 6, 1)));
    assert_eq!(out, [Command::Announce(NodeEvent::Appeared(status("z", 6, 1)))]);
    b.feed(ms(2005), Event::DialFailed { target: DialTarget::Peer(n("z")), why: DialEnd::Failed });
    assert_eq!(b.tick(ms(2105), &[(1, ms(2105), ms(2105))]).last(), Some(&dial("z")));
}

#[test]
fn gossip_about_a_peer_never_met_follows_the_newest_version() {
    let mut b = Bench::new();
    b.link(ms(0), 1, "a", None);
    let tell = |status| Event::KnownHeard { link: LinkKey(1), known: vec![status] };
    b.feed(ms(0), tell(status("z", 5, 4)));
    assert_eq!(b.feed(ms(1), tell(status("z", 5, 3))), []);
    let newer = status("z", 5, 6);
    assert_eq!(b.feed(ms(2), tell(newer.clone())), [Command::Announce(NodeEvent::Changed(newer))]);
    let lost = with_state(status("z", 5, 6), NodeState::Lost(broken()));
    assert_eq!(b.feed(ms(3), tell(lost.clone())), [Command::Announce(NodeEvent::Gone(lost))]);
    assert_eq!(b.feed(ms(4), tell(status("z", 5, 6))), []);
    let back = status("z", 5, 7);
    assert_eq!(b.feed(ms(5), tell(back.clone())), [Command::Announce(NodeEvent::Appeared(back))]);
}

#[test]
fn a_seed_is_dialed_until_it_leads_somewhere_and_again_when_that_is_lost() {
    let mut b = Bench::new();
    let seed = || DialTarget::Seed("127.0.0.1:9".into());
    let dial_seed = || Command::Dial { target: seed(), addresses: Vec::new() };
    assert_eq!(b.feed(ms(0), Event::Seeded("127.0.0.1:9".into())), [dial_seed()]);
    b.feed(ms(0), Event::DialFailed { target: seed(), why: DialEnd::Failed });
    assert_eq!(b.tick(ms(100), &[]), [dial_seed()]);
    b.link(ms(110), 1, "z", Some(seed()));
    assert_eq!(b.tick(ms(3000), &[(1, ms(3000), ms(3000))]), []);
    let out = b.down(ms(4000), 1, true);
    assert_eq!(out.last(), Some(&dial_seed()));
    // The address turns out to be this node's own.
    assert_eq!(b.feed(ms(4001), Event::DialFailed { target: seed(), why: DialEnd::Myself }), []);
    assert_eq!(b.0.next_wake(), ms(604_000));
}

#[test]
fn a_seed_that_is_a_known_peer_is_not_dialed_twice() {
    let mut b = Bench::new();
    b.feed(ms(0), Event::Learned { node: n("a"), address: addr(97) });
    assert_eq!(b.feed(ms(0), Event::Seeded("127.0.0.1:97".into())), []);
    b.link(ms(1), 1, "a", Some(DialTarget::Peer(n("a"))));
    assert!(b.0.is_settled());
}

#[test]
fn an_address_taken_over_by_another_node_is_not_dialed_for_the_old_one() {
    let mut b = Bench::new();
    b.link(ms(0), 1, "y", None);
    assert_eq!(b.down(ms(5000), 1, false).last(), Some(&dial("y")));
    b.link(ms(5001), 2, "z", Some(DialTarget::Peer(n("y"))));
    assert_eq!(b.tick(ms(60_000), &[(2, ms(60_000), ms(60_000))]), []);
}

#[test]
fn a_node_that_listens_is_settled_when_a_member_told_or_the_time_is_over() {
    let mut b = Bench::new();
    b.feed(ms(0), Event::Listening);
    assert!(!b.0.is_settled());
    b.feed(ms(1500), Event::Listened);
    assert!(b.0.is_settled());

    let mut b = Bench::new();
    b.feed(ms(0), Event::Listening);
    b.feed(ms(5), Event::LinkOffered(offer(1, "a", 5, None)));
    assert!(!b.0.is_settled());
    b.feed(ms(6), Event::KnownHeard { link: LinkKey(1), known: Vec::new() });
    assert!(b.0.is_settled());

    // An observer may know no more than this node.
    let mut b = Bench::new();
    b.feed(ms(0), Event::Listening);
    let onlooker = LinkOffer { kind: NodeKind::Observer, ..offer(1, "a", 5, None) };
    b.feed(ms(5), Event::LinkOffered(onlooker));
    b.feed(ms(6), Event::KnownHeard { link: LinkKey(1), known: Vec::new() });
    assert!(!b.0.is_settled());
}

#[test]
fn nodes_present_at_a_relay_are_dialed_through_it() {
    let mut b = Bench::new();
    b.feed(ms(0), Event::RelayAdded("r:1".into()));
    assert!(!b.0.is_settled());
    let via = || vec![PeerAddr::Relay("r:1".into())];
    let present = |nodes: &[&str]| Event::RelayPresent {
        relay: "r:1".into(),
        nodes: nodes.iter().map(|id| n(id)).collect(),
    };
    assert_eq!(
        b.feed(ms(1), present(&["m", "z"])),
        [Command::Dial { target: DialTarget::Peer(n("z")), addresses: via() }]
    );
    b.feed(ms(2), Event::DialFailed { target: DialTarget::Peer(n("z")), why: DialEnd::Failed });
    assert!(b.0.is_settled());
    // Gone from the relay: there is no way to it any more.
    assert_eq!(b.feed(ms(3), present(&[])), []);
    assert_eq!(b.tick(ms(60_000), &[]), []);
}

#[test]
fn a_node_without_a_relay_joins_the_one_that_a_linked_node_names() {
    let named =
        |relay: &str| NodeStatus { addresses: vec![PeerAddr::Relay(relay.into())], ..status("z", 5, 2) };
    let joined = |commands: Vec<Command>| {
        commands.into_iter().filter(|command| matches!(command, Command::JoinRelay(_))).collect::<Vec<_>>()
    };
    let mut b = Bench::new();
    b.link(ms(0), 1, "z", None);
    let told = b.feed(ms(1), Event::StatusHeard { link: LinkKey(1), status: named("r:1") });
    assert_eq!(joined(told), [Command::JoinRelay("r:1".into())]);
    assert!(b.0.relays.contains_key("r:1"));
    // It has one now.
    let again = NodeStatus { version: 3, ..named("r:2") };
    assert_eq!(joined(b.feed(ms(2), Event::StatusHeard { link: LinkKey(1), status: again })), []);

    let mut b = Bench::new();
    b.feed(ms(0), Event::RelayAdded("mine:1".into()));
    b.link(ms(0), 1, "z", None);
    assert_eq!(joined(b.feed(ms(1), Event::StatusHeard { link: LinkKey(1), status: named("r:1") })), []);
}

#[test]
fn own_changes_are_gathered_but_a_change_of_state_is_not_held_back() {
    let mut b = Bench::new();
    b.link(ms(0), 1, "z", None);
    let said = |s: NodeStatus| {
        [send(1, ControlMessage::Status(Box::new(s.clone()))), Command::Announce(NodeEvent::Changed(s))]
    };
    let own = |version| status("m", 1, version);
    assert_eq!(b.feed(ms(100), Event::OwnStatus(own(2))), said(own(2)));
    assert_eq!(b.feed(ms(110), Event::OwnStatus(own(3))), []);
    assert_eq!(b.feed(ms(120), Event::OwnStatus(own(4))), []);
    assert_eq!(b.0.next_wake(), ms(150));
    assert_eq!(b.tick(ms(150), &[(1, ms(150), ms(150))]), said(own(4)));
    let draining = with_state(own(5), NodeState::Draining);
    assert_eq!(b.feed(ms(151), Event::OwnStatus(draining.clone())), said(draining));
}

#[test]
fn a_stopping_node_says_goodbye_and_accepts_no_links() {
    let mut b = Bench::new();
    b.link(ms(0), 1, "z", None);
    assert_eq!(b.feed(ms(1), Event::Stopping), [send(1, ControlMessage::Goodbye)]);
    let out = b.feed(ms(2), Event::LinkOffered(offer(2, "a", 5, None)));
    assert_eq!(out, [Command::Refuse { link: LinkKey(2), refusal: Refusal::Stopping }]);
    assert_eq!(b.0.next_wake(), Time::NEVER);
}

#[test]
fn a_seed_that_dialed_this_node_first_is_left_alone_until_a_link_breaks() {
    let mut b = Bench::new();
    let seed = || DialTarget::Seed("127.0.0.1:9".into());
    b.feed(ms(0), Event::Seeded("127.0.0.1:9".into()));
    b.link(ms(0), 1, "a", None);
    assert_eq!(b.feed(ms(1), Event::DialFailed { target: seed(), why: DialEnd::Duplicate }), []);
    assert_eq!(b.tick(ms(1500), &[(1, ms(1500), ms(1500))]), []);
    let out = b.down(ms(2000), 1, true);
    assert_eq!(out.last(), Some(&Command::Dial { target: seed(), addresses: Vec::new() }));
}

#[test]
fn nothing_is_kept_of_an_observer_that_left() {
    let mut b = Bench::new();
    b.link(ms(0), 1, "a", None);
    let mut observer = offer(2, "o", 5, None);
    observer.kind = NodeKind::Observer;
    b.feed(ms(0), Event::LinkOffered(observer));
    let gone = NodeStatus { kind: NodeKind::Observer, state: NodeState::Stopped, ..status("o", 5, 0) };
    assert_eq!(
        b.down(ms(1), 2, true),
        [
            Command::Announce(NodeEvent::Gone(gone.clone())),
            send(1, ControlMessage::Known(vec![gone.clone()])),
            Command::Forget(n("o")),
        ]
    );
    assert_eq!(b.feed(ms(2), Event::KnownHeard { link: LinkKey(1), known: vec![gone] }), []);
}

#[test]
fn a_status_without_measure_is_ignored() {
    let mut b = Bench::new();
    b.link(ms(0), 1, "a", None);
    let mut huge = status("z", 5, 1);
    huge.topics = vec!["x".repeat(100).into(); 200];
    let told = |status| Event::KnownHeard { link: LinkKey(1), known: vec![status] };
    assert_eq!(b.feed(ms(1), told(huge)), []);
    // The longest reason and names that are modest without it.
    let detail = Detail::new("x".repeat(Detail::MAX));
    let mut named = status("z", 5, 1);
    named.topics = vec!["x".repeat(100).into(); 110];
    for reason in [LostReason::Misbehaved { detail: detail.clone() }, LostReason::LinkBroken { detail }] {
        assert_eq!(b.feed(ms(1), told(with_state(named.clone(), NodeState::Lost(reason)))), []);
    }
    let short = NodeState::Lost(LostReason::Misbehaved { detail: "x".into() });
    assert_ne!(b.feed(ms(1), told(with_state(named, short))), []);
}

#[test]
fn the_longest_statuses_fit_their_messages() {
    let mut b = Bench::new();
    for i in 0..100 {
        let id = format!("p{i}");
        b.link(ms(0), i, &id, None);
        let mut long = status(&id, 5, 2);
        long.topics = vec!["x".repeat(100).into(); 128];
        assert!(is_modest(&long));
        b.feed(ms(1), Event::StatusHeard { link: LinkKey(i), status: long });
    }
    let out = b.feed(ms(2), Event::LinkOffered(offer(200, "z", 5, None)));
    let mut told = 0;
    for command in out {
        if let Command::Send { words: ControlMessage::Known(known), .. } = command {
            told += known.len();
            let message = phalanx_wire::fabric::FabricMessage::Known(known);
            let mut frame = bytes::BytesMut::new();
            phalanx_wire::frame::put(phalanx_wire::frame::FrameKind::Fabric, &message, &mut frame).unwrap();
        }
    }
    assert_eq!(told, 100);
}

#[test]
fn dials_are_limited_and_the_end_of_one_begins_the_next() {
    let mut b = Bench::new();
    b.link(ms(0), 1, "a", None);
    let dials = |out: Vec<Command>| out.iter().filter(|c| matches!(c, Command::Dial { .. })).count();
    let learned = (0..MAX_DIALS + 2).map(|i| {
        let id = format!("p{i}");
        Event::Learned { node: n(&id), address: status(&id, 5, 1).addresses.remove(0) }
    });
    assert_eq!(learned.map(|event| dials(b.feed(ms(10), event))).sum::<usize>(), MAX_DIALS);
    assert!(b.0.next_wake() > ms(10));
    let first = b.0.peers.iter().find(|(_, p)| p.dialing).map(|(id, _)| id.clone()).unwrap();
    let failed = Event::DialFailed { target: DialTarget::Peer(first.clone()), why: DialEnd::Failed };
    let out = b.feed(ms(20), failed);
    assert_eq!(dials(out.clone()), 1);
    assert!(!out.contains(&dial(first.as_str())));
}

#[test]
fn who_proved_itself_displaces_the_oldest_hearsay() {
    let mut b = Bench::new();
    b.link(ms(0), 1, "a", None);
    b.link(ms(0), 2, "b", None);
    b.down(ms(1), 2, true);
    let heard = |id: String| with_state(status(&id, 5, 1), NodeState::Stopped);
    b.feed(ms(10), Event::KnownHeard { link: LinkKey(1), known: vec![heard("p77".into())] });
    b.link(ms(11), 4, "c", None);
    for (link, from, to) in [(1, 1_000, 11_000), (4, 11_000, MAX_PEERS + 996)] {
        let known = (from..to).map(|i| heard(format!("p{i}"))).collect();
        b.feed(ms(20), Event::KnownHeard { link: LinkKey(link), known });
    }
    assert_eq!(b.0.peers.len(), MAX_PEERS);
    let more = Event::KnownHeard { link: LinkKey(1), known: vec![status("q", 5, 1)] };
    assert_eq!(b.feed(ms(20_000), more), []);
    let out = b.feed(ms(20_001), Event::LinkOffered(offer(3, "z", 5, None)));
    assert_eq!(out[..2], [Command::Forget(n("p77")), Command::Accept { link: LinkKey(3) }]);
    assert!(b.0.peers.contains_key(&n("b")));
    assert_eq!(b.0.peers.len(), MAX_PEERS);
}

#[test]
fn the_links_are_told_again_who_is_linked() {
    let mut b = Bench::new();
    b.link(ms(0), 1, "a", None);
    b.link(ms(0), 2, "b", None);
    let at = |t| [(1, t, t), (2, t, t)];
    assert_eq!(b.tick(ms(299_999), &at(ms(299_999))), []);
    assert_eq!(b.0.next_wake(), ms(300_000));
    let told = |link, id| send(link, ControlMessage::Known(vec![status(id, 5, 1)]));
    assert_eq!(b.tick(ms(300_000), &at(ms(300_000))), [told(1, "b"), told(2, "a")]);
    assert_eq!(b.tick(ms(300_001), &at(ms(300_001))), []);
}
