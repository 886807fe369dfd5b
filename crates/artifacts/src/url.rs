//! Where artifacts are kept, as users write it.

use crate::error::ArtifactError;
use object_store::path::Path as ObjectPath;
use std::fmt;
use std::path::{Path, PathBuf};

/// The variable that names where artifacts are kept.
pub const ARTIFACTS_VARIABLE: &str = "PHALANX_ARTIFACTS";

/// Where artifacts are kept: `file:///DIR` or a path, `s3://BUCKET/PREFIX`, `az://CONTAINER/PREFIX`,
/// `gs://BUCKET/PREFIX`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactUrl {
    pub(crate) place: Place,
    /// Everything is below it.
    pub(crate) prefix: ObjectPath,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Directory(PathBuf),
    Bucket { cloud: Cloud, bucket: String },
}

/// Who keeps a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cloud {
    S3,
    Azure,
    Google,
}

impl Cloud {
    const ALL: [Self; 3] = [Self::S3, Self::Azure, Self::Google];

    fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Azure => "az",
            Self::Google => "gs",
        }
    }

    /// What users call what objects lie in.
    pub(crate) fn container(self) -> &'static str {
        if self == Self::Azure { "container" } else { "bucket" }
    }

    /// What has to be set for it, for a hint.
    pub(crate) fn variables(self) -> &'static str {
        match self {
            Self::S3 => {
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_REGION, and AWS_ENDPOINT_URL for a server that is not \
                 Amazon's"
            }
            Self::Azure => {
                "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY (or AZURE_STORAGE_SAS_TOKEN), and \
                 AZURE_STORAGE_ENDPOINT for a server that is not Microsoft's"
            }
            Self::Google => {
                "GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT, the path of a key file"
            }
        }
    }
}

impl ArtifactUrl {
    /// Reads a URL, or a path of a directory.
    ///
    /// # Errors
    /// The scheme is not known, or the bucket is missing.
    pub fn parse(text: &str) -> Result<Self, ArtifactError> {
        let text = text.trim();
        let fail = |why| Err(ArtifactError::Url { text: without_secrets(text), why });
        let Some((scheme, rest)) = text.split_once("://") else {
            if text.is_empty() {
                return fail("it is empty");
            }
            return match text.split_once(':') {
                Some((scheme, _))
                    if Cloud::ALL.iter().any(|cloud| cloud.scheme() == scheme) || scheme == "file" =>
                {
                    fail("two slashes are missing after the colon")
                }
                _ => Self::directory(Path::new(text)),
            };
        };
        let rest = rest.trim_end_matches('/');
        if scheme == "file" {
            let path = rest.strip_prefix("localhost").unwrap_or(rest);
            return match path.starts_with('/') {
                true => Self::directory(Path::new(path)),
                false => fail("a file URL has three slashes before the path: file:///DIR"),
            };
        }
        let Some(cloud) = Cloud::ALL.into_iter().find(|cloud| cloud.scheme() == scheme) else {
            return fail("it begins with none of file://, s3://, az://, gs://");
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return fail("the name of the bucket is missing");
        }
        if !bucket.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
            return fail(
                "the name of the bucket has other characters than letters, digits, `-`, `_` and `.`",
            );
        }
        let Some(prefix) = ObjectPath::parse(prefix).ok().filter(|_| !prefix.starts_with('/')) else {
            return fail("its path has empty parts, `..` or control characters");
        };
        Ok(Self { place: Place::Bucket { cloud, bucket: bucket.to_owned() }, prefix })
    }

    fn directory(path: &Path) -> Result<Self, ArtifactError> {
        let local = |source| ArtifactError::Local { what: "find", path: path.to_owned(), source };
        let whole = std::path::absolute(path).map_err(local)?;
        Ok(Self { place: Place::Directory(whole), prefix: ObjectPath::ROOT })
    }

    /// What `PHALANX_ARTIFACTS` names; `None` if it names nothing: files stay in the run directory.
    ///
    /// # Errors
    /// It cannot be understood.
    pub fn from_env() -> Result<Option<Self>, ArtifactError> {
        match std::env::var(ARTIFACTS_VARIABLE) {
            Ok(text) if !text.trim().is_empty() && text.trim() != "none" => Self::parse(&text).map(Some),
            _ => Ok(None),
        }
    }

    /// The cloud it is in; `None` for a directory.
    pub fn cloud(&self) -> Option<Cloud> {
        match self.place {
            Place::Directory(_) => None,
            Place::Bucket { cloud, .. } => Some(cloud),
        }
    }

    /// The URL of something below.
    pub(crate) fn join(&self, path: &ObjectPath) -> String {
        let whole = self.to_string();
        format!("{}/{path}", whole.trim_end_matches('/'))
    }
}

impl fmt::Display for ArtifactUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Directory(path) => write!(f, "file://{}", path.display()),
            Place::Bucket { cloud, bucket } => {
                write!(f, "{}://{bucket}", cloud.scheme())?;
                if self.prefix.is_root() { Ok(()) } else { write!(f, "/{}", self.prefix) }
            }
        }
    }
}

/// Users and passwords before an `@`, and everything after a `?`, are not printed.
fn without_secrets(text: &str) -> String {
    let text = text.split('?').next().unwrap_or_default();
    match (text.split_once("://"), text.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://…@{rest}"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_printed_as_they_are_read() {
        for url in ["s3://b", "s3://b/a/b", "az://c/p", "gs://b.example/p", "file:///srv/runs"] {
            assert_eq!(ArtifactUrl::parse(url).unwrap().to_string(), url);
        }
        assert_eq!(ArtifactUrl::parse(" s3://b/a/ ").unwrap().to_string(), "s3://b/a");
        let here = std::env::current_dir().unwrap();
        let relative = ArtifactUrl::parse("some/where").unwrap();
        assert_eq!(relative.to_string(), format!("file://{}/some/where", here.display()));
        assert_eq!(ArtifactUrl::parse("s3://b").unwrap().join(&ObjectPath::from("x/y")), "s3://b/x/y");
        assert_eq!(ArtifactUrl::parse("gs://b").unwrap().cloud(), Some(Cloud::Google));
    }

    #[test]
    fn other_urls_are_refused_and_name_themselves_without_secrets() {
        let cases = [
            "",
            "s3://",
            "s3:///x",
            "s3:b/x",
            "http://b/x",
            "ftp://b",
            "file:/x",
            "file://host/x",
            "s3://b/a/../x",
            "s3://b//x",
            "s3://key:secret@b/x",
            "az://c?sig=secret",
        ];
        for url in cases {
            let Err(error) = ArtifactUrl::parse(url) else { panic!("{url} was taken") };
            assert!(!error.to_string().contains("secret"), "{error}");
            assert!(error.is_usage() && error.hint().is_some(), "{error}");
        }
    }
}
