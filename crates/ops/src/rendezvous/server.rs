//! The side that processes come to: a thread that accepts, and one for each connection.

use super::auth::{self, Secret};
use super::frame::{read_message, write_message};
use crate::core::gathering::{FromGuest, Gathering, GuestId, ToGuest};
use phalanx_types::Outbox;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a connection may take to prove itself.
const PROOF: Duration = Duration::from_secs(10);

/// Where ranks meet. It ends when dropped.
#[derive(Debug)]
pub struct RendezvousServer {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct State {
    gathering: Gathering,
    guests: BTreeMap<GuestId, Arc<TcpStream>>,
    next_guest: GuestId,
    over: bool,
}

impl RendezvousServer {
    /// Listens for processes of these numbers. When all of them have come they form a group.
    ///
    /// # Errors
    /// The address is in use or not of this host, or the system gives no thread.
    pub fn start(
        bind: impl ToSocketAddrs,
        secret: Secret,
        workers: impl IntoIterator<Item = u32>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(bind)?;
        let address = listener.local_addr()?;
        let state =
            State { gathering: Gathering::new(workers), guests: BTreeMap::new(), next_guest: 0, over: false };
        let state = Arc::new(Mutex::new(state));
        let here = Arc::clone(&state);
        let accept = move || accept_all(&listener, &here, &secret);
        let thread = std::thread::Builder::new().name("rendezvous".to_owned()).spawn(accept)?;
        Ok(Self { address, state, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes which processes are alive: a group is formed when all of `workers` have come. Of `newcomers` those
    /// become ranks that are here by then; a group that goes on is told that they wait.
    pub fn expect(&self, workers: BTreeSet<u32>, newcomers: BTreeSet<u32>) {
        act(&self.state, |gathering, out| gathering.expect(workers, newcomers, out));
    }

    /// The processes of the last group that was formed.
    pub fn members(&self) -> BTreeSet<u32> {
        lock(&self.state).gathering.members().clone()
    }

    /// The last group that was formed; 0 before the first.
    pub fn epoch(&self) -> u64 {
        lock(&self.state).gathering.epoch()
    }
}

impl Drop for RendezvousServer {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        state.over = true;
        for guest in state.guests.values() {
            // It may have ended by itself.
            let _ended = guest.shutdown(Shutdown::Both);
        }
        drop(state);
        // Wakes the thread that accepts.
        let port = self.address.port();
        let local = if self.address.is_ipv4() { "127.0.0.1" } else { "::1" };
        let _woken = TcpStream::connect((local, port)).or_else(|_| TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            // Its panic was reported on its own thread.
            let _ended = thread.join();
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets the core decide, and says what it wants said.
fn act(state: &Mutex<State>, work: impl FnOnce(&mut Gathering, &mut Outbox<(GuestId, ToGuest)>)) {
    let mut state = lock(state);
    let mut out = Outbox::default();
    work(&mut state.gathering, &mut out);
    for (guest, message) in out.drain() {
        let Some(stream) = state.guests.get(&guest) else { continue };
        if let Err(error) = write_message(&**stream, &message) {
            tracing::debug!(guest, %error, "could not tell a process about its group");
        }
    }
}

fn accept_all(listener: &TcpListener, state: &Arc<Mutex<State>>, secret: &Secret) {
    loop {
        let accepted = listener.accept();
        if lock(state).over {
            return;
        }
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "could not accept a process at the rendezvous");
                std::thread::park_timeout(Duration::from_millis(50));
                continue;
            }
        };
        let (state, secret) = (Arc::clone(state), secret.clone());
        let serve = move || {
            if let Err(error) = serve(&Arc::new(stream), &state, &secret) {
                tracing::debug!(%error, "a connection to the rendezvous ended");
            }
        };
        if let Err(error) = std::thread::Builder::new().name("rendezvous guest".to_owned()).spawn(serve) {
            tracing::warn!(%error, "could not serve a process at the rendezvous");
        }
    }
}

fn serve(stream: &Arc<TcpStream>, state: &Mutex<State>, secret: &Secret) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PROOF))?;
    stream.set_write_timeout(Some(PROOF))?;
    auth::accept(&**stream, secret)?;
    stream.set_read_timeout(None)?;
    let guest = {
        let mut state = lock(state);
        if state.over {
            return Ok(());
        }
        let guest = state.next_guest;
        state.next_guest += 1;
        state.guests.insert(guest, Arc::clone(stream));
        guest
    };
    let ended = loop {
        match read_message::<FromGuest>(&**stream) {
            Ok(message) => act(state, |gathering, out| gathering.on_message(guest, message, out)),
            Err(error) => break error,
        }
    };
    lock(state).guests.remove(&guest);
    act(state, |gathering, out| gathering.on_gone(guest, out));
    if ended.kind() == io::ErrorKind::UnexpectedEof { Ok(()) } else { Err(ended) }
}
