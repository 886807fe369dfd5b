//! Pulls a run: the newest manifest, then its files, each checked before it gets its name.

use super::files::{blocking, hex};
use super::progress::{Progress, Transfer};
use super::push::{MOST_MANIFEST, name_object};
use super::send::{AT_ONCE, object_of};
use super::store::ArtifactStore;
use super::target::Target;
use crate::core::manifest::{Manifest, ManifestFile, file_name, is_uid, number_of};
use crate::core::path::FilePath;
use crate::error::{ArtifactError, Fault, StoreError};
use futures_util::TryStreamExt;
use object_store::ObjectStoreExt;
use object_store::path::Path as ObjectPath;
use phalanx_records::run_dir::RUN_FILE;
use ring::digest::{Context, SHA256};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::task::JoinSet;

/// What a pull came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pulled {
    pub uid: String,
    pub name: String,
    /// Where the run is now.
    pub run: PathBuf,
    /// Where it came from.
    pub url: String,
    pub manifest: String,
    pub files: usize,
    pub bytes: u64,
    /// What was received; the rest was there.
    pub received_files: usize,
    pub received_bytes: u64,
}

impl ArtifactStore {
    /// The newest whole push of a run, by its identity or its name.
    ///
    /// # Errors
    /// There is none, or several runs of this name, or it cannot be believed.
    pub async fn find(&self, id: &str) -> Result<Manifest, ArtifactError> {
        if is_uid(id)
            && let Some(manifest) = self.newest(id).await?
        {
            return Ok(manifest);
        }
        let none = || ArtifactError::NoRun { id: id.to_owned(), url: self.url().to_string() };
        if FilePath::new(id).is_err() || id.contains('/') {
            return Err(none());
        }
        let named = name_object(id, "");
        let mut uids: Vec<String> = self.names(&named).await?.into_iter().filter(|uid| is_uid(uid)).collect();
        uids.sort();
        match uids.as_slice() {
            [] => Err(none()),
            [uid] => self.newest(uid).await?.ok_or_else(none),
            _ => Err(ArtifactError::Ambiguous { name: id.to_owned(), uids, url: self.url().to_string() }),
        }
    }

    async fn newest(&self, uid: &str) -> Result<Option<Manifest>, ArtifactError> {
        let run = ObjectPath::from(uid);
        let numbers = self.names(&run).await?.iter().filter_map(|name| number_of(name)).max();
        let Some(number) = numbers else { return Ok(None) };
        let below = object_of(&run, &file_name(number));
        let Some(bytes) = self.read(&below, MOST_MANIFEST).await? else { return Ok(None) };
        let at = self.shown(&below);
        let mut manifest =
            Manifest::parse(&bytes, uid).map_err(|source| ArtifactError::Manifest { at, source })?;
        manifest.number = number;
        Ok(Some(manifest))
    }

