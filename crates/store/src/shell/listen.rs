//! Where clients come in.

use super::error::StartError;
use super::hub::Hub;
use crate::core::Origin;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc;

/// A client that has connected.
#[derive(Debug)]
pub(crate) enum Accepted {
    Tcp(std::net::TcpStream, SocketAddr),
    Unix(std::os::unix::net::UnixStream, Origin),
}

/// The threads that serve clients, taken in turn.
#[derive(Debug)]
pub(crate) struct Threads {
    pub(crate) senders: Vec<mpsc::UnboundedSender<Accepted>>,
    pub(crate) next: usize,
}

impl Threads {
    fn give(&mut self, accepted: Accepted) {
        let at = self.next % self.senders.len().max(1);
        self.next = self.next.wrapping_add(1);
        if let Some(sender) = self.senders.get(at) {
            // A thread that is gone ends its clients, too.
            let _ended = sender.send(accepted);
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
