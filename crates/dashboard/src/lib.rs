//! The dashboard: a page and an API over runs and their domain, served by the binary itself.
//!
//! ```text
//!   run directories ── inotify ──► Follower ─┐                      ┌─► SSE: what changed, ≤ 4 messages/s
//!   nodes ──────────── fabric ───► Domain ───┴─► Hub (versions) ────┤
//!   files ◄──────────────────── RunDirs, Views ◄── endpoints ◄── Gate ◄── browsers
//! ```
//! [`Gate`] decides who may ask; it is pure, and so is the reduction of curves. Nothing here writes to a run.

mod api;
mod app;
mod conn;
mod domain;
mod endpoints;
mod entry;
mod error;
mod files;
mod follow;
mod gate;
mod hub;
mod live;
mod openapi;
mod page;
mod runs;
mod schemas;
mod server;
mod view;

pub use conn::Limits;
pub use error::StartError;
pub use gate::{Access, Asked, Gate, Refused, new_token};
pub use page::page_weight;

use app::App;
use conn::Clients;
use domain::Domain;
use follow::Follower;
use hub::Hub;
use phalanx_fabric::{DomainKey, Fabric, service_names};
use phalanx_types::NodeId;
use runs::RunDirs;
use std::io::PipeWriter;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// How a dashboard is started.
#[derive(Debug)]
pub struct Config {
    /// A directory with runs, or one run.
    pub runs: PathBuf,
    pub bind: SocketAddr,
    /// Whether viewers may act.
    pub control: bool,
    /// A domain that is looked at, with its name.
    pub domain: Option<(Fabric, String)>,
    /// Makes the certificate of a server that other hosts reach.
    pub key: Option<DomainKey>,
    /// Names under which other hosts reach it, besides the names of this machine.
    pub names: Vec<String>,
    pub limits: Limits,
    /// Routes of other protocols, behind the same gate; those below `/api/2.0/` are for programs, not for browsers.
    pub routes: axum::Router,
}

impl Config {
    /// Runs at an address, without a domain.
    pub fn new(runs: impl Into<PathBuf>, bind: SocketAddr) -> Self {
        Self {
            runs: runs.into(),
            bind,
            control: false,
            domain: None,
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
}

impl Dashboard {
    /// Starts to serve.
    ///
    /// # Errors
    /// The address cannot be used, or other hosts would reach it without TLS.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let Config { runs, bind, control, domain, key, names, limits, routes } = config;
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
        let clients = Clients::new(listener, tls, limits).map_err(failed)?;
        let (hub, runs) = (Arc::new(Hub::new()), Arc::new(RunDirs::new(&runs)));
        let domain = domain.map(|(fabric, name)| Arc::new(Domain::new(fabric, name)));
        let follow = |source| StartError::Follow { path: runs.root().to_owned(), source };
        let followed =
            Follower::new(&runs).and_then(|follower| follower.start(Arc::clone(&runs), Arc::clone(&hub)));
        let followed = followed.map_err(follow)?;
        let mut tasks = JoinSet::new();
        if let Some(domain) = &domain {
            tasks.spawn(Arc::clone(domain).follow(Arc::clone(&hub)));
        }
        let router = server::router(Arc::new(App::new(runs, hub, domain, gate)), routes);
        tasks.spawn(async move {
            if let Err(error) = axum::serve(clients, router).await {
                tracing::warn!(%error, "the dashboard ended");
            }
        });
        Ok(Self { address, secure, read_token, act_token, tasks, _followed: followed })
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
