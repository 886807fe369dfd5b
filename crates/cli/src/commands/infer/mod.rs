//! `phalanx infer`: what a model that nodes serve says about samples.

use crate::args::{DomainArgs, duration};
use crate::commands::job::main_failure;
use crate::commands::train::train_failure;
use crate::failure::Failure;
use crate::output::{Output, Render, summary};
use anyhow::{Context, anyhow};
use clap::Args;
use phalanx_data::{Batch, Columns, Dataset, SourceSpec};
use phalanx_fabric::NodeKind;
use phalanx_infer::{EdgeNode, InferError, InferenceHandle};
use phalanx_records::{PredictionFormat, Predictions};
use phalanx_types::{ByteSize, DType, Parcel, Tensor};
use serde::Serialize;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Requests that are on their way at once.
const IN_FLIGHT: usize = 64;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx infer --model digits digits.npz --x x_test -o outputs.npz
  phalanx infer --model digits samples.csv --output json")]
pub(crate) struct InferArgs {
    /// The name under which nodes serve the model; `phalanx nodes` shows the names there are.
    #[arg(long, value_name = "NAME")]
    model: String,
    /// The file with the samples.
    #[arg(value_name = "DATA")]
    data: PathBuf,
    /// The array, or the columns, that are the samples.
    #[arg(long, value_delimiter = ',')]
    x: Vec<String>,
    /// Where to write; the name ends in .npz, .npy, .csv or .safetensors. Printed when not given.
    #[arg(long, short = 'o', value_name = "FILE")]
    out: Option<PathBuf>,
    /// Samples in each request; several nodes share the requests.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    batch: u64,
    /// The most memory that opening the samples may take, such as 8GiB; half of the machine's when not given.
    #[arg(long, value_name = "SIZE")]
    limit: Option<ByteSize>,
    /// How long to look for a node that serves the model.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    patience: Duration,
    /// Fail when a request has no answer after this long; otherwise wait for a node.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    deadline: Option<Duration>,
    #[command(flatten)]
    domain: DomainArgs,
}

#[derive(Debug, Serialize)]
struct Inferred {
    model: String,
    samples: usize,
    shape: Vec<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
    /// The most likely class of every sample, where outputs stand for classes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    argmax: Vec<usize>,
    /// The outputs of every sample, unless they are in a file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    outputs: Vec<Vec<f32>>,
}

impl Render for Inferred {
    fn table(&self) -> String {
        let rows = [
            ("model", self.model.clone()),
            ("samples", self.samples.to_string()),
            ("shape", format!("{:?}", self.shape)),
        ];
        let file = self.file.iter().map(|file| ("file", file.display().to_string()));
        let head = summary(rows.into_iter().chain(file).collect::<Vec<_>>());
        match self.outputs.is_empty() {
            true => head,
            false => format!("{head}\n{}", self.quiet()),
        }
    }

    fn quiet(&self) -> String {
        let text = |row: &Vec<f32>| row.iter().map(f32::to_string).collect::<Vec<_>>().join(",");
        match &self.file {
            Some(file) => file.display().to_string(),
            None => self.outputs.iter().map(text).collect::<Vec<_>>().join("\n"),
        }
    }
}

pub(crate) async fn run(args: InferArgs, output: Output) -> Result<(), Failure> {
    let format = |path: &PathBuf| {
        PredictionFormat::of(path).ok_or_else(|| {
            Failure::usage(anyhow!("cannot tell how to write {}", path.display()))
                .hint("give a name that ends in .npz, .npy, .csv or .safetensors")
        })
    };
    let format = args.out.as_ref().map(format).transpose()?;
    let data = open(&args)?;
    let edge = EdgeNode::start(args.domain.fabric("edge", NodeKind::Edge)?).await.map_err(infer_failure)?;
    let mut edge = edge.patience(args.patience);
    if let Some(deadline) = args.deadline {
        edge = edge.deadline(deadline);
    }
    let all = ask(&edge, &args, &data).await;
    edge.shutdown().await;
    let all = all?;
    if let (Some(path), Some(format)) = (&args.out, format) {
        all.write(path, format)
            .with_context(|| format!("could not write {}", path.display()))
            .map_err(Failure::infrastructure)?;
    }
    let rows = 0..if args.out.is_some() { 0 } else { all.samples() };
    output.print(&Inferred {
        model: args.model,
        samples: all.samples(),
        shape: all.shape(),
        file: args.out,
        argmax: all.classes(),
        outputs: rows.filter_map(|i| all.sample(i).map(<[f32]>::to_vec)).collect(),
    })
}

