//! Aborting a group from any thread of any rank, whatever it waits for.

use super::alarm::{Alarm, AlarmStream};
use super::links_end::{LinksAborter, LinksEnd, Remains};
use crate::shell::shared;
use std::io;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

/// Aborts a group: the calls of all its ranks fail, current and future ones.
#[derive(Debug, Clone)]
pub struct GroupAborter {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    reason: OnceLock<String>,
    shared: Option<shared::Aborter>,
    links: Option<LinksAborter>,
    alarm: Option<Alarm>,
}

impl GroupAborter {
    pub(super) fn new(
        shared: Option<shared::Aborter>,
        links: Option<&LinksEnd>,
        alarm: Option<Alarm>,
    ) -> Self {
        let links = links.map(LinksEnd::aborter);
        Self { inner: Arc::new(Inner { reason: OnceLock::new(), shared, links, alarm }) }
    }

    /// Aborts the group. The first reason counts.
    pub fn abort(&self, reason: String) {
        let Inner { reason: first, shared, links, alarm } = &*self.inner;
        let again = first.set(reason).is_err();
        let Some(reason) = first.get() else { return };
        // Also on a repeated abort: the first caller may not have reached this point yet, and this rank may leave as
        // soon as this function returns.
        if let Some(links) = links {
            links.abort(reason);
        }
        if again {
            return;
        }
        if let Some(alarm) = alarm {
            alarm.abort(reason);
        }
        if let Some(shared) = shared {
            shared.abort(reason.clone());
        }
    }

    /// Why the group was aborted, as far as this rank knows.
    pub fn reason(&self) -> Option<&str> {
        self.inner.reason.get().map(String::as_str)
    }

    /// Starts a thread that listens to the other ranks of the host and to other leaders for an abort.
    pub(super) fn watch(&self, leaders: Vec<AlarmStream>) -> io::Result<Option<JoinHandle<()>>> {
        if self.inner.alarm.is_none() {
            return Ok(None);
        }
        let aborter = self.clone();
        let listen = move || {
            let Inner { links, alarm, .. } = &*aborter.inner;
            let remains = |post: &AlarmStream| {
                links.as_ref().map_or(Remains::Nothing, |links| links.remains(post.rank))
            };
            if let Some(reason) = alarm.as_ref().and_then(|alarm| alarm.listen(&leaders, remains)) {
                aborter.abort(reason);
            }
        };
        std::thread::Builder::new().name("group alarm".to_owned()).spawn(listen).map(Some)
    }

    /// Tells the other ranks that this rank leaves, with the reason if there is one, and ends the watch.
    pub(super) fn leave(&self) {
        let Inner { links, alarm, .. } = &*self.inner;
        if let (Some(links), Some(reason)) = (links, self.reason()) {
            links.abort(reason);
        }
        if let Some(alarm) = alarm {
            if self.reason().is_none() {
                alarm.leave();
            }
            alarm.stop();
        }
    }
}