    /// Pulls a run into a directory: a new one, an empty one, or one with this run. Files that are there already, with
    /// the right content, are not received again. Until all are there the directory is no run.
    ///
    /// # Errors
    /// The store or the disk fails, or what is received is not what was pushed.
    pub async fn pull(
        &self,
        manifest: &Manifest,
        dir: &Path,
        progress: &Progress,
    ) -> Result<Pulled, ArtifactError> {
        let (taken, uid) = (dir.to_owned(), manifest.uid.clone());
        let target = Arc::new(blocking(move || Target::take(&taken, &uid)).await?);
        let mut missing = Vec::new();
        for file in &manifest.files {
            let (there, path) = (target.clone(), file.path.clone());
            let there = blocking(move || there.existing(&path)).await?;
            if there.is_none_or(|(size, sha256)| size != file.size || sha256 != file.sha256) {
                missing.push(file.clone());
            }
        }
        let received =
            (missing.len(), missing.iter().fold(0, |sum: u64, file| sum.saturating_add(file.size)));
        let kept = manifest.files.len() - missing.len();
        progress.tell(Transfer::Planned { files: missing.len(), kept, bytes: received.1 });
        // With its run file a directory is a run.
        let (last, first): (Vec<_>, Vec<_>) =
            missing.into_iter().partition(|file| file.path.as_str() == RUN_FILE);
        let mut running: JoinSet<Result<(), ArtifactError>> = JoinSet::new();
        for file in first {
            if running.len() >= AT_ONCE {
                received_one(&mut running).await?;
            }
            let (store, target, progress) = (self.clone(), target.clone(), progress.clone());
            let run = ObjectPath::from(manifest.uid.as_str());
            running.spawn(async move { store.receive(&run, &file, &target, &progress).await });
        }
        while received_one(&mut running).await? {}
        for file in last {
            self.receive(&ObjectPath::from(manifest.uid.as_str()), &file, &target, progress).await?;
        }
        if let Some(target) = Arc::into_inner(target) {
            target.finish()?;
        }
        Ok(Pulled {
            uid: manifest.uid.clone(),
            name: manifest.name.clone(),
            run: dir.to_owned(),
            url: self.shown(&ObjectPath::from(manifest.uid.as_str())),
            manifest: file_name(manifest.number),
            files: manifest.files.len(),
            bytes: manifest.bytes(),
            received_files: received.0,
            received_bytes: received.1,
        })
    }

    async fn receive(
        &self,
        run: &ObjectPath,
        file: &ManifestFile,
        target: &Arc<Target>,
        progress: &Progress,
    ) -> Result<(), ArtifactError> {
        let below = object_of(run, file.path.as_str());
        let corrupt = |found: String| ArtifactError::Corrupt {
            at: self.shown(&below),
            path: file.path.clone(),
            expected: file.sha256.clone(),
            found,
        };
        let found = match self.objects.get(&self.object(&below)).await {
            Ok(found) => found,
            Err(error) => {
                return match StoreError::from(error) {
                    error if error.fault == Fault::NotFound => Err(corrupt("nothing".to_owned())),
                    source => Err(ArtifactError::Store {
                        what: "read",
                        at: self.shown(&below),
                        url: Box::new(self.url().clone()),
                        source,
                    }),
                };
            }
        };
        if found.meta.size != file.size {
            return Err(corrupt(format!("{} bytes", found.meta.size)));
        }
        let (place, path) = (target.clone(), file.path.clone());
        let mut incoming = blocking(move || place.begin(&path)).await?;
        let mut stream = found.into_stream();
        let (mut context, mut size) = (Context::new(&SHA256), 0_u64);
        loop {
            let next = stream.try_next().await.map_err(self.failed("read", &below));
            let bytes = match next {
                Ok(Some(bytes)) => bytes,
                Ok(None) => break,
                Err(error) => {
                    incoming.discard();
                    return Err(error);
                }
            };
            size = size.saturating_add(bytes.len() as u64);
            if size > file.size {
                incoming.discard();
                return Err(corrupt(format!("more than {} bytes", file.size)));
            }
            progress.tell(Transfer::Moved { bytes: bytes.len() as u64 });
            (incoming, context) = blocking(move || {
                context.update(&bytes);
                incoming.write(&bytes)?;
                Ok((incoming, context))
            })
            .await?;
        }
        let sha256 = hex(context.finish().as_ref());
        if size != file.size || sha256 != file.sha256 {
            incoming.discard();
            return Err(corrupt(sha256));
        }
        blocking(move || incoming.keep()).await?;
        progress.tell(Transfer::Done { path: file.path.to_string() });
        Ok(())
    }
}

/// Waits for a file; `false` when none is on its way.
async fn received_one(running: &mut JoinSet<Result<(), ArtifactError>>) -> Result<bool, ArtifactError> {
    match running.join_next().await {
        None => Ok(false),
        Some(Ok(result)) => result.map(|()| true),
        Some(Err(failed)) => std::panic::resume_unwind(failed.into_panic()),
    }
}
