//! Sends files to a store: small ones at once, large ones in parts, a few at a time, so that memory is bounded.

use super::files::Hashed;
use super::journal::Journal;
use super::progress::{Progress, Transfer};
use super::store::{ArtifactStore, PartStore};
use crate::core::manifest::ManifestFile;
use crate::core::plan::{Action, Begun, How, part_count, part_len};
use crate::error::{ArtifactError, Fault, StoreError};
use bytes::Bytes;
use object_store::multipart::PartId;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStoreExt, PutPayload};
use ring::digest::{SHA256, digest};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::task::JoinSet;

/// Files, or parts of one file, that are on their way at once.
pub(crate) const AT_ONCE: usize = 4;

/// What all files of a push share.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) store: ArtifactStore,
    /// The place of the run in the store.
    pub(crate) run: ObjectPath,
    pub(crate) journal: Journal,
    pub(crate) progress: Progress,
}

/// The place of a file of a run.
pub(crate) fn object_of(run: &ObjectPath, path: &str) -> ObjectPath {
    let parts = ObjectPath::from(path);
    run.parts().chain(parts.parts()).collect()
}

impl Sender {
    /// Carries out a plan; gives every file with what the store calls its content.
    pub(crate) async fn send_all(
        self: &Arc<Self>,
        actions: Vec<Action>,
        hashed: &BTreeMap<String, Hashed>,
    ) -> Result<Vec<ManifestFile>, ArtifactError> {
        let mut done = Vec::with_capacity(actions.len());
        let mut small: JoinSet<Result<ManifestFile, ArtifactError>> = JoinSet::new();
        for Action { file, how } in actions {
            let entry = |e_tag| ManifestFile {
                path: file.path.clone(),
                size: file.size,
                sha256: file.sha256.clone(),
                e_tag,
            };
            let Some(source) = hashed.get(file.path.as_str()).cloned() else { continue };
            match how {
                How::Kept { e_tag } => done.push(entry(e_tag)),
                How::Whole => {
                    if small.len() >= AT_ONCE {
                        done.extend(joined(&mut small).await?);
                    }
                    let sender = self.clone();
                    small.spawn(async move { sender.send_whole(source).await });
                }
                How::Parts { part_size, begun } => {
                    // Nothing beside it, so that memory stays bounded.
                    while let Some(file) = joined(&mut small).await? {
                        done.push(file);
                    }
                    let e_tag = match self.store.parts.clone() {
                        Some(parts) => self.send_parts(&parts, &source, part_size, begun).await?,
                        None => self.send_stream(&source, part_size).await?,
                    };
                    done.push(self.sent(entry(e_tag))?);
                }
            }
        }
        while let Some(file) = joined(&mut small).await? {
            done.push(file);
        }
        done.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(done)
    }

    fn sent(&self, file: ManifestFile) -> Result<ManifestFile, ArtifactError> {
        self.journal.sent(&file)?;
        self.progress.tell(Transfer::Done { path: file.path.to_string() });
        Ok(file)
    }

    async fn send_whole(&self, source: Hashed) -> Result<ManifestFile, ArtifactError> {
        let file = source.local.clone();
        let bytes = source.read(0, file.size).await?;
        if super::files::hex(digest(&SHA256, &bytes).as_ref()) != file.sha256 {
            return Err(ArtifactError::Changed { path: source.path });
        }
        source.check_unchanged()?;
        let below = object_of(&self.run, file.path.as_str());
        let put = self.store.objects.put(&self.store.object(&below), PutPayload::from(bytes)).await;
        let put = put.map_err(self.store.failed("write", &below))?;
        self.progress.tell(Transfer::Moved { bytes: file.size });
        self.sent(ManifestFile { path: file.path, size: file.size, sha256: file.sha256, e_tag: put.e_tag })
    }

