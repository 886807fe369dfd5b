//! The HTTP server: routes of the table, files of the page, and the gate in front of both.

use crate::app::App;
use crate::endpoints::{Call, ENDPOINTS, Endpoint, Handle, Method};
use crate::error::ApiError;
use crate::gate::{Access, Asked, COOKIE, Refused};
use crate::live::{self, JobsWish, Wish};
use crate::{files, page};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use futures_core::Stream;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Read;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// Foreign protocols that programs speak, which know nothing of our headers.
const PROGRAMS: [&str; 2] = ["/api/2.0/", "/ajax-api/2.0/"];

/// Sent with everything.
const HEADERS: [(HeaderName, &str); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

type Values = BTreeMap<String, String>;

/// All routes. `others` are routes of foreign protocols.
pub(crate) fn router(app: Arc<App>, others: Router) -> Router {
    let mut router: Router<Arc<App>> = Router::new();
    for endpoint in ENDPOINTS {
        let handler = move |State(app): State<Arc<App>>,
                            Path(path): Path<Values>,
                            Query(mut values): Query<Values>,
                            axum::Extension(access): axum::Extension<Access>,
                            headers: HeaderMap,
                            body: Bytes| async move {
            values.extend(path);
            answer(app, endpoint, Incoming { values, headers, body, access }).await
        };
        router = match endpoint.method {
            Method::Get => router.route(endpoint.path, get(handler)),
            Method::Post => router.route(endpoint.path, post(handler)),
        };
    }
    let router = router.fallback(page_file).with_state(Arc::clone(&app)).merge(others);
    router.layer(middleware::from_fn_with_state(app, gate))
}

struct Incoming {
    values: Values,
    headers: HeaderMap,
    body: Bytes,
    access: Access,
}

async fn answer(app: Arc<App>, endpoint: &'static Endpoint, incoming: Incoming) -> Response {
    let made = match endpoint.handle {
        Handle::Live => live(app, incoming),
        Handle::Download => download(app, incoming.values).await,
        Handle::Files(handle) => match call(incoming) {
            Ok((call, access)) => {
                let made = tokio::task::spawn_blocking(move || handle(&app, &call)).await;
                let made = made.unwrap_or(Err(ApiError::Ending));
                made.map(|value| json_answer(StatusCode::OK, &with_access(endpoint, value, access)))
            }
            Err(error) => Err(error),
        },
        Handle::Nodes(handle) => match call(incoming) {
            Ok((call, _)) => handle(app, call).await.map(|value| json_answer(StatusCode::OK, &value)),
            Err(error) => Err(error),
        },
    };
    made.unwrap_or_else(|error| failure(&error))
}

/// What this viewer may do belongs to what the server says about itself.
fn with_access(endpoint: &Endpoint, mut value: Value, access: Access) -> Value {
    if endpoint.path == "/api/v1/about" {
        value["control"] = (access == Access::Act).into();
    }
    value
}

fn call(incoming: Incoming) -> Result<(Call, Access), ApiError> {
    let Incoming { values, body, access, .. } = incoming;
    let body =
        if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).map_err(ApiError::Body)? };
    Ok((Call { values, body }, access))
}

fn json_answer(status: StatusCode, value: &Value) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    (status, headers, value.to_string()).into_response()
}

fn failure(error: &ApiError) -> Response {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    if let Some(hint) = error.hint() {
        text = format!("{text}; {hint}");
    }
    json_answer(error.status(), &json!({ "error": text }))
}

/// Messages of a channel as the body of an answer.
struct Chunks(mpsc::Receiver<std::io::Result<Bytes>>);

impl Stream for Chunks {
    type Item = std::io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx)
    }
}

fn live(app: Arc<App>, incoming: Incoming) -> Result<Response, ApiError> {
    let value = |name: &str| incoming.values.get(name).filter(|value| !value.is_empty());
    let run = match value("run").map(|id| app.runs.dir(id).map(|dir| (id.clone(), dir))).transpose() {
        // Its changes do not come here.
        Err(ApiError::Elsewhere { .. }) => None,
        found => found?,
    };
    let last_id = incoming.headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let wish = Wish {
        run,
        seen: value("position").and_then(|position| position.parse().ok()),
        jobs: value("jobs").map(|wish| JobsWish::of(wish)),
        stores: value("stores").is_some(),
        searches: value("searches").is_some(),
        last_id: last_id.map(str::to_owned),
    };
    let messages = live::start(app, wish)?;
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(Chunks(messages))).into_response())
}

