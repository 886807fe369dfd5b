//! A node's side of training: hears the drivers of runs, keeps a replica of each run, speaks for it.
//!
//! Every run has a claim on the node's account. A run that does not fit is refused after a moment. It keeps its turn
//! among the runs that wait, and jobs make room for it, until its driver has asked again.

use super::budget::{Budget, longest_file};
use super::live_query::LiveQuery;
use super::mailbox::Mailbox;
use super::outlet::Reports;
use super::streams::FabricConnector;
use super::waiting::Waiting;
use super::worker::{self, Beginning, FetchFile, Opening, Order, Report, with_causes};
use crate::data_roots::DataRoots;
use crate::error::FileProblem;
use phalanx_account::{ClaimGuard, Holder, NodeAccount};
use phalanx_fabric::{BlobId, Fabric, FrameKind, LinkEvent, LinkKey, Peer};
use phalanx_protocol::Wish;
use phalanx_train::{Losses, MakeCompute};
use phalanx_types::{Epoch, Needs, NodeId, Parcel, RunId};
use phalanx_wire::codec::{self, CodecError};
use phalanx_wire::detail::Detail;
use phalanx_wire::node::LostReason;
use phalanx_wire::train::{AskRef, Asked, Enlist, FromReplica, PartRef, ShareAsk, StateRef, ToReplica};
use phalanx_wire::train_reason::{BreakReason, CloseReason, QueryRefusal, RunRefusal};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Reports that are put into one message, at most.
const BURST: usize = 64;
/// Reports of all replicas that wait; then replicas wait.
const MOST_REPORTS: usize = 4096;
/// Orders that wait for a replica. A driver that sends more does not follow the protocol.
const MOST_ORDERS: usize = 1024;
/// Stands for all groups of a run that is closed.
const CLOSED: Epoch = Epoch(u64::MAX);
/// Answers and checkpoints of a run that its driver has not taken.
const MOST_HELD: usize = 256;
/// Runs that wait at once; more are refused without waiting.
const MAX_WAITING: usize = 64;

/// What a node trains with.
#[derive(Clone)]
pub struct Offer {
    pub compute: MakeCompute,
    pub account: NodeAccount,
    /// The custom losses that it has; a run with another is refused.
    pub losses: Losses,
    /// What runs may open besides the files that their drivers list.
    pub roots: DataRoots,
    /// Counts the runs that their drivers have ended on this node.
    pub over: watch::Sender<u64>,
}

impl std::fmt::Debug for Offer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Offer").field("losses", &self.losses).finish_non_exhaustive()
    }
}

/// Trains what drivers ask for, as far as the account has room for it, until the fabric ends.
pub async fn serve(fabric: Fabric, offer: Offer) {
    let events = fabric.channel(FrameKind::Train);
    let (reports, heard) = mpsc::channel(MOST_REPORTS);
    let Offer { compute, account, losses, roots, over } = offer;
    let service = Service {
        fabric,
        compute,
        account,
        losses,
        roots,
        over,
        peers: BTreeMap::new(),
        open: BTreeMap::new(),
        waiting: BTreeMap::new(),
        closing: BTreeMap::new(),
        reports,
        next: 0,
    };
    service.run(events, heard).await;
}

struct Service {
    fabric: Fabric,
    compute: MakeCompute,
    account: NodeAccount,
    losses: Losses,
    roots: DataRoots,
    over: watch::Sender<u64>,
    peers: BTreeMap<LinkKey, Peer>,
    open: BTreeMap<RunId, Open>,
    /// Runs that did not fit when they came.
    waiting: BTreeMap<RunId, Waiting>,
    /// Runs whose replica was closed, but whose thread has not ended. There is never more than one thread of a run.
    closing: BTreeMap<RunId, Closing>,
    reports: mpsc::Sender<(u64, Report)>,
    next: u64,
}

/// A run that is opened anew, if at all, when the thread of its replica has ended.
struct Closing {
    number: u64,
    next: Option<Next>,
}

