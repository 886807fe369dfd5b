use super::*;

#[test]
fn strings() {
    Fixture::new().check(&[
        ("GET a", "nil"),
        ("SET a 1", "OK"),
        ("SET a 2 NX", "nil"),
        ("SET a 3 XX GET", "\"1\""),
        ("SET b 1 XX", "nil"),
        ("SET a 1 NX XX", "!ERR syntax error"),
        ("SET a 1 EX 0", "!ERR invalid expire time in 'set' command"),
        ("SET a 1 EX x", "!ERR value is not an integer or out of range"),
        ("SET a 1 PX 9223372036854775807", "!ERR invalid expire time in 'set' command"),
        ("GET a", "\"3\""),
        ("INCRBY a 4", ":7"),
        ("DECRBY a 10", ":-3"),
        ("SET m 9223372036854775807", "OK"),
        ("INCR m", "!ERR increment or decrement would overflow"),
        ("APPEND a xyz", ":5"),
        ("INCR a", "!ERR value is not an integer or out of range"),
        ("GETRANGE a -3 -1", "\"xyz\""),
        ("SETRANGE a 6 Q", ":7"),
        ("GET a", "\"-3xyz\\x00Q\""),
        ("SETRANGE a 536870912 Q", "!ERR string exceeds maximum allowed size (proto-max-bulk-len)"),
        ("STRLEN a", ":7"),
        ("MSET c 1 d 2", "OK"),
        ("MSET c 1 d", "!ERR wrong number of arguments for 'mset' command"),
        ("MGET c none d", "[\"1\" nil \"2\"]"),
        ("GETSET c 5", "\"1\""),
        ("GETDEL c", "\"5\""),
        ("SETNX c 1", ":1"),
        ("SETNX c 2", ":0"),
        ("SETEX c 10 v", "OK"),
        ("TTL c", ":10"),
        ("INCRBYFLOAT f 1.5", "\"1.5\""),
        ("get", "!ERR wrong number of arguments for 'get' command"),
        ("nope a b", "!ERR unknown command 'nope', with args beginning with: 'a' 'b' "),
    ]);
}

#[test]
fn keys_end_at_their_time() {
    let mut f = Fixture::new();
    f.check(&[
        ("SET a 1 PX 100", "OK"),
        ("SET b 1", "OK"),
        ("EXPIRE b 1", ":1"),
        ("EXPIRE b 5 GT", ":1"),
        ("EXPIRE b 1 NX", ":0"),
        ("EXPIRE none 1", ":0"),
        ("PTTL a", ":100"),
        ("TTL none", ":-2"),
        ("SET a 2 KEEPTTL", "OK"),
    ]);
    assert_eq!(f.store.next_deadline(), Some(f.now + std::time::Duration::from_millis(100)));
    f.later(100);
    f.check(&[("GET a", "nil"), ("EXISTS a b", ":1"), ("PERSIST b", ":1"), ("TTL b", ":-1")]);
    f.check(&[("SET c 1 EX 1", "OK"), ("EXPIREAT b 1", ":1"), ("EXISTS b", ":0")]);
    f.later(2000);
    f.out.clear();
    f.store.tick(f.now, &mut f.out);
    assert_eq!(f.out.changes, [Change::Delete { key: "c".into() }]);
    assert_eq!((f.store.next_deadline(), f.store.used()), (None, 0));
}

#[test]
fn keys_of_any_kind() {
    let mut f = Fixture::new();
    f.check(&[
        ("MSET a 1 b 2", "OK"),
        ("RPUSH l x", ":1"),
        ("TYPE l", "list"),
        ("TYPE none", "none"),
        ("RENAME none a", "!ERR no such key"),
        ("RENAME a c", "OK"),
        ("RENAMENX c b", ":0"),
        ("RENAMENX c d", ":1"),
        ("COPY d e", ":1"),
        ("COPY d e", ":0"),
        ("COPY d e REPLACE", ":1"),
        ("DBSIZE", ":4"),
        ("DEL a b d e", ":3"),
        ("KEYS *", "[\"l\"]"),
        ("RANDOMKEY", "\"l\""),
        ("SCAN 0 TYPE string", "[\"0\" []]"),
        ("SCAN 0 MATCH ? COUNT 100", "[\"0\" [\"l\"]]"),
        ("SCAN x", "!ERR invalid cursor"),
        ("OBJECT ENCODING l", "\"quicklist\""),
        ("FLUSHALL", "OK"),
        ("RANDOMKEY", "nil"),
        ("SELECT 1", "!ERR DB index is out of range"),
    ]);
    assert_eq!(f.store.used(), 0);
}

