//! A server for a test, and a client that compares bytes.

use phalanx_store::{Server, ServerConfig, ShardMember};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use tokio::runtime::Runtime;

/// Only a failing test waits so long.
const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) struct TestServer {
    runtime: Runtime,
    server: Option<Server>,
}

impl TestServer {
    pub(crate) fn start(config: ServerConfig) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("the sockets of a test work");
        let bind = Some(([127, 0, 0, 1], 0).into());
        let server = runtime
            .block_on(Server::start(ServerConfig { bind, ..config }))
            .expect("the sockets of a test work");
        Self { runtime, server: Some(server) }
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("the sockets of a test work")
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server().address().expect("the sockets of a test work")
    }

    pub(crate) fn set_members(&self, members: Vec<ShardMember>) {
        self.server().shard_members().set(members);
    }

    pub(crate) fn connect(&self) -> RawClient {
        let stream = TcpStream::connect(self.address()).expect("the sockets of a test work");
        stream.set_read_timeout(Some(DEADLINE)).expect("the sockets of a test work");
        stream.set_write_timeout(Some(DEADLINE)).expect("the sockets of a test work");
        RawClient { reader: BufReader::new(stream.try_clone().expect("the sockets of a test work")), stream }
    }

    /// Returns when this number of clients waits for elements of lists.
    pub(crate) fn wait_for_blocked(&self, count: usize) {
        let wanted = format!("blocked_clients:{count}\r\n");
        let deadline = std::time::Instant::now() + DEADLINE;
        let mut client = self.server().client();
        loop {
            let info = format!("{:?}", self.runtime.block_on(client.execute(["INFO", "clients"])));
            if info.contains(&wanted.escape_default().to_string()) {
                return;
            }
            assert!(std::time::Instant::now() < deadline, "{info}");
            std::thread::yield_now();
        }
    }

    pub(crate) fn shutdown(mut self) {
        let server = self.server.take().expect("the sockets of a test work");
        self.runtime.block_on(server.shutdown());
    }
}

pub(crate) struct RawClient {
    pub(crate) stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl RawClient {
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the sockets of a test work");
    }

    /// Reads as many bytes as are expected, and compares.
    pub(crate) fn expect(&mut self, expected: &[u8]) {
        let mut got = vec![0; expected.len()];
        let read = self.reader.read_exact(&mut got);
        let same = read.is_ok() && got == expected;
        let shown = |bytes: &[u8]| bytes[..bytes.len().min(300)].escape_ascii().to_string();
        assert!(same, "expected {}\ngot {} {read:?}", shown(expected), shown(&got));
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("the sockets of a test work");
        line.trim_end().to_owned()
    }

    pub(crate) fn skip_until(&mut self, end: &[u8]) {
        let mut got = Vec::new();
        while !got.ends_with(end) {
            let mut byte = [0];
            self.reader.read_exact(&mut byte).expect("the sockets of a test work");
            got.push(byte[0]);
        }
    }

    /// The server has closed the connection.
    pub(crate) fn expect_end(&mut self) {
        let mut byte = [0];
        assert!(!matches!(self.reader.read(&mut byte), Ok(1)), "the connection goes on");
    }
}

/// A request as an array of bulk strings.
pub(crate) fn request(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    words.iter().for_each(|word| bytes.extend(bulk(word.as_bytes())));
    bytes
}

pub(crate) fn bulk(data: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat()
}