/// How a run is opened anew: as its driver has said last.
struct Next {
    driver: Peer,
    enlist: Enlist,
    /// What the replica before has of the account.
    claim: Option<Arc<ClaimGuard>>,
}

/// A replica that this node holds.
struct Open {
    /// Reports with another number are from a replica that was closed.
    number: u64,
    run: RunId,
    driver: Peer,
    /// Its thread has it, too: what it uses is free when that has ended.
    claim: Arc<ClaimGuard>,
    orders: SyncSender<Order>,
    /// More orders have come than can wait.
    is_flooded: Cell<bool>,
    budget: Arc<Budget>,
    mailbox: Arc<Mailbox>,
    /// What the driver has not taken yet; of states also the group that they are of.
    held: Vec<(BlobId, Option<Epoch>)>,
    /// Parts of the state for replicas that are new to the group.
    parts: Vec<BlobId>,
}

impl Service {
    async fn run(mut self, mut events: mpsc::Receiver<LinkEvent>, mut heard: mpsc::Receiver<(u64, Report)>) {
        let mut reports = Vec::new();
        let mut freed = self.account.freed_changes();
        loop {
            let due = self.waiting.values().map(Waiting::due).min();
            tokio::select! {
                event = events.recv() => match event {
                    Some(event) => self.on_event(event),
                    None => break,
                },
                _ = heard.recv_many(&mut reports, BURST) => self.on_reports(&mut reports),
                Ok(()) = freed.changed() => self.on_freed(),
                () = until(due) => self.on_due(),
            }
        }
        self.close_all(|_| true, &CloseReason::NodeStops);
    }

    fn on_event(&mut self, event: LinkEvent) {
        match event {
            LinkEvent::Up(peer) => drop(self.peers.insert(peer.key(), peer)),
            LinkEvent::Down { link, node, reason, .. } => {
                self.peers.remove(&link);
                self.waiting.retain(|_, waiting| waiting.driver.key() != link);
                for closing in self.closing.values_mut() {
                    closing.next.take_if(|next| next.driver.key() == link);
                }
                if self.open.values().any(|open| open.driver.key() == link) {
                    tracing::warn!(driver = %node, %reason, "leaves the run: no link to its driver any more");
                    let closed = CloseReason::DriverLost { loss: reason };
                    self.close_all(|open| open.driver.key() == link, &closed);
                }
            }
            LinkEvent::Frame { link, body } => {
                let Some(peer) = self.peers.get(&link).cloned() else { return };
                match codec::decode::<ToReplica>(&body) {
                    Ok(order) => self.on_order(&peer, order),
                    Err(error) => cut_off(&peer, &error),
                }
            }
        }
    }

    fn on_order(&mut self, from: &Peer, order: ToReplica) {
        let run = order.run();
        if let ToReplica::Enlist { enlist, .. } = order {
            return self.enlist(from, run, enlist);
        }
        if matches!(order, ToReplica::Dismiss { .. }) {
            self.forget(from, run);
        }
        self.on_order_of(from, run, order);
        let flooded = self.open.get(&run).is_some_and(|open| open.is_flooded.get());
        if flooded {
            refuse(from, run, RunRefusal::TooManyOrders);
            self.close(run, CloseReason::Refused);
        }
    }

    /// A driver does not need the node any more for a run that is not open yet. Only the driver that asked for it can
    /// say so.
    fn forget(&mut self, from: &Peer, run: RunId) {
        if self.waiting.get(&run).is_some_and(|waiting| waiting.driver.key() == from.key()) {
            self.waiting.remove(&run);
        }
        if let Some(closing) = self.closing.get_mut(&run) {
            closing.next.take_if(|next| next.driver.key() == from.key());
        }
    }

