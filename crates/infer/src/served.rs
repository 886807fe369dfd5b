//! A model that answers requests.

use crate::error::ServeError;
use crate::input::{InputError, InputSpec, Request, read};
use phalanx_data::{Batch, Dataset, Labels, Prepared, Transform};
use phalanx_engine::{Model, Pass};
use phalanx_graph::Dim;
use phalanx_jobs::{Handler, HandlerError, JobContext, JobFeed};
use phalanx_train::{Compute, TrainError, TrainedModel, check_input, fixed_batch};
use phalanx_types::{Parcel, Tensor};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// How many samples are computed at once, and how many requests make a batch.
pub const DEFAULT_MAX_BATCH: usize = 64;

/// Shapes of samples for which transformations are kept ready.
const MAX_SHAPES: usize = 16;

const SLOT: usize = 0;

type Solved = Result<Parcel, HandlerError>;

/// A model that answers requests, those that come together in one computation.
///
/// It takes what `phalanx predict` takes: samples as the files of its run have them, transformed as the run says.
#[derive(Debug)]
pub struct ServedModel {
    model: TrainedModel,
    transform: Transform,
    inputs: Vec<InputSpec>,
    outputs: Vec<String>,
    /// Whether every output has a part for each sample.
    divides: bool,
    fixed: Option<usize>,
    max_batch: usize,
    compute: Compute,
    idle: Mutex<Vec<Instance>>,
}

/// One compiled copy of the model; a thread has it to itself while it computes.
#[derive(Debug)]
struct Instance {
    model: Box<dyn Model>,
    prepared: BTreeMap<Vec<usize>, Prepared>,
    batch: Batch,
}

impl ServedModel {
    /// A model that is ready to answer; `name` is for messages.
    ///
    /// # Errors
    /// The engine cannot compute it.
    pub fn new(name: &str, model: TrainedModel) -> Result<Self, ServeError> {
        let graph = &model.graph;
        let outputs = (0..graph.outputs.len()).map(|i| output_name(&model, i)).collect();
        let fixed = fixed_batch(graph);
        let has_part = |id| match (graph.shape(id).dims().first(), fixed) {
            (Some(Dim::Batch(_)), _) => true,
            (Some(Dim::Fixed(n)), Some(fixed)) => *n == fixed,
            _ => false,
        };
        let served = Self {
            transform: Transform { one_hot: None, ..model.transform() },
            inputs: InputSpec::all(graph),
            outputs,
            divides: graph.outputs.iter().all(|id| has_part(*id)),
            fixed,
            max_batch: DEFAULT_MAX_BATCH,
            // A batch has one core; batches that run at the same time have copies of the model.
            compute: Compute::cpu(Some(1)),
            idle: Mutex::default(),
            model,
        };
        let failed = |source| ServeError::Compile { name: name.to_owned(), source: Box::new(source) };
        let first = served.instance().map_err(failed)?;
        served.give_back(first);
        Ok(served)
    }

    /// The largest batch that it computes.
    #[must_use]
    pub fn max_batch(mut self, samples: usize) -> Self {
        self.max_batch = samples.max(1);
        self
    }

    /// Answers one request.
    ///
    /// # Errors
    /// The inputs are not what the model takes, or it cannot be computed.
    pub fn answer(&self, inputs: &Parcel) -> Result<Parcel, HandlerError> {
        self.answer_all(&[inputs]).pop().unwrap_or_else(|| Err(HandlerError::failed("no answer")))
    }

    /// Answers several requests in as few computations as they fit in.
    pub fn answer_all(&self, requests: &[&Parcel]) -> Vec<Solved> {
        let mut instance = match self.instance() {
            Ok(instance) => instance,
            Err(error) => return requests.iter().map(|_| Err(failed(&error))).collect(),
        };
        let mut answers: Vec<Option<Solved>> = requests.iter().map(|_| None).collect();
        // Samples of other shapes are other computations.
        let mut groups: BTreeMap<Vec<Vec<usize>>, Vec<(usize, Request)>> = BTreeMap::new();
        for (at, parcel) in requests.iter().enumerate() {
            let request = read(&self.inputs, parcel).and_then(|request| {
                self.check(&mut instance, &request)?;
                Ok(request)
            });
            match request {
                Ok(request) => groups.entry(request.samples.clone()).or_default().push((at, request)),
                Err(error) => answers[at] = Some(Err(HandlerError::failed(error.to_string()))),
            }
        }
        for group in groups.into_values() {
            for part in self.parts(group) {
                let outputs = self.compute(&mut instance, &part);
                for (at, answer) in split(&part, outputs, &self.outputs) {
                    answers[at] = Some(answer);
                }
            }
        }
        self.give_back(instance);
        let lost = || Err(HandlerError::failed("no answer"));
        answers.into_iter().map(|answer| answer.unwrap_or_else(lost)).collect()
    }

