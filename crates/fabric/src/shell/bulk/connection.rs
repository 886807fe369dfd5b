//! The life of a bulk connection.

use super::super::dial;
use super::super::handshake::HANDSHAKE_TIMEOUT;
use super::super::inner::Inner;
use super::super::link::Link;
use super::super::lock;
use super::super::stream::Stream;
use super::read::receive;
use super::write::send;
use super::{MAX_RESTARTS, settle};
use crate::error::FetchError;
use phalanx_wire::fabric::FabricMessage;
use phalanx_wire::frame::FrameKind;
use phalanx_wire::handshake::Channel;
use std::sync::Arc;
use std::time::Duration;

const DIAL_ATTEMPTS: u32 = 3;
const DIAL_PAUSE: Duration = Duration::from_millis(100);

/// Opens the bulk connection of a link, or asks the other side to.
pub(crate) fn open(inner: &Arc<Inner>, link: &Arc<Link>) {
    {
        let mut state = lock(&link.bulk.state);
        if state.opening || state.closed || state.connected.is_some() {
            return;
        }
        state.opening = true;
    }
    let Some(route) = link.route.clone() else {
        if let Err(error) = link.send(FrameKind::Fabric, &FabricMessage::OpenBulk) {
            tracing::debug!(?link, %error, "could not ask for a bulk connection");
        }
        return;
    };
    let (shared, link) = (inner.clone(), link.clone());
    inner.spawn(Box::pin(async move {
        for attempt in 0..DIAL_ATTEMPTS {
            tokio::time::sleep(DIAL_PAUSE * attempt).await;
            if !link.is_up() {
                return;
            }
            let channel = Channel::Bulk { link: link.number };
            match dial::beside(&shared, &link, &route, channel).await {
                Ok(stream) => {
                    attach(&shared, &link, stream);
                    return;
                }
                Err(error) => shared.dial_failed(&format_args!("bulk of {}", link.node), &error),
            }
        }
        let mut state = lock(&link.bulk.state);
        state.opening = false;
        for get in std::mem::take(&mut state.gets).into_values() {
            settle(get, Err(FetchError::NoBulk { node: link.node.clone(), within: HANDSHAKE_TIMEOUT }));
        }
    }));
}

/// Uses a fresh connection for the transfers of a link, and restarts them on it.
pub(crate) fn attach(inner: &Arc<Inner>, link: &Arc<Link>, stream: Stream) {
    let mut number = 0;
    {
        let mut state = lock(&link.bulk.state);
        if state.closed {
            return;
        }
        // Under the lock, so that of two connections the newest is used.
        link.bulk.newest.send_modify(|n| {
            *n += 1;
            number = *n;
        });
        state.opening = false;
        state.disconnect();
        state.connected = Some(number);
        state.orders = state.gets.iter().map(|(t, get)| state.ask(link, *t, get)).collect();
    }
    link.bulk.wake.notify_one();
    let (shared, link) = (inner.clone(), link.clone());
    inner.spawn(Box::pin(async move {
        let (read, write) = stream.split();
        let mut newest = link.bulk.newest.subscribe();
        let end = tokio::select! {
            biased;
            _ = newest.wait_for(|n| *n != number) => return,
            end = receive(&shared, &link, number, read) => end,
            end = send(&link, number, write) => end,
        };
        if let Err(error) = end {
            shared.misbehaved(&format_args!("bulk of {}", link.node), &error);
        }
        detach(&shared, &link, number);
    }));
}

/// Gives up a broken connection; its transfers restart on the next one.
fn detach(inner: &Arc<Inner>, link: &Arc<Link>, number: u64) {
    let mut state = lock(&link.bulk.state);
    if state.connected != Some(number) {
        return;
    }
    state.disconnect();
    for get in state.gets.values_mut() {
        get.restarts += 1;
    }
    let hopeless: Vec<u64> =
        state.gets.iter().filter(|(_, g)| g.restarts > MAX_RESTARTS).map(|(t, _)| *t).collect();
    for transfer in hopeless {
        if let Some(get) = state.gets.remove(&transfer) {
            let (node, blob, attempts) = (link.node.clone(), get.blob, get.restarts);
            settle(get, Err(FetchError::BulkLost { node, blob, attempts }));
        }
    }
    let needed = !state.gets.is_empty();
    drop(state);
    if needed && link.is_up() {
        open(inner, link);
    }
}
