//! Following streams: the store answers when something has changed.

use super::StreamError;
use super::link::{Answer, StreamLink, ms};
use crate::keys::Access;
use crate::store::Store;
use phalanx_streams::StreamInfo;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// The longest single wait that a node is asked for. A thread that follows a node ends at most this time after its watch.
const ONE_WAIT: Duration = Duration::from_secs(5);
/// How much longer than asked the first reports of all nodes may take.
const GRACE: Duration = Duration::from_secs(10);

/// Follows one stream or all of a store.
#[derive(Debug)]
pub struct StreamWatch(Followed);

#[derive(Debug)]
enum Followed {
    /// Streams of one node.
    Node { link: StreamLink, version: u64 },
    /// All streams of a store that several nodes share.
    Nodes(WatchedNodes),
}

impl StreamWatch {
    pub(super) fn open(store: &Store, stream: Option<&str>) -> Result<Self, StreamError> {
        let nodes = store.nodes();
        let link = match stream {
            Some(stream) => StreamLink::of(store, stream, Access::Read)?,
            None if nodes.len() > 1 => {
                return WatchedNodes::start(store, nodes).map(Followed::Nodes).map(Self);
            }
            None => StreamLink::whole(store)?,
        };
        Ok(Self(Followed::Node { link: link.own()?, version: 0 }))
    }

    /// What there is to show when it has changed since the last call; nothing if it has not within this time.
    ///
    /// # Errors
    /// The store cannot be reached.
    pub fn next(&mut self, within: Duration) -> Result<Option<Vec<StreamInfo>>, StreamError> {
        match &mut self.0 {
            Followed::Node { link, version } => {
                let (seen, wait) = (version.to_string(), ms(within));
                let answer = link.ask("WATCH", &[seen.as_bytes(), wait.as_bytes()], Some(within))?;
                changed(&answer, version)
            }
            Followed::Nodes(nodes) => nodes.next(within),
        }
    }
}

/// The streams, if they have changed.
fn changed(answer: &Answer, version: &mut u64) -> Result<Option<Vec<StreamInfo>>, StreamError> {
    if answer.is("UNCHANGED") {
        return Ok(None);
    }
    *version = answer.number(0)?;
    answer.json_at(1).map(Some)
}

/// What a thread found at its node.
type Report = (String, Result<Vec<StreamInfo>, StreamError>);

/// The nodes of a store, each followed by a thread: only the node itself can say when its streams change.
#[derive(Debug)]
struct WatchedNodes {
    reports: Receiver<Report>,
    /// The last report of every node.
    streams: BTreeMap<String, Vec<StreamInfo>>,
    /// Nodes that have not reported yet.
    unheard: usize,
    is_over: Arc<AtomicBool>,
}

impl WatchedNodes {
    fn start(store: &Store, nodes: Vec<String>) -> Result<Self, StreamError> {
        let (sender, reports) = sync_channel(nodes.len());
        let is_over = Arc::new(AtomicBool::new(false));
        let unheard = nodes.len();
        for node in nodes {
            let link = StreamLink::whole(store)?.own()?;
            let (sender, is_over) = (sender.clone(), is_over.clone());
            std::thread::spawn(move || follow(&link, &node, &sender, &is_over));
        }
        Ok(Self { reports, streams: BTreeMap::new(), unheard, is_over })
    }

    fn next(&mut self, within: Duration) -> Result<Option<Vec<StreamInfo>>, StreamError> {
        let mut until = Instant::now() + within;
        if self.unheard > 0 {
            // What is shown first is whole.
            until += GRACE;
        }
        let mut any = false;
        loop {
            let is_enough = any && self.unheard == 0;
            let left = until.saturating_duration_since(Instant::now());
            let wait = if is_enough { Duration::ZERO } else { left };
            let Ok((node, found)) = self.reports.recv_timeout(wait) else { break };
            self.unheard -= usize::from(!self.streams.contains_key(&node));
            self.streams.insert(node, found?);
            any = true;
        }
        let mut all: Vec<StreamInfo> = self.streams.values().flatten().cloned().collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(any.then_some(all))
    }
}

impl Drop for WatchedNodes {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Reports the streams of a node whenever they change, until that fails or the watch is over.
fn follow(link: &StreamLink, node: &str, reports: &SyncSender<Report>, is_over: &AtomicBool) {
    let mut version = 0u64;
    while !is_over.load(Ordering::Relaxed) {
        let words = [version.to_string(), ms(ONE_WAIT)];
        let words = [words[0].as_bytes(), words[1].as_bytes()];
        let answer = link.ask_node(node, "WATCH", &words, ONE_WAIT);
        let found = match answer.and_then(|answer| changed(&answer, &mut version)) {
            Ok(None) => continue,
            Ok(Some(streams)) => Ok(streams),
            Err(error) => Err(error),
        };
        let failed = found.is_err();
        if reports.send((node.to_owned(), found)).is_err() || failed {
            return;
        }
    }
}