    /// Requests that can be joined; all of them, unless an output has no part for each sample.
    fn parts(&self, group: Vec<(usize, Request)>) -> Vec<Vec<(usize, Request)>> {
        if self.divides { vec![group] } else { group.into_iter().map(|one| vec![one]).collect() }
    }

    fn instance(&self) -> Result<Instance, TrainError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match idle {
            Some(instance) => Ok(instance),
            None => Ok(Instance {
                model: self.model.compile_for_requests(&self.compute)?,
                prepared: BTreeMap::new(),
                batch: Batch::new(),
            }),
        }
    }

    fn give_back(&self, instance: Instance) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(instance);
    }

    /// Checks the shapes of a request; for a model with one input, after the transformations of its run.
    fn check(&self, instance: &mut Instance, request: &Request) -> Result<(), InputError> {
        let given = |sample: &[usize]| -> Vec<u64> {
            std::iter::once(request.rows).chain(sample.iter().copied()).map(|d| d as u64).collect()
        };
        let ([spec], [sample]) = (self.inputs.as_slice(), request.samples.as_slice()) else {
            let wrong = self.inputs.iter().zip(&request.samples);
            let wrong = wrong.filter(|(spec, sample)| spec.shape.at(1).get(1..) != Some(sample.as_slice()));
            let first = wrong.map(|(spec, sample)| spec.wrong_shape(&given(sample))).next();
            return first.map_or(Ok(()), Err);
        };
        if instance.prepared.contains_key(sample) {
            return Ok(());
        }
        let wrong = |error: TrainError| match error {
            TrainError::InputShape { .. } => spec.wrong_shape(&given(sample)),
            error => InputError::Transform { input: spec.name.clone(), detail: error.to_string() },
        };
        let size = sample.iter().product();
        let data = Dataset::from_f32(vec![0.0; size], sample, Labels::None).map_err(|e| wrong(e.into()))?;
        check_input(&self.model.graph, &data, &self.transform).map_err(wrong)?;
        let prepared = self.transform.prepare(&data).map_err(|e| wrong(e.into()))?;
        if instance.prepared.len() >= MAX_SHAPES {
            instance.prepared.clear();
        }
        instance.prepared.insert(sample.clone(), prepared);
        Ok(())
    }

    /// The outputs of all samples of some requests, one after the other.
    fn compute(&self, instance: &mut Instance, requests: &[(usize, Request)]) -> Result<Outputs, TrainError> {
        let rows: usize = requests.iter().map(|(_, request)| request.rows).sum();
        let most = self.fixed.unwrap_or(if self.divides { self.max_batch } else { rows });
        let mut outputs = Outputs { rows, values: vec![Vec::new(); self.outputs.len()], shapes: Vec::new() };
        let mut joined = self.join(instance, requests)?;
        let mut from = 0;
        while from < rows {
            let part = most.min(rows - from);
            let at_once =
                self.fixed.unwrap_or_else(|| if self.divides { rounded(part).min(most) } else { part });
            let inputs: Vec<&[f32]> = joined
                .iter_mut()
                .map(|values| {
                    let size = values.len() / rows;
                    let (start, end) = (from * size, (from + at_once) * size);
                    // Rows that are only there to fill the batch are zeros after the last sample.
                    if values.len() < end {
                        values.resize(end, 0.0);
                    }
                    &values[start..end]
                })
                .collect();
            instance.model.forward(SLOT, at_once, &inputs, Pass { training: false, seed: 0 })?;
            outputs.take(instance.model.as_ref(), part, at_once);
            from += part;
        }
        Ok(outputs)
    }

    /// The inputs of all requests, those of each model input one after the other, transformed.
    fn join(
        &self,
        instance: &mut Instance,
        requests: &[(usize, Request)],
    ) -> Result<Vec<Vec<f32>>, TrainError> {
        let inputs = 0..self.inputs.len();
        let mut joined: Vec<Vec<f32>> = inputs
            .map(|i| {
                requests.iter().map(|(_, request)| request.values[i].as_slice()).collect::<Vec<_>>().concat()
            })
            .collect();
        let sample = requests.first().and_then(|(_, request)| request.samples.first());
        let ([x], Some(sample)) = (joined.as_mut_slice(), sample) else { return Ok(joined) };
        if let Some(prepared) = instance.prepared.get_mut(sample) {
            let len: usize = requests.iter().map(|(_, request)| request.rows).sum();
            let batch = &mut instance.batch;
            (batch.x, batch.len) = (std::mem::take(x), len);
            batch.indices = (0..len as u64).collect();
            prepared.apply(batch, None)?;
            *x = std::mem::take(&mut batch.x);
        }
        Ok(joined)
    }
}

