//! The server itself: what it is, what it knows, how it ends.

use super::super::effects::Save;
use super::super::error::CommandError;
use super::super::number::is;
use super::super::outcome::Outcome;
use super::super::value::ENTRY_OVERHEAD;
use super::{Call, Command, Flags, NO_KEYS};
use bytes::Bytes;
use phalanx_resp::Reply;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("bgsave", -1, Flags::ADMIN, NO_KEYS, bgsave),
    Command::new("command", -1, Flags::OTHER, NO_KEYS, command),
    Command::new("info", -1, Flags::OTHER, NO_KEYS, info),
    Command::new("lastsave", 1, Flags::OTHER, NO_KEYS, lastsave),
    Command::new("latency", -2, Flags::ADMIN, NO_KEYS, latency),
    Command::new("memory", -2, Flags::READ, (2, 2, 1), memory),
    Command::new("module", -2, Flags::ADMIN, NO_KEYS, module),
    Command::with_outcome("save", 1, Flags::ADMIN, NO_KEYS, save),
    Command::with_outcome("shutdown", -1, Flags::ADMIN, NO_KEYS, shutdown),
    Command::new("slowlog", -2, Flags::ADMIN, NO_KEYS, slowlog),
    Command::new("time", 1, Flags::OTHER, NO_KEYS, time),
];

fn info(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let text = call.store.info(call.now, call.rest(1));
    Ok(Reply::Verbatim(text.into()))
}

fn time(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let micros = call.now.0;
    let parts = [micros / 1_000_000, micros % 1_000_000];
    Ok(Reply::bulks(parts.map(|part| Bytes::from(part.to_string()))))
}

/// Answered by a message when it is done. Without persistence there is nothing to wait for.
fn save(call: &mut Call<'_>) -> Result<Outcome, CommandError> {
    call.out.save = Some(Save::Wait(call.client));
    Ok(if call.store.settings.record_changes { Outcome::Blocked } else { Reply::OK.into() })
}

fn bgsave(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    call.out.save = Some(Save::Background);
    Ok(Reply::simple("Background saving started"))
}

fn lastsave(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    Ok(Reply::Integer(i64::try_from(call.store.last_save.0 / 1_000_000).unwrap_or(i64::MAX)))
}

/// Has no reply: the connection ends with the server.
fn shutdown(call: &mut Call<'_>) -> Result<Outcome, CommandError> {
    call.out.shutdown = true;
    Ok(Outcome::Silent)
}

fn slowlog(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    match call.arg(1) {
        word if is(word, "get") => Ok(Reply::Array(Vec::new())),
        word if is(word, "len") => Ok(Reply::Integer(0)),
        word if is(word, "reset") => Ok(Reply::OK),
        _ => Err(call.unknown_subcommand()),
    }
}

fn latency(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    match call.arg(1) {
        word if is(word, "latest") || is(word, "history") => Ok(Reply::Array(Vec::new())),
        word if is(word, "histogram") => Ok(Reply::Map(Vec::new())),
        word if is(word, "reset") => Ok(Reply::Integer(0)),
        word if is(word, "doctor") => Ok(Reply::Verbatim("Nothing is measured.".into())),
        _ => Err(call.unknown_subcommand()),
    }
}

fn module(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    if !is(call.arg(1), "list") {
        return Err(call.unknown_subcommand());
    }
    let fields = [("name", Reply::bulk("ai")), ("ver", Reply::Integer(10207))];
    let module = Reply::Map(fields.into_iter().map(|(name, value)| (Reply::bulk(name), value)).collect());
    Ok(Reply::Array(vec![module]))
}

fn memory(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let subcommand = call.arg(1);
    match call.rest(2) {
        [key, ..] if is(subcommand, "usage") => {
            let size = call.store.database.get(call.now, key).map(|value| value.size());
            let all = size.map(|size| size + key.len() as u64 + ENTRY_OVERHEAD);
            Ok(all.map_or(Reply::Null, |all| Reply::Integer(i64::try_from(all).unwrap_or(i64::MAX))))
        }
        [] if is(subcommand, "stats") => {
            let database = &call.store.database;
            let keys = database.table().len();
            let used = i64::try_from(database.used()).unwrap_or(i64::MAX);
            let fields = [
                ("total.allocated", Reply::Integer(used)),
                ("keys.count", Reply::count(keys)),
                ("dataset.bytes", Reply::Integer(used)),
                ("keys.bytes-per-key", Reply::Integer(used / i64::try_from(keys.max(1)).unwrap_or(1))),
            ];
            Ok(Reply::Map(fields.into_iter().map(|(name, value)| (Reply::bulk(name), value)).collect()))
        }
        [] if is(subcommand, "doctor") => {
            let (used, limit) = (call.store.used(), call.store.max_memory());
            Ok(Reply::Verbatim(
                format!("Keys and values take {used} bytes; the limit is {limit} (0: none).").into(),
            ))
        }
        [] if is(subcommand, "purge") => Ok(Reply::OK),
        _ => Err(call.unknown_subcommand()),
    }
}

fn described(command: &Command) -> Reply {
    let (first, last, step) = command.keys;
    let places = [first, last, step].map(|place| Reply::Integer(i64::from(place)));
    let flags = command.flags.names().map(Reply::simple).collect();
    let mut fields =
        vec![Reply::bulk(command.name), Reply::Integer(i64::from(command.arity)), Reply::Set(flags)];
    fields.extend(places);
    // Categories, tips, key specifications, subcommands.
    fields.extend([
        Reply::Set(Vec::new()),
        Reply::Array(Vec::new()),
        Reply::Array(Vec::new()),
        Reply::Array(Vec::new()),
    ]);
    Reply::Array(fields)
}

fn command(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let store = &call.store;
    let all = || store.commands.iter().copied();
    let Some((subcommand, rest)) = call.rest(1).split_first() else {
        return Ok(Reply::Array(all().map(described).collect()));
    };
    let chosen = |names: &[Bytes]| names.iter().map(|name| store.find(name)).collect::<Vec<_>>();
    if is(subcommand, "count") {
        Ok(Reply::count(store.commands.len()))
    } else if is(subcommand, "list") {
        Ok(Reply::Array(all().map(|command| Reply::bulk(command.name)).collect()))
    } else if is(subcommand, "info") {
        let commands = if rest.is_empty() { all().map(Some).collect() } else { chosen(rest) };
        Ok(Reply::Array(
            commands.into_iter().map(|found| found.map_or(Reply::NullArray, described)).collect(),
        ))
    } else if is(subcommand, "docs") {
        let commands = if rest.is_empty() { all().map(Some).collect() } else { chosen(rest) };
        let documented = |command: &Command| {
            let summary = (Reply::bulk("summary"), Reply::bulk("As in Redis."));
            (
                Reply::bulk(command.name),
                Reply::Map(vec![summary, (Reply::bulk("group"), Reply::bulk("generic"))]),
            )
        };
        Ok(Reply::Map(commands.into_iter().flatten().map(documented).collect()))
    } else {
        Err(call.unknown_subcommand())
    }
}
