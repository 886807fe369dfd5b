//! The server of `/metrics` under collectors and strangers.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use phalanx_telemetry::{Exposition, MetricsAddress, MetricsServer, Source};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

struct Answer;

impl Source for Answer {
    fn collect(&self) -> Pin<Box<dyn Future<Output = Exposition> + Send + '_>> {
        Box::pin(async {
            let mut metrics = Exposition::default();
            metrics.gauge("phalanx_answer", "The answer", 42.0);
            metrics
        })
    }
}

fn ask(server: &MetricsServer, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    let _closed = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn collectors_get_metrics_and_others_a_refusal() {
    let server = MetricsServer::start("0".parse().unwrap(), Arc::new(Answer)).await.unwrap();
    assert!(server.address().ip().is_loopback());
    let answer = ask(&server, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("application/openmetrics-text"),
        "{answer}"
    );
    assert!(answer.ends_with("phalanx_answer 42\n# EOF\n"), "{answer}");
    for (request, status) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
        (b"\x16\x03\x01\x02\r\n\r\n", "405"),
        (b"GET /metrics/../etc HTTP/1.1\r\n\r\n", "404"),
    ] {
        let answer = ask(&server, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request:?}: {answer}");
    }
    let long = [b"GET /metrics HTTP/1.1\r\n".to_vec(), vec![b'a'; 20 << 10]].concat();
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let _cut_off = stream.write_all(&long);
    let mut answer = [0; 12];
    let _cut_off = stream.read(&mut answer);
    assert_ne!(&answer[..12], b"HTTP/1.1 200");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_say_nothing_do_not_keep_collectors_out() {
    let server = MetricsServer::start("0".parse().unwrap(), Arc::new(Answer)).await.unwrap();
    let silent: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    assert!(ask(&server, b"GET /metrics HTTP/1.1\r\n\r\n").contains("42"));
    for stream in silent {
        let _gone = stream.shutdown(Shutdown::Both);
    }
}

#[test]
fn a_port_alone_is_on_loopback() {
    let parsed = |text: &str| text.parse::<MetricsAddress>().map(|address| address.0.to_string());
    assert_eq!(parsed("9400").unwrap(), "127.0.0.1:9400");
    assert_eq!(parsed("0.0.0.0:9400").unwrap(), "0.0.0.0:9400");
    assert!(parsed("somewhere").is_err() && parsed("70000").is_err());
}
