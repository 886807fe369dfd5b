//! `phalanx store put|get|list|rm`: tensors by name, from and to files.

use super::at::{At, failure};
use crate::failure::Failure;
use crate::output::{Output, Render, listing_of};
use clap::Args;
use phalanx_data::{WriteTensorsError, read_tensors, write_tensors};
use phalanx_resp::Reply;
use phalanx_store_client::{KeyKind, Store};
use phalanx_types::{ByteSize, Tensor};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, Args)]
#[command(
    after_help = "Every array of the file becomes a tensor of its name, behind the prefix if there is one.

Examples:
  phalanx store put samples.npz
  phalanx store put weights.safetensors --prefix run7/
  phalanx store put x.npy --as velocity"
)]
pub(crate) struct PutArgs {
    /// Files of arrays: npy, npz or safetensors.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// What every name begins with.
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,
    /// The name of the only array of the only file.
    #[arg(long = "as", value_name = "NAME", conflicts_with = "prefix")]
    name: Option<String>,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx store get velocity                         its type, shape and first values
  phalanx store get velocity pressure -o state.npz   both as a file
  phalanx store get velocity --wait 30s -o v.npy     as soon as it is there")]
pub(crate) struct GetArgs {
    /// Names of tensors.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Where to write them; the name ends in .npy, .npz or .safetensors. Shown when not given.
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// How long to wait for those that are not there.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    wait: Option<Duration>,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx store export -o all.safetensors
  phalanx store export 'run7/*' -o run7.npz")]
pub(crate) struct ExportArgs {
    /// Which keys, with * and ? as in file names.
    #[arg(default_value = "*", value_name = "PATTERN")]
    pattern: String,
    /// Where to write them; the name ends in .npy, .npz or .safetensors.
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx store list
  phalanx store list 'run7/*' --output json")]
pub(crate) struct ListArgs {
    /// Which keys, with * and ? as in file names.
    #[arg(default_value = "*", value_name = "PATTERN")]
    pattern: String,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx store rm velocity pressure
  phalanx store rm --matching 'run7/*'")]
pub(crate) struct RemoveArgs {
    /// Keys to delete.
    #[arg(value_name = "KEY", required_unless_present = "matching")]
    keys: Vec<String>,
    /// Delete every key that matches.
    #[arg(long, value_name = "PATTERN")]
    matching: Option<String>,
    #[command(flatten)]
    at: At,
}

/// One key of a store.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    kind: String,
    dtype: Option<String>,
    shape: Option<Vec<u64>>,
    bytes: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    first: Vec<f32>,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Rows(Vec<Row>);

impl Render for Rows {
    fn table(&self) -> String {
        let cells = |row: &Row| {
            let shape = row.shape.as_ref().map(|shape| format!("{shape:?}")).unwrap_or_default();
            let first: Vec<String> = row.first.iter().map(ToString::to_string).collect();
            vec![
                row.name.clone(),
                row.kind.clone(),
                row.dtype.clone().unwrap_or_default(),
                shape,
                ByteSize(row.bytes).to_string(),
                first.join(" "),
            ]
        };
        listing_of(&["name", "kind", "type", "shape", "size", "first"], self.0.iter().map(cells))
    }

