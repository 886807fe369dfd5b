//! The server on real sockets: bytes in, exact bytes out.

use crate::common::{TestServer, bulk, request};
use phalanx_store::ServerConfig;
use phalanx_types::ByteSize;
use std::io::Write;
use std::net::{Shutdown, TcpStream};

#[test]
fn replies_are_exact() {
    let server = TestServer::start(ServerConfig::default());
    let mut client = server.connect();
    let port = server.address().port();
    for (line, expected) in [
        ("PING", "+PONG\r\n"),
        ("SET a 1", "+OK\r\n"),
        ("GET a", "$1\r\n1\r\n"),
        ("GET none", "$-1\r\n"),
        ("EXISTS a none", ":1\r\n"),
        ("RPUSH l x y", ":2\r\n"),
        ("LRANGE l 0 -1", "*2\r\n$1\r\nx\r\n$1\r\ny\r\n"),
        ("HMSET h f v", "+OK\r\n"),
        ("HGETALL h", "*2\r\n$1\r\nf\r\n$1\r\nv\r\n"),
        ("HGETALL none", "*0\r\n"),
        ("HEXISTS h .COMPLETE", ":0\r\n"),
        ("AI.TENSORSET t UINT8 1 3 BLOB abc", "+OK\r\n"),
        (
            "AI.TENSORGET t META BLOB",
            "*6\r\n$5\r\ndtype\r\n$5\r\nUINT8\r\n$5\r\nshape\r\n*2\r\n:1\r\n:3\r\n$4\r\nblob\r\n$3\r\nabc\r\n",
        ),
        ("AI.TENSORGET none META BLOB", "-ERR tensor key is empty\r\n"),
        ("RENAME t u", "+OK\r\n"),
        ("UNLINK u", ":1\r\n"),
        ("AI.CONFIG GET MODEL_CHUNK_SIZE", ":535822336\r\n"),
        ("CONFIG GET none", "*0\r\n"),
        ("GET l", "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"),
        ("FLUSHDB", "+OK\r\n"),
    ] {
        client.send(&request(&line.split(' ').collect::<Vec<_>>()));
        client.expect(expected.as_bytes());
        // The same, typed by a person.
        if !line.contains("UNLINK")
            && !line.contains("RENAME")
            && !line.contains("RPUSH")
            && !line.contains("LRANGE")
        {
            client.send(format!("{line}\r\n").as_bytes());
            client.expect(expected.as_bytes());
        }
    }
    client.send(b"CLUSTER SLOTS\r\n");
    let slots = format!("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$9\r\n127.0.0.1\r\n:{port}\r\n$40\r\n");
    client.expect(slots.as_bytes());
}

#[test]
fn version_three_has_maps_and_pushes() {
    let server = TestServer::start(ServerConfig::default());
    let mut client = server.connect();
    client.send(b"HSET h f v\r\nHELLO 3\r\n");
    client.expect(b":1\r\n%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n");
    client.skip_until(b"$7\r\nmodules\r\n*0\r\n");
    client.send(b"HGETALL h\r\nGET none\r\nSUBSCRIBE c\r\nPUBLISH c m\r\n");
    client.expect(b"%1\r\n$1\r\nf\r\n$1\r\nv\r\n_\r\n>3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n");
    client.skip_until(b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n");
}

#[test]
fn a_pipeline_of_a_hundred_thousand_commands_is_answered() {
    const COMMANDS: usize = 100_000;
    let server = TestServer::start(ServerConfig::default());
    let mut client = server.connect();
    let mut sender = client.stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        sender.write_all(&b"*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n".repeat(COMMANDS)).unwrap();
    });
    let expected: Vec<u8> = (1..=COMMANDS).flat_map(|n| format!(":{n}\r\n").into_bytes()).collect();
    client.expect(&expected);
    sending.join().unwrap();
}

#[test]
fn a_client_that_does_not_read_is_not_executed_on() {
    let server = TestServer::start(ServerConfig::default());
    let mut client = server.connect();
    client.send(&request(&["SET", "large", &"x".repeat(100 << 10)]));
    client.expect(b"+OK\r\n");
    // Some replies fit into the buffers of the sockets, but far from all.
    let mut slow = server.connect();
    slow.send(&b"GET large\r\nINCR n\r\n".repeat(64));
    let mut executed = || {
        client.send(b"INCRBY n 0\r\n");
        client.line().trim_start_matches(':').parse::<usize>().unwrap()
    };
    while executed() == 0 {}
    // Others have their turns, and so would the slow one.
    let executed = (0..1000).map(|_| executed()).max().unwrap();
    assert!(executed < 32, "{executed} commands of a client that reads nothing were executed");
    for n in 1..=64 {
        slow.expect(&bulk(&[b'x'; 100 << 10]));
        slow.expect(format!(":{n}\r\n").as_bytes());
    }
}

