//! Why artifacts cannot be pushed, pulled or claimed.

use crate::core::manifest::ManifestFault;
use crate::core::path::{FilePath, PathFault};
use crate::url::{ARTIFACTS_VARIABLE, ArtifactUrl, Cloud};
use phalanx_records::run_dir::RunDirError;
use phalanx_types::Class;
use std::path::PathBuf;

/// Why artifacts cannot be pushed, pulled or claimed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArtifactError {
    #[error("`{text}` is no place for artifacts: {why}")]
    Url { text: String, why: &'static str },
    #[error("the settings of {url} cannot be used")]
    Settings { url: Box<ArtifactUrl>, source: StoreError },
    #[error("there are no credentials for {url}")]
    NoCredentials { url: Box<ArtifactUrl>, cloud: Cloud },
    #[error("could not {what} {at}")]
    Store { what: &'static str, at: String, url: Box<ArtifactUrl>, source: StoreError },
    #[error("there is no run `{id}` in {url}")]
    NoRun { id: String, url: String },
    #[error("`{name}` could be any of the runs {} in {url}", uids.join(", "))]
    Ambiguous { name: String, uids: Vec<String>, url: String },
    #[error("the manifest {at} is not believed")]
    Manifest { at: String, source: ManifestFault },
    #[error("{at} is damaged: it is not what was pushed")]
    Corrupt { at: String, path: FilePath, expected: String, found: String },
    #[error("the name of a file cannot be taken: {}", path.display())]
    Path { path: PathBuf, source: PathFault },
    #[error("{} changed while it was pushed", path.display())]
    Changed { path: PathBuf },
    #[error("{at} was changed by someone else while the run was pushed")]
    Interfered { at: String },
    #[error("{} is not empty, and nothing was pulled into it before", dir.display())]
    Occupied { dir: PathBuf },
    #[error("{} has another run, {found}", dir.display())]
    OtherRun { dir: PathBuf, found: String },
    #[error("another process pulls into {}", dir.display())]
    Busy { dir: PathBuf },
    #[error("could not {what} {}", path.display())]
    Local { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error("`{name}` cannot be claimed: {why}")]
    ClaimName { name: String, why: PathFault },
    #[error("the claim {at} cannot be read")]
    ClaimDamaged { at: String },
    #[error("others were faster to claim `{name}`, again and again")]
    ClaimCrowded { name: String },
    #[error("`{name}` is not held by {owner}")]
    NotHeld { name: String, owner: String },
    #[error(transparent)]
    Records(Box<RunDirError>),
}

impl From<RunDirError> for ArtifactError {
    fn from(error: RunDirError) -> Self {
        Self::Records(Box::new(error))
    }
}

impl ArtifactError {
    pub fn class(&self) -> Class {
        match self {
            Self::Store { source, .. } if source.fault == Fault::Unavailable => Class::Retry,
            Self::Changed { .. }
            | Self::Interfered { .. }
            | Self::Busy { .. }
            | Self::ClaimCrowded { .. } => Class::Retry,
            Self::Local { .. } => Class::Retry,
            Self::Corrupt { .. } | Self::Manifest { .. } | Self::ClaimDamaged { .. } => Class::Peer,
            Self::Records(error) => error.class(),
            _ => Class::Fatal,
        }
    }

    /// Whether the user's input is wrong, and not a store or a disk.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Url { .. }
                | Self::Settings { .. }
                | Self::NoCredentials { .. }
                | Self::NoRun { .. }
                | Self::Ambiguous { .. }
                | Self::Path { .. }
                | Self::Occupied { .. }
                | Self::OtherRun { .. }
                | Self::ClaimName { .. }
        )
    }

    /// What the user can do about it, if that is known.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Url { .. } => format!(
                "give --to, --from or {ARTIFACTS_VARIABLE} as file:///DIR, s3://BUCKET/PREFIX, az://CONTAINER/PREFIX or \
                 gs://BUCKET/PREFIX"
            ),
            Self::Settings { url, .. } => format!("set {}", url.cloud()?.variables()),
            Self::NoCredentials { cloud, .. } => format!("set {}", cloud.variables()),
            Self::Store { source, url, .. } => return store_hint(source.fault, url),
            Self::NoRun { .. } => {
                "a push that did not end left no manifest: `phalanx run push` it again; else give the run's identity"
                    .to_owned()
            }
            Self::Ambiguous { .. } => "give one of these in the place of the name".to_owned(),
            Self::Manifest { .. } => "nothing was written for it; push the run again".to_owned(),
            Self::Corrupt { .. } => {
                "nothing of it was kept; if the run is being pushed now, try again afterwards, else push it again"
                    .to_owned()
            }
            Self::Changed { .. } | Self::Interfered { .. } => "push the run again".to_owned(),
            Self::Occupied { .. } | Self::OtherRun { .. } => "give another directory".to_owned(),
            Self::Busy { .. } => "wait for it, or give another directory".to_owned(),
            Self::Records(error) => return error.hint(),
            _ => return None,
        })
    }
}

