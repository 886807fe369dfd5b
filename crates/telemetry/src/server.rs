//! The server of `/metrics`: HTTP/1.1, one request on a connection.

use crate::Exposition;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Requests with a longer head are refused.
const HEAD_BYTES: usize = 8 << 10;
/// A connection is closed after this time, whatever it does.
const LIMIT: Duration = Duration::from_secs(10);
/// Connections at once; further ones wait to be accepted.
const CONNECTIONS: usize = 32;
/// After an error of the listener, such as too many open files.
const PAUSE: Duration = Duration::from_millis(200);

/// Where metrics are served: `9400` is a port of loopback, `192.0.2.7:9400` that of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricsAddress(pub SocketAddr);

impl FromStr for MetricsAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let port = text.parse().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let address = port.or_else(|_not_a_port| text.parse());
        address.map(Self).map_err(|_neither| {
            "expected a port of loopback, like 9400, or an address with a port, like 192.0.2.7:9400"
                .to_owned()
        })
    }
}

/// What is served.
pub trait Source: Send + Sync + 'static {
    /// The numbers at this moment.
    fn collect(&self) -> Pin<Box<dyn Future<Output = Exposition> + Send + '_>>;
}

/// Why metrics cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetricsError {
    #[error("could not listen for collectors of metrics at {address}")]
    Listen { address: SocketAddr, source: std::io::Error },
}

/// Serves metrics for as long as it lives.
#[derive(Debug)]
pub struct MetricsServer {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl MetricsServer {
    /// Listens, and serves in the background of this runtime.
    ///
    /// # Errors
    /// The address cannot be listened at.
    pub async fn start(at: MetricsAddress, source: Arc<dyn Source>) -> Result<Self, MetricsError> {
        let listen = |error| MetricsError::Listen { address: at.0, source: error };
        let listener = TcpListener::bind(at.0).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        Ok(Self { address, task: tokio::spawn(serve(listener, source)) })
    }

    /// The address with the port that was chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What a collector is given.
    pub fn url(&self) -> String {
        format!("http://{}/metrics", self.address)
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, source: Arc<dyn Source>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _peer)) => {
                let source = source.clone();
                tokio::spawn(async move {
                    // A peer that is slow or gone is not worth a word.
                    let _answered = tokio::time::timeout(LIMIT, answer(stream, source.as_ref())).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "a collector of metrics could not be accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn answer(mut stream: TcpStream, source: &dyn Source) -> std::io::Result<()> {
    let (status, body) = match read_head(&mut stream).await? {
        Some(head) => match route(&head) {
            Route::Metrics => ("200 OK", source.collect().await.finish()),
            Route::MetricsHead => ("200 OK", String::new()),
            Route::OtherPath => ("404 Not Found", "metrics are at /metrics\n".to_owned()),
            Route::OtherMethod => ("405 Method Not Allowed", "only GET\n".to_owned()),
        },
        None => ("431 Request Header Fields Too Large", String::new()),
    };
    let kind = if status.starts_with("200") { CONTENT_TYPE } else { "text/plain; charset=utf-8" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nX-Content-Type-Options: nosniff\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

/// The head of a request; `None` if it is too long.
async fn read_head(stream: &mut TcpStream) -> std::io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    let mut block = [0; 1024];
    loop {
        let read = stream.read(&mut block).await?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&block[..read]);
        if head.windows(4).any(|end| end == b"\r\n\r\n") {
            return Ok(Some(head));
        }
        if head.len() > HEAD_BYTES {
            return Ok(None);
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Route {
    Metrics,
    MetricsHead,
    OtherPath,
    OtherMethod,
}

fn route(head: &[u8]) -> Route {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    match (method, path) {
        (b"GET", b"/metrics") => Route::Metrics,
        (b"HEAD", b"/metrics") => Route::MetricsHead,
        (b"GET" | b"HEAD", _) => Route::OtherPath,
        _ => Route::OtherMethod,
    }
}
