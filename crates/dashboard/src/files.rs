//! What lies in a run directory beside its records: configuration, formation, checkpoints, files to download.

use crate::error::ApiError;
use phalanx_records::run_dir::{RUN_FILE, checkpoints};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use serde::Serialize;
use serde_json::Value;
use std::fs::File;
use std::path::{Component, Path};
use std::time::UNIX_EPOCH;

pub(crate) const FORMATION: &str = "formation.json";
/// Files that only the process that trains uses, some of them secret.
const HIDDEN: [&str; 2] = ["lock", "live.json"];
/// The most files in a listing, and how deep directories are looked into.
const MOST_FILES: usize = 2000;
const DEPTH: usize = 3;
/// The longest file that is read into memory.
const MOST_BYTES: u64 = 16 << 20;

/// A value of the resolved run file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ConfigValue {
    pub(crate) key: String,
    pub(crate) value: String,
    /// Where it comes from: `run.toml:3`, `--set`, `default`.
    pub(crate) source: String,
}

/// A file of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct RunFile {
    /// Below the run directory.
    pub(crate) path: String,
    pub(crate) bytes: u64,
    pub(crate) modified_ms: Option<u64>,
}

/// A checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct CheckpointInfo {
    pub(crate) step: u64,
    pub(crate) pass: Option<u64>,
    pub(crate) loss: Option<f64>,
    pub(crate) val_loss: Option<f64>,
    pub(crate) val_acc: Option<f64>,
    pub(crate) bytes: u64,
    pub(crate) files: Vec<String>,
}

/// The resolved configuration, one value after the other.
pub(crate) fn config(run: &Path) -> Result<Vec<ConfigValue>, ApiError> {
    let text = read_text(&run.join(RUN_FILE), "the run file")?.unwrap_or_default();
    Ok(parse_config(&text))
}

/// Values and sources as `run.toml` of a run directory has them: `key = value # source`.
fn parse_config(text: &str) -> Vec<ConfigValue> {
    let (mut section, mut values) = (String::new(), Vec::new());
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').trim_start_matches('[').to_owned();
        } else if let Some((key, rest)) = line.split_once('=').filter(|_| !line.starts_with('#')) {
            let (value, source) = split_comment(rest);
            let key =
                if section.is_empty() { key.trim().to_owned() } else { format!("{section}.{}", key.trim()) };
            values.push(ConfigValue { key, value: value.to_owned(), source: source.to_owned() });
        }
    }
    values
}

/// A value and its comment; a `#` inside quotes belongs to the value.
fn split_comment(text: &str) -> (&str, &str) {
    let mut quote = None;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some('"'), '\\') if !escaped => {
                escaped = true;
                continue;
            }
            (Some(open), c) if c == open && !escaped => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '#') => {
                let source = text[at + 1..].trim();
                return (text[..at].trim(), source.strip_prefix("from ").unwrap_or(source));
            }
            _ => {}
        }
        escaped = false;
    }
    (text.trim(), "")
}

/// The groups of nodes that trained the run, as they were written down.
pub(crate) fn formation(run: &Path) -> Result<Value, ApiError> {
    let text = read_text(&run.join(FORMATION), "the formation")?;
    let read: Option<Value> = text.and_then(|text| serde_json::from_str(&text).ok());
    Ok(read.filter(Value::is_object).unwrap_or_else(|| serde_json::json!({ "epochs": [] })))
}

fn read_text(path: &Path, what: &'static str) -> Result<Option<String>, ApiError> {
    match std::fs::metadata(path) {
        Ok(file) if file.len() > MOST_BYTES => Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ApiError::Read { what, source }),
        Ok(_) => {
            let bytes = std::fs::read(path).map_err(|source| ApiError::Read { what, source })?;
            Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
        }
    }
}

/// The checkpoints that can be read, oldest first.
pub(crate) fn list_checkpoints(run: &Path) -> Vec<CheckpointInfo> {
    let info = |(step, path): (u64, std::path::PathBuf)| {
        let text = read_text(&path.join("manifest.json"), "a manifest").ok()??;
        let manifest: Value = serde_json::from_str(&text).ok()?;
        let files = manifest["files"].as_array().map(Vec::as_slice).unwrap_or_default();
        Some(CheckpointInfo {
            step,
            pass: manifest["pass"].as_u64(),
            loss: manifest["loss"].as_f64(),
            val_loss: manifest["val_loss"].as_f64(),
            val_acc: manifest["val_acc"].as_f64(),
            bytes: files.iter().filter_map(|file| file["bytes"].as_u64()).sum(),
            files: files.iter().filter_map(|file| file["name"].as_str()).map(str::to_owned).collect(),
        })
    };
    checkpoints(run).into_iter().filter_map(info).collect()
}

