//! `CLIENT`: what clients say of themselves, and who is there.

use super::super::error::CommandError;
use super::super::number::{integer, is, unsigned};
use super::super::session::{ClientId, ReplyMode, Session};
use super::super::table::owned;
use super::{Call, Command, Flags, NO_KEYS};
use bytes::Bytes;
use phalanx_resp::{Reply, Version};
use phalanx_types::Time;

pub(super) const COMMANDS: &[Command] = &[Command::new("client", -2, Flags::OTHER, NO_KEYS, client)];

fn client(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let id = call.client;
    if let Some(session) = call.store.sessions.get_mut(&id) {
        session.introduced = true;
    }
    let (subcommand, rest) = (call.arg(1), call.rest(2));
    let named = |name: &str| is(subcommand, name);
    match rest {
        [] if named("id") => Ok(Reply::Integer(i64::try_from(id.0).unwrap_or(i64::MAX))),
        [] if named("getname") => {
            let name = call.store.sessions.get(&id).map(|session| session.name.clone());
            Ok(Reply::optional(name.filter(|name| !name.is_empty())))
        }
        [name] if named("setname") => {
            set_name(call, name)?;
            Ok(Reply::OK)
        }
        [what, value] if named("setinfo") => set_info(call, what, value),
        _ if named("list") => list(call, rest),
        [] if named("info") => {
            let line = call.store.sessions.get(&id).map(|session| line(call.now, id, session));
            Ok(Reply::Verbatim(line.unwrap_or_default().into()))
        }
        [_, ..] if named("kill") => kill(call, rest),
        [word] if named("no-evict") || named("no-touch") => on_or_off(word),
        [word] if named("reply") => reply_mode(call, word),
        [number] | [number, _] if named("unblock") => unblock(call, number, rest.get(1)),
        [] if named("getredir") => Ok(Reply::Integer(-1)),
        _ if ["id", "getname", "setname", "setinfo", "info", "kill", "reply"]
            .iter()
            .any(|name| named(name)) =>
        {
            Err(call.subcommand_arity())
        }
        _ => Err(call.unknown_subcommand()),
    }
}

fn on_or_off(word: &Bytes) -> Result<Reply, CommandError> {
    if is(word, "on") || is(word, "off") { Ok(Reply::OK) } else { Err(CommandError::Syntax) }
}

