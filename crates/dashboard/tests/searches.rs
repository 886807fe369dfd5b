//! Searches beside the runs: what is listed, what changes live, and the runs of trials.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[expect(dead_code, reason = "other tests use all of it")]
mod client;
mod sample;

use client::get;
use phalanx_dashboard::{Config, Dashboard};
use sample::{add_record, make_run, make_search};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

async fn start(runs: &Path) -> Dashboard {
    Dashboard::start(Config::new(runs, "127.0.0.1:0".parse().unwrap())).await.unwrap()
}

async fn beside<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(f).await.unwrap()
}

fn follow(address: SocketAddr) -> BufReader<TcpStream> {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(socket, "GET /api/v1/live?searches=1 HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    BufReader::new(socket)
}

/// Reads messages until one names searches.
fn changed(stream: &mut BufReader<TcpStream>) -> Value {
    loop {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the stream ended");
        let Some(data) = line.strip_prefix("data: ") else { continue };
        let update: Value = serde_json::from_str(data).unwrap();
        if update.get("searches").is_some() {
            return update["searches"].clone();
        }
    }
}

#[tokio::test]
async fn a_search_has_its_front_its_trials_and_their_runs() {
    let dir = tempfile::tempdir().unwrap();
    let runs = dir.path().join("runs");
    fs::create_dir(&runs).unwrap();
    make_search(&runs, "first");
    let dashboard = start(&runs).await;
    let address = dashboard.address();
    beside(move || {
        let listed = get(address, "/api/v1/searches").json();
        let search = &listed["searches"][0];
        assert_eq!(
            (&search["id"], &search["state"], &search["proposed"], &search["front"]),
            (&json!("first"), &json!("interrupted"), &json!(3), &json!(2))
        );
        let search = get(address, "/api/v1/searches/first").json();
        assert_eq!(search["front"], json!([1, 2]));
        assert_eq!(search["counts"], json!({ "partial": 2, "failed": 1 }));
        assert_eq!(search["trials"].as_array().unwrap().len(), 3);
        let (second, third) = (&search["trials"][1], &search["trials"][2]);
        assert_eq!(second["objectives"], json!([0.75, 20.0]));
        assert_eq!((&second["run"], &third["run"]), (&json!("first:t2"), &Value::Null));
        assert_eq!((&third["state"], &third["why"]), (&json!("failed"), &json!("out of memory")));
        assert_eq!(third["objectives"], json!([null, 5.0]));
        assert_eq!(
            get(address, "/api/v1/searches/first?after=5").json()["trials"].as_array().unwrap().len(),
            1
        );

        let run = get(address, "/api/v1/runs/first:t2").json();
        assert_eq!((&run["run"]["id"], &run["run"]["steps"]), (&json!("first:t2"), &json!(5)));
        let curves = get(address, "/api/v1/runs/first:t2/curves?series=loss").json();
        assert_eq!(curves["curves"][0]["points"], json!(5));
        assert_eq!(get(address, "/api/v1/runs").json()["total"], json!(0), "trials are not runs of people");
        for missing in ["/runs/first:t1", "/runs/first:..", "/searches/..", "/searches/other", "/runs/..:t2"]
        {
            assert_eq!(get(address, &format!("/api/v1{missing}")).status, 404, "{missing}");
        }
    })
    .await;
    dashboard.stop().await;
}

#[tokio::test]
async fn a_search_that_is_begun_later_is_followed_live() {
    let dir = tempfile::tempdir().unwrap();
    let runs = dir.path().join("runs");
    make_run(&runs, "other", 1);
    let dashboard = start(&runs).await;
    let address = dashboard.address();
    beside(move || {
        assert_eq!(get(address, "/api/v1/searches").json()["searches"], json!([]));
        let mut stream = follow(address);
        let search = make_search(&runs, "later");
        assert_eq!(changed(&mut stream), json!(["later"]));
        let known = get(address, "/api/v1/searches/later").json()["events"].as_u64().unwrap();
        let record = r#"{"at":1763302506000,"event":"trial_reached","value":{"trial":2,"budget":9.0,"values":{"accuracy":0.9},"seconds":9.0}}"#;
        add_record(&search, record);
        // Files of the search that were still being written may be told of before it.
        let news = loop {
            assert_eq!(changed(&mut stream), json!(["later"]));
            let news = get(address, &format!("/api/v1/searches/later?after={known}")).json();
            if news["events"] != json!(known) {
                break news;
            }
        };
        assert_eq!(news["trials"].as_array().unwrap().iter().map(|t| &t["trial"]).collect::<Vec<_>>(), [&json!(2)]);
        assert_eq!(news["trials"][0]["full"], json!(true));
        add_record(&search, r#"{"at":1763302507000,"event":"search_ended","value":{"end":{"state":"finished"}}}"#);
        changed(&mut stream);
        let ended = get(address, "/api/v1/searches/later").json();
        assert_eq!((&ended["summary"]["state"], &ended["front"]), (&json!("finished"), &json!([2])));
    })
    .await;
    dashboard.stop().await;
}

#[tokio::test]
async fn a_damaged_search_is_named_and_hides_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let runs = dir.path().join("runs");
    fs::create_dir(&runs).unwrap();
    make_search(&runs, "good");
    let bad = make_search(&runs, "bad");
    add_record(&bad, "{}");
    let dashboard = start(&runs).await;
    let address = dashboard.address();
    beside(move || {
        let listed = get(address, "/api/v1/searches").json();
        assert_eq!(listed["searches"].as_array().unwrap().len(), 1);
        for _ in 0..2 {
            let reply = get(address, "/api/v1/searches/bad");
            assert_eq!(reply.status, 500);
            let error = reply.json()["error"].as_str().unwrap().to_owned();
            assert!(error.contains("line 7 of ") && error.contains("events.jsonl"), "{error}");
        }
    })
    .await;
    dashboard.stop().await;
}