    /// Sends a large file to a directory, which keeps no parts.
    async fn send_stream(&self, source: &Hashed, part_size: u64) -> Result<Option<String>, ArtifactError> {
        let below = object_of(&self.run, source.local.path.as_str());
        let whole = self.store.object(&below);
        let mut upload =
            self.store.objects.put_multipart(&whole).await.map_err(self.store.failed("write", &below))?;
        let size = source.local.size;
        for index in 0..part_count(size, part_size) {
            let len = part_len(size, part_size, index);
            let sent = match source.read(index * part_size, len).await {
                Ok(bytes) => {
                    upload.put_part(PutPayload::from(bytes)).await.map_err(self.store.failed("write", &below))
                }
                Err(error) => Err(error),
            };
            if let Err(error) = sent.and_then(|()| source.check_unchanged()) {
                // What is left is removed by the next push otherwise.
                let _left = upload.abort().await;
                return Err(error);
            }
            self.progress.tell(Transfer::Moved { bytes: len });
        }
        let put = upload.complete().await.map_err(self.store.failed("write", &below))?;
        Ok(put.e_tag)
    }

    /// Sends the parts of a large file that the store does not have.
    async fn send_parts(
        self: &Arc<Self>,
        parts: &PartStore,
        source: &Hashed,
        part_size: u64,
        begun: Option<Begun>,
    ) -> Result<Option<String>, ArtifactError> {
        let goes_on = begun.is_some();
        match self.try_parts(parts, source, part_size, begun).await {
            // The store has forgotten the upload: from the beginning.
            Err(ArtifactError::Store {
                source: StoreError { fault: Fault::NotFound | Fault::Other, .. },
                ..
            }) if goes_on => {
                self.journal.ended(&source.local.path)?;
                self.try_parts(parts, source, part_size, None).await
            }
            ended => ended,
        }
    }

    async fn try_parts(
        self: &Arc<Self>,
        parts: &PartStore,
        source: &Hashed,
        part_size: u64,
        begun: Option<Begun>,
    ) -> Result<Option<String>, ArtifactError> {
        let below = object_of(&self.run, source.local.path.as_str());
        let whole = self.store.object(&below);
        let (upload, mut have) = match begun {
            Some(begun) => (begun.upload, begun.parts),
            None => {
                let upload =
                    parts.0.create_multipart(&whole).await.map_err(self.store.failed("write", &below))?;
                self.journal.begun(&source.local, part_size, &upload)?;
                (upload, BTreeMap::new())
            }
        };
        let count = part_count(source.local.size, part_size);
        let mut running: JoinSet<Result<(u64, String), ArtifactError>> = JoinSet::new();
        let missing: Vec<u64> = (0..count).filter(|index| !have.contains_key(index)).collect();
        for index in missing {
            if running.len() >= AT_ONCE {
                have.extend(joined(&mut running).await?);
            }
            let (sender, parts, source) = (self.clone(), parts.clone(), source.clone());
            let (whole, below, upload) = (whole.clone(), below.clone(), upload.clone());
            running.spawn(async move {
                let len = part_len(source.local.size, part_size, index);
                let bytes = Bytes::from(source.read(index * part_size, len).await?);
                let at = usize::try_from(index).unwrap_or(usize::MAX);
                let put = parts.0.put_part(&whole, &upload, at, PutPayload::from(bytes)).await;
                let id = put.map_err(sender.store.failed("write", &below))?.content_id;
                source.check_unchanged()?;
                sender.journal.part(&source.local.path, index, &id)?;
                sender.progress.tell(Transfer::Moved { bytes: len });
                Ok((index, id))
            });
        }
        while let Some(part) = joined(&mut running).await? {
            have.extend([part]);
        }
        source.check_unchanged()?;
        let ids = have.into_values().map(|content_id| PartId { content_id }).collect();
        let put = parts.0.complete_multipart(&whole, &upload, ids).await;
        Ok(put.map_err(self.store.failed("complete", &below))?.e_tag)
    }
}

/// The next result of tasks.
async fn joined<T: 'static>(
    tasks: &mut JoinSet<Result<T, ArtifactError>>,
) -> Result<Option<T>, ArtifactError> {
    match tasks.join_next().await {
        None => Ok(None),
        Some(Ok(result)) => result.map(Some),
        Some(Err(failed)) => std::panic::resume_unwind(failed.into_panic()),
    }
}
