//! The dashboard over the ledger: the same answers as from files, runs of elsewhere, and a ledger that goes and comes.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[expect(dead_code, reason = "shared with the tests of the server")]
mod client;
/// A real PostgreSQL server, as the tests of the ledger have it.
#[expect(dead_code, reason = "tests of the ledger reach servers by TCP, too")]
#[path = "../../ledger/src/tests/server.rs"]
mod postgres;
#[expect(dead_code, reason = "shared with the tests of searches")]
mod sample;
mod schema;

use client::{Reply, get, request};
use phalanx_dashboard::{Config, Dashboard, Journals};
use phalanx_fabric::{FabricConfig, NodeKind};
use phalanx_jobs::{JobSpec, MainNode, MainOptions};
use phalanx_ledger::{Ledger, LedgerUrl};
use phalanx_types::{DomainName, JobId, Parcel};
use phalanx_wire::jobs::JobQuery;
use sample::{add_step, make_run};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn config(runs: &Path) -> Config {
    Config::new(runs, "127.0.0.1:0".parse().unwrap())
}

async fn start(runs: &Path, url: LedgerUrl) -> Dashboard {
    Dashboard::start(Config { ledger: Some(url), ..config(runs) }).await.unwrap()
}

fn beside(runs: &Path) -> LedgerUrl {
    LedgerUrl::Sqlite(runs.join("ledger.sqlite"))
}

/// Runs blocking requests beside the server.
async fn blocking<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(f).await.unwrap()
}

/// Messages of the live stream.
struct Live(BufReader<TcpStream>);

impl Live {
    fn new(address: SocketAddr, query: &str) -> Self {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        write!(socket, "GET /api/v1/live?{query} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
        Self(BufReader::new(socket))
    }

    fn next(&mut self) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream ended");
            if let Some(data) = line.strip_prefix("data: ") {
                return serde_json::from_str(data).unwrap();
            }
        }
    }
}

fn note(address: SocketAddr) -> Option<String> {
    get(address, "/api/v1/about").json()["note"].as_str().map(str::to_owned)
}

/// Waits until the server says that it uses the ledger, or that it does not. Every change is told.
fn wait_for(address: SocketAddr, live: &mut Live, used: bool) -> String {
    loop {
        let note = note(address);
        let about_to = note.as_ref().is_some_and(|note| note.contains("until the ledger"));
        if note.is_none() == used && !about_to {
            return note.unwrap_or_default();
        }
        live.next();
    }
}

fn ready(address: SocketAddr) {
    wait_for(address, &mut Live::new(address, ""), true);
}

fn ids(page: &Value) -> Vec<&str> {
    page["runs"].as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap()).collect()
}

fn ask(address: SocketAddr, query: &str) -> Value {
    get(address, &format!("/api/v1/runs?{query}")).json()
}

#[tokio::test]
async fn the_ledger_answers_what_the_files_do() {
    let dir = tempfile::tempdir().unwrap();
    for (name, steps) in [("first", 1500), ("second", 7), ("third", 40)] {
        make_run(dir.path(), name, steps);
    }
    let tags = "{\"unix_ms\":1,\"set\":{\"owner\":\"ada\"}}\n{\"unix_ms\":2,\"note\":\"well done\"}\n";
    std::fs::write(dir.path().join("second/annotations.jsonl"), tags).unwrap();
    let indexed = start(dir.path(), beside(dir.path())).await;
    let plain = Dashboard::start(config(dir.path())).await.unwrap();
    let (ledger, files) = (indexed.address(), plain.address());
    blocking(move || {
        ready(ledger);
        assert!(note(files).unwrap().contains("no ledger"));
        let paths = [
            "runs/first",
            "runs/second",
            "runs/first/series",
            "runs/first/events",
            "runs/first/events?after=1&limit=1",
            "runs/first/curves?series=loss,lr,nothing,node/a-1/compute_ms&buckets=50",
            "runs/first/curves?series=loss&from=100&to=205&buckets=10",
            "runs/first/curves?series=loss&x=time&from=1763302512000&to=1763302522000&buckets=10",
            "runs/second/curves?series=[%22loss%22]",
            "runs/third/config",
            "runs/third/formation",
            "runs/third/files",
            "runs/third/checkpoints",
        ];
        for path in paths {
            let of = |address| get(address, &format!("/api/v1/{path}"));
            assert_eq!((of(ledger).status, of(ledger).json()), (200, of(files).json()), "{path}");
        }
        let curve = get(ledger, "/api/v1/runs/first/curves?series=loss&buckets=50").json();
        assert_eq!(
            (&curve["curves"][0]["points"], &curve["curves"][0]["step"][49]),
            (&json!(1500), &json!(1500))
        );
        for query in
            ["q=second", "q=ADA", "q=digits%20fin", "sort=-steps", "sort=steps&limit=1&offset=1", "sort=name"]
        {
            let (mut a, b) = (ask(ledger, query), ask(files, query));
            assert!(a["note"].is_null() && b["note"].is_string());
            a["note"] = b["note"].clone();
            assert_eq!(a, b, "{query}");
        }
    })
    .await;
    indexed.stop().await;
    plain.stop().await;
}

