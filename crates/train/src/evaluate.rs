//! Loss and metrics over a dataset.

use crate::error::TrainError;
use phalanx_data::{Batch, Dataset, Loader, LoaderOptions, Shard, Transform};
use phalanx_engine::{Metric, MetricSum, Model, Objective, Pass, Target, Threads};
use phalanx_records::{Evaluation, Sums};

const SLOT: usize = 0;

/// Running sums over samples.
#[derive(Debug)]
pub struct Adding {
    samples: u64,
    loss: f64,
    metrics: Vec<MetricSum>,
}

impl Adding {
    pub fn finish(self) -> Sums {
        let Self { samples, loss, metrics } = self;
        Sums { samples, loss, metrics: metrics.iter().map(MetricSum::parts).collect() }
    }
}

/// How to evaluate.
#[derive(Debug, Clone)]
pub struct Evaluator<'a> {
    pub loss: Objective,
    pub metrics: &'a [Metric],
    pub transform: &'a Transform,
    /// Samples computed at once.
    pub batch: usize,
    /// The batch size of the model, if it is fixed.
    pub fixed: Option<usize>,
    pub threads: &'a Threads,
}

impl Evaluator<'_> {
    fn loader(&self, data: &Dataset, shard: Option<Shard>) -> Result<Loader, TrainError> {
        let batch = self.fixed.unwrap_or(self.batch);
        let options = LoaderOptions { batch, shard, ..LoaderOptions::default() };
        Ok(Loader::new(data.clone(), self.transform, options)?)
    }

    /// Runs all samples, in the order of the file.
    ///
    /// # Errors
    /// The samples cannot be read, or do not fit the model.
    pub fn run(&self, model: &mut dyn Model, data: &Dataset) -> Result<Evaluation, TrainError> {
        Ok(self.value(&self.sums(model, data, None)?))
    }

    /// The sums over one of several shards of the samples; the sums of all shards add up to the sums of all samples.
    ///
    /// # Errors
    /// The samples cannot be read, or do not fit the model.
    pub fn sums(
        &self,
        model: &mut dyn Model,
        data: &Dataset,
        shard: Option<Shard>,
    ) -> Result<Sums, TrainError> {
        let mut loader = self.loader(data, shard)?;
        let y_shape = loader.y_shape().unwrap_or_default().to_vec();
        let mut adding = self.begin();
        while let Some(loaded) = loader.next() {
            let mut batch = loaded?.batch;
            let (output, shape) = self.forward(model, &mut batch)?;
            self.add(&mut adding, output, &shape, (&batch.y, &y_shape), batch.len)?;
            loader.recycle(batch);
        }
        Ok(adding.finish())
    }

    /// The sums for samples with known outputs, all in the order of the file.
    ///
    /// # Errors
    /// The samples cannot be read, or the number of outputs does not match.
    pub fn sums_of(&self, data: &Dataset, outputs: &[f32], shape: &[usize]) -> Result<Sums, TrainError> {
        let mut loader = self.loader(data, None)?;
        let y_shape = loader.y_shape().unwrap_or_default().to_vec();
        let mut adding = self.begin();
        let samples = data.fixed_len()?;
        let (size, first) = (outputs.len() / samples, shape.first().map_or(1, |first| first / samples));
        let mut rest = outputs;
        while let Some(loaded) = loader.next() {
            let batch = loaded?.batch;
            let (output, others) = rest.split_at((batch.len * size).min(rest.len()));
            let mut shape = shape.to_vec();
            if let Some(rows) = shape.first_mut() {
                *rows = batch.len * first;
            }
            self.add(&mut adding, output, &shape, (&batch.y, &y_shape), batch.len)?;
            rest = others;
            loader.recycle(batch);
        }
        Ok(adding.finish())
    }

    /// Starts the sums.
    pub fn begin(&self) -> Adding {
        let metrics = self.metrics.iter().map(|metric| metric.begin()).collect();
        Adding { samples: 0, loss: 0.0, metrics }
    }

    /// Adds the outputs of `len` samples, with their labels and the shape of one label.
    pub fn add(
        &self,
        adding: &mut Adding,
        output: &[f32],
        shape: &[usize],
        (y, y_shape): (&[f32], &[usize]),
        len: usize,
    ) -> Result<(), TrainError> {
        let target_shape: Vec<usize> = std::iter::once(len).chain(y_shape.iter().copied()).collect();
        let target = Target { data: y, shape: &target_shape };
        adding.loss += self.loss.evaluate(self.threads, output, shape, target, 1.0, None)? * len as f64;
        for sum in &mut adding.metrics {
            sum.add(self.threads, output, shape, target)?;
        }
        adding.samples += len as u64;
        Ok(())
    }

    /// The evaluation from sums over all samples.
    pub fn value(&self, sums: &Sums) -> Evaluation {
        evaluation(self.metrics, sums)
    }

    /// Runs all samples, and calls `take` with the output of each batch and its shape.
    ///
    /// # Errors
    /// The samples cannot be read, or do not fit the model; or `take` failed.
    pub fn outputs<E: From<TrainError>>(
        &self,
        model: &mut dyn Model,
        data: &Dataset,
        mut take: impl FnMut(&[f32], &[usize]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut loader = self.loader(data, None)?;
        while let Some(loaded) = loader.next() {
            let mut batch = loaded.map_err(TrainError::from)?.batch;
            let (output, shape) = self.forward(model, &mut batch)?;
            take(output, &shape)?;
            loader.recycle(batch);
        }
        Ok(())
    }

    /// The output of a batch and its shape. A batch that is too short for the model is padded with zeros, which are
    /// removed from the output.
    fn forward<'m>(
        &self,
        model: &'m mut dyn Model,
        batch: &mut Batch,
    ) -> Result<(&'m [f32], Vec<usize>), TrainError> {
        let rows = self.fixed.unwrap_or(batch.len).max(batch.len);
        let size = batch.x.len() / batch.len.max(1);
        batch.x.resize(rows * size, 0.0);
        model.forward(SLOT, rows, &[&batch.x], Pass { training: false, seed: 0 })?;
        let (mut output, mut shape) = (model.output(SLOT, 0), model.output_shape(SLOT, 0));
        if let Some(first) = shape.first_mut().filter(|first| **first == rows && rows > batch.len) {
            output = &output[..output.len() / rows * batch.len];
            *first = batch.len;
        }
        Ok((output, shape))
    }
}

