//! A store that keeps what it holds on disk.

use crate::common::{RawClient, TestServer, bulk, request};
use phalanx_store::{Durability, Server, ServerConfig, StartError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const DEADLINE: Duration = Duration::from_secs(60);

fn config(directory: &Path, durability: Durability) -> ServerConfig {
    ServerConfig { persist: Some(directory.to_owned()), durability, ..ServerConfig::default() }
}

fn start(directory: &Path) -> TestServer {
    TestServer::start(config(directory, Durability::EveryWrite))
}

fn value(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + number * 7) as u8).collect()
}

fn set(key: &str, value: &[u8]) -> Vec<u8> {
    let head = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n", key.len());
    [head.as_bytes(), &bulk(value)].concat()
}

impl RawClient {
    fn check(&mut self, words: &[&str], expected: &str) {
        self.send(&request(words));
        self.expect(expected.as_bytes());
    }
}

#[test]
fn everything_is_there_after_a_restart() {
    for durability in [Durability::EveryWrite, Durability::EverySecond, Durability::Never] {
        let parent = tempfile::tempdir().expect("a directory");
        let directory = parent.path().join("store");
        let server = TestServer::start(config(&directory, durability));
        let mut client = server.connect();
        client.check(&["SET", "small", "one"], "+OK\r\n");
        client.send(&set("large", &value(1, 300_000)));
        client.expect(b"+OK\r\n");
        client.check(&["RPUSH", "list", "a", "b", "c"], ":3\r\n");
        client.check(&["LPOP", "list"], "$1\r\na\r\n");
        client.check(&["HSET", "hash", "f", "1", "g", "2"], ":2\r\n");
        client.check(&["HDEL", "hash", "f"], ":1\r\n");
        client.check(&["SET", "ended", "x", "PX", "1"], "+OK\r\n");
        client.check(&["SET", "later", "x", "EX", "1000"], "+OK\r\n");
        client.check(&["AI.TENSORSET", "t", "INT8", "3", "VALUES", "1", "2", "3"], "+OK\r\n");
        client.check(&["SAVE"], "+OK\r\n");
        client.check(&["SET", "behind", "the snapshot"], "+OK\r\n");
        client.check(&["RENAME", "small", "renamed"], "+OK\r\n");
        server.shutdown();

        let server = TestServer::start(config(&directory, durability));
        let mut client = server.connect();
        client.check(&["GET", "renamed"], "$3\r\none\r\n");
        client.send(&request(&["GET", "large"]));
        client.expect(&bulk(&value(1, 300_000)));
        client.check(&["LRANGE", "list", "0", "-1"], "*2\r\n$1\r\nb\r\n$1\r\nc\r\n");
        client.check(&["HGETALL", "hash"], "*2\r\n$1\r\ng\r\n$1\r\n2\r\n");
        client.check(&["EXISTS", "ended", "small"], ":0\r\n");
        client.check(&["TTL", "later"], ":1000\r\n");
        client.check(&["AI.TENSORGET", "t", "VALUES"], "*3\r\n:1\r\n:2\r\n:3\r\n");
        client.check(&["GET", "behind"], "$12\r\nthe snapshot\r\n");
        client.check(&["DBSIZE"], ":7\r\n");
        server.shutdown();
    }
}

#[test]
fn replies_keep_their_order_while_records_are_written() {
    let parent = tempfile::tempdir().expect("a directory");
    let directory = parent.path().join("store");
    let server = start(&directory);
    let mut client = server.connect();
    let mut requests = Vec::new();
    for number in 0..2000 {
        requests.extend(request(&["SET", &format!("k{number}"), "v"]));
        requests.extend(request(&["ECHO", &format!("e{number}")]));
        requests.extend(request(&["INCR", "n"]));
    }
    client.send(&requests);
    for number in 0..2000 {
        let echo = format!("e{number}");
        let expected = format!("+OK\r\n${}\r\n{echo}\r\n:{}\r\n", echo.len(), number + 1);
        client.expect(expected.as_bytes());
    }
    // A client that waits is served by another's write, when that is recorded.
    let mut waiting = server.connect();
    waiting.send(&request(&["BLPOP", "queue", "0"]));
    server.wait_for_blocked(1);
    client.check(&["RPUSH", "queue", "x"], ":1\r\n");
    waiting.expect(b"*2\r\n$5\r\nqueue\r\n$1\r\nx\r\n");
    server.shutdown();
    let server = start(&directory);
    server.connect().check(&["EXISTS", "queue"], ":0\r\n");
    server.connect().check(&["DBSIZE"], ":2001\r\n");
}