/// Outputs of many samples.
#[derive(Debug)]
struct Outputs {
    rows: usize,
    values: Vec<Vec<f32>>,
    /// Of one computation, without its first axis, and how long that axis is for each sample.
    shapes: Vec<(usize, Vec<usize>)>,
}

impl Outputs {
    fn take(&mut self, model: &dyn Model, rows: usize, at_once: usize) {
        self.shapes.clear();
        for (index, values) in self.values.iter_mut().enumerate() {
            let (output, shape) = (model.output(SLOT, index), model.output_shape(SLOT, index));
            values.extend_from_slice(&output[..output.len() / at_once * rows]);
            let (first, rest) = shape.split_first().map_or((1, &[][..]), |(first, rest)| (*first, rest));
            self.shapes.push((first / at_once.max(1), rest.to_vec()));
        }
    }
}

/// A batch size near this one: every size is compiled once, so there should be few of them.
fn rounded(rows: usize) -> usize {
    let power = rows.next_power_of_two();
    let between = power / 4 * 3;
    if between >= rows { between } else { power }
}

/// Cuts the outputs of joined requests apart.
fn split(
    requests: &[(usize, Request)],
    outputs: Result<Outputs, TrainError>,
    names: &[String],
) -> Vec<(usize, Solved)> {
    let outputs = match outputs {
        Ok(outputs) => outputs,
        Err(error) => return requests.iter().map(|(at, _)| (*at, Err(failed(&error)))).collect(),
    };
    let mut from = 0;
    let mut answers = Vec::with_capacity(requests.len());
    for (at, request) in requests {
        let mut answer = Ok(Parcel::default());
        for ((values, (first, rest)), name) in outputs.values.iter().zip(&outputs.shapes).zip(names) {
            let size = values.len() / outputs.rows.max(1);
            let part = values.get(from * size..(from + request.rows) * size).unwrap_or_default();
            let shape = std::iter::once(first * request.rows).chain(rest.iter().copied());
            let tensor = Tensor::from_f32(shape.map(|d| d as u64).collect(), part);
            answer = match (answer, tensor) {
                (Ok(parcel), Ok(tensor)) => Ok(parcel.with_tensor(name, tensor)),
                (Err(error), _) => Err(error),
                (_, Err(error)) => Err(HandlerError::failed(error.to_string())),
            };
        }
        from += request.rows;
        answers.push((*at, answer));
    }
    answers
}

fn output_name(model: &TrainedModel, index: usize) -> String {
    let graph = &model.graph;
    let named = graph.output_names.get(index).cloned();
    named.unwrap_or_else(|| graph.value(graph.outputs[index]).name.clone())
}

/// The whole chain of reasons: the request comes from elsewhere, where there is no log to look at.
fn failed(error: &TrainError) -> HandlerError {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    HandlerError::failed(text)
}

impl Handler for ServedModel {
    fn solve(&self, job: &JobContext) -> Result<Parcel, HandlerError> {
        self.answer(job.payload())
    }

    fn solve_batch(&self, jobs: &JobFeed<'_>) {
        let taken: Vec<JobContext> = std::iter::from_fn(|| jobs.take()).collect();
        let (wanted, unwanted): (Vec<_>, Vec<_>) = taken.into_iter().partition(|job| !job.is_cancelled());
        for job in unwanted {
            jobs.finish(job, Err(HandlerError::cancelled()));
        }
        let requests: Vec<&Parcel> = wanted.iter().map(JobContext::payload).collect();
        let answers = self.answer_all(&requests);
        jobs.finish_all(wanted.into_iter().zip(answers).collect());
    }

