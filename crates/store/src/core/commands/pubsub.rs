//! Messages to listeners.

use super::super::error::CommandError;
use super::super::glob;
use super::super::number::is;
use super::super::outcome::Outcome;
use super::super::pubsub::{leave, listen};
use super::super::table::owned;
use super::{Call, Command, Flags, NO_KEYS};
use bytes::Bytes;
use phalanx_resp::Reply;

pub(super) const COMMANDS: &[Command] = &[
    Command::with_outcome("psubscribe", -2, Flags::LISTENING, NO_KEYS, |call| {
        subscribe(call, Kind::Patterns)
    }),
    Command::new("publish", 3, Flags::OTHER, NO_KEYS, publish),
    Command::new("pubsub", -2, Flags::OTHER, NO_KEYS, pubsub),
    Command::with_outcome("punsubscribe", -1, Flags::LISTENING, NO_KEYS, |call| {
        unsubscribe(call, Kind::Patterns)
    }),
    Command::with_outcome("subscribe", -2, Flags::LISTENING, NO_KEYS, |call| subscribe(call, Kind::Channels)),
    Command::with_outcome("unsubscribe", -1, Flags::LISTENING, NO_KEYS, |call| {
        unsubscribe(call, Kind::Channels)
    }),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Channels,
    Patterns,
}

fn notice(word: &'static str, name: Option<Bytes>, count: usize) -> Reply {
    Reply::Push(vec![Reply::bulk(word), Reply::optional(name), Reply::count(count)])
}

fn subscribe(call: &mut Call<'_>, kind: Kind) -> Result<Outcome, CommandError> {
    let mut replies = Vec::new();
    for name in call.rest(1) {
        let name = owned(name);
        let Some(session) = call.store.sessions.get_mut(&call.client) else { continue };
        let listeners = &mut call.store.listeners;
        let word = match kind {
            Kind::Channels => {
                listen(&mut listeners.channels, &name, call.client);
                session.channels.insert(name.clone());
                "subscribe"
            }
            Kind::Patterns => {
                listen(&mut listeners.patterns, &name, call.client);
                session.patterns.insert(name.clone());
                "psubscribe"
            }
        };
        replies.push(notice(word, Some(name), session.subscriptions()));
    }
    Ok(Outcome::Replies(replies))
}

fn unsubscribe(call: &mut Call<'_>, kind: Kind) -> Result<Outcome, CommandError> {
    let Some(session) = call.store.sessions.get_mut(&call.client) else { return Err(CommandError::NoClient) };
    let listeners = &mut call.store.listeners;
    let (word, own, map) = match kind {
        Kind::Channels => ("unsubscribe", &mut session.channels, &mut listeners.channels),
        Kind::Patterns => ("punsubscribe", &mut session.patterns, &mut listeners.patterns),
    };
    let names: Vec<Bytes> = match call.args.get(1..).unwrap_or_default() {
        [] => own.iter().cloned().collect(),
        named => named.iter().map(owned).collect(),
    };
    let mut left = Vec::new();
    for name in names {
        own.remove(&name);
        leave(map, &name, call.client);
        left.push((name, own.len()));
    }
    let total = session.subscriptions();
    if left.is_empty() {
        return Ok(Outcome::Reply(notice(word, None, total)));
    }
    let own_now = left.last().map_or(0, |(_, len)| *len);
    // The counts are those after each name, with the subscriptions of the other kind.
    let replies =
        left.into_iter().map(|(name, len)| notice(word, Some(name), total - own_now + len)).collect();
    Ok(Outcome::Replies(replies))
}

fn publish(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let (channel, message) = (owned(call.arg(1)), owned(call.arg(2)));
    Ok(Reply::count(call.store.listeners.publish(&channel, &message, call.out)))
}

fn pubsub(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let listeners = &call.store.listeners;
    match call.rest(1) {
        [word, rest @ ..] if is(word, "channels") && rest.len() <= 1 => {
            let wanted = |name: &&Bytes| rest.first().is_none_or(|pattern| glob::matches(pattern, name));
            Ok(Reply::bulks(listeners.channels.keys().filter(wanted).cloned()))
        }
        [word, names @ ..] if is(word, "numsub") => {
            let count = |name: &Bytes| Reply::count(listeners.channels.get(name).map_or(0, |all| all.len()));
            Ok(Reply::Array(names.iter().flat_map(|name| [Reply::Bulk(name.clone()), count(name)]).collect()))
        }
        [word] if is(word, "numpat") => Ok(Reply::count(listeners.patterns.len())),
        _ => Err(call.unknown_subcommand()),
    }
}
