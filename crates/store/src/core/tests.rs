//! Whole replies and effects of the core.

mod against_model;
mod blocking;
mod clients;
mod elsewhere;
mod hostile;
mod recorded;
mod repeats;
mod spilling;
mod streams;
mod tensors;
mod values;

use super::*;
use bytes::Bytes;
use phalanx_resp::Reply;
use phalanx_types::Time;

/// A store with some clients, at a time that the test sets.
struct Fixture {
    store: Keyspace,
    now: Time,
    out: Effects,
}

fn origin(host: &str) -> Origin {
    Origin { peer: format!("{host}:1"), host: "127.0.0.1".into(), port: 6780, trusted: false }
}

impl Fixture {
    fn new() -> Self {
        Self::with(Settings { record_changes: true, ..Settings::default() })
    }

    fn with(settings: Settings) -> Self {
        let now = Time::from_millis(1_000_000);
        let mut store = Keyspace::new(now, settings);
        for client in 1..=4 {
            store.connect(now, ClientId(client), origin(&format!("10.0.0.{client}")));
        }
        Self { store, now, out: Effects::default() }
    }

    fn later(&mut self, millis: u64) {
        self.now += std::time::Duration::from_millis(millis);
    }

    /// Executes a line of words as a client.
    fn outcome(&mut self, client: u64, line: &str) -> Outcome {
        let args: Vec<_> = line.split(' ').map(|word| Bytes::from(word.to_owned())).collect();
        self.out.clear();
        self.store.execute(self.now, ClientId(client), &args, &mut self.out)
    }

    fn run_as(&mut self, client: u64, line: &str) -> Reply {
        match self.outcome(client, line) {
            Outcome::Reply(reply) => reply,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn run(&mut self, line: &str) -> Reply {
        self.run_as(1, line)
    }

    /// Checks replies, written as `redis-cli` shows them.
    fn check(&mut self, table: &[(&str, &str)]) {
        for (line, expected) in table {
            let reply = self.run(line);
            assert_eq!(shown(&reply), *expected, "{line}");
        }
    }

    fn messages(&self) -> Vec<(u64, String)> {
        self.out.messages.iter().map(|(client, reply)| (client.0, shown(reply))).collect()
    }
}

/// A reply as short text.
fn shown(reply: &Reply) -> String {
    let list = |items: &[Reply]| items.iter().map(shown).collect::<Vec<_>>().join(" ");
    match reply {
        Reply::Simple(text) => text.escape_ascii().to_string(),
        Reply::Error(text) => format!("!{}", String::from_utf8_lossy(text)),
        Reply::Integer(n) => format!(":{n}"),
        Reply::Bulk(data) | Reply::Verbatim(data) | Reply::BigNumber(data) => {
            format!("\"{}\"", data.escape_ascii())
        }
        Reply::Null => "nil".into(),
        Reply::NullArray => "nil-array".into(),
        Reply::Array(items) | Reply::Set(items) => format!("[{}]", list(items)),
        Reply::Push(items) => format!(">[{}]", list(items)),
        Reply::Map(pairs) => {
            let mut pairs: Vec<_> =
                pairs.iter().map(|(name, value)| format!("{}={}", shown(name), shown(value))).collect();
            pairs.sort();
            format!("{{{}}}", pairs.join(" "))
        }
        Reply::Double(value) => value.to_string(),
        Reply::Bool(value) => value.to_string(),
    }
}
