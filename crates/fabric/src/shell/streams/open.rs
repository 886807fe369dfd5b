//! Opening a stream, from either side of a link.

use super::super::dial;
use super::super::inner::{Inner, Route};
use super::super::link::Link;
use super::super::refusal::ConnError;
use super::super::requests;
use super::super::stream::Stream;
use super::{SERVICE, StreamKey, StreamSocket, arrival, arrive, socket};
use crate::error::StreamError;
use crate::security::random;
use bytes::{Bytes, BytesMut};
use phalanx_wire::codec;
use phalanx_wire::fabric::ReplyError;
use phalanx_wire::handshake::{Channel, Refusal};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How long a stream that the peer was asked to dial may take, including dials queued before it.
const CALL_BACK: Duration = Duration::from_secs(10);

pub(crate) async fn open(
    inner: &Arc<Inner>,
    link: &Arc<Link>,
    key: StreamKey,
) -> Result<StreamSocket, StreamError> {
    let down = || StreamError::LinkDown { node: link.node.clone() };
    if !link.is_up() {
        return Err(down());
    }
    let opening = async {
        match &link.route {
            Some(route) => dialed(inner, link, route, key).await,
            None => asked_for(inner, link, key).await,
        }
    };
    let stream = tokio::select! {
        biased;
        () = link.streams.down() => return Err(down()),
        stream = opening => stream?,
    };
    socket::hand_over(inner, link, stream)
}

async fn dialed(inner: &Inner, link: &Link, route: &Route, key: StreamKey) -> Result<Stream, StreamError> {
    let channel = Channel::Stream { link: link.number, key: key.0 };
    dial::beside(inner, link, route, channel).await.map_err(|error| {
        inner.dial_failed(&format_args!("stream of {}", link.node), &error);
        match error {
            ConnError::RefusedThere(refusal) => refused(link, refusal),
            error => StreamError::Dial { node: link.node.clone(), source: io::Error::other(error) },
        }
    })
}

fn refused(link: &Link, refusal: Refusal) -> StreamError {
    let node = link.node.clone();
    match refusal {
        Refusal::Busy => StreamError::TooMany { node },
        Refusal::UnknownLink { .. } => StreamError::LinkDown { node },
        refusal => StreamError::Dial { node, source: io::Error::other(refusal) },
    }
}

/// Asks the peer to dial, since this side may not reach it.
async fn asked_for(inner: &Inner, link: &Link, key: StreamKey) -> Result<Stream, StreamError> {
    let once = random().ok_or_else(|| StreamError::System(io::Error::other("no random numbers")))?;
    let called = arrival(link, StreamKey(once));
    let body = Bytes::from([key.0, once].concat());
    let ask = async {
        let node = || link.node.clone();
        let asked = requests::ask(inner, link, SERVICE, body, CALL_BACK).await;
        let answer = asked.map_err(|source| StreamError::Ask { node: node(), source })?;
        match codec::decode::<Result<(), Refusal>>(&answer) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(refusal)) => Err(refused(link, refusal)),
            Err(error) => Err(StreamError::Dial { node: node(), source: io::Error::other(error) }),
        }
    };
    let both = async {
        tokio::pin!(called);
        tokio::select! {
            biased;
            stream = &mut called => stream,
            asked = ask => {
                asked?;
                called.await
            }
        }
    };
    let timeout = || StreamError::NotOpened { node: link.node.clone(), within: CALL_BACK };
    tokio::time::timeout(CALL_BACK, both).await.unwrap_or_else(|_| Err(timeout()))
}

/// Dials a stream that the peer asked for, and keeps this end until it is accepted.
pub(crate) async fn call_back(
    inner: &Arc<Inner>,
    link: &Arc<Link>,
    body: &[u8],
) -> Result<Bytes, ReplyError> {
    let refused = |message: &str| ReplyError::Refused { message: message.to_owned() };
    let keys = body.split_first_chunk().and_then(|(key, rest)| Some((*key, rest.try_into().ok()?)));
    let Some((key, once)) = keys.map(|(key, once)| (StreamKey(key), once)) else {
        return Err(refused("two keys have 32 bytes"));
    };
    let Some(route) = &link.route else { return Err(refused("the other side dialed this link")) };
    let Ok(_place) = link.streams.called_back.acquire().await else { return Err(refused("stopping")) };
    let result = if link.streams.has_room(key) {
        let channel = Channel::Stream { link: link.number, key: once };
        match dial::beside(inner, link, route, channel).await {
            Ok(stream) => arrive(inner, link, key, stream),
            Err(error) => {
                inner.dial_failed(&format_args!("stream of {}", link.node), &error);
                return Err(refused(error.name()));
            }
        }
    } else {
        Err(Refusal::Busy)
    };
    let mut answer = BytesMut::new();
    codec::encode_into(&result, &mut answer).map_err(|error| refused(&error.to_string()))?;
    Ok(answer.freeze())
}
