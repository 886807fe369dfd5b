//! A thread that serves some of the clients.

use super::connection;
use super::hub::Hub;
use super::listen::{Accepted, Arrival};
use super::tls::Entrance;
use super::{error::StartError, housekeeping};
use crate::core::Origin;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Builder;
use tokio::sync::mpsc;

/// Starts a thread; it ends when the hub stops and its clients are gone.
pub(crate) fn start(
    number: usize,
    hub: Arc<Hub>,
    entrance: Option<Arc<Entrance>>,
    accepted: mpsc::UnboundedReceiver<Arrival>,
) -> Result<JoinHandle<()>, StartError> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(StartError::Thread)?;
    let body = move || {
        runtime.block_on(async {
            if number == 0 {
                let hub = hub.clone();
                tokio::spawn(async move { housekeeping::run(&hub).await });
            }
            serve_all(hub, entrance, accepted).await;
        });
        runtime.shutdown_background();
    };
    std::thread::Builder::new().name(format!("store-io-{number}")).spawn(body).map_err(StartError::Thread)
}

async fn serve_all(
    hub: Arc<Hub>,
    entrance: Option<Arc<Entrance>>,
    mut arrivals: mpsc::UnboundedReceiver<Arrival>,
) {
    let mut clients = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            arrival = arrivals.recv() => match arrival {
                Some(Arrival::Serve(accepted)) => begin(&hub, entrance.as_ref(), accepted, &mut clients),
                Some(Arrival::Announced(newcomer)) => drop(clients.spawn(async move {
                    // Sockets are looked at between the two, and their clients have their turn.
                    tokio::task::yield_now().await;
                    tokio::task::yield_now().await;
                    newcomer.seen();
                })),
                None => break,
            },
            () = hub.stopped() => break,
            Some(_ended) = clients.join_next() => {}
        }
    }
    while clients.join_next().await.is_some() {}
}

fn begin(
    hub: &Arc<Hub>,
    entrance: Option<&Arc<Entrance>>,
    accepted: Accepted,
    clients: &mut tokio::task::JoinSet<()>,
) {
    let started = match accepted {
        Accepted::Tcp(stream, peer) => begin_tcp(hub, entrance, (stream, peer), clients),
        Accepted::Unix(stream, origin) => begin_unix(hub, stream, origin, clients),
    };
    if let Err(error) = started {
        tracing::debug!(%error, "a client left before it was served");
    }
}

/// What a client on this host has not read yet should stay in the cache of the processor.
const UNREAD: usize = 128 << 10;

const FULL: &[u8] = b"-ERR max number of clients reached\r\n";

fn begin_tcp(
    hub: &Arc<Hub>,
    entrance: Option<&Arc<Entrance>>,
    (mut stream, peer): (std::net::TcpStream, SocketAddr),
    clients: &mut tokio::task::JoinSet<()>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let local = stream.local_addr()?;
    let same_host = peer.ip().to_canonical() == local.ip().to_canonical();
    if same_host {
        rustix::net::sockopt::set_socket_send_buffer_size(&stream, UNREAD)?;
    }
    let origin = Origin {
        peer: peer.to_string(),
        host: local.ip().to_canonical().to_string(),
        port: local.port(),
        trusted: false,
    };
    if let Some(entrance) = entrance.cloned() {
        let (hub, stream) = (hub.clone(), TcpStream::from_std(stream)?);
        clients.spawn(async move { entrance.serve(hub, stream, origin, peer).await });
        return Ok(());
    }
    let Some(connected) = hub.connect(origin) else { return stream.write_all(FULL) };
    let client = connected.client;
    match TcpStream::from_std(stream) {
        Ok(stream) => {
            clients.spawn(connection::serve(stream, hub.clone(), connected, same_host));
            Ok(())
        }
        Err(error) => {
            hub.disconnect(client, crate::core::Ending::Answered);
            Err(error)
        }
    }
}

fn begin_unix(
    hub: &Arc<Hub>,
    mut stream: std::os::unix::net::UnixStream,
    origin: Origin,
    clients: &mut tokio::task::JoinSet<()>,
) -> io::Result<()> {
    let Some(connected) = hub.connect(origin) else { return stream.write_all(FULL) };
    let client = connected.client;
    match UnixStream::from_std(stream) {
        Ok(stream) => {
            clients.spawn(connection::serve(stream, hub.clone(), connected, true));
            Ok(())
        }
        Err(error) => {
            hub.disconnect(client, crate::core::Ending::Answered);
            Err(error)
        }
    }
}