fn store_hint(fault: Fault, url: &ArtifactUrl) -> Option<String> {
    let cloud = url.cloud()?;
    let container = cloud.container();
    Some(match fault {
        Fault::NoBucket => format!("make the {container} of {url} first, or give another one"),
        Fault::Denied => {
            format!("these credentials may not use {url}, or are wrong; they come from {}", cloud.variables())
        }
        Fault::Unavailable => format!("is the server of {url} reachable? It is set by {}", cloud.variables()),
        Fault::NotFound | Fault::Exists | Fault::Other => return None,
    })
}

/// What kind of answer a store gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    NoBucket,
    NotFound,
    Exists,
    Denied,
    Unavailable,
    Other,
}

/// The answer of a store, in one line.
#[derive(Debug)]
pub struct StoreError {
    pub(crate) fault: Fault,
    error: Box<object_store::Error>,
}

impl From<object_store::Error> for StoreError {
    fn from(error: object_store::Error) -> Self {
        Self { fault: fault_of(&error), error: Box::new(error) }
    }
}

fn fault_of(error: &object_store::Error) -> Fault {
    use object_store::Error;
    let text = root_text(error);
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    match error {
        _ if says(&["NoSuchBucket", "ContainerNotFound", "bucket does not exist"]) => Fault::NoBucket,
        Error::NotFound { .. } => Fault::NotFound,
        Error::AlreadyExists { .. } | Error::Precondition { .. } => Fault::Exists,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Fault::Denied,
        // Listing does not tell these apart.
        _ if says(&["status code: 401", "status code: 403"]) => Fault::Denied,
        _ if says(&["HTTP error", "status code: 5"]) => Fault::Unavailable,
        _ => Fault::Other,
    }
}

/// The text of the first cause: those around it only repeat it.
fn root_text(error: &object_store::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    let mut text = cause.to_string();
    while let Some(next) = cause.source() {
        // The last one of a failed connection does not say that it is one.
        if cause.to_string().starts_with("HTTP error") {
            break;
        }
        cause = next;
        text = cause.to_string();
    }
    text
}

impl std::fmt::Display for StoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = root_text(&self.error);
        let part = |tag: &str| {
            let (_, rest) = text.split_once(&format!("<{tag}>"))?;
            rest.split_once('<').map(|(part, _)| part.split_whitespace().collect::<Vec<_>>().join(" "))
        };
        match (part("Code"), part("Message")) {
            (Some(code), Some(message)) => write!(f, "the server says {code}: {}", tame(&message)),
            (Some(code), None) => write!(f, "the server says {}", tame(&code)),
            _ => f.write_str(&tame(&text)),
        }
    }
}

impl std::error::Error for StoreError {}

/// One line without what could move the cursor of a terminal, and not too long: it comes from a server.
fn tame(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect();
    line.trim().to_owned()
}