#[test]
fn a_listener_that_does_not_read_is_closed() {
    let server = TestServer::start(ServerConfig { unsent: ByteSize::mib(1), ..ServerConfig::default() });
    let mut listener = server.connect();
    listener.send(b"SUBSCRIBE c\r\n");
    listener.expect(b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n");
    let mut client = server.connect();
    let message = request(&["PUBLISH", "c", &"m".repeat(100_000)]);
    // The sockets of the system hold some; then the mailbox fills.
    let closed = (0..1000).any(|_| {
        client.send(&message);
        client.line() == ":0"
    });
    assert!(closed, "the listener was not closed");
}

#[test]
fn requests_may_come_in_pieces() {
    let server = TestServer::start(ServerConfig::default());
    let mut client = server.connect();
    for byte in request(&["SET", "a", "12345"]) {
        client.send(&[byte]);
    }
    client.expect(b"+OK\r\n");
    // A client that leaves in the middle of a request leaves nothing behind.
    let mut other = server.connect();
    other.send(b"*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$100000\r\nabc");
    drop(other);
    // One that closes only its side gets its replies.
    let mut half = server.connect();
    half.send(b"GET a\r\nEXISTS b\r\n");
    half.stream.shutdown(Shutdown::Write).unwrap();
    half.expect(b"$5\r\n12345\r\n:0\r\n");
    half.expect_end();
}

#[test]
fn what_is_no_request_ends_the_connection_with_a_reason() {
    let server = TestServer::start(ServerConfig::default());
    for (bytes, error) in [
        (&b"*1\r\n:1\r\n"[..], "-ERR Protocol error: expected '$', got ':'\r\n"),
        (b"*x\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*1\r\n$-5\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        (b"SET 'a\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"),
    ] {
        let mut client = server.connect();
        client.send(bytes);
        client.expect(error.as_bytes());
        client.expect_end();
    }
    let mut client = server.connect();
    client.send(b"QUIT\r\n");
    client.expect(b"+OK\r\n");
    client.expect_end();
}

/// Just over the 512 MiB that Redis allows with `PHALANX_LARGE_VALUE_MIB=513`.
#[test]
fn a_large_value_comes_back_whole() {
    let mib: usize = std::env::var("PHALANX_LARGE_VALUE_MIB").map_or(80, |text| text.parse().unwrap());
    let server = TestServer::start(ServerConfig::default());
    let mut client = server.connect();
    let value: Vec<u8> = (0..mib << 20).map(|n| (n / 7 + n / 65_536) as u8).collect();
    let mut sender = client.stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            sender
                .write_all(format!("*3\r\n$3\r\nSET\r\n$1\r\nv\r\n${}\r\n", value.len()).as_bytes())
                .unwrap();
            sender.write_all(&value).unwrap();
            sender.write_all(b"\r\nGET v\r\nSTRLEN v\r\n").unwrap();
        });
        client.expect(b"+OK\r\n");
        client.expect(format!("${}\r\n", value.len()).as_bytes());
        client.expect(&value);
        client.expect(format!("\r\n:{}\r\n", value.len()).as_bytes());
    });
}

#[test]
fn clients_that_read_no_long_reply_keep_no_other_one_waiting() {
    let server = TestServer::start(ServerConfig { io_threads: 1, ..ServerConfig::default() });
    let value = "v".repeat(16 << 20);
    let mut client = server.connect();
    client.send(&request(&["SET", "long", &value]));
    client.expect(b"+OK\r\n");
    let reply = bulk(value.as_bytes());
    let get = request(&["GET", "long"]);
    // More than there are places, each with more than the buffers of a socket hold.
    let mut idle: Vec<_> = (0..8).map(|_| server.connect()).collect();
    idle.iter_mut().for_each(|idle| idle.send(&get));
    for _ in 0..3 {
        client.send(&get);
        client.expect(&reply);
    }
    // A part of an argument of another client does not delay this one, either.
    let mut slow = server.connect();
    let set = request(&["SET", "slow", &value]);
    slow.send(&set[..8 << 20]);
    client.send(&get);
    client.expect(&reply);
    slow.send(&set[8 << 20..]);
    slow.expect(b"+OK\r\n");
    for mut late in idle {
        late.expect(&reply);
    }
}

