//! The task that owns the core: feeds events to it and carries out its commands.

use super::dial;
use super::inner::{Incoming, Inner};
use super::link::{Ending, Link};
use super::{lock, relay};
use crate::core::{Command, ControlMessage, DialTarget, Event, LinkKey, LinkOffer, LinkSample, Membership};
use phalanx_types::{Outbox, Time};
use phalanx_wire::fabric::FabricMessage;
use phalanx_wire::frame::FrameKind;
use phalanx_wire::handshake::Refusal;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// The longest sleep; the core's own deadlines are sooner whenever anything is under way.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

struct Offered {
    link: Arc<Link>,
    reply: oneshot::Sender<Result<(), Refusal>>,
}

pub(crate) struct Driver {
    inner: Arc<Inner>,
    core: Membership,
    out: Outbox<Command>,
    offered: BTreeMap<LinkKey, Offered>,
    /// Dropping one of these cancels its dial.
    dials: BTreeMap<DialTarget, oneshot::Sender<()>>,
    begun: bool,
}

impl Driver {
    pub(crate) fn new(inner: Arc<Inner>, core: Membership) -> Self {
        let (out, offered, dials) = (Outbox::default(), BTreeMap::new(), BTreeMap::new());
        Self { inner, core, out, offered, dials, begun: false }
    }

    pub(crate) async fn run(mut self, mut incoming: mpsc::Receiver<Incoming>) {
        let inner = self.inner.clone();
        loop {
            let wait = self.core.next_wake().since(inner.now()).min(LONGEST_SLEEP);
            tokio::select! {
                message = incoming.recv() => match message {
                    Some(message) => if self.on_incoming(message).is_break() {
                        return;
                    },
                    None => return,
                },
                () = inner.own_changed.notified() => {
                    let own = lock(&inner.own).clone();
                    self.feed(Event::OwnStatus(own));
                }
                () = tokio::time::sleep(wait) => self.tick(),
            }
            self.note_settled();
        }
    }

    fn on_incoming(&mut self, message: Incoming) -> ControlFlow<()> {
        match message {
            Incoming::Begin(events) => {
                for event in events {
                    self.feed(event);
                }
                self.begun = true;
            }
            Incoming::Core(event) => {
                if let Event::DialFailed { target, .. } = &event {
                    self.dials.remove(target);
                }
                self.feed(event);
            }
            Incoming::Offer { offer, link, reply } => self.on_offer(offer, link, reply),
            Incoming::Stop(done) => {
                self.stop();
                if done.send(()).is_err() {
                    tracing::debug!("no caller waits for the node to stop");
                }
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    fn on_offer(
        &mut self,
        mut offer: LinkOffer,
        link: Arc<Link>,
        reply: oneshot::Sender<Result<(), Refusal>>,
    ) {
        offer.present_heard = self.inner.links.to_node(&offer.node).map(|present| present.heard());
        if let Some(target) = &offer.dialed {
            self.dials.remove(target);
        }
        self.offered.insert(offer.link, Offered { link, reply });
        self.feed(Event::LinkOffered(offer));
    }

    fn tick(&mut self) {
        let due = self.core.due_links(self.inner.now());
        let links = due.into_iter().filter_map(|link| self.inner.links.get(link));
        let sample = |l: Arc<Link>| LinkSample { link: l.key, heard: l.heard(), sent: l.sent() };
        self.feed(Event::Ticked(links.map(sample).collect()));
    }

    fn stop(&mut self) {
        // The last update of this node's status goes out before it leaves.
        let own = lock(&self.inner.own).clone();
        self.feed(Event::OwnStatus(own));
        self.feed(Event::Stopping);
        for link in self.inner.links.all() {
            link.end(Ending::Drain);
        }
    }

    fn note_settled(&self) {
        let settled = self.begun && self.core.is_settled();
        self.inner.settled.send_if_modified(|present| std::mem::replace(present, settled) != settled);
    }

    fn feed(&mut self, event: Event) {
        let now: Time = self.inner.now();
        self.core.on(now, event, &mut self.out);
        let mut out = std::mem::take(&mut self.out);
        for command in out.drain() {
            self.carry_out(command);
        }
        self.out = out;
    }

    fn carry_out(&mut self, command: Command) {
        match command {
            Command::Dial { target, addresses } => {
                let (cancel, cancelled) = oneshot::channel();
                self.dials.insert(target.clone(), cancel);
                self.inner.spawn(Box::pin(dial::run(self.inner.clone(), target, addresses, cancelled)));
            }
            Command::CancelDial { target } => {
                self.dials.remove(&target);
            }
            Command::Accept { link } => {
                if let Some(offered) = self.offered.remove(&link) {
                    let (node, kind) = (&offered.link.node, offered.link.kind);
                    tracing::debug!(%link, %node, %kind, "link up");
                    self.inner.links.insert(offered.link);
                    answer(offered.reply, Ok(()));
                }
            }
            Command::Refuse { link, refusal } => {
                if let Some(offered) = self.offered.remove(&link) {
                    answer(offered.reply, Err(refusal));
                }
            }
            Command::Close { link, reason } => {
                if let Some(link) = self.inner.links.get(link) {
                    self.inner.links.remove(link.key);
                    link.end(Ending::Cut(reason));
                }
            }
            Command::Send { link, words } => self.send(link, words),
            Command::Announce(event) => self.inner.nodes.announce(event),
            Command::JoinRelay(relay) => {
                tracing::info!(%relay, "a node of this network named a relay");
                self.inner.spawn(Box::pin(relay::stay_registered(self.inner.clone(), relay)));
            }
            Command::Forget(node) => {
                self.inner.dial_worked(&node);
                self.inner.nodes.forget(&node);
            }
        }
    }

    fn send(&self, link: LinkKey, words: ControlMessage) {
        let Some(link) = self.inner.links.get(link) else { return };
        let message = match words {
            ControlMessage::Heartbeat => FabricMessage::Heartbeat,
            ControlMessage::Goodbye => FabricMessage::Goodbye,
            ControlMessage::Status(status) => FabricMessage::Status(*status),
            ControlMessage::Known(known) => FabricMessage::Known(known),
        };
        if let Err(error) = link.send(FrameKind::Fabric, &message) {
            tracing::debug!(?link, %error, "could not send");
        }
    }
}

fn answer(reply: oneshot::Sender<Result<(), Refusal>>, verdict: Result<(), Refusal>) {
    if reply.send(verdict).is_err() {
        tracing::debug!("a handshake was given up before the core answered");
    }
}
