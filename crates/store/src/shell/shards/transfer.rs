//! `RENAME` and `COPY` from one node to another: the value is read there and written here.

use super::first;
use super::upstream::Upstreams;
use crate::core::Refusal;
use bytes::Bytes;
use phalanx_resp::Reply;

fn word(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

/// Carries the command out. It is not atomic: the new key is there before the old one is gone.
pub(super) async fn run(
    upstreams: &mut Upstreams,
    args: &[Bytes],
    (source, target): (u16, u16),
) -> Result<Reply, Reply> {
    let [name, from, to, options @ ..] = args else { return Err(Reply::error("ERR syntax error")) };
    let is_copy = name.eq_ignore_ascii_case(b"copy");
    let replaces = !is_copy || options.iter().any(|option| option.eq_ignore_ascii_case(b"replace"));
    let asked = vec![vec![word("TYPE"), from.clone()], vec![word("PTTL"), from.clone()]];
    let mut known = upstreams.call(source, asked, true).await?.into_iter();
    let (Some(Reply::Simple(kind)), Some(Reply::Integer(left))) = (known.next(), known.next()) else {
        return Err(Reply::error("ERR a node gave no type"));
    };
    if &kind[..] == b"none" {
        return if is_copy { Ok(Reply::Integer(0)) } else { Err(Reply::error("ERR no such key")) };
    }
    if !replaces {
        let exists = first(upstreams.call(target, vec![vec![word("EXISTS"), to.clone()]], true).await?)?;
        if exists != Reply::Integer(0) {
            return Ok(Reply::Integer(0));
        }
    }
    let read = match &kind[..] {
        b"string" => vec![word("GET"), from.clone()],
        b"hash" => vec![word("HGETALL"), from.clone()],
        b"list" => vec![word("LRANGE"), from.clone(), word("0"), word("-1")],
        b"AI_TENSOR" => vec![word("AI.TENSORGET"), from.clone(), word("META"), word("BLOB")],
        _ => return Err(Reply::error(Refusal::Apart.text())),
    };
    let value = first(upstreams.call(source, vec![read], true).await?)?;
    let write = written(&kind, to, value)?;
    let mut commands = vec![vec![word("DEL"), to.clone()], write];
    if left > 0 {
        commands.push(vec![word("PEXPIRE"), to.clone(), Bytes::from(left.to_string())]);
    }
    if let Some(error) = upstreams.call(target, commands, true).await?.into_iter().find(is_error) {
        return Err(error);
    }
    if is_copy {
        return Ok(Reply::Integer(1));
    }
    first(upstreams.call(source, vec![vec![word("DEL"), from.clone()]], true).await?)?;
    Ok(Reply::OK)
}

fn is_error(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(_))
}

/// The command that writes a value as it was read.
fn written(kind: &[u8], to: &Bytes, value: Reply) -> Result<Vec<Bytes>, Reply> {
    let bulks = |items: Vec<Reply>| {
        items.into_iter().filter_map(|item| match item {
            Reply::Bulk(bytes) => Some(bytes),
            _ => None,
        })
    };
    match value {
        Reply::Bulk(bytes) => Ok(vec![word("SET"), to.clone(), bytes]),
        Reply::Array(items) => match &items[..] {
            [_, Reply::Bulk(dtype), _, Reply::Array(shape), _, Reply::Bulk(data)] => {
                let lens = shape.iter().filter_map(|len| match len {
                    Reply::Integer(len) => Some(Bytes::from(len.to_string())),
                    _ => None,
                });
                let head = [word("AI.TENSORSET"), to.clone(), dtype.clone()];
                Ok(head.into_iter().chain(lens).chain([word("BLOB"), data.clone()]).collect())
            }
            _ => {
                let command = if kind == b"hash" { "HSET" } else { "RPUSH" };
                Ok([word(command), to.clone()].into_iter().chain(bulks(items)).collect())
            }
        },
        error @ Reply::Error(_) => Err(error),
        _ => Err(Reply::error("ERR no such key")),
    }
}
