//! What a model takes, and requests checked against it.

use phalanx_graph::{Graph, Shape};
use phalanx_types::{DType, Parcel, Tensor};
use std::fmt;

/// Why the inputs of a request are not what the model takes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    #[error("the request has no input {input:?}, only {given:?}")]
    Missing { input: String, given: Vec<String> },
    #[error("input {input:?}: expected {expected:?}, got {given:?}")]
    DType { input: String, expected: DType, given: DType },
    #[error("input {input:?}: expected shape {expected}, got {given:?}")]
    Shape { input: String, expected: String, given: Vec<u64> },
    #[error("input {input:?} has {given} samples, the one before it {expected}")]
    Samples { input: String, expected: u64, given: u64 },
    #[error("input {input:?} has no samples")]
    NoSamples { input: String },
    #[error("input {input:?} does not fit the transformations of the model's run: {detail}")]
    Transform { input: String, detail: String },
}

/// One input of a model.
#[derive(Debug, Clone)]
pub(crate) struct InputSpec {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
}

/// The inputs of a request as numbers.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) rows: usize,
    /// The shape of a sample of each input.
    pub(crate) samples: Vec<Vec<usize>>,
    pub(crate) values: Vec<Vec<f32>>,
}

impl InputSpec {
    pub(crate) fn all(graph: &Graph) -> Vec<Self> {
        let spec = |id| {
            let value = graph.value(id);
            Self { name: value.name.clone(), dtype: value.dtype, shape: value.shape.clone() }
        };
        graph.inputs.iter().map(|id| spec(*id)).collect()
    }

    pub(crate) fn wrong_shape(&self, given: &[u64]) -> InputError {
        let mut expected = ShapeText(&self.shape).to_string();
        if let Some(rest) = expected.strip_prefix('[').and_then(|t| t.split_once(", ")) {
            expected = format!("[N, {}", rest.1);
        }
        InputError::Shape { input: self.name.clone(), expected, given: given.to_vec() }
    }

    /// Whether elements of this type can be the input.
    fn check_dtype(&self, given: DType) -> Result<(), InputError> {
        if is_float(given) && !is_float(self.dtype) {
            return Err(InputError::DType { input: self.name.clone(), expected: self.dtype, given });
        }
        Ok(())
    }
}

struct ShapeText<'a>(&'a Shape);

impl fmt::Display for ShapeText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> = self.0.dims().iter().map(ToString::to_string).collect();
        write!(f, "[{}]", dims.join(", "))
    }
}

fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64 | DType::F16 | DType::Bf16)
}

/// Reads the inputs of a request. A single tensor is the input of a model with one, whatever it is called.
pub(crate) fn read(specs: &[InputSpec], parcel: &Parcel) -> Result<Request, InputError> {
    let mut request = Request { rows: 0, samples: Vec::new(), values: Vec::new() };
    for spec in specs {
        let tensor = find(spec, specs.len(), parcel)?;
        spec.check_dtype(tensor.dtype())?;
        let Some((rows, sample)) = tensor.shape().split_first() else {
            return Err(spec.wrong_shape(tensor.shape()));
        };
        let before = request.rows as u64;
        if *rows == 0 {
            return Err(InputError::NoSamples { input: spec.name.clone() });
        }
        if before != 0 && before != *rows {
            return Err(InputError::Samples { input: spec.name.clone(), expected: before, given: *rows });
        }
        let sample: Vec<usize> = sample.iter().map(|d| usize::try_from(*d).unwrap_or(usize::MAX)).collect();
        request.rows = usize::try_from(*rows).unwrap_or(usize::MAX);
        request.samples.push(sample);
        request.values.push(tensor.to_floats());
    }
    Ok(request)
}

fn find<'a>(spec: &InputSpec, inputs: usize, parcel: &'a Parcel) -> Result<&'a Tensor, InputError> {
    match (parcel.tensor(&spec.name), parcel.tensors.as_slice()) {
        (Some(tensor), _) => Ok(tensor),
        (None, [(_, only)]) if inputs == 1 => Ok(only),
        (None, others) => Err(InputError::Missing {
            input: spec.name.clone(),
            given: others.iter().map(|(name, _)| name.clone()).collect(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, dtype: DType, sample: &[usize]) -> InputSpec {
        InputSpec { name: name.to_owned(), dtype, shape: Shape::batch_of(sample) }
    }

    fn tensor(shape: &[u64]) -> Tensor {
        let size: u64 = shape.iter().product();
        Tensor::from_f32(shape.to_vec(), &vec![1.0; size as usize]).unwrap()
    }

    #[test]
    fn the_only_tensor_is_the_only_input() {
        let specs = [spec("x", DType::F32, &[2])];
        let request = read(&specs, &Parcel::default().with_tensor("samples", tensor(&[3, 2]))).unwrap();
        assert_eq!((request.rows, request.samples), (3, vec![vec![2]]));
    }

    #[test]
    fn several_inputs_go_by_their_names_and_have_as_many_samples() {
        let specs = [spec("a", DType::F32, &[2]), spec("b", DType::F32, &[1])];
        let parcel =
            |rows| Parcel::default().with_tensor("b", tensor(&[rows, 1])).with_tensor("a", tensor(&[3, 2]));
        assert_eq!(read(&specs, &parcel(3)).unwrap().samples, [vec![2], vec![1]]);
        let wrong = read(&specs, &parcel(4)).unwrap_err();
        assert_eq!(wrong.to_string(), "input \"b\" has 4 samples, the one before it 3");
        let missing = read(&specs, &Parcel::default().with_tensor("a", tensor(&[3, 2]))).unwrap_err();
        assert_eq!(missing.to_string(), "the request has no input \"b\", only [\"a\"]");
    }

    #[test]
    fn errors_name_the_input_what_was_expected_and_what_was_given() {
        let ids = [spec("tokens", DType::I64, &[16])];
        let wrong = read(&ids, &Parcel::default().with_tensor("tokens", tensor(&[1, 16]))).unwrap_err();
        assert_eq!(wrong.to_string(), "input \"tokens\": expected I64, got F32");
        let x = spec("x", DType::F32, &[1, 8, 8]);
        assert_eq!(
            x.wrong_shape(&[4, 28, 28]).to_string(),
            "input \"x\": expected shape [N, 1, 8, 8], got [4, 28, 28]"
        );
        let none = read(&[x], &Parcel::default().with_tensor("x", tensor(&[0, 1, 8, 8]))).unwrap_err();
        assert_eq!(none.to_string(), "input \"x\" has no samples");
    }
}
