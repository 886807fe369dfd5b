use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Answers `per_connection` requests on each connection, then closes it; counts connections.
async fn server(per_connection: usize) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/a/b?c=d", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, Ordering::SeqCst);
            for _ in 0..per_connection {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    request.push(socket.read_u8().await.unwrap());
                }
                let text = String::from_utf8(request).unwrap();
                assert!(
                    text.starts_with("GET /a/b?c=d HTTP/1.1\r\n") && text.contains("\r\nhost: 127.0.0.1:"),
                    "{text}"
                );
                socket.write_all(ANSWER).await.unwrap();
            }
        }
    });
    (url, connections)
}

fn client() -> HttpClient {
    Connector.connect(&ClientOptions::new()).unwrap()
}

async fn get(client: &HttpClient, url: &str) -> Result<Bytes, HttpError> {
    let request = http::Request::get(url).body(HttpRequestBody::empty()).unwrap();
    client.execute(request).await?.into_body().bytes().await
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let (url, connections) = server(usize::MAX).await;
    let client = client();
    for _ in 0..5 {
        assert_eq!(get(&client, &url).await.unwrap(), "ok");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn what_is_asked_after_a_close_may_be_repeated() {
    let (url, connections) = server(1).await;
    let client = client();
    for _ in 0..5 {
        // Whether the close is seen before the next request is chance.
        match get(&client, &url).await {
            Ok(answer) => assert_eq!(answer, "ok"),
            Err(error) => assert_eq!(error.kind(), HttpErrorKind::Request, "{error}"),
        }
    }
    assert!(connections.load(Ordering::SeqCst) > 1);
}

#[tokio::test]
async fn plain_http_is_for_this_host() {
    let refused = get(&client(), "http://198.51.100.1/x").await.unwrap_err();
    assert_eq!(refused.kind(), HttpErrorKind::Unknown);
    assert!(refused.to_string().contains("is not encrypted"), "{refused}");
    let loopback = ["http://localhost:1/x", "http://127.0.0.1:1/x", "http://[::1]:1/x"];
    for url in loopback {
        assert_eq!(get(&client(), url).await.unwrap_err().kind(), HttpErrorKind::Connect, "{url}");
    }
    assert!(Origin::of(&"ftp://x/y".parse().unwrap()).is_none());
}