#[test]
fn saving_is_what_it_says() {
    let parent = tempfile::tempdir().expect("a directory");
    let directory = parent.path().join("store");
    let server = start(&directory);
    let mut client = server.connect();
    client.check(&["SET", "a", "1"], "+OK\r\n");
    let info = |client: &mut RawClient| {
        client.send(&request(&["INFO", "persistence"]));
        let length: usize = client.line().trim_start_matches('$').parse().expect("a length");
        let mut text = String::new();
        while text.len() < length {
            text += &client.line();
            text += "\r\n";
        }
        client.line();
        text
    };
    let before = info(&mut client);
    assert!(
        before.contains("aof_enabled:1") && before.contains("journal_durability:every-write"),
        "{before}"
    );
    assert!(before.contains("rdb_changes_since_last_save:1\r\n"), "{before}");
    let snapshots = || {
        let files = std::fs::read_dir(&directory).expect("the directory of the journal");
        files
            .filter(|file| {
                file.as_ref().is_ok_and(|f| f.file_name().to_string_lossy().starts_with("snapshot"))
            })
            .count()
    };
    assert_eq!(snapshots(), 0);
    client.check(&["SAVE"], "+OK\r\n");
    assert_eq!(snapshots(), 1);
    let after = info(&mut client);
    assert!(after.contains("rdb_changes_since_last_save:0\r\n"), "{after}");
    assert!(after.contains("rdb_last_bgsave_status:ok"), "{after}");
    client.check(&["BGSAVE"], "+Background saving started\r\n");
    client.check(&["SAVE"], "+OK\r\n");
    server.shutdown();
}

#[test]
fn a_save_without_changes_since_the_last_is_done_already() {
    let parent = tempfile::tempdir().expect("a directory");
    let directory = parent.path().join("store");
    let server = start(&directory);
    let mut client = server.connect();
    let snapshot = || {
        let files = std::fs::read_dir(&directory).expect("the directory of the journal");
        let seen = |file: std::io::Result<std::fs::DirEntry>| {
            let file = file.expect("a file");
            let about = file.metadata().expect("it is there");
            (file.file_name(), about.ino(), about.mtime(), about.mtime_nsec())
        };
        let snapshots = |name: &std::ffi::OsString| name.to_string_lossy().starts_with("snapshot");
        files.map(seen).find(|(name, ..)| snapshots(name)).expect("a snapshot")
    };
    client.check(&["SET", "a", "1"], "+OK\r\n");
    client.check(&["SAVE"], "+OK\r\n");
    let first = snapshot();
    // Reads, and commands that change nothing, are no reason to write.
    client.check(&["GET", "a"], "$1\r\n1\r\n");
    client.check(&["DEL", "missing"], ":0\r\n");
    for _ in 0..3 {
        client.check(&["SAVE"], "+OK\r\n");
        client.check(&["BGSAVE"], "+Background saving started\r\n");
        client.check(&["SAVE"], "+OK\r\n");
        assert_eq!(snapshot(), first);
    }
    client.check(&["SET", "a", "2"], "+OK\r\n");
    client.check(&["SAVE"], "+OK\r\n");
    let second = snapshot();
    assert_ne!(second, first);
    client.check(&["SAVE"], "+OK\r\n");
    assert_eq!(snapshot(), second);
    server.shutdown();
    // What was saved before a restart is not known to be all: the first save writes.
    let server = start(&directory);
    let mut client = server.connect();
    client.check(&["SAVE"], "+OK\r\n");
    assert_ne!(snapshot(), second);
    client.check(&["GET", "a"], "$1\r\n2\r\n");
    server.shutdown();
}