/// The files of a run that can be downloaded, by path.
pub(crate) fn list_files(run: &Path) -> Vec<RunFile> {
    let mut files = Vec::new();
    collect(run, "", DEPTH, &mut files);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

fn collect(dir: &Path, prefix: &str, depth: usize, files: &mut Vec<RunFile>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let Ok(about) = entry.path().symlink_metadata() else { continue };
        let Ok(name) = entry.file_name().into_string() else { continue };
        if files.len() >= MOST_FILES
            || name.starts_with('.')
            || (prefix.is_empty() && HIDDEN.contains(&&*name))
        {
            continue;
        }
        let path = format!("{prefix}{name}");
        if about.is_dir() && depth > 1 {
            collect(&entry.path(), &format!("{path}/"), depth - 1, files);
        } else if about.is_file() {
            let modified = about.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
            let modified_ms = modified.and_then(|since| u64::try_from(since.as_millis()).ok());
            files.push(RunFile { path, bytes: about.len(), modified_ms });
        }
    }
}

/// Opens a file of a run by its path below the directory. A link that leads out of it is not followed, nor is any other.
pub(crate) fn open_file(run: &Path, path: &str) -> Result<File, ApiError> {
    let missing = || ApiError::NotFound { what: "file", name: path.to_owned() };
    let mut parts = Path::new(path).components();
    let plain = |part: Component<'_>| match part {
        Component::Normal(name) => name.to_str().is_some_and(|name| !name.starts_with('.')),
        _ => false,
    };
    if path.is_empty() || path.contains('\0') || !parts.all(plain) || HIDDEN.contains(&path) {
        return Err(missing());
    }
    let dir = File::open(run).map_err(|source| ApiError::Read { what: "the run directory", source })?;
    let (flags, resolve) = (
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK,
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    );
    let opened = rustix::fs::openat2(&dir, path, flags, Mode::empty(), resolve);
    let file = File::from(opened.map_err(|_refused| missing())?);
    match file.metadata() {
        Ok(about) if about.is_file() => Ok(file),
        _ => Err(missing()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_has_sections_and_sources() {
        let text = "# The values.\n[data.train]\nfile = \"a # b.npz\"  # --set\n[train]\nbatch = 64 # from run.toml:15\n\
                    name = 'x' # default\n";
        let values = parse_config(text);
        let shown: Vec<_> = values.iter().map(|v| (&*v.key, &*v.value, &*v.source)).collect();
        assert_eq!(
            shown,
            [
                ("data.train.file", "\"a # b.npz\"", "--set"),
                ("train.batch", "64", "run.toml:15"),
                ("train.name", "'x'", "default"),
            ]
        );
    }

    #[test]
    fn no_path_leads_out_of_a_run_directory() {
        let top = tempfile::tempdir().unwrap();
        let run = top.path().join("run");
        std::fs::create_dir_all(run.join("checkpoints/step-1")).unwrap();
        for name in ["model.onnx", "lock", "live.json", ".hidden", "checkpoints/step-1/manifest.json"] {
            std::fs::write(run.join(name), "x").unwrap();
        }
        std::fs::write(top.path().join("secret"), "s").unwrap();
        std::os::unix::fs::symlink(top.path().join("secret"), run.join("link")).unwrap();
        std::os::unix::fs::symlink(top.path(), run.join("up")).unwrap();
        assert!(open_file(&run, "model.onnx").is_ok());
        assert!(open_file(&run, "checkpoints/step-1/manifest.json").is_ok());
        let absolute = top.path().join("secret").to_string_lossy().into_owned();
        for path in [
            "../secret",
            "checkpoints/../../secret",
            "link",
            "up/secret",
            "lock",
            "live.json",
            "./lock",
            ".hidden",
            "",
            "checkpoints",
            "model.onnx\0",
            "checkpoints//../../secret",
            absolute.as_str(),
            "/etc/passwd",
            "..",
        ] {
            assert!(open_file(&run, path).is_err(), "{path:?}");
        }
        let listed: Vec<String> = list_files(&run).into_iter().map(|file| file.path).collect();
        assert_eq!(listed, ["checkpoints/step-1/manifest.json", "model.onnx"]);
    }
}
