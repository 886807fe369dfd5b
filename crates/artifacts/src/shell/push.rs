//! Pushes a run: files first, a manifest last.

use super::files::{self, Hashed};
use super::journal::Journal;
use super::progress::{Progress, Transfer};
use super::send::{Sender, object_of};
use super::store::ArtifactStore;
use crate::core::manifest::{Manifest, ManifestFile, file_name, number_of};
use crate::core::path::FilePath;
use crate::core::plan::{Action, How, Known, Listed, is_unchanged, plan, same_tag};
use crate::error::ArtifactError;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStoreExt, PutPayload};
use phalanx_records::history::LoggedEvent;
use phalanx_records::run_dir::{EVENTS, RunDir, run_uid};
use phalanx_records::{Artifact, Event, Events};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The largest manifest that is read.
pub(super) const MOST_MANIFEST: u64 = 64 << 20;
/// How often another push of the same run may be faster to make the next manifest.
const ATTEMPTS: u64 = 16;

/// Which files of a run are pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Selection {
    #[default]
    All,
    /// The model and the records; checkpoints are large, and of use only to go on.
    WithoutCheckpoints,
}

impl Selection {
    fn takes(self, path: &FilePath) -> bool {
        self == Self::All || !path.as_str().starts_with("checkpoints/")
    }
}

/// What a push came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pushed {
    pub uid: String,
    pub name: String,
    /// Where the run is.
    pub url: String,
    pub manifest: String,
    /// What was sent; the rest was there.
    pub sent_files: usize,
    pub sent_bytes: u64,
    pub files: Vec<PushedFile>,
}

/// A file of a pushed run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PushedFile {
    pub path: String,
    pub url: String,
    pub size: u64,
    pub sha256: String,
}

impl ArtifactStore {
    /// Pushes a run that is not being trained. What is there already is not sent again; a push that was ended goes on where it
    /// was. `events.jsonl` gets an event for every other file, before it is pushed itself.
    ///
    /// # Errors
    /// The store or the disk fails; a file changes meanwhile. The next push goes on.
    pub async fn push(
        &self,
        run: &RunDir,
        selection: Selection,
        progress: &Progress,
    ) -> Result<Pushed, ArtifactError> {
        self.lies_elsewhere(run.path())?;
        let uid = run_uid(run.path())?;
        let below = ObjectPath::from(uid.as_str());
        let at = self.shown(&below);
        let listed = self.listed(&below).await?;
        let (latest, highest) = self.latest_manifest(&uid, &listed).await?;
        let mut known = Known::default();
        known.sent.extend(latest.iter().flat_map(|m| &m.files).map(|file| (file.path.clone(), file.clone())));
        let journal = Journal::open(run.path(), &at, &mut known)?;
        self.tidy_up(&below)?;
        let sender =
            Arc::new(Sender { store: self.clone(), run: below.clone(), journal, progress: progress.clone() });
        let push = Push { store: self, run, below: &below, sender: &sender, known, listed };
        let events =
            FilePath::new(EVENTS).map_err(|source| ArtifactError::Path { path: EVENTS.into(), source })?;
        let selected: Vec<_> =
            files::of_run(run.path())?.into_iter().filter(|(path, _)| selection.takes(path)).collect();
        let (last, first): (Vec<_>, Vec<_>) = selected.into_iter().partition(|(path, _)| *path == events);
        let (mut done, mut sent) = push.send(first).await?;
        push.record(&done)?;
        let (records, sent_records) = push.send(last).await?;
        done.extend(records);
        sent = (sent.0 + sent_records.0, sent.1 + sent_records.1);
        let files = push.with_others(done, latest.as_ref(), selection);
        let name = name_of(run)?;
        let manifest = push
            .conclude(
                Manifest { uid: uid.clone(), name, number: 0, unix_ms: now_ms(), files },
                latest,
                highest,
            )
            .await?;
        drop(push);
        if let Some(sender) = Arc::into_inner(sender) {
            sender.journal.remove();
        }
        let pushed = |file: &ManifestFile| PushedFile {
            path: file.path.to_string(),
            url: self.shown(&object_of(&below, file.path.as_str())),
            size: file.size,
            sha256: file.sha256.clone(),
        };
        Ok(Pushed {
            uid,
            name: manifest.name.clone(),
            url: at,
            manifest: file_name(manifest.number),
            sent_files: sent.0,
            sent_bytes: sent.1,
            files: manifest.files.iter().map(pushed).collect(),
        })
    }