#[test]
fn a_value_beyond_the_budget_is_refused_while_it_arrives() {
    let server = TestServer::start(ServerConfig { memory: ByteSize::mib(1), ..ServerConfig::default() });
    let mut client = server.connect();
    client.send(&request(&["SET", "a", &"x".repeat(4 << 20)]));
    client.expect(b"-OOM command not allowed when used memory > 'maxmemory'.\r\n");
    client.send(&request(&["SET", "a", &"x".repeat(100 << 10)]));
    client.expect(b"+OK\r\n");
    // A client that announces and never sends takes only what it announced, and only while it is there.
    let mut idle = server.connect();
    idle.send(b"*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$900000\r\nabc");
    drop(idle);
    client.send(b"PING\r\n");
    client.expect(b"+PONG\r\n");
}

#[test]
fn a_password_is_asked_for() {
    let server =
        TestServer::start(ServerConfig { password: Some("secret".into()), ..ServerConfig::default() });
    let mut client = server.connect();
    client.send(b"GET a\r\nAUTH wrong\r\nAUTH secret\r\nGET a\r\n");
    client.expect(b"-NOAUTH Authentication required.\r\n");
    client.expect(b"-WRONGPASS invalid username-password pair or user is disabled.\r\n+OK\r\n$-1\r\n");
    let mut stranger = server.connect();
    stranger.send(b"*2\r\n$4\r\nAUTH\r\n$100000000\r\n");
    stranger.expect(b"-ERR Protocol error: unauthenticated bulk or multibulk length\r\n");
    stranger.expect_end();
}

#[test]
fn a_blocked_client_is_woken_by_another_thread() {
    let server = TestServer::start(ServerConfig { io_threads: 3, ..ServerConfig::default() });
    let mut waiting: Vec<_> = (0..6).map(|_| server.connect()).collect();
    for (n, client) in waiting.iter_mut().enumerate() {
        client.send(b"BLPOP q 0\r\nPING\r\n");
        server.wait_for_blocked(n + 1);
    }
    let mut client = server.connect();
    client.send(b"RPUSH q 0 1 2 3 4 5\r\n");
    client.expect(b":6\r\n");
    for (n, client) in waiting.iter_mut().enumerate() {
        client.expect(format!("*2\r\n$1\r\nq\r\n$1\r\n{n}\r\n+PONG\r\n").as_bytes());
    }
    client.send(b"BLPOP q 0.01\r\n");
    client.expect(b"*-1\r\n");
}

#[test]
fn a_unix_socket_is_its_owners_and_is_taken_over_from_a_dead_server() {
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::{UnixListener, UnixStream};
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.sock");
    drop(UnixListener::bind(&path).unwrap());
    let server = TestServer::start(ServerConfig { unix: Some(path.clone()), ..ServerConfig::default() });
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"PING\r\n").unwrap();
    let mut reply = [0; 7];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+PONG\r\n");
    server.shutdown();
    assert!(!path.exists());
}

#[test]
fn other_hosts_need_a_password_or_permission() {
    use phalanx_store::StartError;
    let open = ServerConfig { bind: Some(([0, 0, 0, 0], 0).into()), ..ServerConfig::default() };
    assert!(matches!(open.validate(), Err(StartError::Exposed { .. })));
    assert!(ServerConfig { password: Some("p".into()), ..open.clone() }.validate().is_ok());
    assert!(ServerConfig { expose_without_password: true, ..open }.validate().is_ok());
}

#[test]
fn too_many_clients_are_told() {
    let server = TestServer::start(ServerConfig { max_clients: 2, ..ServerConfig::default() });
    let mut clients: Vec<_> = (0..2).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(b"PING\r\n");
        client.expect(b"+PONG\r\n");
    }
    let mut third = server.connect();
    third.expect(b"-ERR max number of clients reached\r\n");
    third.expect_end();
}

#[test]
fn a_server_that_ends_closes_its_clients_and_its_port() {
    let server = TestServer::start(ServerConfig::default());
    let address = server.address();
    let mut client = server.connect();
    client.send(b"PING\r\n");
    client.expect(b"+PONG\r\n");
    server.shutdown();
    client.expect_end();
    assert!(TcpStream::connect(address).is_err());
}
