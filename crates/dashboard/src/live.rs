//! Live changes as server-sent events: what a viewer has seen, and what is new since.
//!
//! A viewer's position is in the id of every message, so a stream that breaks goes on where it was, also at another
//! process. The next message is made only when the one before was taken: a slow viewer costs one message of memory.

use crate::app::App;
use crate::error::ApiError;
use crate::files;
use crate::runs::Records;
use crate::view::RunView;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;

/// At most four messages a second.
const PACE: Duration = Duration::from_millis(250);
/// Something is sent at least so often, so that both sides notice a broken connection.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How long a viewer may leave a message untaken.
const PATIENCE: Duration = Duration::from_secs(20);
/// A viewer that lacks more rows or runs than this reads curves or listings anew.
const MOST_ROWS: usize = 400;
const MOST_RUNS: usize = 200;

/// How much of a run's records a viewer has seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    generation: u64,
    rows: usize,
    events: usize,
}

impl Seen {
    pub(crate) fn all(view: &RunView) -> Self {
        Self { generation: view.generation, rows: view.rows.len(), events: view.events.len() }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.generation, self.rows, self.events)
    }
}

impl FromStr for Seen {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split('.');
        let mut next = || parts.next().and_then(|part| part.parse::<u64>().ok()).ok_or(());
        let (generation, rows, events) = (next()?, next()?, next()?);
        let small = |n: u64| usize::try_from(n).map_err(|_large| ());
        Ok(Self { generation, rows: small(rows)?, events: small(events)? })
    }
}

/// What a viewer wants to see.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wish {
    pub(crate) run: Option<(String, PathBuf)>,
    pub(crate) seen: Option<Seen>,
    pub(crate) jobs: bool,
    /// Of a stream that broke.
    pub(crate) last_id: Option<String>,
}

/// One stream.
struct Viewer {
    app: Arc<App>,
    wish: Wish,
    version: u64,
    seen: Seen,
    /// As it was sent last.
    formation: Value,
    /// Whether nothing was sent yet.
    first: bool,
    /// Whether everything is sent, as after the start of the server.
    anew: bool,
}

/// Starts a stream; its messages come out of the channel.
pub(crate) fn start(app: Arc<App>, wish: Wish) -> Result<mpsc::Receiver<std::io::Result<Bytes>>, ApiError> {
    let permit = Arc::clone(&app.streams).try_acquire_owned().map_err(|_none| ApiError::TooMany)?;
    let (tell, messages) = mpsc::channel(1);
    let (version, seen) = match wish.last_id.as_deref().and_then(|id| id.split_once('-')) {
        Some((version, seen)) => (version.parse().unwrap_or(0), seen.parse().ok()),
        None => (app.hub.version(), None),
    };
    let anew = !app.hub.knows(version);
    let version = if anew { app.hub.version() } else { version };
    let seen = seen.or(wish.seen).unwrap_or_default();
    let viewer = Viewer { app, wish, version, seen, formation: Value::Null, first: true, anew };
    tokio::spawn(serve(viewer, tell, permit));
    Ok(messages)
}

/// Sends messages until the viewer leaves.
async fn serve(
    mut viewer: Viewer,
    tell: mpsc::Sender<std::io::Result<Bytes>>,
    _permit: OwnedSemaphorePermit,
) {
    let mut changes = viewer.app.hub.subscribe();
    changes.mark_changed();
    let mut next = Instant::now();
    loop {
        let text = tokio::select! {
            changed = changes.changed() => {
                if changed.is_err() {
                    return;
                }
                tokio::time::sleep_until(next).await;
                changes.mark_unchanged();
                let made = viewer.message().await;
                match made {
                    Some((back, text)) => {
                        viewer = back;
                        text
                    }
                    None => return,
                }
            }
            () = tokio::time::sleep(HEARTBEAT) => Some(":\n\n".to_owned()),
            () = tell.closed() => return,
        };
        next = Instant::now() + PACE;
        let Some(text) = text else { continue };
        if tell.send_timeout(Ok(Bytes::from(text)), PATIENCE).await.is_err() {
            return;
        }
    }
}

impl Viewer {
    /// What is new, as a message. Files are read on a thread for that.
    async fn message(self) -> Option<(Self, Option<String>)> {
        let until = self.app.hub.version();
        let domain = self.anew || self.app.hub.domain_since(self.version) || self.first;
        let jobs = match (self.wish.jobs && domain, &self.app) {
            (true, app) => app.jobs(true).await.ok(),
            (false, _) => None,
        };
        let made = tokio::task::spawn_blocking(move || {
            let mut viewer = self;
            let mut update = viewer.update(domain);
            update.extend(jobs.map(|jobs| ("jobs".to_owned(), jobs)));
            viewer.version = until;
            viewer.anew = false;
            let text = (!update.is_empty()).then(|| {
                format!("id: {until}-{}\nevent: update\ndata: {}\n\n", viewer.seen, Value::Object(update))
            });
            (viewer, text)
        });
        made.await.ok()
    }

    fn update(&mut self, domain: bool) -> Map<String, Value> {
        let mut update = Map::new();
        if self.anew {
            update.insert("reload".to_owned(), true.into());
        }
        let changed = self.app.hub.runs_since(self.version);
        if changed.len() > MOST_RUNS {
            update.insert("reload".to_owned(), true.into());
        } else if !changed.is_empty() {
            let summary = |dir: &PathBuf| {
                let id = dir.file_name()?.to_str()?;
                serde_json::to_value(self.app.runs.run(id).ok()?).ok()
            };
            let runs: Vec<Value> = changed.iter().filter_map(summary).collect();
            if !runs.is_empty() {
                update.insert("runs".to_owned(), runs.into());
            }
        }
        if let Some((id, dir)) = self.wish.run.clone()
            && (self.first || self.anew || changed.contains(&dir))
            && let Ok(Some(run)) = self.run_update(&id, &dir)
        {
            update.insert("run".to_owned(), run);
        }
        self.first = false;
        if domain {
            let info = serde_json::to_value(self.app.domain_info()).unwrap_or_default();
            update.insert("domain".to_owned(), info);
        }
        update
    }

    fn run_update(&mut self, id: &str, dir: &Path) -> Result<Option<Value>, ApiError> {
        let seen = self.seen;
        let (now, new) = self.app.views.with(dir, |view| {
            let reload = view.generation != seen.generation
                || seen.rows > view.rows.len()
                || view.rows.len() - seen.rows > MOST_ROWS;
            let points: Vec<Value> = if reload {
                Vec::new()
            } else {
                let line = |(row, values): (crate::view::Row, _)| {
                    json!({ "step": row.step, "unix_ms": row.unix_ms, "values": values })
                };
                view.since(seen.rows).into_iter().map(line).collect()
            };
            let events: Vec<Value> = view.events.iter().skip(seen.events).map(|event| json!(event)).collect();
            (Seen::all(view), (reload, points, events))
        })?;
        let (reload, points, events) = new;
        let formation = files::formation(dir)?;
        let moved = formation != self.formation;
        if !reload && !moved && points.is_empty() && events.is_empty() && now == self.seen {
            return Ok(None);
        }
        self.seen = now;
        let mut update = json!({
            "id": id,
            "position": now.to_string(),
            "reload": reload,
            "points": points,
            "events": events,
        });
        if moved {
            update["formation"] = formation.clone();
            self.formation = formation;
        }
        Ok(Some(update))
    }
}