    /// That a run is not pushed into itself.
    fn lies_elsewhere(&self, run: &Path) -> Result<(), ArtifactError> {
        let failed = |source| ArtifactError::Local { what: "find", path: run.to_owned(), source };
        let run = std::fs::canonicalize(run).map_err(failed)?;
        let place = self.directory().and_then(|place| std::fs::canonicalize(place).ok());
        match place.is_some_and(|place| place.starts_with(run)) {
            true => Err(ArtifactError::Url { text: self.url().to_string(), why: "it is inside of the run" }),
            false => Ok(()),
        }
    }

    /// What the store has of a run.
    async fn listed(&self, below: &ObjectPath) -> Result<BTreeMap<String, Listed>, ArtifactError> {
        let objects = self.list(below).await?;
        let named =
            objects.into_iter().map(|(path, meta)| (path, Listed { size: meta.size, e_tag: meta.e_tag }));
        Ok(named.collect())
    }

    /// The newest manifest that can be believed, and the highest number there is.
    async fn latest_manifest(
        &self,
        uid: &str,
        listed: &BTreeMap<String, Listed>,
    ) -> Result<(Option<Manifest>, u64), ArtifactError> {
        let mut numbers: Vec<u64> = listed.keys().filter_map(|name| number_of(name)).collect();
        numbers.sort_unstable();
        let highest = numbers.last().copied().unwrap_or(0);
        for number in numbers.into_iter().rev() {
            let below = object_of(&ObjectPath::from(uid), &file_name(number));
            let Some(bytes) = self.read(&below, MOST_MANIFEST).await? else { continue };
            match Manifest::parse(&bytes, uid) {
                Ok(manifest) => return Ok((Some(manifest), highest)),
                Err(fault) => tracing::warn!("{}: {fault}; all files are sent again", self.shown(&below)),
            }
        }
        Ok((None, highest))
    }

    /// Removes what a killed push has left in a directory beside files that it did not finish.
    fn tidy_up(&self, run: &ObjectPath) -> Result<(), ArtifactError> {
        let Some(directory) = self.directory() else { return Ok(()) };
        let folder = directory.join(run.as_ref());
        let mut folders = vec![folder];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                let kind = entry.file_type();
                if kind.as_ref().is_ok_and(std::fs::FileType::is_dir) {
                    folders.push(entry.path());
                } else if is_staged(&name) {
                    let path = entry.path();
                    let removed = std::fs::remove_file(&path);
                    removed.map_err(|source| ArtifactError::Local { what: "remove", path, source })?;
                }
            }
        }
        Ok(())
    }
}

/// Whether a file of a local store is one that is being written: `name#3`.
fn is_staged(name: &str) -> bool {
    let digits = name.rsplit_once('#').map_or("", |(_, digits)| digits);
    !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit())
}

/// A push on its way.
struct Push<'a> {
    store: &'a ArtifactStore,
    run: &'a RunDir,
    below: &'a ObjectPath,
    sender: &'a Arc<Sender>,
    known: Known,
    listed: BTreeMap<String, Listed>,
}

