//! Carries out claims.

use super::push::now_ms;
use super::store::ArtifactStore;
use crate::core::lease::{Claiming, KEPT_VERSIONS, LeaseCommand, LeaseRecord, version_name};
use crate::core::path::{FilePath, PathFault};
use crate::error::ArtifactError;
use object_store::ObjectStoreExt;
use object_store::path::Path as ObjectPath;
use ring::rand::{SecureRandom, SystemRandom};
use serde::Serialize;
use std::time::Duration;

/// The largest version that is read.
const MOST_RECORD: u64 = 64 << 10;

/// A name that this process holds, until a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Claim {
    pub name: String,
    pub owner: String,
    pub version: u64,
    /// Until when, in milliseconds since 1970.
    pub until_ms: u64,
}

/// How a claim ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Claimed {
    /// By this process, and no other.
    Won(Claim),
    /// Another owner holds it.
    Held(Claim),
}

impl ArtifactStore {
    /// Claims a name for some time. Of all who claim it at once, one wins. Clocks of hosts may differ by a few seconds.
    ///
    /// # Errors
    /// The store fails, or the name cannot be taken.
    pub async fn claim(&self, name: &str, owner: &str, lasts: Duration) -> Result<Claimed, ArtifactError> {
        let folder = lease_folder(name)?;
        let lasts_ms = u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX);
        let mut claiming = Claiming::new(owner.to_owned(), token()?, lasts_ms);
        let mut command = claiming.start();
        let claim =
            |owner: String, version, until_ms| Claim { name: name.to_owned(), owner, version, until_ms };
        loop {
            command = match command {
                LeaseCommand::List => {
                    claiming.on_listed(now_ms(), self.versions(&folder).await?.last().copied())
                }
                LeaseCommand::Read { version } => match self.version(&folder, version).await? {
                    Some(record) => claiming.on_read(now_ms(), version, &record),
                    None => claiming.on_beaten(),
                },
                LeaseCommand::Create { version, record } => {
                    match self.create_version(&folder, version, &record).await? {
                        true => claiming.on_created(version, record.until_ms.unwrap_or(0)),
                        false => claiming.on_beaten(),
                    }
                }
                LeaseCommand::Won { version, until_ms } => {
                    self.forget_old(&folder, version).await;
                    return Ok(Claimed::Won(claim(owner.to_owned(), version, until_ms)));
                }
                LeaseCommand::Lost { version, owner, until_ms } => {
                    return Ok(Claimed::Held(claim(owner, version, until_ms)));
                }
                LeaseCommand::GiveUp => return Err(ArtifactError::ClaimCrowded { name: name.to_owned() }),
            };
        }
    }

    /// Gives a name back before its time.
    ///
    /// # Errors
    /// The store fails, or the owner does not hold the name.
    pub async fn release(&self, name: &str, owner: &str) -> Result<(), ArtifactError> {
        let folder = lease_folder(name)?;
        let not_held = || ArtifactError::NotHeld { name: name.to_owned(), owner: owner.to_owned() };
        let highest = self.versions(&folder).await?.last().copied().ok_or_else(not_held)?;
        let held = self.version(&folder, highest).await?.ok_or_else(not_held)?;
        if held.owner != owner || held.until_ms.is_none() {
            return Err(not_held());
        }
        let record = LeaseRecord { owner: owner.to_owned(), token: token()?, until_ms: None };
        let next = highest.saturating_add(1);
        if self.create_version(&folder, next, &record).await? {
            return Ok(());
        }
        // Either it was over and another owner has it, or the answer was lost and the creation repeated.
        match self.version(&folder, next).await? {
            Some(there) if there == record => Ok(()),
            _ => Err(not_held()),
        }
    }

    async fn versions(&self, folder: &ObjectPath) -> Result<Vec<u64>, ArtifactError> {
        let names = self.names(folder).await?;
        let mut versions: Vec<u64> = names.iter().filter_map(|name| name.parse().ok()).collect();
        versions.sort_unstable();
        Ok(versions)
    }

    async fn version(&self, folder: &ObjectPath, version: u64) -> Result<Option<LeaseRecord>, ArtifactError> {
        let below = folder.clone().join(version_name(version));
        let Some(bytes) = self.read(&below, MOST_RECORD).await? else { return Ok(None) };
        let damaged = |_bad| ArtifactError::ClaimDamaged { at: self.shown(&below) };
        serde_json::from_slice(&bytes).map(Some).map_err(damaged)
    }

    async fn create_version(
        &self,
        folder: &ObjectPath,
        version: u64,
        record: &LeaseRecord,
    ) -> Result<bool, ArtifactError> {
        let below = folder.clone().join(version_name(version));
        let damaged = |_bad| ArtifactError::ClaimDamaged { at: self.shown(&below) };
        let content = serde_json::to_vec(record).map_err(damaged)?;
        self.create(&below, content).await
    }

    /// Removes versions that no process asks for any more; what stays is removed later.
    async fn forget_old(&self, folder: &ObjectPath, won: u64) {
        let Ok(versions) = self.versions(folder).await else { return };
        for version in versions.into_iter().filter(|version| version.saturating_add(KEPT_VERSIONS) < won) {
            let below = folder.clone().join(version_name(version));
            if let Err(error) = self.objects.delete(&self.object(&below)).await {
                tracing::debug!(%error, "an old version of a claim stays");
            }
        }
    }
}

fn lease_folder(name: &str) -> Result<ObjectPath, ArtifactError> {
    let why = match FilePath::new(name) {
        Ok(_) if !name.contains('/') => return Ok(ObjectPath::from_iter(["lease", name])),
        Ok(_) => PathFault::Character,
        Err(why) => why,
    };
    Err(ArtifactError::ClaimName { name: name.to_owned(), why })
}

/// Tells this claim from any other.
fn token() -> Result<String, ArtifactError> {
    let mut bytes = [0; 16];
    let failed = |_error| ArtifactError::Local {
        what: "draw random bytes for",
        path: "a claim".into(),
        source: std::io::Error::other("the system gives none"),
    };
    SystemRandom::new().fill(&mut bytes).map_err(failed)?;
    Ok(super::files::hex(&bytes))
}
