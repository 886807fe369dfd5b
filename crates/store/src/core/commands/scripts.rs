//! Scripts, as RedisAI has them: stored and given back, never run.

use super::super::error::CommandError;
use super::super::number::{count_argument, is};
use super::super::table::owned;
use super::super::value::{Script, Value};
use super::models::device;
use super::{Call, Command, Flags, NO_KEYS, ONE_KEY};
use bytes::Bytes;
use phalanx_resp::Reply;
use std::sync::Arc;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("ai._scriptscan", 1, Flags::READ, NO_KEYS, scriptscan),
    Command::new("ai.scriptdel", 2, Flags::WRITE, ONE_KEY, scriptdel),
    Command::new("ai.scriptexecute", -3, Flags::READ, ONE_KEY, scriptrun),
    Command::new("ai.scriptget", -2, Flags::READ, ONE_KEY, scriptget),
    Command::new("ai.scriptrun", -3, Flags::READ, ONE_KEY, scriptrun),
    Command::new("ai.scriptset", -5, Flags::GROW, ONE_KEY, scriptset),
    Command::new("ai.scriptstore", -5, Flags::GROW, ONE_KEY, scriptset),
];

fn scriptset(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let mut script = Script {
        device: device(call.arg(2))?,
        tag: Bytes::new(),
        entry_points: Vec::new(),
        source: Bytes::new(),
    };
    let mut rest = call.rest(3);
    let mut source = None;
    while let [word, value, after @ ..] = rest {
        rest = after;
        if is(word, "tag") {
            script.tag = owned(value);
        } else if is(word, "entry_points") {
            let (names, left) = after.split_at_checked(count_argument(value)?).ok_or(CommandError::Syntax)?;
            script.entry_points = names.iter().map(owned).collect();
            rest = left;
        } else if is(word, "source") {
            source = Some(owned(value));
        } else {
            return Err(CommandError::Syntax);
        }
    }
    if !rest.is_empty() {
        return Err(CommandError::Syntax);
    }
    script.source = source.ok_or(CommandError::NoSource)?;
    let key = call.arg(1);
    call.store.database.put(key, Value::Script(Arc::new(script)), None);
    call.store.runs.insert(owned(key), Default::default());
    Ok(Reply::OK)
}

fn script(call: &mut Call<'_>) -> Result<Arc<Script>, CommandError> {
    match call.read(call.arg(1)) {
        None => Err(CommandError::NoScript),
        Some(Value::Script(script)) => Ok(script.clone()),
        Some(_) => Err(CommandError::WrongType),
    }
}

fn scriptget(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let script = script(call)?;
    let (meta, source) = match call.rest(2) {
        [] => (true, true),
        [word] if is(word, "source") => (false, true),
        [word] if is(word, "meta") => (true, false),
        [a, b] if is(a, "meta") && is(b, "source") => (true, true),
        _ => return Err(CommandError::Syntax),
    };
    if !meta {
        return Ok(Reply::Bulk(script.source.clone()));
    }
    let mut fields =
        vec![("device", Reply::Bulk(script.device.clone())), ("tag", Reply::Bulk(script.tag.clone()))];
    if source {
        fields.push(("source", Reply::Bulk(script.source.clone())));
    }
    fields.push(("Entry Points", Reply::bulks(script.entry_points.iter().cloned())));
    Ok(Reply::Array(fields.into_iter().flat_map(|(name, value)| [Reply::bulk(name), value]).collect()))
}

fn scriptdel(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    script(call)?;
    call.store.database.remove(call.now, call.arg(1));
    call.store.runs.remove(call.arg(1));
    Ok(Reply::OK)
}

fn scriptrun(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    script(call)?;
    Err(CommandError::NoScripts)
}

fn scriptscan(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let scripts = call.store.database.table().iter().filter_map(|(key, entry)| match &entry.value {
        Value::Script(script) => Some(Reply::bulks([key.clone(), script.tag.clone()])),
        _ => None,
    });
    Ok(Reply::Array(scripts.collect()))
}