    /// Carries out an order for a replica that is open, if it is of its driver.
    fn on_order_of(&mut self, from: &Peer, run: RunId, order: ToReplica) {
        let Some(open) = self.open.get_mut(&run).filter(|open| open.driver.key() == from.key()) else {
            return;
        };
        match order {
            ToReplica::Enlist { .. } => {}
            ToReplica::Restore { state, .. } => self.restore(from, run, state),
            ToReplica::Prepare { epoch, rank, ranks, layout, .. } => {
                open.order(Order::Prepare { epoch, rank: rank as usize, ranks: ranks as usize, layout });
            }
            ToReplica::Connect { epoch, seats, recorded, start, pass, .. } => {
                let (nodes, ends) = seats.into_iter().map(|seat| (seat.node, seat.ends)).unzip();
                let connector = open.connector(&self.fabric, nodes);
                open.order(Order::Connect(Beginning { epoch, ends, recorded, connector, start, pass }));
            }
            ToReplica::Give { epoch, give, .. } => {
                let connector = open.connector(&self.fabric, Vec::new());
                open.order(Order::Give { epoch, give, connector });
            }
            ToReplica::Abort { epoch, reason, .. } => {
                open.mailbox.abort(epoch, reason);
                open.order(Order::Cancel { epoch });
            }
            ToReplica::Ask { epoch, wish, .. } => {
                let wish = match wish {
                    Asked::Reform => Wish::Reform,
                    Asked::Stop => Wish::Stop,
                };
                open.mailbox.set_wish(epoch, wish);
            }
            ToReplica::Part { epoch, holder, part, .. } => self.fetch_part(run, epoch, &holder, part),
            ToReplica::Compute { epoch, ask, .. } => self.fetch_ask(from, run, epoch, ask),
            ToReplica::Snapshot { .. } => open.order(Order::Snapshot),
            ToReplica::Taken { blob, .. } => {
                if let Some(place) = open.held.iter().position(|(held, _)| *held == blob) {
                    let (blob, epoch) = open.held.swap_remove(place);
                    self.fabric.release(blob);
                    epoch.into_iter().for_each(|epoch| open.mailbox.on_taken(epoch));
                }
            }
            ToReplica::Dismiss { .. } => {
                tracing::info!(driver = %open.driver.id(), "the run is over here");
                self.close(run, CloseReason::Dismissed);
                self.over.send_modify(|over| *over += 1);
            }
        }
    }

    /// The driver that owns a run here: the first one that asked for it, until it dismisses the run or is gone.
    fn owner(&self, run: RunId) -> Option<&Peer> {
        let open = self.open.get(&run).map(|open| &open.driver);
        let waiting = || self.waiting.get(&run).map(|waiting| &waiting.driver);
        let next = || Some(&self.closing.get(&run)?.next.as_ref()?.driver);
        open.or_else(waiting).or_else(next)
    }

    /// Opens a run, when the thread of its replica before has ended.
    fn enlist(&mut self, from: &Peer, run: RunId, enlist: Enlist) {
        if self.owner(run).is_some_and(|owner| owner.id() != from.id()) {
            return refuse(from, run, RunRefusal::OtherDriver);
        }
        let claim = self.open.get(&run).map(|open| open.claim.clone());
        self.close(run, CloseReason::EnlistedAnew);
        match self.closing.get_mut(&run) {
            Some(closing) => {
                let claim = claim.or_else(|| closing.next.take().and_then(|next| next.claim));
                closing.next = Some(Next { driver: from.clone(), enlist, claim });
            }
            None => self.admit(from, run, enlist, claim),
        }
    }

    /// The thread of a replica has ended: its run may be opened anew.
    fn on_over(&mut self, number: u64) {
        let ended = self.closing.iter().find(|(_, closing)| closing.number == number).map(|(run, _)| *run);
        let Some(run) = ended else { return };
        if let Some(Next { driver, enlist, claim }) =
            self.closing.remove(&run).and_then(|closing| closing.next)
        {
            self.admit(&driver, run, enlist, claim);
        }
    }

