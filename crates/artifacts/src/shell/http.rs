//! The HTTP client that `object_store` uses: hyper with our TLS, and connections that are used again.
//!
//! The crate's own client would bring a second implementation of TLS and a build in C along.

use super::tls;
use bytes::Bytes;
use http::header::{HOST, HeaderValue, USER_AGENT};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use object_store::ClientConfigKey;
use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpResponseBody, HttpService,
};
use rustls::pki_types::ServerName;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep, timeout};

const CONNECT: Duration = Duration::from_secs(5);
/// A server may take this long to answer, and this long between two pieces of an answer.
const SILENCE: Duration = Duration::from_secs(30);
/// A body that is sent may take more: as long as it takes at this rate.
const SLOWEST_BYTES_PER_SEC: u64 = 32 << 10;
/// Servers close connections that were idle for long.
const IDLE: Duration = Duration::from_secs(20);

/// Makes clients for `object_store`.
#[derive(Debug)]
pub(crate) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let allow_http =
            options.get_config_value(&ClientConfigKey::AllowHttp).is_some_and(|set| set == "true");
        Ok(HttpClient::new(Client { allow_http, shared: Arc::default() }))
    }
}

#[derive(Debug)]
struct Client {
    /// Plain HTTP also beyond this host.
    allow_http: bool,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    idle: Mutex<BTreeMap<Origin, Vec<Idle>>>,
    tls: OnceLock<Arc<rustls::ClientConfig>>,
}

/// What a connection leads to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Origin {
    encrypted: bool,
    host: String,
    port: u16,
}

#[derive(Debug)]
struct Idle {
    sender: SendRequest<HttpRequestBody>,
    since: Instant,
}

#[derive(Debug, thiserror::Error)]
enum HttpFault {
    #[error("`{0}` is no address of a server")]
    Address(String),
    #[error(
        "{0} is not encrypted; set AWS_ALLOW_HTTP, AZURE_ALLOW_HTTP or GOOGLE_ALLOW_HTTP to true to use it all the same"
    )]
    Plain(String),
    #[error("could not connect to {0} within {1:?}")]
    ConnectTimeout(String, Duration),
    #[error("could not connect to {0}: {1}")]
    Connect(String, std::io::Error),
    #[error(transparent)]
    Tls(#[from] tls::TlsError),
    #[error("the server {0} was silent for too long")]
    Silent(String),
    #[error("the connection to {0} failed: {1}")]
    Broken(String, hyper::Error),
}

impl HttpFault {
    /// As the client's retries understand it.
    fn into_error(self) -> HttpError {
        let kind = match &self {
            Self::Address(_) | Self::Plain(_) | Self::Tls(_) => HttpErrorKind::Unknown,
            Self::ConnectTimeout(..) | Self::Connect(..) => HttpErrorKind::Connect,
            Self::Silent(_) => HttpErrorKind::Timeout,
            // What creates only what is not there may be repeated: our callers look whose it is.
            Self::Broken(_, error)
                if error.is_incomplete_message() || error.is_closed() || error.is_canceled() =>
            {
                HttpErrorKind::Request
            }
            Self::Broken(..) => HttpErrorKind::Interrupted,
        };
        HttpError::new(kind, self)
    }
}

impl HttpService for Client {
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move { self.exchange(request).await.map_err(HttpFault::into_error) })
    }
}

impl Client {
    async fn exchange(&self, request: HttpRequest) -> Result<HttpResponse, HttpFault> {
        let (origin, mut request) = prepare(request)?;
        if !(origin.encrypted || self.allow_http || origin.is_loopback()) {
            return Err(HttpFault::Plain(origin.shown()));
        }
        let length = u64::try_from(request.body().content_length()).unwrap_or(u64::MAX);
        let patience = SILENCE + Duration::from_secs(length / SLOWEST_BYTES_PER_SEC);
        loop {
            let (mut sender, reused) = match self.shared.take(&origin) {
                Some(sender) => (sender, true),
                None => (self.shared.open(&origin).await?, false),
            };
            let sent = timeout(patience, sender.try_send_request(request)).await;
            match sent.map_err(|_late| HttpFault::Silent(origin.shown()))? {
                Ok(response) => return Ok(self.answer(response, origin, sender)),
                Err(mut failed) => match failed.take_message().filter(|_| reused) {
                    // The server had closed the connection before anything was sent.
                    Some(unsent) => request = unsent,
                    None => return Err(HttpFault::Broken(origin.shown(), failed.into_error())),
                },
            }
        }
    }

    fn answer(
        &self,
        response: http::Response<Incoming>,
        origin: Origin,
        sender: SendRequest<HttpRequestBody>,
    ) -> HttpResponse {
        let (parts, incoming) = response.into_parts();
        let returned = Returned { shared: self.shared.clone(), origin, sender };
        let mut body = Answer { incoming, silence: Box::pin(sleep(SILENCE)), returned: Some(returned) };
        if body.incoming.is_end_stream() {
            body.give_back();
        }
        HttpResponse::from_parts(parts, HttpResponseBody::new(body))
    }
}

