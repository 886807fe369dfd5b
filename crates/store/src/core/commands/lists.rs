//! Lists.

use super::super::change::Change;
use super::super::error::CommandError;
use super::super::keyspace::Keyspace;
use super::super::number::{count_argument, index, integer_argument, is, range};
use super::super::session::Append;
use super::super::table::owned;
use super::super::value::{List, Side, Value};
use super::{Call, Command, Flags, ONE_KEY, TWO_KEYS};
use bytes::Bytes;
use phalanx_resp::Reply;
use phalanx_types::Time;
use std::sync::Arc;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("lindex", 3, Flags::READ, ONE_KEY, lindex),
    Command::new("linsert", 5, Flags::GROW, ONE_KEY, linsert),
    Command::new("llen", 2, Flags::READ, ONE_KEY, llen),
    Command::new("lmove", 5, Flags::GROW, TWO_KEYS, lmove),
    Command::new("lpop", -2, Flags::WRITE, ONE_KEY, |call| pop(call, Side::Left)),
    Command::new("lpush", -3, Flags::GROW, ONE_KEY, |call| push(call, Side::Left)),
    Command::new("lpushx", -3, Flags::GROW, ONE_KEY, |call| push_if_there(call, Side::Left)),
    Command::new("lrange", 4, Flags::READ, ONE_KEY, lrange),
    Command::new("lrem", 4, Flags::WRITE, ONE_KEY, lrem),
    Command::new("lset", 4, Flags::GROW, ONE_KEY, lset),
    Command::new("ltrim", 4, Flags::WRITE, ONE_KEY, ltrim),
    Command::new("rpop", -2, Flags::WRITE, ONE_KEY, |call| pop(call, Side::Right)),
    Command::new("rpoplpush", 3, Flags::GROW, TWO_KEYS, rpoplpush),
    Command::new("rpush", -3, Flags::GROW, ONE_KEY, |call| push(call, Side::Right)),
    Command::new("rpushx", -3, Flags::GROW, ONE_KEY, |call| push_if_there(call, Side::Right)),
];

/// The list at a key.
pub(super) fn list(call: &mut Call<'_>, key: &Bytes) -> Result<Option<Arc<List>>, CommandError> {
    match call.read(key) {
        None => Ok(None),
        Some(Value::List(list)) => Ok(Some(list.clone())),
        Some(_) => Err(CommandError::WrongType),
    }
}

pub(super) fn len(call: &mut Call<'_>, key: &Bytes) -> Result<usize, CommandError> {
    match call.read(key) {
        None => Ok(0),
        Some(Value::List(list)) => Ok(list.items().len()),
        Some(_) => Err(CommandError::WrongType),
    }
}

pub(super) fn side(word: &Bytes) -> Result<Side, CommandError> {
    if is(word, "left") {
        Ok(Side::Left)
    } else if is(word, "right") {
        Ok(Side::Right)
    } else {
        Err(CommandError::Syntax)
    }
}

fn push(call: &mut Call<'_>, side: Side) -> Result<Reply, CommandError> {
    let key = call.arg(1);
    let before = len(call, key)?;
    let items: Vec<_> = call.rest(2).iter().map(owned).collect();
    if side == Side::Left {
        call.store.push(key, side, &items);
        return Ok(Reply::count(before + items.len()));
    }
    let repeated = is_repeated(call, key, &items);
    let len = if repeated { before } else { before + items.len() };
    if repeated {
        call.store.statistics.repeated_appends += 1;
    } else {
        call.store.push(key, side, &items);
    }
    may_be_repeated(call, Append { key: owned(key), items });
    Ok(Reply::count(len))
}

/// Takes note of an append in case its client does not see the reply.
fn may_be_repeated(call: &mut Call<'_>, append: Append) {
    let Some(session) = call.store.sessions.get_mut(&call.client) else { return };
    if session.left {
        call.store.repeats.remember(call.now, append);
    } else {
        session.appended = Some(append);
    }
}

fn is_repeated(call: &mut Call<'_>, key: &Bytes, items: &[Bytes]) -> bool {
    let Keyspace { database, repeats, .. } = &mut *call.store;
    match database.get(call.now, key) {
        Some(Value::List(list)) => repeats.take(call.now, key, items, list),
        _ => false,
    }
}

fn push_if_there(call: &mut Call<'_>, side: Side) -> Result<Reply, CommandError> {
    match len(call, call.arg(1))? {
        0 => Ok(Reply::Integer(0)),
        _ => push(call, side),
    }
}

fn pop(call: &mut Call<'_>, side: Side) -> Result<Reply, CommandError> {
    let key = call.arg(1);
    let count = match call.rest(2) {
        [] => None,
        [count] => Some(count_argument(count)?),
        _ => return Err(CommandError::Syntax),
    };
    let len = len(call, key)?;
    let Some(count) = count else {
        return Ok(if len == 0 { Reply::Null } else { Reply::optional(call.store.pop(key, side)) });
    };
    if len == 0 {
        return Ok(Reply::NullArray);
    }
    let count = count.min(len);
    let change = || Change::Pop { key: owned(key), side, count };
    let items = call
        .store
        .database
        .edit_list(key, change, |list| (0..count).filter_map(|_| list.pop(side)).collect::<Vec<_>>());
    Ok(Reply::bulks(items))
}

