//! Real PostgreSQL servers: one for most tests of this process, others for tests of connections.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Ends with this process, whose end of the pipe it watches, and removes its directory.
const SCRIPT: &str = r#"
"$1/initdb" --pgdata "$2/data" --no-sync --auth trust --username postgres --encoding UTF8 >"$2/log" 2>&1 || exit 1
cat "$2/hba" >"$2/data/pg_hba.conf"
"$1/postgres" -D "$2/data" -k "$2" -p "$3" -c listen_addresses="$4" -c ssl="$5" -c ssl_cert_file="$2/server.crt" \
    -c ssl_key_file="$2/server.key" -c fsync=off -c max_connections=100 >>"$2/log" 2>&1 &
server=$!
cat >/dev/null
kill -INT $server 2>/dev/null
wait $server
[ -e "$2/again" ] || rm -rf "$2"
"#;

/// The same for a server that was killed; the last one removes the directory.
const START_AGAIN: &str = r#"
echo $$ >"$2/again"
"$1/postgres" -D "$2/data" -k "$2" -p "$3" -c listen_addresses= -c fsync=off >>"$2/log" 2>&1 &
server=$!
cat >/dev/null
kill -INT $server 2>/dev/null
wait $server
[ "$(cat "$2/again")" = $$ ] && rm -rf "$2"
"#;

struct Server {
    socket: PathBuf,
    port: u16,
}

/// How a server is reached.
enum Reached {
    BySocket,
    /// Also by TCP, with TLS if there are a certificate and its key, as PEM.
    ByTcp(Option<(String, String)>),
}

impl Reached {
    /// Who may connect.
    fn hba(&self) -> &'static str {
        match self {
            Self::BySocket => "local all all trust\n",
            Self::ByTcp(_) => {
                "local all all trust\nhostnossl unencrypted all 127.0.0.1/32 trust\n\
                 host unencrypted all 127.0.0.1/32 reject\nhost all all 127.0.0.1/32 trust\n"
            }
        }
    }
}

fn programs() -> PathBuf {
    let found = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<PathBuf> = found.map(|entry| entry.path().join("bin")).collect();
    versions.sort();
    versions.pop().expect("PostgreSQL is not there: apt-get install postgresql")
}

fn start(reached: &Reached) -> Server {
    let dir = tempfile::Builder::new().prefix("phalanx-postgres-").tempdir().unwrap();
    let socket = dir.keep();
    let (mut port, mut listen, mut ssl) = (5432, "", "off");
    if let Reached::ByTcp(certificate) = reached {
        port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        listen = "127.0.0.1";
        if let Some((certificate, key)) = certificate {
            ssl = "on";
            std::fs::write(socket.join("server.crt"), certificate).unwrap();
            std::fs::write(socket.join("server.key"), key).unwrap();
            let secret = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(socket.join("server.key"), secret).unwrap();
        }
    }
    std::fs::write(socket.join("hba"), reached.hba()).unwrap();
    let server = Server { socket, port };
    run_script(&server, SCRIPT, &[listen, ssl]);
    wait_for(&server);
    server
}

/// Runs a script that ends with this process.
fn run_script(server: &Server, script: &str, more: &[&str]) {
    let (programs, path) = (programs(), server.socket.to_str().unwrap().to_owned());
    let number = server.port.to_string();
    let words = ["-c", script, "server", programs.to_str().unwrap(), &path, &number];
    // A server refuses to run as root.
    let mut command = if rustix::process::geteuid().is_root() {
        let given = Command::new("chown").args(["-R", "postgres", &path]).status().unwrap();
        assert!(given.success());
        let mut command = Command::new("runuser");
        command.args(["-u", "postgres", "--", "sh"]);
        command
    } else {
        Command::new("sh")
    };
    let child = command.args(words).args(more).current_dir("/").stdin(Stdio::piped()).spawn().unwrap();
    // The pipe stays open until this process ends.
    std::mem::forget(child);
}

fn wait_for(server: &Server) {
    let Server { socket, port } = server;
    let until = Instant::now() + Duration::from_secs(60);
    let (mut ready, file) = (false, socket.join(format!(".s.PGSQL.{port}")));
    while !ready {
        let log = || std::fs::read_to_string(socket.join("log")).unwrap_or_default();
        assert!(Instant::now() < until, "the server does not start: {}", log());
        ready = file.exists() && psql(server, "select 1");
        if !ready {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn psql(server: &Server, sql: &str) -> bool {
    let mut command = Command::new(programs().join("psql"));
    let port = server.port.to_string();
    let words =
        ["--username", "postgres", "--quiet", "--no-psqlrc", "--command", sql, "--port", &port, "--host"];
    command.args(words).arg(&server.socket).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Makes a database and gives its name.
fn create(server: &Server) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = format!("test{}", COUNT.fetch_add(1, Ordering::Relaxed));
    assert!(psql(server, &format!("create database {name}")));
    name
}

/// The URL of a new, empty database.
pub(super) fn new_database() -> String {
    static SERVER: OnceLock<Server> = OnceLock::new();
    let server = SERVER.get_or_init(|| start(&Reached::BySocket));
    let socket = server.socket.to_str().unwrap().replace('/', "%2F");
    format!("postgres://postgres@{socket}/{}", create(server))
}

/// A server that is killed and started again.
pub(super) struct MortalServer(Server);

impl MortalServer {
    pub(super) fn start() -> Self {
        Self(start(&Reached::BySocket))
    }

    pub(super) fn new_database(&self) -> String {
        let socket = self.0.socket.to_str().unwrap().replace('/', "%2F");
        format!("postgres://postgres@{socket}/{}", create(&self.0))
    }

    /// Kills it in the middle of what it does, as a crash of its machine would; its backends end with it.
    pub(super) fn kill(&self) {
        let file = std::fs::read_to_string(self.0.socket.join("data/postmaster.pid")).unwrap();
        let id = file.lines().next().unwrap().trim().parse().unwrap();
        let id = rustix::process::Pid::from_raw(id).unwrap();
        rustix::process::kill_process(id, rustix::process::Signal::KILL).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while psql(&self.0, "select 1") {
            assert!(Instant::now() < until, "the server answers although it was killed");
        }
    }

    pub(super) fn start_again(&self) {
        let until = Instant::now() + Duration::from_secs(60);
        // It refuses to start while a backend of its former life still ends.
        loop {
            run_script(&self.0, START_AGAIN, &[]);
            let attempt = Instant::now() + Duration::from_secs(5);
            while Instant::now() < attempt {
                if psql(&self.0, "select 1") {
                    return;
                }
            }
            assert!(Instant::now() < until, "the server does not start again");
        }
    }
}

/// A server that is reached by TCP.
pub(super) struct TcpServer(Server);

impl TcpServer {
    /// With TLS, if there are a certificate and its key, as PEM.
    pub(super) fn start(certificate: Option<(String, String)>) -> Self {
        let server = start(&Reached::ByTcp(certificate));
        assert!(psql(&server, "create database unencrypted"));
        Self(server)
    }

    /// The URL of a new, empty database, with parameters.
    pub(super) fn new_database(&self, parameters: &str) -> String {
        self.url(&create(&self.0), parameters)
    }

    /// The URL of a database that takes connections without TLS only.
    pub(super) fn unencrypted(&self, parameters: &str) -> String {
        self.url("unencrypted", parameters)
    }

    fn url(&self, database: &str, parameters: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}{parameters}", self.0.port)
    }
}
