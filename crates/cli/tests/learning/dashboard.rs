//! `--dashboard` on a command: the page is there while the command works, and ends with it.

use phalanx_testkit::{Process, Sandbox, digits_data, eventually};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

/// What a command says before the address of its page.
const SAID: &str = "dashboard at http://";

/// Trains until it is stopped, with a page beside it; gives the address that it printed.
fn train(sandbox: &Sandbox) -> (Process, SocketAddr) {
    let train = "loss = \"cross_entropy\"\nseed = 3\nsteps = 1000000\nbatch = 64";
    sandbox.run_file("zoo = \"mlp\"\ninput = [1, 8, 8]", &digits_data(), train, "");
    let run = ["train", "run.toml", "--run-dir", "runs/live", "--output", "quiet"];
    let process = sandbox.start(&[&run[..], &["--dashboard=127.0.0.1:0", "--no-mdns"]].concat());
    process.says_where("where the page is", |said| {
        said.split_once(SAID).is_some_and(|(_, address)| address.contains('\n'))
    });
    let said = process.stderr();
    let (_, address) = said.split_once(SAID).unwrap();
    let address = address.lines().next().unwrap().trim_end_matches('/').parse().unwrap();
    (process, address)
}

/// The head and the body of an answer; `None` if nobody listens.
fn get(address: SocketAddr, path: &str) -> Option<(String, String)> {
    let mut socket = TcpStream::connect(address).ok()?;
    write!(socket, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).ok()?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.to_owned(), body.to_owned()))
}

/// The steps that the API knows of, once it says that the run goes on.
fn steps(address: SocketAddr) -> Option<u64> {
    let (_, body) = get(address, "/api/v1/runs/live")?;
    let run: Value = serde_json::from_str(&body).ok()?;
    (run["run"]["state"] == "running").then(|| run["run"]["steps"].as_u64().unwrap_or(0))
}

#[test]
fn a_command_with_a_dashboard_shows_its_run_and_takes_the_page_with_it() {
    let sandbox = crate::sandbox();
    let (mut run, address) = train(&sandbox);
    let (head, page) = get(address, "/").unwrap();
    assert!(
        head.starts_with("HTTP/1.1 200") && head.to_ascii_lowercase().contains("content-security-policy"),
        "{head}"
    );
    assert!(page.to_ascii_lowercase().starts_with("<!doctype html>") && page.contains("app.js"), "{page}");
    let about: Value = serde_json::from_str(&get(address, "/api/v1/about").unwrap().1).unwrap();
    assert!(about["directory"].as_str().unwrap().ends_with("runs"), "{about}");
    let first = eventually("the page shows the run", || steps(address).filter(|steps| *steps > 0));
    eventually("and goes on with it", || steps(address).filter(|steps| *steps > first));
    run.signal(Signal::INT);
    let (status, _) = run.finish();
    assert_eq!(status.code(), Some(1), "stopped as by Ctrl-C: {}", run.stderr());
    assert!(TcpStream::connect(address).is_err(), "the page ended with the command");
}

#[test]
fn a_killed_command_leaves_no_dashboard_behind() {
    let sandbox = crate::sandbox();
    let (mut run, address) = train(&sandbox);
    assert!(get(address, "/").is_some());
    run.signal(Signal::KILL);
    run.finish();
    eventually("nobody listens", || TcpStream::connect(address).is_err().then_some(()));
}