fn llen(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    len(call, call.arg(1)).map(Reply::count)
}

fn lrange(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let (start, stop) = (integer_argument(call.arg(2))?, integer_argument(call.arg(3))?);
    let Some(list) = list(call, call.arg(1))? else { return Ok(Reply::Array(Vec::new())) };
    let items = list.items();
    Ok(Reply::bulks(items.range(range(start, stop, items.len())).cloned()))
}

fn lindex(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let at = integer_argument(call.arg(2))?;
    let list = list(call, call.arg(1))?;
    let item = list.and_then(|list| list.items().get(index(at, list.items().len())?).cloned());
    Ok(Reply::optional(item))
}

/// Replaces a list by one made of it, and keeps the key's end.
fn rewrite(call: &mut Call<'_>, key: &Bytes, list: List) {
    if list.items().is_empty() {
        call.store.database.remove(call.now, key);
        return;
    }
    let expires = call.store.database.entry(call.now, key).and_then(|entry| entry.expires);
    call.store.database.put(key, Value::List(Arc::new(list)), expires);
}

fn lset(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let key = call.arg(1);
    let at = integer_argument(call.arg(2))?;
    let Some(list) = list(call, key)? else { return Err(CommandError::NoKey) };
    let mut items = list.items().clone();
    let at = index(at, items.len()).ok_or(CommandError::IndexRange)?;
    if let Some(item) = items.get_mut(at) {
        *item = owned(call.arg(3));
    }
    rewrite(call, key, List::from_items(items));
    Ok(Reply::OK)
}

fn lrem(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let key = call.arg(1);
    let count = integer_argument(call.arg(2))?;
    let unwanted = call.arg(3);
    let Some(list) = list(call, key)? else { return Ok(Reply::Integer(0)) };
    let before = list.items().len();
    let mut left = if count == 0 { u64::MAX } else { count.unsigned_abs() };
    let mut keep = |item: &&Bytes| {
        let remove = left > 0 && *item == unwanted;
        left -= u64::from(remove);
        !remove
    };
    let items = if count >= 0 {
        list.items().iter().filter(&mut keep).cloned().collect()
    } else {
        let mut kept: std::collections::VecDeque<_> =
            list.items().iter().rev().filter(keep).cloned().collect();
        kept.make_contiguous().reverse();
        kept
    };
    let new = List::from_items(items);
    let removed = before - new.items().len();
    if removed > 0 {
        rewrite(call, key, new);
    }
    Ok(Reply::count(removed))
}

fn ltrim(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let key = call.arg(1);
    let (start, stop) = (integer_argument(call.arg(2))?, integer_argument(call.arg(3))?);
    let Some(list) = list(call, key)? else { return Ok(Reply::OK) };
    let items = list.items();
    let kept = items.range(range(start, stop, items.len())).cloned().collect();
    rewrite(call, key, List::from_items(kept));
    Ok(Reply::OK)
}

fn linsert(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let key = call.arg(1);
    let after = match call.arg(2) {
        word if is(word, "before") => 0,
        word if is(word, "after") => 1,
        _ => return Err(CommandError::Syntax),
    };
    let Some(list) = list(call, key)? else { return Ok(Reply::Integer(0)) };
    let Some(at) = list.items().iter().position(|item| item == call.arg(3)) else {
        return Ok(Reply::Integer(-1));
    };
    let mut items = list.items().clone();
    items.insert(at + after, owned(call.arg(4)));
    let len = items.len();
    rewrite(call, key, List::from_items(items));
    Ok(Reply::count(len))
}

fn lmove(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let (from, to) = (side(call.arg(3))?, side(call.arg(4))?);
    let moved = call.store.move_element(call.now, call.arg(1), call.arg(2), from, to)?;
    Ok(Reply::optional(moved))
}

fn rpoplpush(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let moved = call.store.move_element(call.now, call.arg(1), call.arg(2), Side::Right, Side::Left)?;
    Ok(Reply::optional(moved))
}

impl Keyspace {
    pub(crate) fn push(&mut self, key: &Bytes, side: Side, items: &[Bytes]) {
        let change = || Change::Push { key: owned(key), side, items: items.into() };
        self.database
            .edit_list(key, change, |list| items.iter().for_each(|item| list.push(side, item.clone())));
        self.written(key);
        if side == Side::Right {
            self.streams.appended(key, items);
        }
    }

    /// Takes an element from one list and puts it into another.
    pub(crate) fn move_element(
        &mut self,
        now: Time,
        source: &Bytes,
        destination: &Bytes,
        from: Side,
        to: Side,
    ) -> Result<Option<Bytes>, CommandError> {
        match self.database.get(now, source) {
            None => return Ok(None),
            Some(Value::List(_)) => {}
            Some(_) => return Err(CommandError::WrongType),
        }
        if !matches!(self.database.get(now, destination), None | Some(Value::List(_))) {
            return Err(CommandError::WrongType);
        }
        let item = self.pop(source, from);
        if let Some(item) = &item {
            self.push(destination, to, std::slice::from_ref(item));
        }
        Ok(item)
    }
}