impl Push<'_> {
    /// Sends what is missing of some files; also says how many files and bytes that were.
    async fn send(
        &self,
        files: Vec<(FilePath, PathBuf)>,
    ) -> Result<(Vec<ManifestFile>, (usize, u64)), ArtifactError> {
        let hashed = files::hash(files).await?;
        let local = hashed.iter().map(|file| file.local.clone()).collect();
        let by_name: BTreeMap<String, Hashed> =
            hashed.into_iter().map(|file| (file.local.path.to_string(), file)).collect();
        let plan = plan(local, &self.known, &self.listed);
        for (path, upload) in &plan.abandoned {
            if let Some(parts) = &self.store.parts {
                let whole = self.store.object(&object_of(self.below, path.as_str()));
                // It may be gone already; the store's own rules remove it otherwise.
                if let Err(error) = parts.0.abort_multipart(&whole, upload).await {
                    tracing::debug!(%error, %path, "an earlier upload could not be ended");
                }
            }
            self.sender.journal.ended(path)?;
        }
        let bytes: u64 = plan.actions.iter().map(Action::bytes).sum();
        let kept = plan.actions.iter().filter(|action| matches!(action.how, How::Kept { .. })).count();
        let count = plan.actions.len();
        self.sender.progress.tell(Transfer::Planned { files: count - kept, kept, bytes });
        let done = self.sender.send_all(plan.actions, &by_name).await?;
        Ok((done, (count - kept, bytes)))
    }

    /// Adds an event for every file that has none.
    fn record(&self, done: &[ManifestFile]) -> Result<(), ArtifactError> {
        let recorded = recorded(self.run.path())?;
        let artifact = |file: &ManifestFile| Artifact {
            path: file.path.to_string(),
            url: self.store.shown(&object_of(self.below, file.path.as_str())),
            size: file.size,
            sha256: file.sha256.clone(),
        };
        let new = done.iter().map(artifact).filter(|new| recorded.get(&new.path) != Some(new));
        let new: Vec<Artifact> = new.collect();
        if new.is_empty() {
            return Ok(());
        }
        let mut nobody = ();
        let mut events = Events::of_run(self.run, &mut nobody)?;
        for artifact in new {
            events.write(Event::Artifact(artifact))?;
        }
        Ok(())
    }

    /// Adds files that an earlier push has sent and that this one leaves out.
    fn with_others(
        &self,
        mut files: Vec<ManifestFile>,
        latest: Option<&Manifest>,
        selection: Selection,
    ) -> Vec<ManifestFile> {
        let there = |file: &&ManifestFile| {
            !selection.takes(&file.path)
                && self.listed.get(file.path.as_str()).is_some_and(|there| is_unchanged(file, there))
        };
        files.extend(latest.into_iter().flat_map(|latest| &latest.files).filter(there).cloned());
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files
    }

    /// Checks that everything is there, then makes the manifest, if it says something new.
    async fn conclude(
        &self,
        mut manifest: Manifest,
        latest: Option<Manifest>,
        highest: u64,
    ) -> Result<Manifest, ArtifactError> {
        let listed = self.store.listed(self.below).await?;
        for file in &mut manifest.files {
            let there = listed.get(file.path.as_str());
            let fits = there.filter(|there| {
                // A store that did not name what it was given names it now.
                let same = file.e_tag.is_none() || same_tag(file.e_tag.as_deref(), there.e_tag.as_deref());
                there.size == file.size && same
            });
            let Some(there) = fits else {
                let at = self.store.shown(&object_of(self.below, file.path.as_str()));
                return Err(ArtifactError::Interfered { at });
            };
            file.e_tag.clone_from(&there.e_tag);
        }
        self.name(&manifest).await?;
        if let Some(latest) =
            latest.filter(|latest| latest.name == manifest.name && latest.same_files(&manifest.files))
        {
            return Ok(latest);
        }
        for number in highest + 1..=highest + ATTEMPTS {
            manifest.number = number;
            let failed = |source: serde_json::Error| ArtifactError::Local {
                what: "describe",
                path: self.run.path().to_owned(),
                source: source.into(),
            };
            let below = object_of(self.below, &file_name(number));
            let content = manifest.to_json().map_err(failed)?;
            if self.store.create(&below, content.clone()).await? {
                return Ok(manifest);
            }
            // The answer may have been lost, and the creation repeated.
            if self.store.read(&below, MOST_MANIFEST).await?.is_some_and(|there| there == content) {
                return Ok(manifest);
            }
        }
        Err(ArtifactError::Interfered { at: self.store.shown(self.below) })
    }

    /// Lets the run be found by its name.
    async fn name(&self, manifest: &Manifest) -> Result<(), ArtifactError> {
        let below = name_object(&manifest.name, &manifest.uid);
        let put = self.store.objects.put(&self.store.object(&below), PutPayload::new()).await;
        put.map_err(self.store.failed("write", &below)).map(|_put| ())
    }
}

/// The name of a run, also of one whose directory was given as `.`.
fn name_of(run: &RunDir) -> Result<String, ArtifactError> {
    let whole = std::fs::canonicalize(run.path());
    let whole =
        whole.map_err(|source| ArtifactError::Local { what: "find", path: run.path().to_owned(), source })?;
    let name = whole.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match FilePath::new(&name) {
        Ok(_) => Ok(name),
        Err(source) => Err(ArtifactError::Path { path: whole, source }),
    }
}

/// The object that finds a run by its name.
pub(super) fn name_object(name: &str, uid: &str) -> ObjectPath {
    ObjectPath::from_iter(["name", name, uid])
}

/// The last event about each file.
fn recorded(run: &Path) -> Result<BTreeMap<String, Artifact>, ArtifactError> {
    let path = run.join(EVENTS);
    let failed = |source| ArtifactError::Local { what: "read", path: path.clone(), source };
    let file = match File::open(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        opened => opened.map_err(failed)?,
    };
    let mut found = BTreeMap::new();
    for line in BufReader::new(file).split(b'\n') {
        // Lines that cannot be read are those of other programs.
        let Ok(event) = serde_json::from_slice::<LoggedEvent>(&line.map_err(failed)?) else { continue };
        if event.event == "artifact"
            && let Ok(artifact) = serde_json::from_value::<Artifact>(event.value)
        {
            found.insert(artifact.path.clone(), artifact);
        }
    }
    Ok(found)
}

pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