fn open(args: &InferArgs) -> Result<Dataset, Failure> {
    let mut spec = SourceSpec { limit: args.limit, ..SourceSpec::file(&args.data) };
    spec.x = match args.x.as_slice() {
        [] => None,
        [one] => Some(Columns::One(one.clone())),
        many => Some(Columns::Many(many.to_vec())),
    };
    Ok(Dataset::open(&spec, Path::new("")).map_err(train_failure)?.without_labels())
}

/// Sends all samples, a few requests ahead of the answers, and joins the outputs.
async fn ask(edge: &EdgeNode, args: &InferArgs, data: &Dataset) -> Result<Predictions, Failure> {
    let samples = data.fixed_len().map_err(train_failure)?;
    let step = usize::try_from(args.batch).unwrap_or(usize::MAX);
    let mut all = Predictions::default();
    let mut waiting: VecDeque<InferenceHandle> = VecDeque::new();
    let mut batch = Batch::new();
    for from in (0..samples).step_by(step) {
        let indices: Vec<usize> = (from..samples.min(from.saturating_add(step))).collect();
        data.read(&indices, &mut batch).map_err(train_failure)?;
        let inputs = Parcel::default().with_tensor("x", tensor(data, &batch)?);
        waiting.push_back(edge.submit(&args.model, inputs).await.map_err(infer_failure)?);
        if waiting.len() >= IN_FLIGHT
            && let Some(first) = waiting.pop_front()
        {
            take(first, &mut all).await?;
        }
    }
    for handle in waiting {
        take(handle, &mut all).await?;
    }
    Ok(all)
}

async fn take(handle: InferenceHandle, all: &mut Predictions) -> Result<(), Failure> {
    let answer = handle.answer().await.map_err(infer_failure)?;
    let Some((_, output)) = answer.tensors.first() else {
        return Err(Failure::work(anyhow!("the model answered without an output")));
    };
    let shape: Vec<usize> = output.shape().iter().map(|d| usize::try_from(*d).unwrap_or(0)).collect();
    all.add(&output.to_floats(), &shape);
    Ok(())
}

/// Samples as they go over the wire: integers as integers, everything else as floats.
fn tensor(data: &Dataset, batch: &Batch) -> Result<Tensor, Failure> {
    let sample = data.x_shape().iter().map(|d| *d as u64);
    let shape: Vec<u64> = std::iter::once(batch.len as u64).chain(sample).collect();
    let floats = matches!(data.x_dtype(), DType::F32 | DType::F64 | DType::F16 | DType::Bf16);
    let tensor = if floats {
        Tensor::from_f32(shape, &batch.x)
    } else {
        let bytes: Vec<u8> = batch.x.iter().flat_map(|x| (*x as i32).to_le_bytes()).collect();
        Tensor::new(DType::I32, shape, bytes.into())
    };
    tensor.map_err(Failure::infrastructure)
}

pub(crate) fn infer_failure(error: InferError) -> Failure {
    let hint = error.hint();
    match error {
        InferError::Main(error) => main_failure(error),
        error @ InferError::UnknownModel { .. } => Failure::usage(error).hint_if(hint),
        error @ InferError::Runtime(_) => Failure::infrastructure(error),
        error => Failure::work(error).hint_if(hint),
    }
}