/// The evaluation from sums over all samples; the sums of metrics are in the order of `metrics`.
pub fn evaluation(metrics: &[Metric], sums: &Sums) -> Evaluation {
    let parts = metrics.iter().zip(&sums.metrics);
    let all: Vec<MetricSum> = parts.map(|(metric, parts)| MetricSum::from_parts(*metric, *parts)).collect();
    let first = all.first().filter(|sum| is_accuracy(sum.metric()));
    Evaluation {
        samples: sums.samples,
        loss: sums.loss / sums.samples.max(1) as f64,
        accuracy: first.and_then(MetricSum::value),
        accuracy_name: first.map(|sum| name_of(sum.metric())),
        metrics: all.iter().filter_map(|sum| Some((name_of(sum.metric()), sum.value()?))).collect(),
    }
}

fn is_accuracy(metric: Metric) -> bool {
    matches!(metric, Metric::Accuracy | Metric::BinaryAccuracy { .. })
}

/// The name of a metric in files.
fn name_of(metric: Metric) -> String {
    match metric {
        Metric::Accuracy => "accuracy".to_owned(),
        Metric::BinaryAccuracy { .. } => "binary_accuracy".to_owned(),
        Metric::TopK { k } => format!("top_{k}"),
        Metric::Mae => "mae".to_owned(),
        Metric::Mse => "mse".to_owned(),
        Metric::Perplexity => "perplexity".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::fixed_batch;
    use phalanx_engine::{CompileOptions, CpuEngine, Engine, Loss};
    use phalanx_graph::{Builder, LinearLayer, Shape};
    use phalanx_types::{DType, Seed, Tensor};

    #[test]
    fn a_model_for_one_batch_is_evaluated_on_any_number_of_samples() {
        let engine = CpuEngine::new(1);
        let x: Vec<f32> = (0..18).map(|i| i as f32 * 0.1).collect();
        let x = Tensor::from_f32(vec![6, 3], &x).unwrap();
        let data = Dataset::from_arrays(x, Some(Tensor::from_f32(vec![6, 2], &[0.5; 12]).unwrap())).unwrap();
        let evaluate = |shape: Shape| {
            let mut b = Builder::new("small");
            let input = b.input_of("x", DType::F32, shape);
            let output = b.linear_with("fc", input, LinearLayer { out: 2, bias: true, init: None });
            b.output(output);
            let graph = b.finish().unwrap();
            let mut model = engine.compile(&graph, &CompileOptions::default()).unwrap();
            model.load(&graph.initialise(Seed(1))).unwrap();
            let (transform, threads, fixed) = (Transform::default(), engine.threads(), fixed_batch(&graph));
            let evaluator = Evaluator {
                loss: Loss::Mse.into(),
                metrics: &[],
                transform: &transform,
                batch: 6,
                fixed,
                threads,
            };
            evaluator.run(model.as_mut(), &data).unwrap()
        };
        let (fixed, open) = (evaluate(Shape::fixed(&[4, 3])), evaluate(Shape::batch_of(&[3])));
        assert_eq!(fixed.samples, 6);
        assert!((fixed.loss - open.loss).abs() < 1e-6, "{fixed:?} {open:?}");
    }
}