    fn quiet(&self) -> String {
        self.0.iter().map(|row| row.name.as_str()).collect::<Vec<_>>().join("\n")
    }
}

fn row(name: &str, tensor: &Tensor, shown: usize) -> Row {
    let first = tensor.to_floats().into_iter().take(shown).collect();
    Row {
        name: name.to_owned(),
        kind: "tensor".to_owned(),
        dtype: Some(format!("{:?}", tensor.dtype()).to_lowercase()),
        shape: Some(tensor.shape().to_vec()),
        bytes: tensor.data().len() as u64,
        first,
    }
}

pub(crate) fn put(args: PutArgs, output: Output) -> Result<(), Failure> {
    let mut tensors = Vec::new();
    for file in &args.files {
        for (name, tensor) in read_tensors(file).map_err(Failure::usage)? {
            tensors.push((format!("{}{name}", args.prefix), tensor));
        }
    }
    if let Some(name) = args.name {
        let [(only, _)] = &mut tensors[..] else {
            let problem = anyhow::anyhow!("`--as` names one array, and there are {}", tensors.len());
            return Err(Failure::usage(problem).hint("`--prefix` sets what all names begin with"));
        };
        *only = name;
    }
    let store = args.at.connect()?;
    store.put_all(tensors.iter().map(|(name, tensor)| (name.as_str(), tensor))).map_err(failure)?;
    output.print(&Rows(tensors.iter().map(|(name, tensor)| row(name, tensor, 0)).collect()))
}

pub(crate) fn get(args: GetArgs, output: Output) -> Result<(), Failure> {
    let store = args.at.connect()?;
    let mut tensors = Vec::new();
    for name in args.names {
        if let Some(within) = args.wait {
            store.wait(&name, within).map_err(failure)?;
        }
        let tensor = store.get(&name).map_err(failure)?;
        tensors.push((name, tensor));
    }
    match args.out {
        None => output.print(&Rows(tensors.iter().map(|(name, tensor)| row(name, tensor, 4)).collect())),
        Some(out) => write(&out, &tensors, output),
    }
}

pub(crate) fn export(args: &ExportArgs, output: Output) -> Result<(), Failure> {
    let store = args.at.connect()?;
    let mut tensors = Vec::new();
    for key in keys(&store, &args.pattern)? {
        if store.kind(&key).map_err(failure)? == KeyKind::Tensor {
            let tensor = store.get(&key).map_err(failure)?;
            tensors.push((key, tensor));
        }
    }
    if tensors.is_empty() {
        return Err(Failure::usage(anyhow::anyhow!("no tensor in the store matches {:?}", args.pattern)));
    }
    write(&args.out, &tensors, output)
}

fn write(out: &Path, tensors: &[(String, Tensor)], output: Output) -> Result<(), Failure> {
    write_tensors(out, tensors).map_err(|error| {
        let is_usage = !matches!(error, WriteTensorsError::Io(_) | WriteTensorsError::Zip(_));
        let error = anyhow::Error::from(error).context(format!("could not write {}", out.display()));
        if is_usage { Failure::usage(error) } else { Failure::infrastructure(error) }
    })?;
    output.print(&Rows(tensors.iter().map(|(name, tensor)| row(name, tensor, 0)).collect()))
}

pub(crate) fn list(args: &ListArgs, output: Output) -> Result<(), Failure> {
    let store = args.at.connect()?;
    let keys = keys(&store, &args.pattern)?;
    let rows = keys.iter().map(|key| described(&store, key)).collect::<Result<_, _>>()?;
    output.print(&Rows(rows))
}

pub(crate) fn remove(args: RemoveArgs, output: Output) -> Result<(), Failure> {
    let store = args.at.connect()?;
    let mut names = args.keys;
    if let Some(pattern) = &args.matching {
        names.extend(keys(&store, pattern)?);
    }
    let mut rows = Vec::new();
    for name in names {
        let row = described(&store, &name)?;
        if row.kind == "none" {
            let missing = anyhow::anyhow!("there is no key {name:?} in the store");
            return Err(Failure::usage(missing));
        }
        store.command(&[b"DEL", name.as_bytes()]).map_err(failure)?;
        rows.push(row);
    }
    output.print(&Rows(rows))
}

/// All keys that match, sorted.
fn keys(store: &Store, pattern: &str) -> Result<Vec<String>, Failure> {
    let keys = store.keys_like(pattern).map_err(failure)?;
    Ok(keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect())
}

fn described(store: &Store, key: &str) -> Result<Row, Failure> {
    let kind = match store.kind(key).map_err(failure)? {
        KeyKind::Tensor => return Ok(row(key, &store.get(key).map_err(failure)?, 0)),
        KeyKind::Missing => "none".to_owned(),
        KeyKind::Other(name) => name,
    };
    let usage = store.command(&[b"MEMORY", b"USAGE", key.as_bytes()]).map_err(failure)?;
    let bytes = if let Reply::Integer(bytes) = usage { u64::try_from(bytes).unwrap_or(0) } else { 0 };
    Ok(Row { name: key.to_owned(), kind, dtype: None, shape: None, bytes, first: Vec::new() })
}
