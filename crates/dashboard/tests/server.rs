//! The server over real sockets and real files: every route against its description, the gate, live changes, slow and
//! hostile clients.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod client;
#[expect(dead_code, reason = "shared with the tests of searches")]
mod sample;
mod schema;

use client::{Reply, get, raw, request};
use phalanx_dashboard::{Access, Config, Dashboard, Limits, StartError};
use phalanx_fabric::DomainKey;
use sample::{add_step, make_run, make_search};
use schema::check;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

async fn start(runs: &Path) -> Dashboard {
    Dashboard::start(Config::new(runs, loopback())).await.unwrap()
}

/// Runs blocking requests beside the server.
async fn beside<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(f).await.unwrap()
}

#[tokio::test]
async fn every_route_answers_as_its_description_says() {
    let dir = tempfile::tempdir().unwrap();
    let runs = dir.path().join("runs");
    make_run(&runs, "first", 50);
    make_search(&runs, "first");
    let dashboard = start(&runs).await;
    let address = dashboard.address();
    beside(move || {
        let description = get(address, "/api/v1/openapi.json").json();
        let mut routes = 0;
        for (path, item) in description["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                routes += 1;
                let path = path.replace("{id}", "first").replace("{path}", "run.toml");
                let content = operation["responses"]["200"]["content"].as_object().unwrap();
                let (kind, content) = content.iter().next().unwrap();
                if method == "post" {
                    // Refused on a dashboard without --control, as described by `default`.
                    let headers = own(address);
                    let reply = request(address, "POST", &path, &headers, "{\"job\":\"1\"}");
                    assert_eq!(reply.status, 403, "{path}");
                    let error = &operation["responses"]["default"]["content"]["application/json"]["schema"];
                    check(&description, error, &reply.json()).unwrap();
                    continue;
                }
                if kind == "text/event-stream" {
                    continue;
                }
                let reply = get(address, &path);
                assert_eq!(
                    (reply.status, reply.header("content-type")),
                    (200, Some(kind.as_str())),
                    "{path}"
                );
                if kind == "application/json" {
                    check(&description, &content["schema"], &reply.json())
                        .unwrap_or_else(|wrong| panic!("{path}: {wrong}"));
                }
            }
        }
        assert!(routes >= 15, "{routes}");
        let stream = live(address, "/api/v1/live?run=first&jobs=1");
        let update = next_update(stream).1;
        let schema =
            &description["paths"]["/api/v1/live"]["get"]["responses"]["200"]["content"]["text/event-stream"];
        check(&description, &schema["schema"], &update).unwrap();
    })
    .await;
    dashboard.stop().await;
}

/// Headers of a request that a page of this server sends.
fn own(address: SocketAddr) -> Vec<(&'static str, String)> {
    vec![("Origin", format!("http://{address}")), ("X-Phalanx", "1".to_owned())]
}