    /// Opens a run if the node has room for it. One that does not fit waits a moment before it is refused.
    fn admit(&mut self, from: &Peer, run: RunId, enlist: Enlist, before: Option<Arc<ClaimGuard>>) {
        let needs = needs_of(enlist.share, self.account.capacity());
        // A run that asks for something else than before waits anew.
        self.waiting.retain(|known, waiting| *known != run || waiting.turn().needs() == needs);
        let holder = Holder::Run { run, driver: from.id().clone() };
        let claimed = match (before, self.waiting.get(&run)) {
            (Some(claim), _) => Ok(claim),
            (None, Some(waiting)) => waiting.turn().try_claim(holder).map(Arc::new),
            (None, None) => self.account.try_claim(holder, needs).map(Arc::new),
        };
        match claimed {
            Ok(claim) => {
                self.waiting.remove(&run);
                self.open(from, run, enlist, claim);
            }
            Err(shortage) if shortage.is_permanent() => {
                refuse(from, run, RunRefusal::Shortage(shortage));
            }
            Err(shortage) if self.waiting.len() >= MAX_WAITING && !self.waiting.contains_key(&run) => {
                refuse(from, run, RunRefusal::Shortage(shortage));
            }
            Err(shortage) => {
                let known = self.waiting.remove(&run);
                let waiting = Waiting::new(&self.account, from.clone(), run, needs, enlist, shortage, known);
                self.waiting.insert(run, waiting);
            }
        }
    }

    /// Something was given back: runs that wait may fit now, in order of arrival.
    fn on_freed(&mut self) {
        self.publish();
        let mut runs: Vec<RunId> = self.waiting.keys().copied().collect();
        runs.sort_by_key(|run| self.waiting.get(run).map(|waiting| waiting.turn().place()));
        for run in runs {
            let Some((driver, enlist)) = self.waiting.get_mut(&run).and_then(Waiting::take) else { continue };
            self.enlist(&driver, run, enlist);
        }
    }

    /// Refuses runs that have waited long enough, and forgets those whose drivers did not ask again.
    fn on_due(&mut self) {
        for (run, waiting) in &mut self.waiting {
            if let Some(shortage) = waiting.give_up() {
                refuse(&waiting.driver, *run, RunRefusal::Shortage(shortage));
            }
        }
        self.waiting.retain(|_, waiting| !waiting.is_over());
    }

    /// Opens a run on a thread of its own.
    fn open(&mut self, from: &Peer, run: RunId, enlist: Enlist, claim: Arc<ClaimGuard>) {
        self.next += 1;
        let (number, mailbox) = (self.next, Arc::new(Mailbox::default()));
        let (orders, waiting) = std::sync::mpsc::sync_channel(MOST_ORDERS);
        let reports = Reports { number, to: self.reports.clone() };
        let opening = Opening {
            enlist,
            fetch: self.fetch_file(from.clone(), mailbox.clone()),
            most_file: longest_file(self.account.capacity().memory),
            roots: self.roots.clone(),
            compute: self.compute.clone(),
            losses: self.losses.clone(),
            cores: claim.needs().cores as usize,
            mailbox: mailbox.clone(),
            reports,
        };
        let thread = std::thread::Builder::new().name("replica".to_owned());
        let (ended, kept) = (opening.reports.clone(), claim.clone());
        let work = move || {
            let worked = catch_unwind(AssertUnwindSafe(|| worker::run(opening, &waiting)));
            if worked.is_err() {
                // The panic is on standard error. The driver is told, so that it does not wait for this replica.
                ended.say(Report::Refused(RunRefusal::Panicked));
            }
            drop(kept);
            ended.say(Report::Over);
        };
        match thread.spawn(work) {
            Ok(_detached) => {
                let driver = from.clone();
                tracing::info!(driver = %driver.id(), cores = claim.needs().cores, "takes part in a run");
                let budget = Budget::new(claim.needs().memory, self.account.capacity().memory);
                let open = Open {
                    number,
                    run,
                    driver,
                    claim,
                    orders,
                    is_flooded: Cell::new(false),
                    budget,
                    mailbox,
                    held: Vec::new(),
                    parts: Vec::new(),
                };
                self.open.insert(run, open);
                self.publish();
            }
            Err(error) => {
                refuse(from, run, RunRefusal::NoThread { detail: error.to_string().into() });
            }
        }
    }

