//! Producers tell the store that they live: a program may compute for hours between two uploads, and a host that is
//! switched off closes no connection.

use super::link::StreamLink;
use phalanx_types::{Incarnation, ProducerId};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// How many times a producer is heard within the silence after which it counts as lost.
const BEATS: u32 = 4;

/// Tells the store that a producer lives, for as long as this is kept.
#[derive(Debug)]
pub(super) struct Heartbeat {
    /// The thread ends when it is dropped.
    _stop: Sender<()>,
}

impl Heartbeat {
    /// Starts the thread. It has a connection of its own, since a large upload may take longer than the silence.
    pub(super) fn start(
        link: &StreamLink,
        producer: &ProducerId,
        incarnation: Incarnation,
        silence: Duration,
    ) -> Self {
        let (stop, stopped) = channel();
        let (key, dial) = (link.key.clone(), link.store.dialer());
        let connect = move || Some(StreamLink { store: dial().ok()?, key: key.clone() });
        let words = [producer.as_str().to_owned(), incarnation.0.to_string()];
        let name = format!("alive-{producer}").chars().take(15).collect();
        let spawned = std::thread::Builder::new()
            .name(name)
            .spawn(move || beat(&stopped, silence / BEATS, connect, &words));
        if let Err(error) = spawned {
            tracing::warn!(%error, "could not start the thread that tells the store that a producer lives");
        }
        Self { _stop: stop }
    }
}

fn beat(
    stopped: &Receiver<()>,
    every: Duration,
    connect: impl Fn() -> Option<StreamLink>,
    words: &[String; 2],
) {
    let mut link: Option<StreamLink> = None;
    while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
        if link.is_none() {
            link = connect();
        }
        let words = [words[0].as_bytes(), words[1].as_bytes()];
        // What goes wrong here goes wrong with the next upload, too, which reports it.
        link = link.filter(|link| link.ask("ALIVE", &words, None).is_ok());
    }
}