fn start_error(directory: &Path) -> StartError {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let config =
        ServerConfig { bind: Some(([127, 0, 0, 1], 0).into()), ..config(directory, Durability::EveryWrite) };
    runtime.block_on(Server::start(config)).expect_err("the directory cannot be used")
}

#[test]
fn a_directory_that_cannot_be_used_is_an_error_that_says_why() {
    let parent = tempfile::tempdir().expect("a directory");
    let directory = parent.path().join("store");
    let server = start(&directory);
    let mut client = server.connect();
    let used = start_error(&directory);
    assert!(matches!(used, StartError::Persist { .. }) && used.hint().is_some(), "{used}");
    client.send(&set("large", &value(1, 300_000)));
    client.expect(b"+OK\r\n");
    client.check(&["SET", "a", "1"], "+OK\r\n");
    server.shutdown();
    // One bit of the large value.
    let values = |name: &str| -> PathBuf {
        let files = std::fs::read_dir(&directory).expect("the directory of the journal");
        let mut paths = files.filter_map(|file| file.ok().map(|file| file.path()));
        paths.find(|path| path.to_string_lossy().contains(name)).expect("a file of values")
    };
    let path = values("values-");
    let mut bytes = std::fs::read(&path).expect("a file of values");
    bytes[100_000] ^= 1;
    std::fs::write(&path, &bytes).expect("a file of values");
    let damaged = start_error(&directory);
    let shown = format!("{damaged}: {:?}", std::error::Error::source(&damaged).map(ToString::to_string));
    assert!(matches!(damaged, StartError::PersistedValue { .. }), "{shown}");
    assert!(shown.contains(&*path.to_string_lossy()) && damaged.hint().is_some(), "{shown}");
    bytes[100_000] ^= 1;
    std::fs::write(&path, &bytes).expect("a file of values");
    let server = start(&directory);
    server.connect().check(&["GET", "a"], "$1\r\n1\r\n");
}

/// A file system of a few MiB, unmounted at the end.
struct SmallDisk {
    directory: TempDir,
}

impl SmallDisk {
    fn new(mib: u64) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "tmpfs"]).arg(directory.path());
        assert!(mount.status().expect("mount").success(), "tests mount file systems and need root");
        Self { directory }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("--lazy").arg(self.directory.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()));
    }
}