#[tokio::test]
async fn a_search_may_be_a_filter_and_a_wrong_one_says_where() {
    let dir = tempfile::tempdir().unwrap();
    make_run(dir.path(), "first", 5);
    make_run(dir.path(), "second", 50);
    let dashboard = start(dir.path(), beside(dir.path())).await;
    let plain = Dashboard::start(config(dir.path())).await.unwrap();
    let (address, files) = (dashboard.address(), plain.address());
    blocking(move || {
        ready(address);
        assert_eq!(ids(&ask(address, "q=min.loss%3C0.1%20and%20train.batch=64")), ["second"]);
        assert_eq!(ask(address, "q=steps%3E0&limit=1")["total"], 2);
        let wrong = get(address, "/api/v1/runs?q=min.los%3C0.1");
        let text = wrong.json()["error"].as_str().unwrap().to_owned();
        assert_eq!(wrong.status, 400);
        assert!(text.contains("character 1") && text.ends_with("did you mean `min.loss`?"), "{text}");
        assert_eq!(get(address, "/api/v1/runs?q=steps%3E").status, 400);
        assert_eq!(ids(&ask(address, "sort=-val_f1")).len(), 2, "no run has what they are sorted by");
        let hostile = "q=%22';drop%20table%20run;--%22=1";
        assert_eq!(get(address, &format!("/api/v1/runs?{hostile}")).status, 400);
        assert_eq!(ask(address, "q=%25';drop%20table%20run;--")["total"], 0);
        assert_eq!(ids(&ask(address, "")).len(), 2);
        let reply = get(files, "/api/v1/runs?q=steps%3E0");
        assert_eq!(reply.status, 409, "{}", reply.text());
    })
    .await;
    dashboard.stop().await;
    plain.stop().await;
}

#[tokio::test]
async fn what_is_recorded_is_listed_and_drawn_at_once() {
    let dir = tempfile::tempdir().unwrap();
    make_run(dir.path(), "first", 5);
    let dashboard = start(dir.path(), beside(dir.path())).await;
    let (address, runs) = (dashboard.address(), dir.path().to_owned());
    blocking(move || {
        ready(address);
        let mut live = Live::new(address, "");
        live.next();
        let run = make_run(&runs, "second", 3);
        while !ids(&ask(address, "sort=name")).contains(&"second") {
            live.next();
        }
        for step in 4..40 {
            add_step(&run, step);
            // The curve has the step, whether the ledger was fed by then or not.
            let curves = get(address, "/api/v1/runs/second/curves?series=loss").json();
            assert_eq!(curves["curves"][0]["points"], step, "{curves}");
        }
        let tag = json!({ "set": { "owner": "ada" } });
        phalanx_records::run_dir::annotate(&run, &serde_json::from_value(tag).unwrap()).unwrap();
        while ids(&ask(address, "q=tag.owner=ada")) != ["second"] {
            live.next();
        }
        std::fs::remove_dir_all(&run).unwrap();
        while ids(&ask(address, "")) != ["first"] {
            live.next();
        }
    })
    .await;
    dashboard.stop().await;
}