fn live(address: SocketAddr, path: &str) -> BufReader<TcpStream> {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(socket, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    BufReader::new(socket)
}

/// The next message of a stream: its id and its data.
fn next_update(stream: BufReader<TcpStream>) -> (String, Value, BufReader<TcpStream>) {
    let mut stream = stream;
    let mut id = String::new();
    loop {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the stream ended");
        if let Some(text) = line.strip_prefix("id: ") {
            id = text.trim().to_owned();
        } else if let Some(data) = line.strip_prefix("data: ") {
            return (id, serde_json::from_str(data).unwrap(), stream);
        }
    }
}

#[tokio::test]
async fn what_a_run_records_arrives_live_once_and_after_a_break() {
    let dir = tempfile::tempdir().unwrap();
    let run = make_run(dir.path(), "first", 10);
    let dashboard = start(dir.path()).await;
    let address = dashboard.address();
    beside(move || {
        let position = get(address, "/api/v1/runs/first").json()["position"].as_str().unwrap().to_owned();
        let path = format!("/api/v1/live?run=first&position={position}");
        // The first message says what the formation is; all points were known.
        let (_, first, stream) = next_update(live(address, &path));
        assert_eq!(first["run"]["points"], serde_json::json!([]));
        assert!(first["run"]["formation"]["epochs"].is_array());
        let began = Instant::now();
        add_step(&run, 11);
        let (id, update, stream) = next_update(stream);
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        assert_eq!(update["run"]["points"][0]["step"], 11);
        assert_eq!(update["runs"][0]["id"], "first");
        drop(stream);
        add_step(&run, 12);
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        write!(socket, "GET {path} HTTP/1.1\r\nHost: {address}\r\nLast-Event-ID: {id}\r\n\r\n").unwrap();
        let mut steps = Vec::new();
        let mut stream = BufReader::new(socket);
        while steps.last() != Some(&12) {
            let (_, update, rest) = next_update(stream);
            stream = rest;
            let points = update["run"]["points"].as_array().cloned().unwrap_or_default();
            steps.extend(points.iter().map(|point| point["step"].as_u64().unwrap()));
        }
        assert_eq!(steps, [12], "what was seen before does not come again");
    })
    .await;
    dashboard.stop().await;
}

#[tokio::test]
async fn a_new_run_appears_and_a_fast_one_sends_four_messages_a_second_at_most() {
    let dir = tempfile::tempdir().unwrap();
    let dashboard = start(dir.path()).await;
    let address = dashboard.address();
    let runs = dir.path().to_owned();
    beside(move || {
        let (_, _, stream) = next_update(live(address, "/api/v1/live"));
        let run = make_run(&runs, "second", 1);
        let mut stream = stream;
        loop {
            let (_, update, rest) = next_update(stream);
            stream = rest;
            if update["runs"][0]["id"] == "second" {
                break;
            }
        }
        let writer = std::thread::spawn(move || {
            for step in 2..400 {
                add_step(&run, step);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let (began, mut messages) = (Instant::now(), 0);
        while began.elapsed() < Duration::from_secs(2) {
            let (_, _, rest) = next_update(stream);
            stream = rest;
            messages += 1;
        }
        assert!((3..=10).contains(&messages), "{messages} in two seconds");
        writer.join().unwrap();
    })
    .await;
    dashboard.stop().await;
}

#[tokio::test]
async fn foreign_names_foreign_pages_and_paths_out_of_a_run_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let run = make_run(dir.path(), "first", 3);
    std::fs::write(dir.path().join("secret"), "s3cret").unwrap();
    std::os::unix::fs::symlink(dir.path(), run.join("up")).unwrap();
    std::os::unix::fs::symlink("../secret", run.join("link")).unwrap();
    let dashboard =
        Dashboard::start(Config { control: true, ..Config::new(dir.path(), loopback()) }).await.unwrap();
    let address = dashboard.address();
    beside(move || {
        let foreign = |host: &str| {
            raw(address, &format!("GET /api/v1/runs HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
        };
        assert_eq!(foreign("evil.example").status, 403);
        assert_eq!(foreign(&format!("evil.example:{}", address.port())).status, 403);
        assert_eq!(foreign(&format!("localhost:{}", address.port())).status, 200);
        let origin = |origin: &str, marked: bool| {
            let mut headers = vec![("Origin", origin.to_owned())];
            headers.extend(marked.then(|| ("X-Phalanx", "1".to_owned())));
            request(address, "POST", "/api/v1/jobs/cancel", &headers, "{\"job\":\"1\"}").status
        };
        assert_eq!(origin("http://evil.example", true), 403);
        assert_eq!(origin(&format!("http://{address}"), false), 403);
        // Let in; without a domain there is no job.
        assert_eq!(origin(&format!("http://{address}"), true), 409);
        for path in [
            "../secret",
            "..%2fsecret",
            "%2e%2e/secret",
            "%2e%2e%2fsecret",
            "checkpoints/../../secret",
            "/etc/passwd",
            "%2fetc%2fpasswd",
            "lock",
            "live.json",
            "..%5csecret",
            "a%00b",
            "....//secret",
            "%252e%252e%252fsecret",
            "checkpoints/%2e%2e/%2e%2e/secret",
            "checkpoints/step-000002/../../../secret",
            "up/secret",
            "link",
            "%2e%2e%00/secret",
            "file:///etc/passwd",
            "%c0%ae%c0%ae/secret",
            "\u{ff0e}\u{ff0e}/secret",
        ] {
            let reply = get(address, &format!("/api/v1/runs/first/files/{path}"));
            assert!(matches!(reply.status, 400 | 404), "{path}: {}", reply.status);
            assert!(!reply.text().contains("s3cret") && !reply.text().contains("root:"), "{path}");
        }
        for id in
            ["..", "%2e%2e", ".", "%2fetc", "first%2f..", "nothing", "", "first%00", "first%2f..%2ffirst"]
        {
            let reply = get(address, &format!("/api/v1/runs/{id}/config"));
            assert!(matches!(reply.status, 400 | 404), "{id}: {}", reply.status);
            for verb in ["stop", "resume", "annotations"] {
                let path = format!("/api/v1/runs/{id}/{verb}");
                let status = request(address, "POST", &path, &own(address), "{\"note\":\"x\"}").status;
                assert!(matches!(status, 400 | 404), "{path}: {status}");
            }
        }
        let page = get(address, "/");
        let policy = page.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';") && !policy.contains("unsafe"));
        assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
        let reply = get(address, "/api/v1/runs/first/files/run.toml");
        assert!(reply.header("content-disposition").unwrap().starts_with("attachment"));
    })
    .await;
    dashboard.stop().await;
}

#[tokio::test]
async fn the_page_is_compressed_and_not_sent_twice() {
    let dir = tempfile::tempdir().unwrap();
    let dashboard = start(dir.path()).await;
    let address = dashboard.address();
    beside(move || {
        let packed = vec![("Accept-Encoding", "gzip".to_owned())];
        let reply = request(address, "GET", "/app.js", &packed, "");
        assert_eq!(reply.header("content-encoding"), Some("gzip"));
        assert_eq!(reply.header("content-type"), Some("text/javascript; charset=utf-8"));
        let etag = reply.header("etag").unwrap().to_owned();
        let again = request(address, "GET", "/app.js", &[("If-None-Match", etag)], "");
        assert_eq!((again.status, again.body.len()), (304, 0));
        assert_eq!(get(address, "/nothing.js").status, 404);
    })
    .await;
    dashboard.stop().await;
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let run = make_run(dir.path(), "first", 3);
    let large = std::fs::File::create(run.join("model.onnx")).unwrap();
    large.set_len(256 << 20).unwrap();
    let limits = Limits { stalled: Duration::from_millis(300), ..Limits::default() };
    let dashboard = Dashboard::start(Config { limits, ..Config::new(dir.path(), loopback()) }).await.unwrap();
    let address = dashboard.address();
    let mut socket = beside(move || {
        let mut socket = TcpStream::connect(address).unwrap();
        write!(socket, "GET /api/v1/runs/first/files/model.onnx HTTP/1.1\r\nHost: {address}\r\n\r\n")
            .unwrap();
        // Other clients are served meanwhile.
        assert_eq!(get(address, "/api/v1/runs").status, 200);
        socket
    })
    .await;
    let mut told = dashboard.disconnected();
    let stalled = told.wait_for(|clients| clients.stalled == 1);
    tokio::time::timeout(Duration::from_secs(20), stalled).await.expect("it is not closed").unwrap();
    beside(move || {
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut received = 0u64;
        let mut buffer = vec![0; 1 << 20];
        loop {
            match socket.read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(read) => received += read as u64,
            }
        }
        assert!(received < 200 << 20, "{received} bytes: it was not closed");
    })
    .await;
    dashboard.stop().await;
}

#[tokio::test]
async fn clients_beyond_the_limit_are_turned_away_and_others_served() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { connections: 3, idle: Duration::from_millis(500), ..Limits::default() };
    let dashboard = Dashboard::start(Config { limits, ..Config::new(dir.path(), loopback()) }).await.unwrap();
    let address = dashboard.address();
    let held = beside(move || {
        // They send half a request and stay.
        let silent = |_| {
            let mut socket = TcpStream::connect(address).unwrap();
            socket.write_all(b"GET / HTTP/1.1\r\nHost: ").unwrap();
            socket
        };
        (0..3).map(silent).collect::<Vec<TcpStream>>()
    })
    .await;
    let mut told = dashboard.disconnected();
    let silent = told.wait_for(|clients| clients.idle == 3);
    tokio::time::timeout(Duration::from_secs(20), silent).await.expect("silent clients stay").unwrap();
    beside(move || {
        let deadline = Instant::now() + Duration::from_secs(20);
        // Their places are free a moment after that was told.
        let served =
            || client::try_get(address, "/api/v1/about").is_some_and(|reply: Reply| reply.status == 200);
        while !served() {
            assert!(Instant::now() < deadline, "silent clients keep others out");
        }
        drop(held);
    })
    .await;
    dashboard.stop().await;
}

#[tokio::test]
async fn other_hosts_need_tls_and_a_token() {
    let dir = tempfile::tempdir().unwrap();
    make_run(dir.path(), "first", 3);
    let any: SocketAddr = "0.0.0.0:0".parse().unwrap();
    assert!(matches!(Dashboard::start(Config::new(dir.path(), any)).await, Err(StartError::Exposed { .. })));
    let key = DomainKey::generate(&"lab".parse().unwrap()).unwrap();
    let member = key.member_tls(&"viewer-1".parse().unwrap()).unwrap();
    let config = Config { key: Some(key), control: true, ..Config::new(dir.path(), any) };
    let dashboard = Dashboard::start(config).await.unwrap();
    let port = dashboard.address().port();
    let token = |access| dashboard.url(access).unwrap().split_once("token=").unwrap().1.to_owned();
    let (read, act) = (token(Access::Read), token(Access::Act));
    let ask = |head: String| tls_request(Arc::clone(&member), port, head);
    let get = |path: &str, more: String| {
        format!("GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n{more}\r\n")
    };
    assert!(ask(get("/api/v1/runs", String::new())).await.starts_with("HTTP/1.1 401"));
    let forged = "0".repeat(32);
    for wrong in [forged.as_str(), "", &read[1..]] {
        let more = format!("Authorization: Bearer {wrong}\r\n");
        assert!(ask(get("/api/v1/runs", more)).await.starts_with("HTTP/1.1 401"));
        assert!(ask(get(&format!("/?token={wrong}"), String::new())).await.starts_with("HTTP/1.1 401"));
    }
    let entered = ask(get(&format!("/?token={read}"), String::new())).await;
    assert!(entered.starts_with("HTTP/1.1 303"), "{entered}");
    let cookie = format!("set-cookie: phalanx_token={read}; Path=/; HttpOnly; SameSite=Strict; Secure");
    assert!(entered.contains(&cookie), "{entered}");
    let with = |token: &str| format!("Cookie: phalanx_token={token}\r\n");
    assert!(ask(get("/api/v1/runs", with(&read))).await.starts_with("HTTP/1.1 200"));
    let post = |token: &str| {
        let body = "{\"set\":{\"good\":\"\"}}";
        format!(
            "POST /api/v1/runs/first/annotations HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n\
             Origin: https://localhost:{port}\r\nX-Phalanx: 1\r\nContent-Length: {}\r\n{}\r\n{body}",
            body.len(),
            with(token)
        )
    };
    assert!(ask(post(&read)).await.starts_with("HTTP/1.1 403"), "a token to look does not act");
    let tagged = ask(post(&act)).await;
    assert!(tagged.starts_with("HTTP/1.1 200") && tagged.contains("\"tags\":{\"good\":\"\"}"), "{tagged}");
    dashboard.stop().await;
}

/// Sends a request by TLS and gives all of the answer.
async fn tls_request(config: Arc<rustls::ClientConfig>, port: u16, head: String) -> String {
    let socket = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let name = "localhost".try_into().unwrap();
    let mut stream = tokio_rustls::TlsConnector::from(config).connect(name, socket).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A server that closes without a goodbye is heard, too.
    let _closed = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}
