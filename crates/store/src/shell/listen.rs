//! Where clients come in.

use super::error::StartError;
use super::hub::Hub;
use crate::core::Origin;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc;

/// A client that has connected.
#[derive(Debug)]
pub(crate) enum Accepted {
    Tcp(std::net::TcpStream, SocketAddr),
    Unix(std::os::unix::net::UnixStream, Origin),
}

/// What a thread that serves clients is told.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// Look at all sockets, then pass the client on.
    Announced(Arc<Newcomer>),
    /// Serve this client.
    Serve(Accepted),
}

/// A client that is served when all threads have seen what happened on their sockets before it came.
///
/// A client that lost its connection comes back at once. The end of its old connection must be known before a command
/// that it repeats on the new one is carried out.
#[derive(Debug)]
pub(crate) struct Newcomer {
    accepted: Mutex<Option<Accepted>>,
    unseen: AtomicUsize,
    target: mpsc::UnboundedSender<Arrival>,
}

impl Newcomer {
    /// A thread has looked at its sockets; the last one passes the client on.
    pub(crate) fn seen(&self) {
        if self.unseen.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(accepted) = accepted {
            // A thread that is gone ends its clients, too.
            let _ended = self.target.send(Arrival::Serve(accepted));
        }
    }
}

/// The threads that serve clients, taken in turn.
#[derive(Debug)]
pub(crate) struct Threads {
    pub(crate) senders: Vec<mpsc::UnboundedSender<Arrival>>,
    pub(crate) next: usize,
}

impl Threads {
    fn give(&mut self, accepted: Accepted) {
        let at = self.next % self.senders.len().max(1);
        self.next = self.next.wrapping_add(1);
        let Some(target) = self.senders.get(at).cloned() else { return };
        let unseen = AtomicUsize::new(self.senders.len());
        let newcomer = Arc::new(Newcomer { accepted: Mutex::new(Some(accepted)), unseen, target });
        for sender in &self.senders {
            let _ended = sender.send(Arrival::Announced(newcomer.clone()));
        }
    }
}

/// Without descriptors nothing can be accepted; some may come free.
const AFTER_ERROR: Duration = Duration::from_millis(100);

pub(crate) async fn accept_tcp(listener: TcpListener, hub: Arc<Hub>, mut threads: Threads) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = hub.stopped() => return,
        };
        match accepted.and_then(|(stream, peer)| Ok((stream.into_std()?, peer))) {
            Ok((stream, peer)) => threads.give(Accepted::Tcp(stream, peer)),
            Err(error) => pause(&error).await,
        }
    }
}

pub(crate) async fn accept_unix(listener: UnixListener, hub: Arc<Hub>, mut threads: Threads, origin: Origin) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = hub.stopped() => return,
        };
        match accepted.and_then(|(stream, _)| stream.into_std()) {
            Ok(stream) => threads.give(Accepted::Unix(stream, origin.clone())),
            Err(error) => pause(&error).await,
        }
    }
}

async fn pause(error: &io::Error) {
    tracing::warn!(%error, "could not accept a client");
    tokio::time::sleep(AFTER_ERROR).await;
}

/// Opens a Unix socket that only its owner can use. A path left by a server that died is taken over.
pub(crate) fn bind_unix(path: &Path) -> Result<std::os::unix::net::UnixListener, StartError> {
    let failed = |source| StartError::BindUnix { path: path.to_owned(), source };
    let listener = match std::os::unix::net::UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if std::os::unix::net::UnixStream::connect(path).is_ok() {
                return Err(StartError::SocketInUse { path: path.to_owned() });
            }
            std::fs::remove_file(path).map_err(failed)?;
            std::os::unix::net::UnixListener::bind(path).map_err(failed)?
        }
        other => other.map_err(failed)?,
    };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}