/// A run that another directory's trainer put into a ledger that is shared, and whose files are not here.
async fn runs_of_elsewhere(url: LedgerUrl) {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    make_run(here.path(), "near", 5);
    let far = make_run(there.path(), "far", 20);
    let ledger = Ledger::open(&url).unwrap();
    ledger.feed(&far).unwrap();
    let place = far.display().to_string();
    std::fs::remove_dir_all(there.path()).unwrap();
    let shared = Config { ledger: Some(url.clone()), all_runs: true, control: true, ..config(here.path()) };
    let (all, own) = (Dashboard::start(shared).await.unwrap(), start(here.path(), url).await);
    let (address, own_address) = (all.address(), own.address());
    blocking(move || {
        ready(address);
        ready(own_address);
        let page = ask(address, "sort=-steps");
        assert_eq!((page["total"].clone(), ids(&page).len()), (json!(2), 2));
        let far = page["runs"].as_array().unwrap().iter().find(|run| run["elsewhere"].is_string()).unwrap();
        assert!(far["elsewhere"].as_str().unwrap().ends_with(&place), "{far}");
        assert_eq!((&far["name"], far["id"].as_str().unwrap().len()), (&json!("far"), 32));
        let path = format!("/api/v1/runs/{}", far["id"].as_str().unwrap());
        let of = |rest: &str| get(address, &format!("{path}{rest}"));
        assert_eq!(of("").json()["run"]["elsewhere"], far["elsewhere"]);
        assert_eq!(of("/curves?series=loss").json()["curves"][0]["points"], 20);
        assert_eq!(of("/events").json()["total"], 3);
        let batch = json!({ "key": "train.batch", "value": "64", "source": "" });
        assert!(of("/config").json()["values"].as_array().unwrap().contains(&batch));
        assert_eq!(of("/files").json()["files"], json!([]));
        assert_eq!(of("/files/run.toml").status, 409);
        let headers = [("Origin", format!("http://{address}")), ("X-Phalanx", "1".to_owned())];
        for verb in ["stop", "resume", "annotations"] {
            let reply: Reply =
                request(address, "POST", &format!("{path}/{verb}"), &headers, "{\"note\":\"x\"}");
            assert_eq!(reply.status, 409);
            assert!(reply.text().contains(&place), "{}", reply.text());
        }
        // A dashboard of one directory shows what is in it.
        assert_eq!(ids(&ask(own_address, "")), ["near"]);
        assert_eq!(get(own_address, &path).status, 404);
    })
    .await;
    all.stop().await;
    own.stop().await;
}

#[tokio::test]
async fn runs_of_elsewhere_are_listed_and_drawn_from_a_shared_file() {
    let dir = tempfile::tempdir().unwrap();
    runs_of_elsewhere(LedgerUrl::Sqlite(dir.path().join("shared.sqlite"))).await;
}

#[tokio::test]
async fn runs_of_elsewhere_are_listed_and_drawn_from_postgresql() {
    let url = tokio::task::spawn_blocking(postgres::new_database).await.unwrap();
    runs_of_elsewhere(LedgerUrl::Postgres(url)).await;
}

#[tokio::test]
async fn a_ledger_that_cannot_be_used_is_said_and_the_files_answer() {
    let dir = tempfile::tempdir().unwrap();
    make_run(dir.path(), "first", 5);
    std::fs::write(dir.path().join("broken.sqlite"), vec![7; 10_000]).unwrap();
    let damaged = LedgerUrl::Sqlite(dir.path().join("broken.sqlite"));
    let nowhere = LedgerUrl::Sqlite("/proc/nowhere/ledger.sqlite".into());
    let down = LedgerUrl::Postgres("postgres://postgres@127.0.0.1:1/none".to_owned());
    for url in [damaged, nowhere, down] {
        let dashboard = start(dir.path(), url.clone()).await;
        let address = dashboard.address();
        blocking(move || {
            let why = wait_for(address, &mut Live::new(address, ""), false);
            assert!(why.contains("read from their files") && why.contains("could not"), "{url}: {why}");
            let page = ask(address, "q=first");
            assert_eq!((ids(&page), page["note"].as_str()), (vec!["first"], Some(why.as_str())));
            assert_eq!(get(address, "/api/v1/runs/first/curves").json()["curves"][0]["points"], 5);
        })
        .await;
        dashboard.stop().await;
    }
    let one = Config { ledger: Some(beside(&dir.path().join("first"))), ..config(&dir.path().join("first")) };
    let dashboard = Dashboard::start(one).await.unwrap();
    let address = dashboard.address();
    blocking(move || {
        assert!(note(address).unwrap().starts_with("One run"));
        assert_eq!(get(address, "/api/v1/runs/first/curves").json()["curves"][0]["points"], 5);
    })
    .await;
    assert!(!dir.path().join("first/ledger.sqlite").exists(), "nothing is written into a run");
    dashboard.stop().await;
}

/// A way to the server that can be broken and mended.
struct Way {
    address: SocketAddr,
    open: Arc<AtomicBool>,
    sockets: Arc<Mutex<Vec<TcpStream>>>,
}

impl Way {
    fn to(socket: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (open, sockets) = (Arc::new(AtomicBool::new(true)), Arc::<Mutex<Vec<TcpStream>>>::default());
        let (is_open, kept) = (Arc::clone(&open), Arc::clone(&sockets));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten().filter(|_| is_open.load(Ordering::SeqCst)) {
                let server = UnixStream::connect(&socket).unwrap();
                kept.lock().unwrap().push(client.try_clone().unwrap());
                let (mut a, mut b) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || {
                    let _ended = std::io::copy(&mut a, &mut b);
                    b.shutdown(Shutdown::Both)
                });
                let (mut a, mut b) = (server, client);
                std::thread::spawn(move || {
                    let _ended = std::io::copy(&mut a, &mut b);
                    b.shutdown(Shutdown::Both)
                });
            }
        });
        Self { address, open, sockets }
    }

    fn set_open(&self, open: bool) {
        self.open.store(open, Ordering::SeqCst);
        if !open {
            for socket in self.sockets.lock().unwrap().drain(..) {
                // The other side may have closed it.
                let _closed = socket.shutdown(Shutdown::Both);
            }
        }
    }
}

