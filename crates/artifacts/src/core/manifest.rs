//! What a push leaves behind when it is whole: the names, sizes and hashes of all files of a run.

use super::path::{FilePath, PathFault};
use serde::{Deserialize, Serialize};

/// The version of manifests that this program writes and reads.
const VERSION: u32 = 1;
/// Hexadecimal digits of a run's identity and of a hash.
const UID_DIGITS: usize = 32;
const SHA256_DIGITS: usize = 64;
/// Manifests with higher numbers are of a writer that wants to be the last.
const MOST_PUSHES: u64 = 1_000_000_000;

/// A whole push of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    pub uid: String,
    /// The name the run had; the name of a directory.
    pub name: String,
    /// Pushes of a run are numbered; the highest counts.
    pub number: u64,
    pub unix_ms: u64,
    /// Sorted by path.
    pub files: Vec<ManifestFile>,
}

/// A file of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestFile {
    pub path: FilePath,
    pub size: u64,
    pub sha256: String,
    /// What the store calls this content.
    pub e_tag: Option<String>,
}

/// Why a manifest is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestFault {
    #[error("it cannot be read as a manifest")]
    Syntax,
    #[error("it has version {found}, and this program knows version {VERSION}")]
    Version { found: u32 },
    #[error("it is of the run {found:?}")]
    OtherRun { found: String },
    #[error("the run's name {name:?} cannot be taken: {why}")]
    Name { name: String, why: PathFault },
    #[error("the file name {path:?} cannot be taken: {why}")]
    Path { path: String, why: PathFault },
    #[error("the hash of {path} is none")]
    Hash { path: FilePath },
    #[error("{path} is there twice, or a file and a directory at once")]
    Twice { path: FilePath },
}

#[derive(Serialize, Deserialize)]
struct Written {
    version: u32,
    run: WrittenRun,
    number: u64,
    unix_ms: u64,
    files: Vec<WrittenFile>,
}

#[derive(Serialize, Deserialize)]
struct WrittenRun {
    uid: String,
    name: String,
}

#[derive(Serialize, Deserialize)]
struct WrittenFile {
    path: String,
    size: u64,
    sha256: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    e_tag: Option<String>,
}

impl Manifest {
    pub(crate) fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        let file = |file: &ManifestFile| WrittenFile {
            path: file.path.as_str().to_owned(),
            size: file.size,
            sha256: file.sha256.clone(),
            e_tag: file.e_tag.clone(),
        };
        let run = WrittenRun { uid: self.uid.clone(), name: self.name.clone() };
        let files = self.files.iter().map(file).collect();
        serde_json::to_vec_pretty(&Written {
            version: VERSION,
            run,
            number: self.number,
            unix_ms: self.unix_ms,
            files,
        })
    }

    /// Reads what was written for a run, by a program that need not be trusted.
    ///
    /// # Errors
    /// It is no manifest of this run, or has names that are not taken.
    pub(crate) fn parse(bytes: &[u8], uid: &str) -> Result<Self, ManifestFault> {
        let written: Written = serde_json::from_slice(bytes).map_err(|_bad| ManifestFault::Syntax)?;
        if written.version != VERSION {
            return Err(ManifestFault::Version { found: written.version });
        }
        if written.run.uid != uid {
            return Err(ManifestFault::OtherRun { found: written.run.uid });
        }
        let name = written.run.name;
        let fault = match FilePath::new(&name) {
            Ok(_) if name.contains('/') => Some(PathFault::Traversal),
            Ok(_) => None,
            Err(fault) => Some(fault),
        };
        if let Some(why) = fault {
            return Err(ManifestFault::Name { name, why });
        }
        let mut files = written.files.into_iter().map(file).collect::<Result<Vec<_>, _>>()?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        no_clash(&files)?;
        Ok(Self { uid: written.run.uid, name, number: written.number, unix_ms: written.unix_ms, files })
    }

    /// Whether the other one names the same content.
    pub(crate) fn same_files(&self, other: &[ManifestFile]) -> bool {
        self.files == other
    }

    pub fn bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.size))
    }
}

fn file(written: WrittenFile) -> Result<ManifestFile, ManifestFault> {
    let WrittenFile { path, size, sha256, e_tag } = written;
    let path = FilePath::new(&path).map_err(|why| ManifestFault::Path { path, why })?;
    if sha256.len() != SHA256_DIGITS || !is_lower_hex(&sha256) {
        return Err(ManifestFault::Hash { path });
    }
    Ok(ManifestFile { path, size, sha256, e_tag })
}