/// Where a request goes, and the request as it is written to a connection.
fn prepare(request: HttpRequest) -> Result<(Origin, HttpRequest), HttpFault> {
    let (mut parts, body) = request.into_parts();
    let origin = Origin::of(&parts.uri).ok_or_else(|| HttpFault::Address(parts.uri.to_string()))?;
    let authority = parts.uri.authority().map(|authority| authority.as_str().to_owned()).unwrap_or_default();
    let host = HeaderValue::from_str(&authority).map_err(|_bad| HttpFault::Address(authority))?;
    parts.headers.entry(HOST).or_insert(host);
    let agent = HeaderValue::from_static(concat!("phalanx/", env!("CARGO_PKG_VERSION")));
    parts.headers.entry(USER_AGENT).or_insert(agent);
    if let Some(path) = parts.uri.path_and_query() {
        parts.uri = path.clone().into();
    }
    Ok((origin, HttpRequest::from_parts(parts, body)))
}

impl Origin {
    fn of(uri: &http::Uri) -> Option<Self> {
        let encrypted = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let host = uri.host()?.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if encrypted { 443 } else { 80 });
        Some(Self { encrypted, host, port })
    }

    fn is_loopback(&self) -> bool {
        let address = self.host.parse::<std::net::IpAddr>();
        self.host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    }

    fn shown(&self) -> String {
        let scheme = if self.encrypted { "https" } else { "http" };
        format!("{scheme}://{}:{}", self.host, self.port)
    }
}

impl Shared {
    /// A connection that waits for a request.
    fn take(&self, origin: &Origin) -> Option<SendRequest<HttpRequestBody>> {
        let mut all = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = all.get_mut(origin)?;
        while let Some(Idle { sender, since }) = idle.pop() {
            if sender.is_ready() && since.elapsed() < IDLE {
                return Some(sender);
            }
        }
        None
    }

    async fn open(&self, origin: &Origin) -> Result<SendRequest<HttpRequestBody>, HttpFault> {
        let late = |_late| HttpFault::ConnectTimeout(origin.shown(), CONNECT);
        let refused = |error| HttpFault::Connect(origin.shown(), error);
        let address = (origin.host.as_str(), origin.port);
        let socket = timeout(CONNECT, TcpStream::connect(address)).await.map_err(late)?.map_err(refused)?;
        // Requests are whole when they are written.
        socket.set_nodelay(true).map_err(refused)?;
        if !origin.encrypted {
            return shake_hands(origin, socket).await;
        }
        let config = match self.tls.get() {
            Some(config) => config.clone(),
            None => {
                let config = tls::client()?;
                self.tls.get_or_init(|| config).clone()
            }
        };
        let name = ServerName::try_from(origin.host.clone());
        let name = name.map_err(|_bad| HttpFault::Address(origin.host.clone()))?;
        let encrypting = tokio_rustls::TlsConnector::from(config).connect(name, socket);
        let socket = timeout(CONNECT, encrypting).await.map_err(late)?.map_err(refused)?;
        shake_hands(origin, socket).await
    }

    fn give_back(&self, origin: Origin, sender: SendRequest<HttpRequestBody>) {
        let mut all = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(origin).or_default().push(Idle { sender, since: Instant::now() });
    }
}

async fn shake_hands<S>(origin: &Origin, socket: S) -> Result<SendRequest<HttpRequestBody>, HttpFault>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let broken = |error| HttpFault::Broken(origin.shown(), error);
    let (sender, connection) = http1::handshake(TokioIo::new(socket)).await.map_err(broken)?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to a store ended");
        }
    });
    Ok(sender)
}

/// A connection that will be free again.
#[derive(Debug)]
struct Returned {
    shared: Arc<Shared>,
    origin: Origin,
    sender: SendRequest<HttpRequestBody>,
}

/// The body of an answer. When it was read, its connection is free for the next request.
#[derive(Debug)]
struct Answer {
    incoming: Incoming,
    silence: Pin<Box<Sleep>>,
    returned: Option<Returned>,
}

impl Answer {
    fn give_back(&mut self) {
        if let Some(Returned { shared, origin, sender }) = self.returned.take() {
            shared.give_back(origin, sender);
        }
    }

    fn fail(&mut self, fault: impl FnOnce(String) -> HttpFault) -> HttpError {
        let at = self.returned.take().map(|returned| returned.origin.shown()).unwrap_or_default();
        fault(at).into_error()
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        match Pin::new(&mut self.incoming).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                self.silence.as_mut().reset(Instant::now() + SILENCE);
                if self.incoming.is_end_stream() {
                    self.give_back();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                Poll::Ready(Some(Err(self.fail(|at| HttpFault::Broken(at, error)))))
            }
            Poll::Ready(None) => {
                self.give_back();
                Poll::Ready(None)
            }
            Poll::Pending => match self.silence.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(Some(Err(self.fail(HttpFault::Silent)))),
                Poll::Pending => Poll::Pending,
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

#[cfg(test)]
mod tests;