async fn download(app: Arc<App>, values: Values) -> Result<Response, ApiError> {
    let value = |name: &str| values.get(name).cloned().unwrap_or_default();
    let (id, path) = (value("id"), value("path"));
    let name = path.rsplit('/').next().unwrap_or_default().to_owned();
    let opened = tokio::task::spawn_blocking(move || files::open_file(&app.runs.dir(&id)?, &path));
    let mut file = opened.await.map_err(|_ended| ApiError::Ending)??;
    let bytes = file.metadata().map(|about| about.len()).unwrap_or(0);
    let (tell, chunks) = mpsc::channel(2);
    tokio::task::spawn_blocking(move || {
        // Exactly as many bytes as were announced, also of a file that grows.
        let mut left = bytes;
        while left > 0 {
            let mut chunk = vec![0; usize::try_from(left.min(256 << 10)).unwrap_or(0)];
            let read = file.read(&mut chunk);
            let read = match read {
                Ok(0) => Err(std::io::ErrorKind::UnexpectedEof.into()),
                other => other,
            };
            let failed = read.is_err();
            left -= *read.as_ref().unwrap_or(&0) as u64;
            chunk.truncate(*read.as_ref().unwrap_or(&0));
            // A client that left reads no more.
            if tell.blocking_send(read.map(|_| chunk.into())).is_err() || failed {
                return;
            }
        }
    });
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, bytes.to_string()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename*=UTF-8''{}", percent_encoded(&name))),
        (header::CACHE_CONTROL, "no-store".to_owned()),
    ];
    Ok((headers, Body::from_stream(Chunks(chunks))).into_response())
}

fn percent_encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let encode = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(encode).collect()
}

async fn page_file(request: Request) -> Response {
    match page::find(request.uri().path()) {
        Some(file) => file.answer(request.headers()),
        None => failure(&ApiError::NotFound { what: "page", name: request.uri().path().to_owned() }),
    }
}

/// Lets in what may come in, and adds the headers that everything has.
async fn gate(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let admitted = admit(&app, &request);
    let mut response = match admitted {
        Err(refused) => refusal(refused),
        Ok(Admitted::Token(token)) => enter(&app, &token),
        Ok(Admitted::As(access)) => {
            request.extensions_mut().insert(access);
            next.run(request).await
        }
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

enum Admitted {
    As(Access),
    /// A token in the address, to be exchanged for a cookie.
    Token(String),
}

fn admit(app: &App, request: &Request) -> Result<Admitted, Refused> {
    let text = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    let asked = Asked {
        changes: !matches!(request.method().as_str(), "GET" | "HEAD"),
        host: text("host"),
        origin: text("origin"),
        fetch_site: text("sec-fetch-site"),
        marked: text("x-phalanx"),
        cookie: text("cookie"),
        authorization: text("authorization"),
    };
    let path = request.uri().path();
    let token =
        request.uri().query().unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("token="));
    if let (false, "/", Some(token)) = (asked.changes, path, token) {
        app.gate.check_place(&asked)?;
        app.gate.bearer(token).ok_or(Refused::Token)?;
        return Ok(Admitted::Token(token.to_owned()));
    }
    let program = PROGRAMS.iter().any(|prefix| path.starts_with(prefix));
    let access = if program { app.gate.admit_program(&asked)? } else { app.gate.admit(&asked)? };
    Ok(Admitted::As(access))
}

fn refusal(refused: Refused) -> Response {
    let status = match refused {
        Refused::Token => StatusCode::UNAUTHORIZED,
        _ => StatusCode::FORBIDDEN,
    };
    json_answer(status, &json!({ "error": refused.to_string() }))
}

/// Exchanges the token in the address for a cookie, so that it does not stay in the address.
fn enter(app: &App, token: &str) -> Response {
    let secure = if app.gate.is_secure() { "; Secure" } else { "" };
    let cookie = format!("{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict{secure}");
    let headers = [(header::SET_COOKIE, cookie), (header::LOCATION, "/".to_owned())];
    (StatusCode::SEE_OTHER, headers).into_response()
}