/// No file twice, and no file where another one needs a directory.
fn no_clash(files: &[ManifestFile]) -> Result<(), ManifestFault> {
    let names: std::collections::BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let twice = files.windows(2).find(|pair| pair[0].path == pair[1].path).map(|pair| &pair[1]);
    let below_a_file = |file: &&ManifestFile| {
        let path = file.path.as_str();
        path.match_indices('/').any(|(at, _)| names.contains(&path[..at]))
    };
    match twice.or_else(|| files.iter().find(below_a_file)) {
        Some(file) => Err(ManifestFault::Twice { path: file.path.clone() }),
        None => Ok(()),
    }
}

/// Whether a text is a run's identity.
pub(crate) fn is_uid(text: &str) -> bool {
    text.len() == UID_DIGITS && is_lower_hex(text)
}

fn is_lower_hex(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// The file name of a manifest.
pub(crate) fn file_name(number: u64) -> String {
    format!("manifest-{number}.json")
}

/// The number in the file name of a manifest.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("manifest-")?.strip_suffix(".json")?;
    let number: u64 = digits.parse().ok()?;
    (number.to_string() == digits && number <= MOST_PUSHES).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const UID: &str = "0123456789abcdef0123456789abcdef";

    fn hash() -> String {
        "ab".repeat(32)
    }

    fn manifest(files: Value) -> Value {
        json!({ "version": 1, "run": { "uid": UID, "name": "first" }, "number": 3, "unix_ms": 5, "files": files })
    }

    fn parse(value: &Value) -> Result<Manifest, ManifestFault> {
        Manifest::parse(value.to_string().as_bytes(), UID)
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written() {
        let files = json!([{ "path": "b/c", "size": 2, "sha256": hash(), "e_tag": "x" },
                           { "path": "a", "size": 1, "sha256": hash() }]);
        let read = parse(&manifest(files)).unwrap();
        assert_eq!((read.number, read.name.as_str(), read.bytes()), (3, "first", 3));
        let paths: Vec<&str> = read.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["a", "b/c"]);
        assert_eq!(Manifest::parse(&read.to_json().unwrap(), UID), Ok(read));
    }

    #[test]
    fn manifests_of_others_are_refused() {
        let file = |path: &str| json!([{ "path": path, "size": 1, "sha256": hash() }]);
        for path in ["../x", "/x", "a/../../x", "a\u{0}", "", "manifest-1.json"] {
            let read = parse(&manifest(file(path)));
            assert!(matches!(read, Err(ManifestFault::Path { .. })), "{path:?}: {read:?}");
        }
        let two = |a: &str, b: &str| json!([{ "path": a, "size": 1, "sha256": hash() }, { "path": b, "size": 1, "sha256": hash() }]);
        for (a, b) in [("a", "a"), ("a", "a/b"), ("a/b/c", "a/b"), ("a/b/c/d", "a")] {
            assert!(matches!(parse(&manifest(two(a, b))), Err(ManifestFault::Twice { .. })), "{a} {b}");
        }
        assert!(parse(&manifest(two("a", "a-b"))).is_ok());
        let bad_hash = json!([{ "path": "a", "size": 1, "sha256": "../../x" }]);
        assert!(matches!(parse(&manifest(bad_hash)), Err(ManifestFault::Hash { .. })));
        let mut other = manifest(json!([]));
        other["version"] = 2.into();
        assert_eq!(parse(&other), Err(ManifestFault::Version { found: 2 }));
        let mut other = manifest(json!([]));
        other["run"]["uid"] = "ff".into();
        assert_eq!(parse(&other), Err(ManifestFault::OtherRun { found: "ff".to_owned() }));
        for name in ["..", "a/b", "/", ""] {
            let mut other = manifest(json!([]));
            other["run"]["name"] = name.into();
            assert!(matches!(parse(&other), Err(ManifestFault::Name { .. })), "{name}");
        }
        assert_eq!(Manifest::parse(b"{", UID), Err(ManifestFault::Syntax));
    }

    #[test]
    fn manifests_are_numbered_in_one_way() {
        assert_eq!(number_of(&file_name(12)), Some(12));
        for name in [
            "manifest-01.json",
            "manifest-.json",
            "manifest-+1.json",
            "manifest-1",
            "x-1.json",
            "manifest-1000000001.json",
            "manifest-18446744073709551616.json",
        ] {
            assert_eq!(number_of(name), None, "{name}");
        }
        assert!(is_uid(UID) && !is_uid("0123") && !is_uid(&UID.to_uppercase()));
    }
}