#[tokio::test]
async fn a_server_that_goes_and_comes_back_is_used_again() {
    let dir = tempfile::tempdir().unwrap();
    make_run(dir.path(), "first", 5);
    let url = tokio::task::spawn_blocking(postgres::new_database).await.unwrap();
    let (socket, database) = url.split_once('@').unwrap().1.rsplit_once('/').unwrap();
    let way = Way::to(format!("{}/.s.PGSQL.5432", socket.replace("%2F", "/")));
    let url = LedgerUrl::Postgres(format!("postgres://postgres@{}/{database}", way.address));
    let dashboard = start(dir.path(), url).await;
    let (address, runs) = (dashboard.address(), dir.path().to_owned());
    blocking(move || {
        let mut live = Live::new(address, "");
        wait_for(address, &mut live, true);
        assert_eq!(ids(&ask(address, "q=steps=5")), ["first"]);
        way.set_open(false);
        let page = ask(address, "");
        assert_eq!(ids(&page), ["first"], "the files answer the very request");
        assert!(page["note"].as_str().unwrap().contains("cannot be used"), "{page}");
        assert_eq!(get(address, "/api/v1/runs?q=steps=5").status, 409);
        make_run(&runs, "second", 9);
        way.set_open(true);
        wait_for(address, &mut live, true);
        assert_eq!(ids(&ask(address, "q=steps=9")), ["second"], "what came meanwhile is there");
    })
    .await;
    dashboard.stop().await;
}

/// Hands out jobs that nobody solves, cancels the second, and leaves.
async fn leave_jobs(dir: &Path, journals: &Path) {
    std::fs::create_dir(journals).unwrap();
    let mut config = FabricConfig::new(DomainName::new("lab").unwrap(), "main", NodeKind::Main);
    config.runtime_dir = dir.to_owned();
    config.mdns = false;
    let options = MainOptions { journal: Some(journals.join("mine.journal")), ..MainOptions::default() };
    let main = MainNode::start(config, options).await.unwrap();
    let job = || JobSpec::new("<b>nobody</b>", Parcel::from_bytes("x"));
    main.submit_many(vec![job(), job(), job()]).await.unwrap();
    main.query(JobQuery::Cancel { jobs: vec![JobId(2)] }).await.unwrap();
    main.shutdown().await;
}

#[tokio::test]
async fn jobs_of_main_nodes_that_are_gone_come_from_the_ledger() {
    let dir = tempfile::tempdir().unwrap();
    let (runs, journals) = (dir.path().join("runs"), dir.path().join("journals"));
    std::fs::create_dir(&runs).unwrap();
    leave_jobs(dir.path(), &journals).await;
    let looked = Journals { domain: "lab".to_owned(), dir: journals.clone() };
    let config = Config { ledger: Some(beside(&runs)), journals: Some(looked), ..config(&runs) };
    let dashboard = Dashboard::start(config).await.unwrap();
    let address = dashboard.address();
    blocking(move || {
        ready(address);
        let all = get(address, "/api/v1/jobs?all=1").json();
        let description = get(address, "/api/v1/openapi.json").json();
        schema::check(&description, &json!({ "$ref": "#/components/schemas/Jobs" }), &all).unwrap();
        let mut past = all["past"].as_array().unwrap().clone();
        // All may have happened in one millisecond.
        past.sort_by_key(|job| job["ended_ms"].is_null());
        past[1..].sort_by_key(|job| job["job"].to_string());
        let of = |key: &str| past.iter().map(|job| job[key].as_str().unwrap_or_default()).collect::<Vec<_>>();
        assert_eq!(of("job"), ["2@mine", "1@mine", "3@mine"], "{all}");
        assert_eq!(of("state"), ["cancelled", "waiting", "waiting"]);
        assert_eq!(of("kind")[0], "<b>nobody</b>");
        assert_eq!(of("why"), ["", "its main node mine is gone", "its main node mine is gone"]);
        let time = |key: &str| past[0][key].as_u64();
        assert!(time("submitted_ms").unwrap() <= time("ended_ms").unwrap(), "{all}");
        assert_eq!(get(address, "/api/v1/jobs").json()["past"], json!([]), "only those that have not ended");
        // What is gone from the disk is gone from the page.
        std::fs::remove_file(journals.join("mine.journal")).unwrap();
        assert_eq!(get(address, "/api/v1/jobs?all=1").json()["past"], json!([]));
    })
    .await;
}
