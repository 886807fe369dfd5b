//! A node's side of training: hears the drivers of runs, keeps one replica at a time, speaks for it.

use super::files::FetchFile;
use super::live_query::LiveQuery;
use super::mailbox::Mailbox;
use super::outlet::Reports;
use super::streams::FabricConnector;
use super::worker::{self, Opening, Order, Report};
use phalanx_fabric::{BlobId, Fabric, FrameKind, LinkEvent, LinkKey, Peer};
use phalanx_protocol::Wish;
use phalanx_train::MakeCompute;
use phalanx_types::{Epoch, NodeId, Parcel, RunId};
use phalanx_wire::codec;
use phalanx_wire::train::{AskRef, Asked, Enlist, FromReplica, PartRef, StateRef, ToReplica};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

/// Reports that are put into one message, at most.
const BURST: usize = 64;

/// Trains what drivers ask for, until the fabric ends.
pub async fn serve(fabric: Fabric, compute: MakeCompute) {
    let events = fabric.channel(FrameKind::Train);
    let (reports, heard) = mpsc::unbounded_channel();
    let service = Service { fabric, compute, peers: BTreeMap::new(), open: None, reports, next: 0 };
    service.run(events, heard).await;
}

struct Service {
    fabric: Fabric,
    compute: MakeCompute,
    peers: BTreeMap<LinkKey, Peer>,
    open: Option<Open>,
    reports: mpsc::UnboundedSender<(u64, Report)>,
    next: u64,
}

/// The replica that this node holds.
struct Open {
    /// Reports of others are those of replicas that were closed.
    number: u64,
    run: RunId,
    driver: Peer,
    orders: Sender<Order>,
    mailbox: Arc<Mailbox>,
    /// What the driver has not taken yet; of states also the group that they are of.
    held: Vec<(BlobId, Option<Epoch>)>,
    /// Parts of the state for replicas that are new to the group.
    parts: Vec<BlobId>,
}

impl Service {
    async fn run(
        mut self,
        mut events: mpsc::Receiver<LinkEvent>,
        mut heard: mpsc::UnboundedReceiver<(u64, Report)>,
    ) {
        let mut reports = Vec::new();
        loop {
            tokio::select! {
                event = events.recv() => match event {
                    Some(event) => self.on_event(event),
                    None => break,
                },
                _ = heard.recv_many(&mut reports, BURST) => self.on_reports(&mut reports),
            }
        }
        self.close("this node stops");
    }

    fn on_event(&mut self, event: LinkEvent) {
        match event {
            LinkEvent::Up(peer) => drop(self.peers.insert(peer.key(), peer)),
            LinkEvent::Down { link, node, reason, .. } => {
                self.peers.remove(&link);
                if self.open.as_ref().is_some_and(|open| open.driver.key() == link) {
                    tracing::warn!(driver = %node, %reason, "leaves the run: no link to its driver any more");
                    self.close("the driver of the run is gone");
                }
            }
            LinkEvent::Frame { link, body } => {
                let Some(peer) = self.peers.get(&link).cloned() else { return };
                match codec::decode::<ToReplica>(&body) {
                    Ok(order) => self.on_order(&peer, order),
                    Err(error) => tracing::debug!(from = %peer.id(), %error, "no order of a driver"),
                }
            }
        }
    }

    fn on_order(&mut self, from: &Peer, order: ToReplica) {
        if let ToReplica::Enlist { run, enlist } = order {
            return self.enlist(from, run, enlist);
        }
        let Some(open) = self.open.as_mut().filter(|open| open.driver.key() == from.key()) else { return };
        match order {
            ToReplica::Restore { run, state } if run == open.run => self.restore(from, state),
            ToReplica::Prepare { run, epoch, rank, ranks, layout } if run == open.run => {
                open.order(Order::Prepare { epoch, rank: rank as usize, ranks: ranks as usize, layout });
            }
            ToReplica::Connect { run, epoch, seats, recorded, start } if run == open.run => {
                let ends = seats.iter().map(|seat| seat.end.clone()).collect();
                let nodes = seats.into_iter().map(|seat| seat.node).collect();
                let connector = open.connector(&self.fabric, nodes);
                open.order(Order::Connect { epoch, ends, recorded, connector, start });
            }
            ToReplica::Give { run, epoch, give } if run == open.run => {
                let connector = open.connector(&self.fabric, Vec::new());
                open.order(Order::Give { epoch, give, connector });
            }
            ToReplica::Abort { run, epoch, reason } if run == open.run => {
                open.mailbox.abort(epoch, &reason);
                open.order(Order::Cancel { epoch });
            }
            ToReplica::Ask { run, epoch, wish } if run == open.run => {
                let wish = match wish {
                    Asked::Reform => Wish::Reform,
                    Asked::Stop => Wish::Stop,
                };
                open.mailbox.set_wish(epoch, wish);
            }
            ToReplica::Part { run, epoch, holder, part } if run == open.run => {
                self.fetch_part(epoch, &holder, part);
            }
            ToReplica::Compute { run, epoch, ask } if run == open.run => self.fetch_ask(from, epoch, ask),
            ToReplica::Snapshot { run } if run == open.run => open.order(Order::Snapshot),
            ToReplica::Taken { run, blob } if run == open.run => {
                if let Some(place) = open.held.iter().position(|(held, _)| *held == blob) {
                    let (blob, epoch) = open.held.swap_remove(place);
                    self.fabric.release(blob);
                    epoch.into_iter().for_each(|epoch| open.mailbox.on_taken(epoch));
                }
            }
            ToReplica::Dismiss { run } if run == open.run => {
                tracing::info!(driver = %open.driver.id(), "the run is over here");
                self.close("the run is over here");
            }
            _ => {}
        }
    }