#[test]
fn a_full_disk_refuses_writes_and_nothing_else_until_there_is_room() {
    let disk = SmallDisk::new(8);
    let directory = disk.directory.path().join("store");
    let filler = disk.directory.path().join("filler");
    std::fs::write(&filler, vec![1; 3 << 20]).expect("room for the filler");
    let server = start(&directory);
    let mut client = server.connect();
    let mut listener = server.connect();
    listener.send(&request(&["SUBSCRIBE", "told"]));
    listener.skip_until(b":1\r\n");
    client.check(&["RPUSH", "list", "a", "b"], ":2\r\n");
    // Lists, small and large values, and messages: all of a command is done and told, or nothing.
    let mut done = 0;
    let text = loop {
        let large = value(done, 100_000);
        let mut requests = set(&format!("large{done}"), &large);
        requests.extend(request(&["RPUSH", "list", &format!("{done}")]));
        requests.extend(request(&["PUBLISH", "told", &format!("{done}")]));
        client.send(&requests);
        let replies = [client.line(), client.line(), client.line()];
        let told = done.to_string();
        let message = format!("*3\r\n$7\r\nmessage\r\n$4\r\ntold\r\n${}\r\n{told}\r\n", told.len());
        if replies[0] != "+OK" {
            assert!(replies[..2].iter().all(|reply| reply.starts_with("-MISCONF")), "{replies:?}");
            // A message is no write: it is told if the failure was known before, and else taken back with the rest.
            match replies[2].as_str() {
                ":1" => listener.expect(message.as_bytes()),
                refused => assert!(refused.starts_with("-MISCONF"), "{refused}"),
            }
            break replies[0].clone();
        }
        assert_eq!(replies, ["+OK".to_owned(), format!(":{}", done + 3), ":1".to_owned()]);
        listener.expect(message.as_bytes());
        done += 1;
    };
    assert!(text.contains("No space left on device") && text.contains("reads go on"), "{text}");
    assert!(done > 10, "{done}");
    let check_reads = |client: &mut RawClient| {
        client.check(&["LLEN", "list"], &format!(":{}\r\n", done + 2));
        client.check(&["EXISTS", &format!("large{done}")], ":0\r\n");
        client.send(&request(&["GET", &format!("large{}", done - 1)]));
        client.expect(&bulk(&value(done - 1, 100_000)));
    };
    check_reads(&mut client);
    client.send(&request(&["DEL", "list"]));
    assert!(client.line().starts_with("-MISCONF"));
    client.send(&request(&["SAVE"]));
    assert!(client.line().starts_with("-ERR could not save"));
    // What a client is told now is not held back.
    client.check(&["PUBLISH", "told", "still"], ":1\r\n");
    listener.expect(b"*3\r\n$7\r\nmessage\r\n$4\r\ntold\r\n$5\r\nstill\r\n");
    // Room is made, and writes go on by themselves.
    std::fs::remove_file(&filler).expect("the filler");
    let until = Instant::now() + DEADLINE;
    loop {
        client.send(&request(&["SET", "after", "1"]));
        let reply = client.line();
        if reply == "+OK" {
            break;
        }
        assert!(reply.starts_with("-MISCONF") && Instant::now() < until, "{reply}");
    }
    check_reads(&mut client);
    client.check(&["RPUSH", "list", "z"], &format!(":{}\r\n", done + 3));
    server.shutdown();
    let server = start(&directory);
    let mut client = server.connect();
    client.check(&["GET", "after"], "$1\r\n1\r\n");
    client.check(&["LLEN", "list"], &format!(":{}\r\n", done + 3));
    client.check(&["DBSIZE"], &format!(":{}\r\n", done + 2));
    for number in 0..done {
        client.send(&request(&["GET", &format!("large{number}")]));
        client.expect(&bulk(&value(number, 100_000)));
    }
}

#[test]
fn keys_that_end_while_the_disk_is_full_stay_ended() {
    let disk = SmallDisk::new(4);
    let directory = disk.directory.path().join("store");
    let server = start(&directory);
    let mut client = server.connect();
    client.check(&["RPUSH", "list", "old"], ":1\r\n");
    let filler = disk.directory.path().join("filler");
    let mut text = String::new();
    client.check(&["PEXPIRE", "list", "300"], ":1\r\n");
    drop(std::fs::write(&filler, vec![1; 8 << 20]));
    while !text.starts_with("-MISCONF") {
        client.send(&set("x", &value(1, 50_000)));
        text = client.line();
    }
    let until = Instant::now() + DEADLINE;
    loop {
        client.send(&request(&["EXISTS", "list"]));
        if client.line() == ":0" {
            break;
        }
        assert!(Instant::now() < until, "the key does not end");
    }
    std::fs::remove_file(&filler).expect("the filler");
    loop {
        client.send(&request(&["RPUSH", "list", "new"]));
        let reply = client.line();
        if reply == ":1" {
            break;
        }
        assert!(reply.starts_with("-MISCONF") && Instant::now() < until, "{reply}");
    }
    server.shutdown();
    let server = start(&directory);
    server.connect().check(&["LRANGE", "list", "0", "-1"], "*1\r\n$3\r\nnew\r\n");
}
