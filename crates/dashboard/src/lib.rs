//! The dashboard: a page and an API over runs and their domain, served by the binary itself.
//!
//! ```text
//!   run directories ── inotify ──► Follower ─┬──────────────────────┬─► SSE: what changed, ≤ 4 messages/s
//!   nodes ──────────── fabric ───► Domain ───┴─► Hub (versions) ────┤
//!   ledger ◄─┬─ Runs (one of Indexed, RunDirs) ◄── endpoints ◄── Gate ◄── browsers
//!   files ◄──┘
//! ```
//! [`Gate`] decides who may ask; it is pure, and so is the reduction of curves. Tags and notes are all that is written
//! to a run; stopping and resuming it is done by its own process.

mod actions;
mod api;
mod app;
mod conn;
mod curve;
mod domain;
mod endpoints;
mod entry;
mod error;
mod files;
mod follow;
mod gate;
mod hub;
mod indexed;
mod live;
mod openapi;
mod page;
mod past_jobs;
mod run_dirs;
mod runs;
mod schemas;
mod searches;
mod server;
mod source;
mod stores;
mod tail;
mod view;

pub use actions::Resume;
pub use conn::{Disconnected, Limits};
pub use error::StartError;
pub use gate::{Access, Asked, Gate, Refused, new_token};
pub use page::page_weight;
pub use past_jobs::Journals;
pub use stores::StoreTarget;

use actions::Actions;
use app::App;
use conn::Clients;
use domain::Domain;
use follow::Follower;
use hub::Hub;
use phalanx_fabric::{DomainKey, Fabric, service_names};
use phalanx_ledger::LedgerUrl;
use phalanx_types::NodeId;
use searches::Searches;
use source::{Kept, Runs};
use std::io::PipeWriter;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use stores::Stores;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// How a dashboard is started.
#[derive(Debug)]
pub struct Config {
    /// A directory with runs, or one run.
    pub runs: PathBuf,
    /// The ledger that they are in; their files alone are read without one.
    pub ledger: Option<LedgerUrl>,
    /// Whether runs of other directories and hosts in the ledger are shown, too.
    pub all_runs: bool,
    /// Resumes runs for those who may act.
    pub resume: Option<Resume>,
    pub bind: SocketAddr,
    /// Whether viewers may act.
    pub control: bool,
    /// A domain that is looked at, with its name.
    pub domain: Option<(Fabric, String)>,
    /// Journals of main nodes, whose jobs are shown when these are gone; they need a ledger.
    pub journals: Option<Journals>,
    /// Stores that are looked at, besides that of the domain.
    pub stores: Vec<StoreTarget>,
    /// Makes the certificate of a server that other hosts reach.
    pub key: Option<DomainKey>,
    /// Names under which other hosts reach it, besides the names of this machine.
    pub names: Vec<String>,
    pub limits: Limits,
    /// Routes of other protocols, behind the same gate; those below `/api/2.0/` are for programs, not for browsers.
    pub routes: axum::Router,
}

impl Config {
    /// Runs at an address, from their files alone, without a domain.
    pub fn new(runs: impl Into<PathBuf>, bind: SocketAddr) -> Self {
        Self {
            runs: runs.into(),
            ledger: None,
            all_runs: false,
            resume: None,
            bind,
            control: false,
            domain: None,
            journals: None,
            stores: Vec::new(),
            key: None,
            names: Vec::new(),
            limits: Limits::default(),
            routes: axum::Router::new(),
        }
    }
}

/// A running dashboard; ends when it is dropped.
#[derive(Debug)]
pub struct Dashboard {
    address: SocketAddr,
    secure: bool,
    read_token: Option<String>,
    act_token: Option<String>,
    tasks: JoinSet<()>,
    /// Ends the thread that follows run directories.
    _followed: PipeWriter,
    /// Ends the thread that feeds the ledger.
    _kept: Option<Kept>,
    disconnected: watch::Receiver<Disconnected>,
}