    /// Tells other nodes who uses this one.
    fn publish(&self) {
        self.fabric.update_status(|status| status.uses = self.account.uses());
    }

    /// Brings files of the driver, until the run is closed; for threads other than the runtime's.
    fn fetch_file(&self, from: Peer, mailbox: Arc<Mailbox>) -> FetchFile {
        let (fabric, runtime) = (self.fabric.clone(), Handle::current());
        Box::new(move |file| {
            let failed = |detail: String| FileProblem::Fetch { from: from.id().clone(), detail };
            let fetch = async {
                tokio::select! {
                    fetched = fabric.fetch(&from, file.blob, file.bytes) => {
                        fetched.map_err(|error| failed(error.to_string()))
                    }
                    reason = mailbox.over(CLOSED) => Err(failed(reason.to_string())),
                }
            };
            runtime.block_on(fetch)
        })
    }

    /// Fetches a state, then hands it to the replica.
    fn restore(&self, from: &Peer, run: RunId, state: Option<StateRef>) {
        let Some(open) = self.open.get(&run) else { return };
        let Some(StateRef { bytes, blob, .. }) = state else { return open.order(Order::Restore(None)) };
        let reports = Reports { number: open.number, to: self.reports.clone() };
        let Some(charge) = open.budget.charge(bytes) else {
            let refusal = RunRefusal::TooMuch { bytes, limit: open.budget.limit() };
            tokio::spawn(async move { reports.say_later(Report::Refused(refusal)).await });
            return;
        };
        let (fabric, from, orders) = (self.fabric.clone(), from.clone(), open.orders.clone());
        let mailbox = open.mailbox.clone();
        tokio::spawn(async move {
            let fetched = tokio::select! {
                fetched = fabric.fetch(&from, blob, bytes) => fetched,
                _ = mailbox.over(CLOSED) => return,
            };
            let refusal = match fetched {
                Ok(state) => match orders.try_send(Order::Restore(Some((state, charge)))) {
                    Err(TrySendError::Full(_)) => RunRefusal::TooManyOrders,
                    // A replica that was closed meanwhile needs it no more.
                    Ok(()) | Err(TrySendError::Disconnected(_)) => return,
                },
                Err(error) => RunRefusal::NoState { detail: error.to_string().into() },
            };
            reports.say_later(Report::Refused(refusal)).await;
        });
    }

    /// Fetches a part of the state from its holder, for a replica that is new to its group.
    fn fetch_part(&self, run: RunId, epoch: Epoch, holder: &NodeId, part: PartRef) {
        let Some(open) = self.open.get(&run) else { return };
        let Some(peer) = self.fabric.peer(holder) else { return };
        let StateRef { bytes, blob, .. } = part.state;
        let Some(charge) = open.budget.charge(bytes) else {
            return tracing::warn!(bytes, "a part of the state is larger than the run may use here");
        };
        let (fabric, mailbox) = (self.fabric.clone(), open.mailbox.clone());
        tokio::spawn(async move {
            match fabric.fetch(&peer, blob, bytes).await {
                Ok(bytes) => mailbox.add_part(epoch, part.part as usize, bytes, charge),
                // The group goes on without; this replica gets the whole state when it is late.
                Err(error) => tracing::debug!(%error, "could not fetch a part of the state"),
            }
        });
    }

