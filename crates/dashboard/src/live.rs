//! Live changes as server-sent events: what a viewer has seen, and what is new since.
//!
//! A viewer's position is in the id of every message, so a stream that breaks goes on where it was, also at another
//! process. The next message is made only when the one before was taken: a slow viewer costs one message of memory.

use crate::app::App;
use crate::curve::finite;
use crate::entry::Line;
use crate::error::ApiError;
use crate::files;
use crate::runs::Records;
use crate::tail::{News, Seen};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;

/// At most four messages a second.
const PACE: Duration = Duration::from_millis(250);
/// Something is sent at least so often, so that both sides notice a broken connection.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How long a viewer may leave a message untaken.
const PATIENCE: Duration = Duration::from_secs(20);
/// A viewer that lacks more runs than this reads listings anew.
const MOST_RUNS: usize = 200;

/// Which jobs a viewer wants to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobsWish {
    Unfinished,
    /// Also those that have ended, and those of main nodes that are gone.
    All,
}

impl JobsWish {
    /// From the query of a request.
    pub(crate) fn of(value: &str) -> Self {
        if value == "unfinished" { Self::Unfinished } else { Self::All }
    }
}

/// What a viewer wants to see.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wish {
    pub(crate) run: Option<(String, PathBuf)>,
    pub(crate) seen: Option<Seen>,
    pub(crate) jobs: Option<JobsWish>,
    pub(crate) stores: bool,
    pub(crate) searches: bool,
    /// Of a stream that broke.
    pub(crate) last_id: Option<String>,
}

/// One stream.
struct Viewer {
    app: Arc<App>,
    wish: Wish,
    version: u64,
    seen: Seen,
    /// The file that was sent last.
    formation: Option<(SystemTime, u64)>,
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
    let viewer = Viewer { app, wish, version, seen, formation: None, first: true, anew };
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
        let jobs = match self.wish.jobs.filter(|_wished| domain) {
            Some(wish) => Arc::clone(&self.app).jobs(wish == JobsWish::All).await.ok(),
            None => None,
        };
        let made = tokio::task::spawn_blocking(move || {
            let mut viewer = self;
            let mut update = viewer.update(domain, until);
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

    fn update(&mut self, domain: bool, until: u64) -> Map<String, Value> {
        let mut update = Map::new();
        if self.anew || self.app.hub.listing_since(self.version) {
            update.insert("reload".to_owned(), true.into());
        }
        let changed = self.app.hub.runs_since(self.version);
        if changed.len() > MOST_RUNS {
            update.insert("reload".to_owned(), true.into());
        } else if !changed.is_empty() {
            let summary = |dir: &PathBuf| {
                let make =
                    || serde_json::to_value(self.app.runs.files().run(dir.file_name()?.to_str()?).ok()?).ok();
                self.app.tails.summary(dir, until, make)
            };
            let runs: Vec<Value> = changed.iter().filter_map(summary).collect();
            if !runs.is_empty() {
                update.insert("runs".to_owned(), runs.into());
            }
            if changed.iter().any(|dir| !dir.is_dir()) {
                // A run that was removed has no summary: listings are read anew without it.
                update.insert("reload".to_owned(), true.into());
            }
        }
        if let Some((id, dir)) = self.wish.run.clone()
            && (self.first || self.anew || changed.contains(&dir))
            && let Ok(Some(run)) = self.run_update(&id, &dir, until)
        {
            update.insert("run".to_owned(), run);
        }
        if self.wish.stores && (self.first || self.anew || self.app.hub.stores_since(self.version)) {
            let stores = serde_json::to_value(self.app.stores.info()).unwrap_or_default();
            update.insert("stores".to_owned(), stores);
        }
        let searches =
            if self.wish.searches { self.app.hub.searches_since(self.version) } else { Vec::new() };
        if !searches.is_empty() {
            update.insert("searches".to_owned(), searches.into());
        }
        self.first = false;
        if domain {
            let info = serde_json::to_value(self.app.domain_info()).unwrap_or_default();
            update.insert("domain".to_owned(), info);
        }
        update
    }

    fn run_update(&mut self, id: &str, dir: &Path, until: u64) -> Result<Option<Value>, ApiError> {
        let News { reload, lines, events, seen } = self.app.tails.since(dir, self.seen, until)?;
        let file = std::fs::metadata(dir.join(files::FORMATION)).ok();
        let file = file.and_then(|file| Some((file.modified().ok()?, file.len())));
        let moved = self.first || file != self.formation;
        if !reload && !moved && lines.is_empty() && events.is_empty() && seen == self.seen {
            return Ok(None);
        }
        self.seen = seen;
        let mut update = json!({
            "id": id,
            "position": seen.to_string(),
            "reload": reload,
            "points": lines.iter().map(point).collect::<Vec<Value>>(),
            "events": events,
        });
        if moved {
            update["formation"] = files::formation(dir)?;
            self.formation = file;
        }
        Ok(Some(update))
    }
}

/// A line as viewers get it: null stands for what is not finite.
fn point(line: &Line) -> Value {
    let values: Map<String, Value> =
        line.values.iter().map(|(name, value)| (name.clone(), finite(*value).into())).collect();
    json!({ "step": line.step, "unix_ms": line.unix_ms, "values": values })
}