    /// Opens a run on a thread of its own.
    fn enlist(&mut self, from: &Peer, run: RunId, enlist: Enlist) {
        if let Some(open) = self.open.as_ref().filter(|open| open.run != run) {
            let reason = format!("it trains another run, that of {}", open.driver.id());
            return send(from, &FromReplica::Refused { run, reason, busy: true });
        }
        self.close("the driver enlists this node anew");
        self.next += 1;
        let (number, mailbox) = (self.next, Arc::new(Mailbox::default()));
        let (orders, waiting) = std::sync::mpsc::channel();
        let reports = Reports { number, to: self.reports.clone() };
        let fetch = self.fetch_file(from.clone());
        let opening =
            Opening { enlist, fetch, compute: self.compute.clone(), mailbox: mailbox.clone(), reports };
        let thread = std::thread::Builder::new().name("replica".to_owned());
        let ended = opening.reports.clone();
        let work = move || {
            let worked = catch_unwind(AssertUnwindSafe(|| worker::run(opening, &waiting)));
            if worked.is_err() {
                // What it was is on standard error. Nobody is to wait for this replica.
                let reason = "the replica panicked".to_owned();
                ended.say(Report::Refused { reason, busy: false });
            }
        };
        match thread.spawn(work) {
            Ok(_detached) => {
                let driver = from.clone();
                let own = driver.id().clone();
                tracing::info!(driver = %own, "takes part in a run");
                self.open =
                    Some(Open { number, run, driver, orders, mailbox, held: Vec::new(), parts: Vec::new() });
                self.fabric.update_status(|status| status.trains_for = Some(own));
            }
            Err(error) => {
                let reason = format!("there is no thread to be had: {error}");
                send(from, &FromReplica::Refused { run, reason, busy: false });
            }
        }
    }

    /// Brings files of the driver; for threads other than the runtime's.
    fn fetch_file(&self, from: Peer) -> FetchFile {
        let (fabric, runtime) = (self.fabric.clone(), Handle::current());
        Box::new(move |file| {
            let fetched = runtime.block_on(fabric.fetch(&from, file.blob, file.bytes));
            fetched.map_err(|error| format!("could not be fetched from {}: {error}", from.id()))
        })
    }

    /// Fetches a state, then hands it to the replica.
    fn restore(&self, from: &Peer, state: Option<StateRef>) {
        let Some(open) = &self.open else { return };
        let Some(StateRef { bytes, blob, .. }) = state else { return open.order(Order::Restore(None)) };
        let (fabric, from, orders) = (self.fabric.clone(), from.clone(), open.orders.clone());
        let reports = Reports { number: open.number, to: self.reports.clone() };
        tokio::spawn(async move {
            match fabric.fetch(&from, blob, bytes).await {
                // A replica that was closed meanwhile needs it no more.
                Ok(state) => drop(orders.send(Order::Restore(Some(state)))),
                Err(error) => {
                    let reason = format!("could not fetch the state of the run: {error}");
                    reports.say(Report::Refused { reason, busy: true });
                }
            }
        });
    }

    /// Fetches a part of the state from whoever holds it, for a replica that is new to its group.
    fn fetch_part(&self, epoch: Epoch, holder: &NodeId, part: PartRef) {
        let Some(open) = &self.open else { return };
        let Some(peer) = self.fabric.peer(holder) else { return };
        let (fabric, mailbox) = (self.fabric.clone(), open.mailbox.clone());
        tokio::spawn(async move {
            let StateRef { bytes, blob, .. } = part.state;
            match fabric.fetch(&peer, blob, bytes).await {
                Ok(bytes) => mailbox.add_part(epoch, part.part as usize, bytes),
                // The group goes on without; this replica gets the whole state when it is late.
                Err(error) => tracing::debug!(%error, "could not fetch a part of the state"),
            }
        });
    }

