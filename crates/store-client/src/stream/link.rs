//! Requests to one stream, and what is said to them.

use super::StreamError;
use crate::StoreError;
use crate::backend::Backend;
use crate::connection::{Command, checked};
use crate::keys::Access;
use crate::store::Store;
use bytes::Bytes;
use phalanx_resp::Reply;
use phalanx_streams::{StreamRefusal, StreamWait};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::{Duration, Instant};

/// The longest single wait that the server is asked for; a lost server is noticed after at most this time more.
const ONE_WAIT: Duration = Duration::from_secs(5);
/// How much later than asked a reply may come.
const GRACE: Duration = Duration::from_secs(10);
/// Pauses between attempts to reach a store that is gone.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What refusals of a stream begin with.
const REFUSED: &str = "STREAMREFUSED ";
/// What a store says that cannot record anything, as Redis does.
const NOT_RECORDED: &str = "MISCONF ";

/// One stream of a store.
#[derive(Debug, Clone)]
pub(crate) struct StreamLink {
    pub(crate) store: Store,
    pub(crate) key: String,
}

pub(crate) fn json<T: Serialize>(value: &T) -> Result<Vec<u8>, StreamError> {
    serde_json::to_vec(value).map_err(StreamError::Json)
}

impl StreamLink {
    /// A stream over the connection of this client.
    pub(crate) fn of(store: &Store, stream: &str, access: Access) -> Result<Self, StreamError> {
        if store.backend() == Backend::Plain {
            return Err(StreamError::NoStreams);
        }
        Ok(Self { store: store.clone(), key: store.keys().list(stream, access) })
    }

    /// No stream in particular.
    pub(crate) fn whole(store: &Store) -> Result<Self, StreamError> {
        Ok(Self { key: String::new(), ..Self::of(store, "", Access::Read)? })
    }

    /// Asks one node about all its streams.
    pub(super) fn ask_node(
        &self,
        node: &str,
        verb: &str,
        words: &[&[u8]],
        within: Duration,
    ) -> Result<Answer, StreamError> {
        let reply = self.store.call_node(node, self.command(verb, words), Some(within + GRACE))?;
        answer(Some(reply))
    }

    /// The same stream over a connection of its own.
    pub(crate) fn own(&self) -> Result<Self, StreamError> {
        Ok(Self { store: self.store.another()?, key: self.key.clone() })
    }

    pub(crate) fn command(&self, verb: &str, words: &[&[u8]]) -> Command {
        let head = [b"PHALANX.STREAM", verb.as_bytes(), self.key.as_bytes()];
        head.into_iter().chain(words.iter().copied()).map(Bytes::copy_from_slice).collect()
    }

    /// Asks once. `within` is how long the server was asked to wait, if it was.
    pub(crate) fn ask(
        &self,
        verb: &str,
        words: &[&[u8]],
        within: Option<Duration>,
    ) -> Result<Answer, StreamError> {
        let command = self.command(verb, words);
        let patience = Some(within.unwrap_or_default() + GRACE);
        let reply = self.store.call_within(self.key.as_bytes(), vec![command], patience)?.pop();
        answer(reply)
    }

    /// Asks again and again while `wait` is left and the connection is lost or the server has nothing to say; each
    /// time the server waits as long as it may. `again` brings a new connection to where the old one was.
    pub(crate) fn insist<T>(
        &self,
        wait: Option<Duration>,
        mut request: impl FnMut(Duration) -> Result<Option<T>, StreamError>,
        mut again: impl FnMut() -> Result<(), StreamError>,
    ) -> Result<Option<T>, StreamError> {
        let until = wait.map(|wait| Instant::now() + wait);
        let mut pause = FIRST_PAUSE;
        let mut broken = false;
        loop {
            let left = until.map_or(ONE_WAIT, |until| until.saturating_duration_since(Instant::now()));
            let tried = match broken {
                true => again().and_then(|()| request(left.min(ONE_WAIT))),
                false => request(left.min(ONE_WAIT)),
            };
            match tried {
                Ok(Some(found)) => return Ok(Some(found)),
                Ok(None) if left.is_zero() => return Ok(None),
                Ok(None) => (broken, pause) = (false, FIRST_PAUSE),
                Err(error) if left.is_zero() || !is_lost(&error) => return Err(error),
                Err(_lost) => {
                    // The store may be on its way back.
                    if broken {
                        std::thread::sleep(pause.min(left));
                        pause = (pause * 2).min(LONGEST_PAUSE);
                    }
                    broken = true;
                }
            }
        }
    }
}

