//! A real PostgreSQL server for all tests of this process.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Ends with this process, whose end of the pipe it watches, and removes its directory.
const SCRIPT: &str = r#"
"$1/initdb" --pgdata "$2/data" --no-sync --auth trust --username postgres --encoding UTF8 >"$2/log" 2>&1 || exit 1
"$1/postgres" -D "$2/data" -k "$2" -c listen_addresses= -c fsync=off -c max_connections=100 >>"$2/log" 2>&1 &
server=$!
cat >/dev/null
kill -INT $server
wait $server
rm -rf "$2"
"#;

struct Server {
    socket: PathBuf,
}

fn programs() -> PathBuf {
    let found = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<PathBuf> = found.map(|entry| entry.path().join("bin")).collect();
    versions.sort();
    versions.pop().expect("PostgreSQL is not there: apt-get install postgresql")
}

fn start() -> Server {
    let dir = tempfile::Builder::new().prefix("phalanx-postgres-").tempdir().unwrap();
    let socket = dir.keep();
    let (programs, path) = (programs(), socket.to_str().unwrap().to_owned());
    let words = ["-c", SCRIPT, "server", programs.to_str().unwrap(), &path];
    // A server refuses to run as root.
    let mut command = if rustix::process::geteuid().is_root() {
        let given = Command::new("chown").args(["postgres", &path]).status().unwrap();
        assert!(given.success());
        let mut command = Command::new("runuser");
        command.args(["-u", "postgres", "--", "sh"]);
        command
    } else {
        Command::new("sh")
    };
    let child = command.args(words).current_dir("/").stdin(Stdio::piped()).spawn().unwrap();
    // The pipe stays open until this process ends.
    std::mem::forget(child);
    wait_for(&socket);
    Server { socket }
}

fn wait_for(socket: &Path) {
    let until = Instant::now() + Duration::from_secs(60);
    let (mut ready, file) = (false, socket.join(".s.PGSQL.5432"));
    while !ready {
        let log = || std::fs::read_to_string(socket.join("log")).unwrap_or_default();
        assert!(Instant::now() < until, "the server does not start: {}", log());
        ready = file.exists() && psql(socket, "select 1");
        if !ready {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn psql(socket: &Path, sql: &str) -> bool {
    let mut command = Command::new(programs().join("psql"));
    let words = ["--username", "postgres", "--quiet", "--no-psqlrc", "--command", sql, "--host"];
    command.args(words).arg(socket).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The URL of a new, empty database.
pub(super) fn new_database() -> String {
    static SERVER: OnceLock<Server> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let server = SERVER.get_or_init(start);
    let name = format!("test{}", COUNT.fetch_add(1, Ordering::Relaxed));
    assert!(psql(&server.socket, &format!("create database {name}")));
    format!("postgres://postgres@{}/{name}", server.socket.to_str().unwrap().replace('/', "%2F"))
}