    /// Fetches samples that somebody asks about, for the next boundary between steps.
    fn fetch_ask(&self, from: &Peer, epoch: Epoch, ask: AskRef) {
        let Some(open) = &self.open else { return };
        let (fabric, from, mailbox) = (self.fabric.clone(), from.clone(), open.mailbox.clone());
        let reports = Reports { number: open.number, to: self.reports.clone() };
        tokio::spawn(async move {
            match fabric.fetch(&from, ask.blob, ask.bytes).await {
                Ok(bytes) => mailbox.add_query(epoch, LiveQuery::new(&ask, bytes)),
                Err(error) => {
                    let reason = format!("could not fetch the samples: {error}");
                    reports.say(Report::NotComputed { number: ask.number, reason });
                }
            }
        });
    }

    /// Lets go of the replica, whatever it does.
    fn close(&mut self, reason: &str) {
        if let Some(open) = self.open.take() {
            open.mailbox.abort(Epoch(u64::MAX), reason);
            let held = open.held.into_iter().map(|(blob, _)| blob);
            held.chain(open.parts).for_each(|blob| self.fabric.release(blob));
            self.fabric.update_status(|status| status.trains_for = None);
        }
    }

    /// Tells the driver what its replica has to say.
    fn on_reports(&mut self, reports: &mut Vec<(u64, Report)>) {
        for (number, report) in reports.drain(..) {
            let Some(open) = self.open.as_mut().filter(|open| open.number == number) else { continue };
            let (run, driver) = (open.run, open.driver.clone());
            let message = match report {
                Report::Enlisted => FromReplica::Enlisted { run, step: None },
                Report::Refused { reason, busy } => {
                    send(&driver, &FromReplica::Refused { run, reason, busy });
                    self.close("this node cannot train it");
                    continue;
                }
                Report::Restored { step } => FromReplica::Restored { run, step },
                Report::Prepared { epoch, end } => FromReplica::Prepared { run, epoch, end },
                Report::Left { epoch, step, why, holds } => {
                    FromReplica::Left { run, epoch, step, why, holds }
                }
                Report::Steps { epoch, steps } => FromReplica::Steps { run, epoch, steps },
                Report::Validated { epoch, step, sums } => FromReplica::Validated { run, epoch, step, sums },
                Report::Snapshot { epoch, step, ops, bytes } => {
                    let len = bytes.len() as u64;
                    let blob = self.fabric.hold(Parcel::from_bytes(bytes));
                    open.held.push((blob, Some(epoch)));
                    FromReplica::Snapshot { run, epoch, ops, state: StateRef { step, bytes: len, blob } }
                }
                Report::Part { epoch, step, part, parts, bytes } => {
                    let len = bytes.len() as u64;
                    let blob = self.fabric.hold(Parcel::from_bytes(bytes));
                    open.parts.push(blob);
                    let (part, parts) = (part as u32, parts as u32);
                    let part = PartRef { part, parts, state: StateRef { step, bytes: len, blob } };
                    FromReplica::Part { run, epoch, part }
                }
                Report::AllLevel => {
                    open.parts.drain(..).for_each(|blob| self.fabric.release(blob));
                    continue;
                }
                Report::Spans { epoch, rank, spans } => {
                    FromReplica::Spans { run, epoch, rank: rank as u32, spans }
                }
                Report::Waits { epoch, on, millis } => {
                    FromReplica::Waits { run, epoch, on: on as u32, millis }
                }
                Report::Computed { number, step, shape, bytes } => {
                    let len = bytes.len() as u64;
                    let blob = self.fabric.hold(Parcel::from_bytes(bytes));
                    open.held.push((blob, None));
                    FromReplica::Computed { run, number, shape, outputs: StateRef { step, bytes: len, blob } }
                }
                Report::NotComputed { number, reason } => FromReplica::NotComputed { run, number, reason },
            };
            send(&driver, &message);
        }
    }
}

impl Open {
    /// How its replica reaches these nodes, in the order of their ranks.
    fn connector(&self, fabric: &Fabric, nodes: Vec<NodeId>) -> Box<FabricConnector> {
        let (driver, mailbox) = (self.driver.clone(), self.mailbox.clone());
        Box::new(FabricConnector::new(fabric.clone(), driver, self.run, nodes, mailbox))
    }

    fn order(&self, order: Order) {
        // A replica that has ended said why.
        drop(self.orders.send(order));
    }
}

fn send(to: &Peer, message: &FromReplica) {
    if let Err(error) = to.send(FrameKind::Train, message) {
        tracing::debug!(to = %to.id(), %error, "could not tell the driver");
    }
}