fn printable(text: &Bytes) -> bool {
    text.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

pub(super) fn set_name(call: &mut Call<'_>, name: &Bytes) -> Result<(), CommandError> {
    if !printable(name) {
        return Err(CommandError::ClientName);
    }
    if let Some(session) = call.store.sessions.get_mut(&call.client) {
        session.name = owned(name);
    }
    Ok(())
}

fn set_info(call: &mut Call<'_>, what: &Bytes, value: &Bytes) -> Result<Reply, CommandError> {
    if !printable(value) {
        return Err(CommandError::ClientName);
    }
    let Some(session) = call.store.sessions.get_mut(&call.client) else { return Err(CommandError::NoClient) };
    if is(what, "lib-name") {
        session.library = owned(value);
    } else if is(what, "lib-ver") {
        session.library_version = owned(value);
    } else {
        return Err(CommandError::Syntax);
    }
    Ok(Reply::OK)
}

/// A client as `CLIENT LIST` shows it.
fn line(now: Time, id: ClientId, session: &Session) -> String {
    let seconds = |since| now.since(since).as_secs();
    let flags = match (session.blocked.is_some(), session.subscriptions() > 0) {
        (true, _) => "b",
        (false, true) => "P",
        (false, false) => "N",
    };
    let text = |bytes: &Bytes| bytes.escape_ascii().to_string();
    format!(
        "id={id} addr={} laddr={}:{} fd=-1 name={} age={} idle={} flags={flags} db=0 sub={} psub={} ssub=0 multi=-1 \
         watch=0 qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=0 events=r cmd={} \
         user=default redir=-1 resp={} lib-name={} lib-ver={}\n",
        session.origin.peer,
        session.origin.host,
        session.origin.port,
        text(&session.name),
        seconds(session.since),
        seconds(session.active),
        session.channels.len(),
        session.patterns.len(),
        session.command,
        if session.version == Version::Resp3 { 3 } else { 2 },
        text(&session.library),
        text(&session.library_version),
    )
}

fn list(call: &mut Call<'_>, rest: &[Bytes]) -> Result<Reply, CommandError> {
    let chosen: Option<Vec<u64>> = match rest {
        [] => None,
        [word, ids @ ..] if is(word, "id") && !ids.is_empty() => {
            let ids: Option<Vec<_>> = ids.iter().map(|id| unsigned(id)).collect();
            Some(ids.ok_or(CommandError::NotInteger)?)
        }
        [word, kind] if is(word, "type") && is(kind, "normal") => None,
        [word, _] if is(word, "type") => Some(Vec::new()),
        _ => return Err(CommandError::Syntax),
    };
    let now = call.now;
    let wanted = |id: &ClientId| chosen.as_ref().is_none_or(|ids| ids.contains(&id.0));
    let sessions = call.store.sessions.iter().filter(|(id, _)| wanted(id));
    let text: String = sessions.map(|(id, session)| line(now, *id, session)).collect();
    Ok(Reply::Verbatim(text.into()))
}

fn kill(call: &mut Call<'_>, rest: &[Bytes]) -> Result<Reply, CommandError> {
    // The old form names one address and says whether it was there.
    if let [address] = rest {
        let found = call.store.sessions.iter().find(|(_, session)| session.origin.peer.as_bytes() == address);
        let Some((id, _)) = found else { return Err(CommandError::NoClient) };
        call.out.closed.push(*id);
        return Ok(Reply::OK);
    }
    let (filters, odd) = rest.as_chunks::<2>();
    if !odd.is_empty() {
        return Err(CommandError::Syntax);
    }
    let mut skip_me = true;
    let mut id = None;
    let mut address = None;
    for [word, value] in filters {
        if is(word, "id") {
            id = Some(unsigned(value).ok_or(CommandError::NotInteger)?);
        } else if is(word, "addr") {
            address = Some(value);
        } else if is(word, "skipme") {
            skip_me = is(value, "yes");
        } else if !(is(word, "user") || is(word, "type")) {
            return Err(CommandError::Syntax);
        }
    }
    let me = call.client;
    let matching = call.store.sessions.iter().filter(|(other, session)| {
        id.is_none_or(|id| id == other.0)
            && address.is_none_or(|address| session.origin.peer.as_bytes() == address)
            && !(skip_me && **other == me)
    });
    let ids: Vec<_> = matching.map(|(other, _)| *other).collect();
    let count = ids.len();
    call.out.closed.extend(ids);
    Ok(Reply::count(count))
}

fn reply_mode(call: &mut Call<'_>, word: &Bytes) -> Result<Reply, CommandError> {
    let mode = [("on", ReplyMode::On), ("off", ReplyMode::Off), ("skip", ReplyMode::SkipNext)];
    let mode = mode.into_iter().find(|(name, _)| is(word, name)).ok_or(CommandError::Syntax)?.1;
    if let Some(session) = call.store.sessions.get_mut(&call.client) {
        session.replies = mode;
    }
    Ok(Reply::OK)
}

fn unblock(call: &mut Call<'_>, number: &Bytes, how: Option<&Bytes>) -> Result<Reply, CommandError> {
    let id = integer(number).and_then(|id| u64::try_from(id).ok()).ok_or(CommandError::NotInteger)?;
    let error = match how {
        None => false,
        Some(word) if is(word, "timeout") => false,
        Some(word) if is(word, "error") => true,
        Some(_) => return Err(CommandError::Syntax),
    };
    let Some(wanted) = call.store.unblock(ClientId(id)) else { return Ok(Reply::Integer(0)) };
    let reply =
        if error { Reply::error("UNBLOCKED client unblocked via CLIENT UNBLOCK") } else { wanted.nothing() };
    call.out.messages.push((ClientId(id), reply));
    Ok(Reply::Integer(1))
}
