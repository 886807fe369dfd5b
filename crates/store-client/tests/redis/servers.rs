//! Real `redis-server` processes, alone and as a cluster.

use phalanx_resp::Reply;
use phalanx_store_client::{Store, StoreOptions};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// Whether there is a `redis-server`; `cargo xtask test` installs and requires it.
pub(crate) fn is_installed() -> bool {
    let output = Command::new("redis-server").arg("--version").output();
    let found = output.is_ok_and(|output| output.status.success());
    assert!(found || std::env::var_os("PHALANX_REQUIRE_REDIS").is_none(), "redis-server is not installed");
    found
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn free_ports(count: usize) -> Vec<u16> {
    let listeners: Vec<TcpListener> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
}

/// One server, killed when the value is dropped.
pub(crate) struct Redis {
    port: u16,
    bus: u16,
    arguments: Vec<String>,
    directory: TempDir,
    process: Child,
}

impl Redis {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let ports = free_ports(2);
        let mut arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        if arguments.iter().any(|argument| argument == "--cluster-enabled") {
            arguments.extend(["--cluster-port".to_owned(), ports[1].to_string()]);
        }
        let directory = tempfile::tempdir().unwrap();
        let process = spawn(ports[0], &arguments, &directory);
        let redis = Self { port: ports[0], bus: ports[1], arguments, directory, process };
        redis.wait();
        redis
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn wait(&self) {
        eventually("the server answers", || std::net::TcpStream::connect(self.address()).is_ok());
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub(crate) fn restart(&mut self) {
        self.process = spawn(self.port, &self.arguments, &self.directory);
        self.wait();
    }

    /// A connection of one command, to this server and no other.
    fn ask(&self, words: &[&str]) -> Reply {
        let mut redis = Command::new("redis-cli");
        let output = redis.args(["-p", &self.port.to_string()]).args(words).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        Reply::bulk(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn text(&self, words: &[&str]) -> String {
        match self.ask(words) {
            Reply::Bulk(text) => String::from_utf8_lossy(&text).into_owned(),
            other => panic!("{other:?}"),
        }
    }

    fn does(&self, words: &[&str]) {
        assert_eq!(self.text(words), "OK", "{words:?}");
    }
}

fn spawn(port: u16, arguments: &[String], directory: &TempDir) -> Child {
    Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .args(arguments)
        .current_dir(directory.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _ended = self.process.wait();
    }
}

const RANGES: [(u16, u16); 3] = [(0, 5460), (5461, 10922), (10923, 16383)];

/// Three masters, each with a third of the slots, and replicas of the first ones.
pub(crate) struct Cluster {
    nodes: Vec<Redis>,
}

impl Cluster {
    pub(crate) fn start(replicas: usize) -> Self {
        let arguments = [
            "--cluster-enabled",
            "yes",
            "--cluster-node-timeout",
            "1000",
            "--cluster-config-file",
            "nodes.conf",
            "--repl-diskless-sync-delay",
            "0",
        ];
        let nodes: Vec<Redis> = (0..3 + replicas).map(|_| Redis::start(&arguments)).collect();
        for (number, node) in nodes.iter().enumerate() {
            // Distinct epochs, so that no two nodes argue about a slot.
            node.does(&["cluster", "set-config-epoch", &(number + 1).to_string()]);
        }
        for (node, (first, last)) in nodes.iter().zip(RANGES) {
            node.does(&["cluster", "addslotsrange", &first.to_string(), &last.to_string()]);
        }
        for node in &nodes[1..] {
            let first = &nodes[0];
            node.does(&["cluster", "meet", "127.0.0.1", &first.port.to_string(), &first.bus.to_string()]);
        }
        let cluster = Self { nodes };
        cluster.wait();
        for number in 0..replicas {
            let master = cluster.nodes[number].text(&["cluster", "myid"]);
            cluster.nodes[3 + number].does(&["cluster", "replicate", &master]);
        }
        cluster
    }

    /// Waits until every node knows all others and all slots are served.
    fn wait(&self) {
        for node in &self.nodes {
            eventually("the cluster is whole", || {
                let info = node.text(&["cluster", "info"]);
                let known = format!("cluster_known_nodes:{}\r", self.nodes.len());
                info.contains("cluster_state:ok") && info.contains(&known)
            });
        }
    }

    /// Waits until the replica of a master has all that it has.
    pub(crate) fn wait_for_replica(&self, master: usize) {
        let node = &self.nodes[master];
        eventually("the replica is linked", || node.text(&["info", "replication"]).contains("state=online"));
        assert_eq!(node.text(&["wait", "1", "20000"]), "1");
        // Clients must be able to learn of it, from any node.
        let port = self.nodes[3 + master].port.to_string();
        for other in &self.nodes {
            eventually("the replica is listed", || {
                other.text(&["cluster", "slots"]).lines().any(|line| line.trim() == port)
            });
        }
    }

    /// The addresses of the masters.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.nodes.iter().take(3).map(Redis::address).collect()
    }

    pub(crate) fn owner_of(&self, slot: u16) -> usize {
        RANGES.iter().position(|(first, last)| (*first..=*last).contains(&slot)).unwrap()
    }

    pub(crate) fn kill(&mut self, node: usize) {
        self.nodes[node].kill();
    }

    pub(crate) fn restart(&mut self, node: usize) {
        self.nodes[node].restart();
        self.wait();
        // A client's first command must not meet a node that has just come back.
        let options = StoreOptions::default();
        let store = Store::connect(&self.nodes[node].address(), options).unwrap();
        eventually("the cluster serves", || store.key_exists("k0").is_ok());
    }

    pub(crate) fn begin_to_move(&self, slot: u16, from: usize, to: usize) {
        let (from, to, slot) = (&self.nodes[from], &self.nodes[to], slot.to_string());
        to.does(&["cluster", "setslot", &slot, "importing", &from.text(&["cluster", "myid"])]);
        from.does(&["cluster", "setslot", &slot, "migrating", &to.text(&["cluster", "myid"])]);
    }

    pub(crate) fn migrate(&self, key: &str, from: usize, to: usize) {
        let port = self.nodes[to].port.to_string();
        self.nodes[from].does(&["migrate", "127.0.0.1", &port, key, "0", "5000"]);
    }

    pub(crate) fn end_to_move(&self, slot: u16, to: usize) {
        let id = self.nodes[to].text(&["cluster", "myid"]);
        for node in &self.nodes {
            node.does(&["cluster", "setslot", &slot.to_string(), "node", &id]);
        }
    }
}
