//! The connection itself: greeting, password, end.

use super::super::error::CommandError;
use super::super::number::{integer, integer_argument, is};
use super::super::outcome::Outcome;
use super::super::pubsub::leave;
use super::super::session::ReplyMode;
use super::super::table::owned;
use super::client::set_name;
use super::{Call, Command, Flags, NO_KEYS};
use bytes::Bytes;
use phalanx_resp::{Reply, Version};

const ANY: Flags = Flags::NO_AUTH.and(Flags::LISTENING);

pub(super) const COMMANDS: &[Command] = &[
    Command::new("auth", -2, Flags::NO_AUTH, NO_KEYS, auth),
    Command::new("echo", 2, Flags::OTHER, NO_KEYS, |call| Ok(Reply::Bulk(call.arg(1).clone()))),
    Command::new("hello", -1, Flags::NO_AUTH, NO_KEYS, hello),
    Command::new("ping", -1, Flags::LISTENING, NO_KEYS, ping),
    Command::with_outcome("quit", -1, ANY, NO_KEYS, |_| Ok(Outcome::Close(Reply::OK))),
    Command::new("readonly", 1, Flags::OTHER, NO_KEYS, |_| Ok(Reply::OK)),
    Command::new("readwrite", 1, Flags::OTHER, NO_KEYS, |_| Ok(Reply::OK)),
    Command::new("reset", 1, ANY, NO_KEYS, reset),
    Command::new("select", 2, Flags::OTHER, NO_KEYS, select),
    Command::new("wait", 3, Flags::OTHER, NO_KEYS, wait),
];

fn ping(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let session = call.store.sessions.get(&call.client);
    let listening = session.is_some_and(|s| s.version == Version::Resp2 && s.subscriptions() > 0);
    match call.rest(1) {
        [] if listening => Ok(Reply::Array(vec![Reply::bulk("pong"), Reply::bulk("")])),
        [text] if listening => Ok(Reply::Array(vec![Reply::bulk("pong"), Reply::Bulk(text.clone())])),
        [] => Ok(Reply::simple("PONG")),
        [text] => Ok(Reply::Bulk(text.clone())),
        _ => Err(CommandError::Arity("ping".to_owned())),
    }
}

/// Compares secrets in a time that does not depend on where they differ.
fn same_secret(given: &[u8], secret: &[u8]) -> bool {
    let padded = given.iter().chain(std::iter::repeat(&0));
    let differences = secret.iter().zip(padded).fold(0, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(differences) == 0 && given.len() == secret.len()
}

fn authenticate(call: &mut Call<'_>, user: &[u8], password: &[u8]) -> Result<(), CommandError> {
    let right = match &call.store.settings.password {
        Some(secret) => same_secret(password, secret),
        None => true,
    };
    if user != b"default" || !right {
        return Err(CommandError::WrongPassword);
    }
    if let Some(session) = call.store.sessions.get_mut(&call.client) {
        session.authenticated = true;
        call.out.authenticated = true;
    }
    Ok(())
}

fn auth(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    match call.rest(1) {
        [_] if call.store.settings.password.is_none() => return Err(CommandError::NoPassword),
        [password] => authenticate(call, b"default", password)?,
        [user, password] => authenticate(call, user, password)?,
        _ => return Err(CommandError::Syntax),
    }
    Ok(Reply::OK)
}

fn hello(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let mut version = None;
    let mut name = None;
    let mut rest = call.rest(1);
    if let [number, after @ ..] = rest {
        version = Some(match integer(number).ok_or(CommandError::ProtocolVersion)? {
            2 => Version::Resp2,
            3 => Version::Resp3,
            _ => return Err(CommandError::NoProtocol),
        });
        rest = after;
    }
    while let [word, after @ ..] = rest {
        rest = match after {
            [user, password, after @ ..] if is(word, "auth") => {
                authenticate(call, user, password)?;
                after
            }
            [given, after @ ..] if is(word, "setname") => {
                name = Some(given);
                after
            }
            _ => return Err(CommandError::Syntax),
        };
    }
    if !call.store.is_authenticated(call.client) {
        return Err(CommandError::HelloNoAuth);
    }
    if let Some(name) = name {
        set_name(call, name)?;
    }
    let Some(session) = call.store.sessions.get_mut(&call.client) else { return Err(CommandError::NoClient) };
    session.introduced = true;
    if let Some(version) = version {
        session.version = version;
        call.out.version = Some(version);
    }
    let protocol = if session.version == Version::Resp3 { 3 } else { 2 };
    let field = |name: &'static str, value: Reply| (Reply::bulk(name), value);
    Ok(Reply::Map(vec![
        field("server", Reply::bulk("redis")),
        field("version", Reply::bulk(super::super::info::REDIS_VERSION)),
        field("proto", Reply::Integer(protocol)),
        field("id", Reply::Integer(i64::try_from(call.client.0).unwrap_or(i64::MAX))),
        field("mode", Reply::bulk("cluster")),
        field("role", Reply::bulk("master")),
        field("modules", Reply::Array(Vec::new())),
    ]))
}

fn reset(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let password = call.store.settings.password.is_some();
    let Some(session) = call.store.sessions.get_mut(&call.client) else { return Err(CommandError::NoClient) };
    for channel in std::mem::take(&mut session.channels) {
        leave(&mut call.store.listeners.channels, &channel, call.client);
    }
    for pattern in std::mem::take(&mut session.patterns) {
        leave(&mut call.store.listeners.patterns, &pattern, call.client);
    }
    session.version = Version::Resp2;
    session.replies = ReplyMode::On;
    session.name = owned(&Bytes::new());
    session.authenticated = session.origin.trusted || !password;
    call.out.version = Some(Version::Resp2);
    Ok(Reply::simple("RESET"))
}

fn select(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    match integer_argument(call.arg(1))? {
        0 => Ok(Reply::OK),
        _ => Err(CommandError::Database),
    }
}

fn wait(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    match (integer_argument(call.arg(1))?, integer_argument(call.arg(2))?) {
        (..=0, _) => Ok(Reply::Integer(0)),
        _ => Err(CommandError::NoReplica),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_equal_only_whole() {
        assert!(same_secret(b"abc", b"abc"));
        for wrong in [&b""[..], b"ab", b"abd", b"abcd", b"abc\0"] {
            assert!(!same_secret(wrong, b"abc"), "{wrong:?}");
        }
    }
}
