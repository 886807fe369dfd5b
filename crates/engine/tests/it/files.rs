//! The files of `tests/reference`: what PyTorch exported and computed.

use phalanx_engine::Model;
use phalanx_graph::{Dim, Graph};
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A tensor of a reference file, as floats.
#[derive(Debug, Clone)]
pub(crate) struct Array {
    pub(crate) shape: Vec<usize>,
    pub(crate) data: Vec<f32>,
}

/// A reference file.
#[derive(Debug)]
pub(crate) struct Reference {
    pub(crate) tensors: BTreeMap<String, Array>,
    pub(crate) metadata: BTreeMap<String, String>,
}

pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/reference").join(name)
}

impl Reference {
    pub(crate) fn open(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap();
        let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
        let metadata = metadata.metadata().clone().unwrap_or_default().into_iter().collect();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let array = |t: safetensors::tensor::TensorView<'_>| {
            let data = t.data();
            let data: Vec<f32> = match t.dtype() {
                Dtype::F32 => data.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
                Dtype::F64 => data.as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b) as f32).collect(),
                Dtype::I64 => data.as_chunks::<8>().0.iter().map(|b| i64::from_le_bytes(*b) as f32).collect(),
                Dtype::BOOL => data.iter().map(|b| f32::from(*b)).collect(),
                other => panic!("{other:?} in a reference file"),
            };
            Array { shape: t.shape().to_vec(), data }
        };
        let tensors = tensors.tensors().into_iter().map(|(name, t)| (name, array(t))).collect();
        Self { tensors, metadata }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Array> {
        self.tensors.get(name)
    }

    /// The tensors whose names begin with the prefix, without it.
    pub(crate) fn under<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a Array)> {
        self.tensors.iter().filter_map(move |(name, t)| Some((name.strip_prefix(prefix)?, t)))
    }
}

/// The batch size these inputs mean for a graph.
pub(crate) fn batch_of(graph: &Graph, inputs: &[&Array]) -> usize {
    let pairs = graph.inputs.iter().zip(inputs);
    let mut dims = pairs.flat_map(|(id, a)| graph.shape(*id).dims().iter().zip(&a.shape));
    let batch = dims.find_map(|(d, n)| if let Dim::Batch(k) = d { Some(n / k) } else { None });
    batch.unwrap_or(1)
}

/// How far two arrays are apart, relative to the larger of their norms; zero gradients compare absolutely.
pub(crate) fn distance(got: &[f32], wanted: &[f32]) -> f64 {
    if got.len() != wanted.len() {
        return f64::INFINITY;
    }
    let norm = |v: &[f32]| v.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    let pairs = got.iter().zip(wanted);
    let apart: f64 =
        pairs.map(|(a, b)| if a == b { 0.0 } else { f64::from(a - b).powi(2) }).sum::<f64>().sqrt();
    apart / norm(wanted).max(norm(got)).max(1e-6 * (wanted.len() as f64).sqrt()).max(1e-12)
}

/// The gradients of all parameters, as in the state_dict.
pub(crate) fn gradients(model: &mut dyn Model) -> BTreeMap<String, Vec<f32>> {
    let mut flat = Vec::new();
    model.update(&mut |_, _, gradient| flat.push(gradient.to_vec()));
    let named = model.parameters().iter().zip(flat).enumerate();
    named.map(|(i, (p, g))| (p.name.clone(), model.to_user(i, &g))).collect()
}
