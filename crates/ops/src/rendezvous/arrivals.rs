//! What rank 0 hears from the rendezvous while its group goes on.

use super::frame::read_message;
use crate::core::gathering::ToGuest;
use std::net::TcpStream;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long the rest of a message may take when it has begun to come.
const REST: Duration = Duration::from_secs(1);

/// Whether processes wait to become ranks.
#[derive(Debug)]
pub(crate) struct Arrivals {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Until it breaks.
    stream: Option<TcpStream>,
    newcomers: bool,
}

impl Arrivals {
    pub(super) fn new(stream: TcpStream, newcomers: bool) -> Self {
        Self { state: Mutex::new(State { stream: Some(stream), newcomers }) }
    }

    /// Whether processes wait, as far as has been told. It does not wait.
    pub(crate) fn are_here(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !state.newcomers
            && let Some(stream) = &state.stream
        {
            match next(stream) {
                Ok(Some(message)) => state.newcomers = message == ToGuest::Newcomers,
                Ok(None) => break,
                Err(error) => {
                    // The launcher is gone, and ends the ranks; or the network is, and nobody can come.
                    tracing::debug!(%error, "the connection to the rendezvous ended");
                    state.stream = None;
                }
            }
        }
        state.newcomers
    }
}

/// The next message, if one has come.
fn next(stream: &TcpStream) -> std::io::Result<Option<ToGuest>> {
    stream.set_nonblocking(true)?;
    let come = stream.peek(&mut [0]);
    stream.set_nonblocking(false)?;
    match come {
        Ok(0) => Err(std::io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => {
            stream.set_read_timeout(Some(REST))?;
            read_message(stream).map(Some)
        }
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}