/// Whether the same request may be answered later, perhaps over a new connection.
pub(crate) fn is_lost(error: &StreamError) -> bool {
    match error {
        StreamError::NotRecorded { .. } => true,
        StreamError::Store(
            StoreError::Connect { .. } | StoreError::Lost { .. } | StoreError::Down { .. },
        ) => true,
        StreamError::Refused(refusal) => {
            matches!(refusal, StreamRefusal::NotOpen { .. } | StreamRefusal::NotJoined { .. })
        }
        _ => false,
    }
}

/// What a stream said: a word, and what belongs to it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) word: Bytes,
    rest: Vec<Reply>,
}

pub(crate) fn unexpected(what: &'static str) -> StreamError {
    StreamError::Store(StoreError::Unexpected { what })
}

pub(crate) fn answer(reply: Option<Reply>) -> Result<Answer, StreamError> {
    match accepted(reply)? {
        Reply::Array(items) => {
            let mut items = items.into_iter();
            let (Some(Reply::Simple(word) | Reply::Bulk(word)), rest) = (items.next(), items.collect())
            else {
                return Err(unexpected("an answer of a stream"));
            };
            Ok(Answer { word, rest })
        }
        Reply::Simple(word) => Ok(Answer { word, rest: Vec::new() }),
        _ => Err(unexpected("an answer of a stream")),
    }
}

/// A reply that is no refusal.
pub(crate) fn accepted(reply: Option<Reply>) -> Result<Reply, StreamError> {
    match checked(reply) {
        Err(StoreError::Refused { text }) => Err(refused(text)),
        reply => Ok(reply?),
    }
}

/// The typed reason in a refusal: JSON, then the same in words.
pub(crate) fn refused(text: String) -> StreamError {
    if text.starts_with(NOT_RECORDED) {
        return StreamError::NotRecorded { text };
    }
    let typed = text
        .strip_prefix(REFUSED)
        .and_then(|rest| serde_json::Deserializer::from_str(rest).into_iter::<StreamRefusal>().next()?.ok());
    typed.map_or(StreamError::Store(StoreError::Refused { text }), StreamError::Refused)
}

impl Answer {
    pub(crate) fn is(&self, word: &str) -> bool {
        self.word.eq_ignore_ascii_case(word.as_bytes())
    }

    pub(crate) fn number(&self, at: usize) -> Result<u64, StreamError> {
        match self.rest.get(at) {
            Some(Reply::Integer(number)) => u64::try_from(*number).ok(),
            Some(Reply::Bulk(text)) => std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()),
            _ => None,
        }
        .ok_or_else(|| unexpected("a number"))
    }

    pub(crate) fn bytes(&self, at: usize) -> Result<Bytes, StreamError> {
        match self.rest.get(at) {
            Some(Reply::Bulk(bytes)) => Ok(bytes.clone()),
            _ => Err(unexpected("bytes")),
        }
    }

    pub(crate) fn text(&self, at: usize) -> Result<String, StreamError> {
        self.bytes(at).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// All that belongs to the word.
    pub(crate) fn rest(self) -> Vec<Reply> {
        self.rest
    }

    pub(crate) fn texts(self) -> Result<Vec<String>, StreamError> {
        (0..self.rest.len()).map(|at| self.text(at)).collect()
    }

    pub(crate) fn json_at<T: DeserializeOwned>(&self, at: usize) -> Result<T, StreamError> {
        serde_json::from_slice(&self.bytes(at)?).ok().ok_or_else(|| unexpected("JSON"))
    }

    pub(crate) fn json<T: DeserializeOwned>(self) -> Result<T, StreamError> {
        self.json_at(0)
    }

    /// The reason to wait, if that is what was said: `WAIT kind sentence json`.
    pub(crate) fn wait(&self) -> Result<Option<StreamWait>, StreamError> {
        if self.is("WAIT") { self.json_at(2).map(Some) } else { Ok(None) }
    }
}

/// `-` for nothing.
pub(crate) fn or_none<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

pub(crate) fn ms(within: Duration) -> String {
    within.as_millis().to_string()
}
