//! A store, opened by its URL.

use super::http::Connector;
use crate::error::{ArtifactError, Fault, StoreError};
use crate::url::{ArtifactUrl, Cloud, Place};
use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::multipart::MultipartStore;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, RetryConfig};
use percent_encoding::percent_decode_str;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A request is repeated this often, over at most this time. A push that fails goes on where it was.
const RETRIES: usize = 4;
const RETRY_FOR: Duration = Duration::from_secs(60);
/// Machines in a cloud get credentials from this address.
const MACHINE_CREDENTIALS: &str = "169.254.169.254:80";
const MACHINE_ANSWERS: Duration = Duration::from_secs(1);

/// Where artifacts of runs are kept.
#[derive(Debug, Clone)]
pub struct ArtifactStore {
    url: ArtifactUrl,
    pub(super) objects: Arc<dyn ObjectStore>,
    pub(super) parts: Option<PartStore>,
}

/// A store that takes parts of a file one by one, and remembers them.
#[derive(Clone)]
pub(super) struct PartStore(pub(super) Arc<dyn MultipartStore>);

impl std::fmt::Debug for PartStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PartStore")
    }
}

impl ArtifactStore {
    /// Opens a store to write to. A directory is made if it is missing, a bucket is not.
    ///
    /// # Errors
    /// Settings or credentials are missing; the directory cannot be made. Whether a bucket is there shows later.
    pub async fn open_for_writing(url: &ArtifactUrl) -> Result<Self, ArtifactError> {
        if let Place::Directory(path) = &url.place {
            let failed = |source| ArtifactError::Local { what: "make", path: path.clone(), source };
            std::fs::create_dir_all(path).map_err(failed)?;
        }
        Self::open(url).await
    }

    /// Opens a store to read from.
    ///
    /// # Errors
    /// Settings or credentials are missing; the directory is not there.
    pub async fn open(url: &ArtifactUrl) -> Result<Self, ArtifactError> {
        let (objects, parts): (Arc<dyn ObjectStore>, _) = match &url.place {
            Place::Directory(path) => (local(path)?, None),
            Place::Bucket { cloud, bucket } => {
                if !has_credentials(*cloud) && !machine_has_credentials(*cloud).await {
                    return Err(ArtifactError::NoCredentials { url: Box::new(url.clone()), cloud: *cloud });
                }
                let failed = |source: object_store::Error| ArtifactError::Settings {
                    url: Box::new(url.clone()),
                    source: source.into(),
                };
                let (objects, parts) = in_cloud(*cloud, bucket).map_err(failed)?;
                (objects, Some(PartStore(parts)))
            }
        };
        Ok(Self { url: url.clone(), objects, parts })
    }

    pub fn url(&self) -> &ArtifactUrl {
        &self.url
    }

    /// The directory, if it is one.
    pub(super) fn directory(&self) -> Option<&Path> {
        match &self.url.place {
            Place::Directory(path) => Some(path),
            Place::Bucket { .. } => None,
        }
    }

    /// The place of an object in the store.
    pub(super) fn object(&self, below: &ObjectPath) -> ObjectPath {
        self.url.prefix.parts().chain(below.parts()).collect()
    }

    /// The URL of an object.
    pub(super) fn shown(&self, below: &ObjectPath) -> String {
        self.url.join(below)
    }

    pub(super) fn failed(
        &self,
        what: &'static str,
        below: &ObjectPath,
    ) -> impl FnOnce(object_store::Error) -> ArtifactError {
        let (at, url) = (self.shown(below), Box::new(self.url.clone()));
        move |source| ArtifactError::Store { what, at, url, source: source.into() }
    }

    /// All objects below, with the paths relative to `below` that they were made for.
    pub(super) async fn list(&self, below: &ObjectPath) -> Result<Vec<(String, ObjectMeta)>, ArtifactError> {
        let prefix = self.object(below);
        let found = self.objects.list(Some(&prefix)).try_collect::<Vec<_>>().await;
        let found = found.map_err(self.failed("list", below))?;
        let name = |meta: ObjectMeta| {
            let rest: ObjectPath = meta.location.prefix_match(&prefix)?.collect();
            // Some characters of names are escaped in the names of objects.
            let name = percent_decode_str(rest.as_ref()).decode_utf8().ok()?.into_owned();
            Some((name, meta))
        };
        Ok(found.into_iter().filter_map(name).collect())
    }

    /// The names of objects directly below.
    pub(super) async fn names(&self, below: &ObjectPath) -> Result<Vec<String>, ArtifactError> {
        let prefix = self.object(below);
        let found =
            self.objects.list_with_delimiter(Some(&prefix)).await.map_err(self.failed("list", below))?;
        let name = |meta: &ObjectMeta| meta.location.filename().map(str::to_owned);
        Ok(found.objects.iter().filter_map(name).collect())
    }

