//! Channels, and who listens to them.

use super::effects::Effects;
use super::glob;
use super::session::ClientId;
use bytes::Bytes;
use phalanx_resp::Reply;
use std::collections::{BTreeMap, BTreeSet};

/// Who listens to what.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    pub(crate) channels: BTreeMap<Bytes, BTreeSet<ClientId>>,
    pub(crate) patterns: BTreeMap<Bytes, BTreeSet<ClientId>>,
}

pub(crate) fn listen(map: &mut BTreeMap<Bytes, BTreeSet<ClientId>>, name: &Bytes, client: ClientId) {
    map.entry(name.clone()).or_default().insert(client);
}

pub(crate) fn leave(map: &mut BTreeMap<Bytes, BTreeSet<ClientId>>, name: &Bytes, client: ClientId) {
    if let Some(clients) = map.get_mut(name) {
        clients.remove(&client);
        if clients.is_empty() {
            map.remove(name);
        }
    }
}

impl Listeners {
    /// Sends a message to all listeners; says how many got it.
    pub(crate) fn publish(&self, channel: &Bytes, message: &Bytes, out: &mut Effects) -> usize {
        let before = out.messages.len();
        let word = |text: &'static str| Reply::bulk(Bytes::from_static(text.as_bytes()));
        for client in self.channels.get(channel).into_iter().flatten() {
            let items = vec![word("message"), Reply::Bulk(channel.clone()), Reply::Bulk(message.clone())];
            out.messages.push((*client, Reply::Push(items)));
        }
        for (pattern, clients) in &self.patterns {
            if !glob::matches(pattern, channel) {
                continue;
            }
            for client in clients {
                let named = [pattern, channel, message].map(|bytes| Reply::Bulk(bytes.clone()));
                let items = std::iter::once(word("pmessage")).chain(named).collect();
                out.messages.push((*client, Reply::Push(items)));
            }
        }
        out.messages.len() - before
    }
}