    /// Fetches the samples of a live query, for the next boundary between steps.
    fn fetch_ask(&self, from: &Peer, run: RunId, epoch: Epoch, ask: AskRef) {
        let Some(open) = self.open.get(&run) else { return };
        let (fabric, from, mailbox) = (self.fabric.clone(), from.clone(), open.mailbox.clone());
        let reports = Reports { number: open.number, to: self.reports.clone() };
        let charge = open.budget.charge(ask.bytes).filter(|_| open.held.len() < MOST_HELD);
        tokio::spawn(async move {
            let detail = match charge {
                Some(charge) => match fabric.fetch(&from, ask.blob, ask.bytes).await {
                    Ok(bytes) => return mailbox.add_query(epoch, LiveQuery::new(&ask, bytes), charge),
                    Err(error) => error.to_string(),
                },
                None => "the questions before take all the memory that the run may use here".to_owned(),
            };
            let refusal = QueryRefusal::NoSamples { detail: detail.into() };
            reports.say_later(Report::NotComputed { number: ask.number, refusal }).await;
        });
    }

    /// Lets go of the replica of a run, whatever it does.
    fn close(&mut self, run: RunId, reason: CloseReason) {
        if let Some(open) = self.open.remove(&run) {
            open.mailbox.abort(CLOSED, BreakReason::Closed(reason));
            let held = open.held.into_iter().map(|(blob, _)| blob);
            held.chain(open.parts).for_each(|blob| self.fabric.release(blob));
            drop(open.claim);
            self.closing.insert(run, Closing { number: open.number, next: None });
            self.publish();
        }
    }

    /// Lets go of some replicas.
    fn close_all(&mut self, which: impl Fn(&Open) -> bool, reason: &CloseReason) {
        let runs: Vec<RunId> =
            self.open.iter().filter(|(_, open)| which(open)).map(|(run, _)| *run).collect();
        runs.into_iter().for_each(|run| self.close(run, reason.clone()));
    }

    /// Tells the driver what its replica has to say.
    fn on_reports(&mut self, reports: &mut Vec<(u64, Report)>) {
        for (number, report) in reports.drain(..) {
            if matches!(report, Report::Over) {
                self.on_over(number);
                continue;
            }
            let Some(open) = self.open.values_mut().find(|open| open.number == number) else { continue };
            let (run, driver) = (open.run, open.driver.clone());
            let message = match report {
                Report::Over => continue,
                Report::Enlisted => FromReplica::Enlisted { run, step: None },
                Report::Refused(refusal) => {
                    refuse(&driver, run, refusal);
                    self.close(run, CloseReason::Refused);
                    continue;
                }
                Report::Restored { step } => FromReplica::Restored { run, step },
                Report::Prepared { epoch, ends } => FromReplica::Prepared { run, epoch, ends },
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
                Report::NotComputed { number, refusal } => FromReplica::NotComputed { run, number, refusal },
                Report::StreamWaits { epoch, step, wait, ended } => {
                    FromReplica::StreamWaits { run, epoch, step, wait, ended }
                }
                Report::StreamEnded { epoch, step, ended } => {
                    FromReplica::StreamEnded { run, epoch, step, ended }
                }
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
        if let Err(TrySendError::Full(_)) = self.orders.try_send(order) {
            self.is_flooded.set(true);
        }
    }
}

/// What a run claims on a node that has this much.
fn needs_of(share: ShareAsk, capacity: Needs) -> Needs {
    Needs {
        // A run without cores would be one of any number.
        cores: share.cores.map_or(capacity.cores, |cores| cores.max(1)),
        // An estimate may be too high: it is no reason never to train here.
        memory: share.memory.unwrap_or(share.estimate.min(capacity.memory)),
    }
}

/// Returns at a moment; never, when there is none.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Ends the link to a peer that said what cannot be decoded. What it drives here ends when the link is down.
fn cut_off(peer: &Peer, error: &CodecError) {
    let detail = Detail::new(with_causes(error));
    tracing::warn!(driver = %peer.id(), %detail, "driver cut off");
    peer.close(LostReason::Misbehaved { detail });
}

fn refuse(driver: &Peer, run: RunId, refusal: RunRefusal) {
    send(driver, &FromReplica::Refused { run, refusal });
}

fn send(to: &Peer, message: &FromReplica) {
    if let Err(error) = to.send(FrameKind::Train, message) {
        tracing::debug!(to = %to.id(), %error, "could not tell the driver");
    }
}