    /// A small object; `None` if there is none. One that is larger than it may be is not read.
    pub(super) async fn read(&self, below: &ObjectPath, most: u64) -> Result<Option<Bytes>, ArtifactError> {
        let found = match self.objects.get(&self.object(below)).await {
            Ok(found) => found,
            Err(error) => {
                return match StoreError::from(error) {
                    error if error.fault == Fault::NotFound => Ok(None),
                    source => Err(ArtifactError::Store {
                        what: "read",
                        at: self.shown(below),
                        url: Box::new(self.url.clone()),
                        source,
                    }),
                };
            }
        };
        if found.meta.size > most {
            return Ok(Some(Bytes::new()));
        }
        found.bytes().await.map(Some).map_err(self.failed("read", below))
    }

    /// Creates an object; `false` if there is one of this name.
    pub(super) async fn create(&self, below: &ObjectPath, content: Vec<u8>) -> Result<bool, ArtifactError> {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match self.objects.put_opts(&self.object(below), PutPayload::from(content), options).await {
            Ok(_put) => Ok(true),
            Err(error) => match StoreError::from(error) {
                error if error.fault == Fault::Exists => Ok(false),
                source => Err(ArtifactError::Store {
                    what: "create",
                    at: self.shown(below),
                    url: Box::new(self.url.clone()),
                    source,
                }),
            },
        }
    }
}

fn local(path: &Path) -> Result<Arc<dyn ObjectStore>, ArtifactError> {
    let failed = |source| ArtifactError::Local { what: "open", path: path.to_owned(), source };
    std::fs::read_dir(path).map_err(failed)?;
    let opened = LocalFileSystem::new_with_prefix(path);
    let opened = opened.map_err(|error| failed(std::io::Error::other(error)))?;
    Ok(Arc::new(opened))
}

type Opened = (Arc<dyn ObjectStore>, Arc<dyn MultipartStore>);

fn in_cloud(cloud: Cloud, bucket: &str) -> object_store::Result<Opened> {
    let retry = RetryConfig { max_retries: RETRIES, retry_timeout: RETRY_FOR, ..RetryConfig::default() };
    Ok(match cloud {
        Cloud::S3 => {
            let builder = AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(retry);
            both(builder.with_http_connector(Connector).build()?)
        }
        Cloud::Azure => {
            let builder = MicrosoftAzureBuilder::from_env().with_container_name(bucket).with_retry(retry);
            both(builder.with_http_connector(Connector).build()?)
        }
        Cloud::Google => {
            let builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket).with_retry(retry);
            both(builder.with_http_connector(Connector).build()?)
        }
    })
}

fn both<S: ObjectStore + MultipartStore>(store: S) -> Opened {
    let store = Arc::new(store);
    (store.clone(), store)
}

/// Whether the environment has credentials of a cloud.
fn has_credentials(cloud: Cloud) -> bool {
    let (prefix, words): (&str, &[&str]) = match cloud {
        Cloud::S3 => {
            ("AWS_", &["ACCESS_KEY", "WEB_IDENTITY", "CONTAINER_CREDENTIALS", "SKIP_SIGNATURE", "METADATA"])
        }
        Cloud::Azure => (
            "AZURE_",
            &[
                "KEY",
                "SAS",
                "CLIENT_ID",
                "TOKEN",
                "EMULATOR",
                "SKIP_SIGNATURE",
                "AZURE_CLI",
                "MSI_",
                "IDENTITY_",
            ],
        ),
        Cloud::Google => {
            ("GOOGLE_", &["APPLICATION_CREDENTIALS", "SERVICE_ACCOUNT", "BEARER_TOKEN", "SKIP_SIGNATURE"])
        }
    };
    let counts = |name: &str| {
        name.strip_prefix(prefix).is_some_and(|rest| words.iter().any(|word| rest.contains(word)))
    };
    let set = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        !value.is_empty() && name.to_str().is_some_and(counts)
    };
    // Where Google's command line keeps them.
    let kept = || {
        let home = std::env::var_os("HOME").unwrap_or_default();
        Path::new(&home).join(".config/gcloud/application_default_credentials.json").is_file()
    };
    std::env::vars_os().any(set) || cloud == Cloud::Google && kept()
}

/// Whether this machine is one of a cloud, which gives credentials to it.
async fn machine_has_credentials(cloud: Cloud) -> bool {
    let (ask, header) = match cloud {
        Cloud::S3 => ("PUT /latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds: 60"),
        Cloud::Azure => ("GET /metadata/instance?api-version=2021-02-01", "Metadata: true"),
        Cloud::Google => ("GET /computeMetadata/v1/", "Metadata-Flavor: Google"),
    };
    let (host, _) = MACHINE_CREDENTIALS.split_once(':').unwrap_or_default();
    let request = format!("{ask} HTTP/1.1\r\nHost: {host}\r\n{header}\r\nContent-Length: 0\r\n\r\n");
    let asked = async {
        let mut socket = tokio::net::TcpStream::connect(MACHINE_CREDENTIALS).await?;
        socket.write_all(request.as_bytes()).await?;
        let mut status = [0; b"HTTP/1.1 200".len()];
        socket.read_exact(&mut status).await?;
        std::io::Result::Ok(status.ends_with(b" 200"))
    };
    matches!(tokio::time::timeout(MACHINE_ANSWERS, asked).await, Ok(Ok(true)))
}