impl Dashboard {
    /// Starts to serve.
    ///
    /// # Errors
    /// The address cannot be used, or other hosts would reach it without TLS.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let Config { runs, ledger, all_runs, resume, bind, control, domain, key, names, .. } = config;
        let (targets, limits, routes) = (config.stores, config.limits, config.routes);
        let journals = config.journals;
        let beyond = !bind.ip().is_loopback();
        let (mut gate, mut tls, mut read_token, mut act_token) = (Gate::loopback(control), None, None, None);
        if beyond {
            let key = key.ok_or(StartError::Exposed { address: bind })?;
            let mut known = service_names();
            known.extend(names);
            let settings = key.service_tls(&NodeId::with_suffix("dashboard", 0)?, &known)?;
            tls = Some(TlsAcceptor::from(settings));
            gate = known.iter().fold(gate.over_tls(), |gate, name| gate.named(name));
            let token = || new_token().ok_or(StartError::Token);
            let read = token()?;
            gate = gate.with_token(&read, Access::Read);
            read_token = Some(read);
            if control {
                let act = token()?;
                gate = gate.with_token(&act, Access::Act);
                act_token = Some(act);
            }
        } else {
            gate = names.iter().fold(gate, |gate, name| gate.named(name));
        }
        let failed = |source| StartError::Bind { address: bind, source };
        let listener = TcpListener::bind(bind).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let secure = tls.is_some();
        let (clients, disconnected) = Clients::new(listener, tls, limits).map_err(failed)?;
        let (hub, runs) = (Arc::new(Hub::new()), Arc::new(Runs::new(&runs)));
        let domain = domain.map(|(fabric, name)| Arc::new(Domain::new(fabric, name)));
        let root = runs.files().root().to_owned();
        let follow = |source| StartError::Follow { path: root.clone(), source };
        let followed = Follower::new(runs.files())
            .and_then(|follower| follower.start(Arc::clone(&runs), Arc::clone(&hub)));
        let followed = followed.map_err(follow)?;
        // A single run needs no index of runs.
        let ledger = ledger.filter(|_| runs.files().one_run().is_none());
        let only = (!all_runs).then(|| root.clone());
        let kept = ledger.map(|url| runs.keep(url, only, Arc::clone(&hub))).transpose().map_err(follow)?;
        let actions = Arc::new(Actions::new(resume, Arc::clone(&hub)));
        let mut tasks = JoinSet::new();
        let stores = Stores::new(Arc::clone(&hub));
        targets.into_iter().for_each(|target| stores.follow(target));
        if let Some(domain) = &domain {
            tasks.spawn(Arc::clone(domain).follow(Arc::clone(&hub)));
            tasks.spawn(follow_store_of(Arc::clone(domain), Arc::clone(&stores), Arc::clone(&hub)));
        }
        let searches = Searches::new(runs.files().searches());
        let app = App { domain, journals, ..App::new(runs, actions, hub, stores, searches, gate) };
        let router = server::router(Arc::new(app), routes);
        tasks.spawn(async move {
            if let Err(error) = axum::serve(clients, router).await {
                tracing::warn!(%error, "the dashboard ended");
            }
        });
        Ok(Self {
            address,
            secure,
            read_token,
            act_token,
            tasks,
            _followed: followed,
            _kept: kept,
            disconnected,
        })
    }

    /// How many clients were disconnected so far, and why; tells when there is another one.
    pub fn disconnected(&self) -> watch::Receiver<Disconnected> {
        self.disconnected.clone()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address for a browser, with the token for this access, if there is one.
    pub fn url(&self, access: Access) -> Option<String> {
        let scheme = if self.secure { "https" } else { "http" };
        // No browser can ask for "any address of this machine".
        let host = match self.address.ip() {
            ip if ip.is_unspecified() => {
                service_names().into_iter().next().unwrap_or_else(|| "localhost".to_owned())
            }
            ip if ip.is_ipv6() => format!("[{ip}]"),
            ip => ip.to_string(),
        };
        let base = format!("{scheme}://{host}:{}/", self.address.port());
        let token = match access {
            Access::Read => &self.read_token,
            Access::Act => &self.act_token,
        };
        match token {
            Some(token) => Some(format!("{base}?token={token}")),
            None if self.read_token.is_none() => Some(base),
            None => None,
        }
    }

    /// Stops serving.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

/// Follows the store of a domain from when one of its nodes serves it.
async fn follow_store_of(domain: Arc<Domain>, stores: Arc<Stores>, hub: Arc<Hub>) {
    let mut changes = hub.subscribe();
    loop {
        let info = domain.info();
        if let Some(name) = info.domain.filter(|_| info.nodes.iter().any(|node| node.store.is_some())) {
            stores.follow(StoreTarget { address: format!("phalanx://{name}"), password: None });
            return;
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}
