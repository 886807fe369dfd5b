//! Waiting while the store is full.

use crate::cluster::{Keyed, Sending, Servers};
use crate::connection::{Command, checked};
use crate::store::lock;
use crate::{Store, StoreError};
use bytes::Bytes;
use phalanx_resp::Reply;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest single wait that the server is asked for.
const ONE_WAIT: Duration = Duration::from_secs(5);
/// How much later than asked a reply to a wait may come.
const GRACE: Duration = Duration::from_secs(5);
/// Others may take the room that there was. After this many times in a row the client pauses.
const AT_ONCE: u32 = 3;
const PAUSE: Duration = Duration::from_millis(5);

/// How long the server is asked to wait at a time when the program wants to be asked meanwhile.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// Why a program ends a wait.
pub type Interruption = Box<dyn Error + Send + Sync>;

/// Asks the program again and again, on the thread that waits for room in a full store, whether the wait goes on.
#[derive(Clone)]
pub struct Interrupt(Arc<dyn Fn() -> Result<(), Interruption> + Send + Sync>);

impl Interrupt {
    /// An error of `check` ends the wait: the caller gets it in [`StoreError::Interrupted`].
    pub fn new(check: impl Fn() -> Result<(), Interruption> + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }
}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Interrupt").finish_non_exhaustive()
    }
}

/// What a command brings, and a little more for the key.
pub(crate) fn size(command: &Command) -> u64 {
    command.iter().map(|word| word.len() as u64 + 64).sum()
}

pub(crate) fn is_full(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(text) if text.starts_with(b"OOM"))
}

impl Store {
    /// Tries something that needs memory of the node of a key, until there is some or the patience of this client is over.
    pub(crate) fn when_room<T>(
        &self,
        key: &Bytes,
        bytes: u64,
        mut attempt: impl FnMut() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut full = match attempt() {
            Err(StoreError::Full { text }) if self.can_wait_for_room() => text,
            done => return done,
        };
        let until = Instant::now() + self.patience();
        let mut times = 0;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(StoreError::Full { text: full });
            }
            self.ask_interrupt()?;
            match self.room_of(key, bytes, left) {
                Ok(()) => {}
                Err(StoreError::Full { text }) => return Err(StoreError::Full { text }),
                // A server that cannot wait has said that it is full, and that is all there is to say.
                Err(StoreError::Refused { .. }) => return Err(StoreError::Full { text: full }),
                Err(error) => return Err(error),
            }
            times += 1;
            if times > AT_ONCE {
                std::thread::sleep(PAUSE.min(left));
            }
            match attempt() {
                Err(StoreError::Full { text }) => full = text,
                done => return done,
            }
        }
    }

    /// Asks the program whether a wait goes on.
    fn ask_interrupt(&self) -> Result<(), StoreError> {
        let Some(Interrupt(check)) = self.interrupt() else { return Ok(()) };
        check().map_err(|source| StoreError::Interrupted { source })
    }

    /// Waits until the store has room for this many bytes. The server wakes the client; nothing is asked again and again.
    ///
    /// # Errors
    /// There is no room within that time, and the error says what holds it.
    pub fn wait_for_room(&self, bytes: u64, within: Duration) -> Result<(), StoreError> {
        self.room_of(&Bytes::new(), bytes, within)
    }

    /// The same at the node that has a key.
    fn room_of(&self, key: &Bytes, bytes: u64, within: Duration) -> Result<(), StoreError> {
        let until = Instant::now() + within;
        let longest = if self.interrupt().is_some() { CHECK_EVERY } else { ONE_WAIT };
        let idle = lock(self.waiters()).pop();
        let mut servers = match idle {
            Some(servers) => servers,
            None => Servers::connect(self.dial().clone(), false)?,
        };
        loop {
            let asked = until.saturating_duration_since(Instant::now()).min(longest);
            let words =
                [b"PHALANX.ROOM".to_vec(), bytes.to_string().into(), asked.as_millis().to_string().into()];
            let command = words.into_iter().map(Bytes::from).collect();
            let keyed = Keyed { key: key.clone(), command };
            let began = Instant::now();
            let reply = servers.call(vec![keyed], Sending::Plain(Some(asked + GRACE)))?.pop();
            let answer = checked(reply);
            // An answer before the time says that there will never be room.
            let is_early = began.elapsed() + Duration::from_millis(1) < asked;
            match answer {
                Err(StoreError::Full { .. }) if !is_early && Instant::now() < until => {
                    if let Err(interrupted) = self.ask_interrupt() {
                        lock(self.waiters()).push(servers);
                        return Err(interrupted);
                    }
                }
                answer => {
                    lock(self.waiters()).push(servers);
                    return answer.map(|_room| ());
                }
            }
        }
    }
}