    fn gathers(&self) -> Option<usize> {
        self.divides.then_some(self.max_batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_graph::{Builder, LinearLayer, Shape};
    use phalanx_types::{DType, Seed};

    fn model(shape: Shape) -> ServedModel {
        let mut b = Builder::new("small");
        let x = b.input_of("x", DType::F32, shape);
        let y = b.linear_with("fc", x, LinearLayer { out: 2, bias: true, init: None });
        b.output(y);
        let graph = b.finish().unwrap();
        let weights = graph.initialise(Seed(1));
        ServedModel::new("small", TrainedModel::new(graph, weights)).unwrap()
    }

    fn request(rows: usize, from: f32) -> Parcel {
        let values: Vec<f32> = (0..3 * rows).map(|i| from + i as f32).collect();
        Parcel::default().with_tensor("x", Tensor::from_f32(vec![rows as u64, 3], &values).unwrap())
    }

    fn only(answer: Solved) -> Tensor {
        answer.unwrap().tensors.pop().unwrap().1
    }

    #[test]
    fn joined_requests_have_the_answers_of_single_ones() {
        let small = model(Shape::batch_of(&[3])).max_batch(4);
        let requests: Vec<Parcel> = [1, 5, 2, 1, 9].iter().map(|n| request(*n, *n as f32)).collect();
        let together = small.answer_all(&requests.iter().collect::<Vec<_>>());
        for (request, answer) in requests.iter().zip(together) {
            let (alone, joined) = (only(small.answer(request)), only(answer));
            assert_eq!(alone.shape(), joined.shape());
            let (alone, joined) = (alone.to_f32().unwrap(), joined.to_f32().unwrap());
            assert!(alone.iter().zip(&joined).all(|(a, b)| (a - b).abs() <= 1e-5 * a.abs().max(1.0)));
        }
    }

    #[test]
    fn a_request_to_dense_layers_has_the_same_bits_alone_and_joined() {
        let mut b = Builder::new("dense");
        let x = b.input("x", &[3]);
        let x = b.linear("fc1", x, 90);
        let x = b.relu(x);
        let x = b.linear("fc2", x, 5);
        b.output(x);
        let graph = b.finish().unwrap();
        let weights = graph.initialise(Seed(2));
        let dense = ServedModel::new("dense", TrainedModel::new(graph, weights)).unwrap();
        let requests: Vec<Parcel> = (0..31).map(|n| request(1 + n % 3, n as f32 / 7.0)).collect();
        let joined = dense.answer_all(&requests.iter().collect::<Vec<_>>());
        for (request, joined) in requests.iter().zip(joined) {
            assert_eq!(only(dense.answer(request)), only(joined));
        }
    }

    #[test]
    fn a_wrong_request_fails_alone() {
        let small = model(Shape::batch_of(&[3]));
        let wrong = Parcel::default().with_tensor("x", Tensor::from_f32(vec![2, 4], &[0.0; 8]).unwrap());
        let right = request(2, 0.0);
        let answers = small.answer_all(&[&wrong, &right, &wrong]);
        let expected = "input \"x\": expected shape [N, 3], got [2, 4]";
        assert_eq!(answers[0].as_ref().unwrap_err().to_string(), expected);
        assert_eq!(answers[1].as_ref().unwrap().tensors[0].1.shape(), [2, 2]);
        assert!(answers[2].is_err());
    }

    #[test]
    fn a_model_for_one_batch_size_answers_any_number_of_samples() {
        let (fixed, open) = (model(Shape::fixed(&[4, 3])), model(Shape::batch_of(&[3])));
        for rows in [1, 4, 6] {
            let (fixed, open) =
                (only(fixed.answer(&request(rows, 1.0))), only(open.answer(&request(rows, 1.0))));
            assert_eq!(fixed.shape(), open.shape());
            let (fixed, open) = (fixed.to_f32().unwrap(), open.to_f32().unwrap());
            assert!(fixed.iter().zip(&open).all(|(a, b)| (a - b).abs() <= 1e-5 * a.abs().max(1.0)));
        }
    }

    #[test]
    fn few_batch_sizes_are_compiled() {
        let sizes: std::collections::BTreeSet<usize> = (1..=64).map(rounded).collect();
        assert_eq!(sizes.into_iter().collect::<Vec<_>>(), [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]);
        assert!((1..1000).all(|n| rounded(n) >= n && rounded(n) * 2 <= n * 3 + 2));
    }
}
