//! The outputs of a model for many samples, and their file formats.

use phalanx_data::npy_header;
use phalanx_graph::{Weights, weights};
use phalanx_types::{DType, Tensor, TensorError};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use zip::write::SimpleFileOptions;

/// The file format of predictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PredictionFormat {
    Npz,
    /// The outputs alone.
    Npy,
    Csv,
    Safetensors,
}

impl PredictionFormat {
    /// The format for a file name.
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "npz" => Some(Self::Npz),
            "npy" => Some(Self::Npy),
            "csv" => Some(Self::Csv),
            "safetensors" => Some(Self::Safetensors),
            _ => None,
        }
    }
}

/// Why predictions could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WritePredictionsError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Zip(#[from] zip::result::ZipError),
    #[error(transparent)]
    Tensor(#[from] TensorError),
    #[error(transparent)]
    Weights(#[from] weights::WeightsError),
}

/// The outputs of all samples.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Predictions {
    values: Vec<f32>,
    /// The shape of one sample's output.
    sample: Vec<usize>,
    samples: usize,
}

impl Predictions {
    /// Adds the outputs of a batch; `shape` has the batch as its first axis.
    pub fn add(&mut self, output: &[f32], shape: &[usize]) {
        let (batch, sample) = shape.split_first().map_or((0, &[][..]), |(batch, sample)| (*batch, sample));
        self.values.extend_from_slice(output);
        self.sample = sample.to_vec();
        self.samples += batch;
    }

    /// How many samples there are.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// All outputs, one sample after the other.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The output of one sample.
    pub fn sample(&self, index: usize) -> Option<&[f32]> {
        self.values.chunks_exact(self.sample.iter().product::<usize>().max(1)).nth(index)
    }

    /// The shape of all outputs; the first axis counts samples.
    pub fn shape(&self) -> Vec<usize> {
        std::iter::once(self.samples).chain(self.sample.iter().copied()).collect()
    }

    /// The most likely class of every position: the index of the largest output along the last axis, the first among
    /// equals. Empty if there is a single output.
    pub fn classes(&self) -> Vec<usize> {
        let argmax = self.argmax().map(|(_, argmax)| argmax).unwrap_or_default();
        argmax.into_iter().map(|class| usize::try_from(class).unwrap_or_default()).collect()
    }

    /// The same with its shape.
    fn argmax(&self) -> Option<(Vec<usize>, Vec<i64>)> {
        let classes = *self.sample.last().filter(|classes| **classes > 1)?;
        let largest = |row: &[f32]| {
            let better = |best: usize, (i, x): (usize, &f32)| if *x > row[best] { i } else { best };
            row.iter().enumerate().fold(0, better) as i64
        };
        let mut shape = self.shape();
        shape.pop();
        Some((shape, self.values.chunks_exact(classes).map(largest).collect()))
    }

    /// Writes `outputs` and, if outputs are classes, `argmax`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path, format: PredictionFormat) -> Result<(), WritePredictionsError> {
        match format {
            PredictionFormat::Npz => self.npz(path),
            PredictionFormat::Npy => self.npy(path),
            PredictionFormat::Csv => self.csv(path),
            PredictionFormat::Safetensors => self.safetensors(path),
        }
    }

    fn npz(&self, path: &Path) -> Result<(), WritePredictionsError> {
        let mut archive = zip::ZipWriter::new(BufWriter::new(File::create(path)?));
        let options = SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Stored)
            .large_file(self.values.len() > 1 << 28);
        archive.start_file("outputs.npy", options)?;
        archive.write_all(&npy_header("<f4", &self.shape()))?;
        for value in &self.values {
            archive.write_all(&value.to_le_bytes())?;
        }
        if let Some((shape, argmax)) = self.argmax() {
            archive.start_file("argmax.npy", options)?;
            archive.write_all(&npy_header("<i8", &shape))?;
            for value in argmax {
                archive.write_all(&value.to_le_bytes())?;
            }
        }
        archive.finish()?.flush()?;
        Ok(())
    }

    fn npy(&self, path: &Path) -> Result<(), WritePredictionsError> {
        let mut out = BufWriter::new(File::create(path)?);
        out.write_all(&npy_header("<f4", &self.shape()))?;
        for value in &self.values {
            out.write_all(&value.to_le_bytes())?;
        }
        out.flush()?;
        Ok(())
    }

    /// A line for each sample: the class, if there is one, and all outputs.
    fn csv(&self, path: &Path) -> Result<(), WritePredictionsError> {
        let mut out = BufWriter::new(File::create(path)?);
        let size: usize = self.sample.iter().product();
        let argmax = self.argmax().map(|(_, argmax)| argmax).filter(|argmax| argmax.len() == self.samples);
        let outputs: Vec<String> = (0..size).map(|i| format!("output_{i}")).collect();
        let class = if argmax.is_some() { "argmax," } else { "" };
        writeln!(out, "{class}{}", outputs.join(","))?;
        for (row, values) in self.values.chunks_exact(size.max(1)).enumerate() {
            if let Some(class) = argmax.as_ref().and_then(|argmax| argmax.get(row)) {
                write!(out, "{class},")?;
            }
            let values: Vec<String> = values.iter().map(f32::to_string).collect();
            writeln!(out, "{}", values.join(","))?;
        }
        out.flush()?;
        Ok(())
    }

    fn safetensors(&self, path: &Path) -> Result<(), WritePredictionsError> {
        let dims = |shape: &[usize]| shape.iter().map(|d| *d as u64).collect::<Vec<u64>>();
        let mut tensors = Weights::new();
        tensors.insert("outputs".to_owned(), Tensor::from_f32(dims(&self.shape()), &self.values)?);
        if let Some((shape, argmax)) = self.argmax() {
            let bytes: Vec<u8> = argmax.iter().flat_map(|class| class.to_le_bytes()).collect();
            tensors.insert("argmax".to_owned(), Tensor::new(DType::I64, dims(&shape), bytes.into())?);
        }
        weights::save(path, &tensors)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_as_numpy_wants_it() {
        for shape in [&[3][..], &[360, 10], &[], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]] {
            let header = npy_header("<f4", shape);
            assert_eq!((header.len() % 64, header.last()), (0, Some(&b'\n')), "{shape:?}");
        }
        assert!(String::from_utf8_lossy(&npy_header("<f4", &[3])).contains("'shape': (3,), }"));
    }

    #[test]
    fn of_equal_outputs_the_first_is_the_class() {
        let mut all = Predictions::default();
        all.add(&[0.1, 0.9, 0.5, 0.5], &[2, 2]);
        all.add(&[1.0, 0.0], &[1, 2]);
        assert_eq!(all.argmax(), Some((vec![3], vec![1, 0, 0])));
        assert_eq!(all.shape(), [3, 2]);
    }
}
