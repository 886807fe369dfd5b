//! Every command with arguments that make no sense.

use super::*;
use phalanx_types::Seed;

const ARGUMENTS: [&[u8]; 40] = [
    b"",
    b"a",
    b"b",
    b"list",
    b"hash",
    b"tensor",
    b"model",
    b"script",
    b"0",
    b"1",
    b"-1",
    b"2",
    b"10",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"18446744073709551615",
    b"0.5",
    b"nan",
    b"1e400",
    b"*",
    b"[a-",
    b"\\",
    b"\xff\xfe\x00",
    b"FLOAT",
    b"INT8",
    b"BLOB",
    b"VALUES",
    b"META",
    b"INPUTS",
    b"OUTPUTS",
    b"CPU",
    b"ONNX",
    b"SOURCE",
    b"MATCH",
    b"COUNT",
    b"EX",
    b"GET",
    b"SET",
    b"LEFT",
    b"BEFORE",
];

#[test]
fn no_arguments_break_the_store() {
    let facts = ServerFacts { runs_models: true, ..ServerFacts::default() };
    let mut f =
        Fixture::with(Settings { max_memory: 1 << 20, record_changes: true, facts, ..Settings::default() });
    let names: Vec<_> = f.store.commands.iter().map(|command| command.name).collect();
    let mut seed = Seed(11);
    let mut below = |end: usize| {
        seed = seed.derive("next");
        usize::try_from(seed.0 >> 33).unwrap() % end
    };
    for round in 0..60 {
        for line in ["RPUSH list x y", "HSET hash a 1", "AI.TENSORSET tensor INT8 1 BLOB x", "SET a 1"] {
            f.outcome(4, line);
        }
        f.outcome(4, "AI.MODELSTORE model ONNX CPU BLOB x");
        for name in &names {
            for _ in 0..10 {
                let mut args = vec![Bytes::from_static(name.as_bytes())];
                args.extend((0..below(7)).map(|_| Bytes::from_static(ARGUMENTS[below(ARGUMENTS.len())])));
                let client = ClientId(1 + below(3) as u64);
                f.out.clear();
                f.store.execute(f.now, client, &args, &mut f.out);
                f.store.unblock(client);
                assert_eq!(f.store.used(), f.store.database.counted(), "round {round}: {args:?}");
            }
        }
        f.later(below(2000) as u64);
        f.out.clear();
        f.store.tick(f.now, &mut f.out);
    }
}
