//! `CONFIG`: parameters by the names that Redis gives them.

use super::super::error::CommandError;
use super::super::glob;
use super::super::keyspace::{Keyspace, Statistics};
use super::super::number::is;
use super::super::table::owned;
use super::{Call, Command, Flags, NO_KEYS};
use bytes::Bytes;
use phalanx_resp::Reply;
use std::collections::BTreeMap;

pub(super) const COMMANDS: &[Command] = &[Command::new("config", -2, Flags::ADMIN, NO_KEYS, config)];

/// Parameters that are decided when the server starts.
const FIXED: [&str; 5] = ["bind", "databases", "io-threads", "port", "proto-max-bulk-len"];

fn config(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let subcommand = call.arg(1);
    let named = |name: &str| is(subcommand, name);
    match call.rest(2) {
        patterns @ [_, ..] if named("get") => Ok(get(call, patterns)),
        pairs @ [_, _, ..] if named("set") => set(call, pairs),
        [] if named("resetstat") => {
            call.store.statistics = Statistics::default();
            Ok(Reply::OK)
        }
        [] if named("rewrite") => Ok(Reply::OK),
        _ if named("get") || named("set") || named("resetstat") => Err(call.subcommand_arity()),
        _ => Err(call.unknown_subcommand()),
    }
}

impl Keyspace {
    /// All parameters and their values.
    fn parameters(&self) -> BTreeMap<&'static str, Bytes> {
        let facts = &self.settings.facts;
        let mut all: BTreeMap<_, _> = self.parameters.iter().collect();
        all.insert("bind", facts.bind.clone().into());
        all.insert("databases", Bytes::from_static(b"1"));
        all.insert("io-threads", facts.io_threads.to_string().into());
        all.insert("maxmemory", self.settings.max_memory.to_string().into());
        all.insert("maxmemory-policy", Bytes::from_static(b"noeviction"));
        all.insert("port", facts.port.to_string().into());
        all.insert("proto-max-bulk-len", (1u64 << 40).to_string().into());
        all.insert("requirepass", self.settings.password.clone().unwrap_or_default());
        all
    }
}

fn get(call: &mut Call<'_>, patterns: &[Bytes]) -> Reply {
    let patterns: Vec<_> = patterns.iter().map(|pattern| pattern.to_ascii_lowercase()).collect();
    let wanted = |name: &str| patterns.iter().any(|pattern| glob::matches(pattern, name.as_bytes()));
    let all = call.store.parameters();
    let found = all.into_iter().filter(|(name, _)| wanted(name));
    Reply::Map(found.map(|(name, value)| (Reply::bulk(name), Reply::Bulk(value))).collect())
}

fn set(call: &mut Call<'_>, pairs: &[Bytes]) -> Result<Reply, CommandError> {
    let (pairs, odd) = pairs.as_chunks::<2>();
    if !odd.is_empty() {
        return Err(call.subcommand_arity());
    }
    for [name, value] in pairs {
        let name = name.escape_ascii().to_string().to_ascii_lowercase();
        match name.as_str() {
            "maxmemory" => call.store.settings.max_memory = memory(value).ok_or(CommandError::ConfigValue)?,
            "maxmemory-policy" if is(value, "noeviction") => {}
            "maxmemory-policy" => return Err(CommandError::ConfigValue),
            "requirepass" => call.store.settings.password = Some(owned(value)).filter(|p| !p.is_empty()),
            fixed if FIXED.contains(&fixed) => return Err(CommandError::ConfigFixed),
            kept => {
                if !call.store.parameters.set(kept, owned(value)) {
                    return Err(CommandError::ConfigUnknown);
                }
            }
        }
    }
    Ok(Reply::OK)
}

/// A size as Redis writes it: `100mb`, `1g`, `1000`.
fn memory(text: &Bytes) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    // The names of units without `i` are taken to be thousands elsewhere; in Redis `1k` is 1000 and `1kb` 1024.
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1_000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(scale)
}