#[test]
fn hashes() {
    Fixture::new().check(&[
        ("HSET h a 1 b 2", ":2"),
        ("HMSET h b 3 c 4", "OK"),
        ("HSET h a", "!ERR wrong number of arguments for 'hset' command"),
        ("HSET h a 1 b", "!ERR wrong number of arguments for 'hset' command"),
        ("HGETALL h", "{\"a\"=\"1\" \"b\"=\"3\" \"c\"=\"4\"}"),
        ("HGETALL none", "{}"),
        ("HGET h b", "\"3\""),
        ("HMGET h a none", "[\"1\" nil]"),
        ("HEXISTS h a", ":1"),
        ("HLEN h", ":3"),
        ("HINCRBY h a 5", ":6"),
        ("HSETNX h a 9", ":0"),
        ("HSTRLEN h a", ":1"),
        ("HDEL h a a none", ":1"),
        ("HDEL h b c", ":2"),
        ("EXISTS h", ":0"),
        ("SET s 1", "OK"),
        ("HSET s a 1", "!WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("GET s", "\"1\""),
        ("HSET s a 1 b", "!ERR wrong number of arguments for 'hset' command"),
        // A string whose time is up is in no hash's way.
        ("PEXPIREAT s 1", ":1"),
        ("HSET s a 1", ":1"),
    ]);
}

#[test]
fn lists() {
    Fixture::new().check(&[
        ("RPUSH l a b c", ":3"),
        ("LPUSH l x y", ":5"),
        ("LRANGE l 0 -1", "[\"y\" \"x\" \"a\" \"b\" \"c\"]"),
        ("LINDEX l -1", "\"c\""),
        ("LSET l 0 z", "OK"),
        ("LSET l 9 z", "!ERR index out of range"),
        ("LINSERT l AFTER z q", ":6"),
        ("LREM l 0 q", ":1"),
        ("LMOVE l m LEFT RIGHT", "\"z\""),
        ("RPOPLPUSH l m", "\"c\""),
        ("LRANGE m 0 -1", "[\"c\" \"z\"]"),
        ("LTRIM l 1 1", "OK"),
        ("LPOP l 5", "[\"a\"]"),
        ("EXISTS l", ":0"),
        ("LPOP l", "nil"),
        ("LPOP l 2", "nil-array"),
        ("RPUSHX l a", ":0"),
        ("LLEN none", ":0"),
        ("RPUSH r 1 2 1 3 1", ":5"),
        ("LREM r -2 1", ":2"),
        ("LRANGE r 0 -1", "[\"1\" \"2\" \"3\"]"),
    ]);
}

#[test]
fn a_full_store_refuses_writes_and_takes_the_rest() {
    let mut f = Fixture::with(Settings { max_memory: 1000, ..Settings::default() });
    let large = "x".repeat(900);
    f.check(&[
        ("SET a 1", "OK"),
        (&format!("SET b {large}"), "!OOM command not allowed when used memory > 'maxmemory'."),
        ("AI.TENSORSET t FLOAT 1000000", "!OOM command not allowed when used memory > 'maxmemory'."),
        ("SETRANGE a 5000 x", "!OOM command not allowed when used memory > 'maxmemory'."),
        ("GET a", "\"1\""),
        ("DEL a", ":1"),
        ("CONFIG SET maxmemory 1mb", "OK"),
        (&format!("SET b {large}"), "OK"),
    ]);
}

#[test]
fn every_write_is_recorded() {
    let mut f = Fixture::new();
    let key = Bytes::from("k");
    f.run("RPUSH k a b");
    let pushed = Change::Push { key: key.clone(), side: Side::Right, items: ["a".into(), "b".into()].into() };
    assert_eq!(f.out.changes, [pushed]);
    f.run("LPOP k");
    assert_eq!(f.out.changes, [Change::Pop { key: key.clone(), side: Side::Left, count: 1 }]);
    f.run("LPOP k");
    let popped = Change::Pop { key: key.clone(), side: Side::Left, count: 1 };
    assert_eq!(f.out.changes, [popped, Change::Delete { key: key.clone() }]);
    f.run("GET k");
    assert_eq!(f.out.changes, []);
    f.run("FLUSHALL");
    assert_eq!(f.out.changes, [Change::Clear]);
}
