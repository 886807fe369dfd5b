//! Calls of Python functions as jobs: how a call and its result lie in a parcel.
//!
//! ```text
//!                bytes                              tensors, all of u8
//!   call         version, hash of the function     "f" function, "a" arguments, then "b" for each buffer
//!   result       version                           "r" result, then "b" for each buffer
//! ```
//! Function, arguments and result are opaque here (the Python package pickles them); buffers are the bytes that were
//! kept out of the pickle, in order. Nothing is copied when a parcel is packed or taken apart.

use bytes::{BufMut, Bytes, BytesMut};
use phalanx_types::{DType, Parcel, Tensor};

/// The kind of job that a call is.
pub const KIND: &str = "python";

/// The version of both layouts.
pub const LAYOUT: u8 = 1;

/// The most buffers of a call or result.
pub const MAX_BUFFERS: usize = 4096;

/// The SHA-256 of a function's bytes.
pub type FunctionHash = [u8; 32];

/// One call of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PythonCall {
    pub hash: FunctionHash,
    pub function: Bytes,
    pub arguments: Bytes,
    pub buffers: Vec<Bytes>,
    /// How many results of other calls it takes; they are among the buffers ([`PythonCall::with_inputs`]).
    pub inputs: u32,
}

/// What a call returned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PythonResult {
    pub value: Bytes,
    pub buffers: Vec<Bytes>,
}

/// Why a parcel is no call or no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    #[error("the parcel has layout {given}, this program knows {LAYOUT}")]
    Version { given: u8 },
    #[error("the parcel is not laid out as a call of a Python function or its result")]
    Malformed,
    #[error("{count} buffers are too many for one call; {MAX_BUFFERS} are the most")]
    Buffers { count: usize },
}

impl PythonCall {
    /// Packs the call.
    ///
    /// # Errors
    /// There are too many buffers.
    pub fn into_parcel(self) -> Result<Parcel, LayoutError> {
        let mut head = BytesMut::with_capacity(1 + self.hash.len());
        head.put_u8(LAYOUT);
        head.put_slice(&self.hash);
        let parts = [("f", self.function), ("a", self.arguments)];
        pack(head.freeze(), parts.into(), self.buffers)
    }

    /// Adds the results of other calls, which the arguments refer to by their numbers.
    ///
    /// Behind its own buffers come, for each result, the result and its buffers; then one buffer of numbers (`u32`,
    /// little endian): how many buffers the call has itself, then how many each result has.
    ///
    /// # Errors
    /// A parcel is no result, or there are too many buffers.
    pub fn with_inputs(mut self, inputs: &[Parcel]) -> Result<Self, LayoutError> {
        if inputs.is_empty() {
            return Ok(self);
        }
        let mut counts = BytesMut::with_capacity(4 * (1 + inputs.len()));
        counts.put_u32_le(u32::try_from(self.buffers.len()).unwrap_or(u32::MAX));
        for input in inputs {
            let result = PythonResult::from_parcel(input)?;
            counts.put_u32_le(u32::try_from(result.buffers.len()).unwrap_or(u32::MAX));
            self.buffers.push(result.value);
            self.buffers.extend(result.buffers);
        }
        self.buffers.push(counts.freeze());
        self.inputs = u32::try_from(inputs.len()).unwrap_or(u32::MAX);
        match self.buffers.len() {
            count if count > MAX_BUFFERS => Err(LayoutError::Buffers { count }),
            _ => Ok(self),
        }
    }

    /// Takes a call apart.
    ///
    /// # Errors
    /// The parcel is no call.
    pub fn from_parcel(parcel: &Parcel) -> Result<Self, LayoutError> {
        let hash = after_version(&parcel.bytes)?.try_into().map_err(|_length| LayoutError::Malformed)?;
        let mut parts = parcel.tensors.iter();
        let function = part(parts.next(), "f")?;
        let arguments = part(parts.next(), "a")?;
        Ok(Self { hash, function, arguments, buffers: buffers(parts)?, inputs: 0 })
    }
}

impl PythonResult {
    /// Packs the result.
    ///
    /// # Errors
    /// There are too many buffers.
    pub fn into_parcel(self) -> Result<Parcel, LayoutError> {
        pack(Bytes::from_static(&[LAYOUT]), vec![("r", self.value)], self.buffers)
    }

    /// Takes a result apart.
    ///
    /// # Errors
    /// The parcel is no result.
    pub fn from_parcel(parcel: &Parcel) -> Result<Self, LayoutError> {
        if !after_version(&parcel.bytes)?.is_empty() {
            return Err(LayoutError::Malformed);
        }
        let mut parts = parcel.tensors.iter();
        Ok(Self { value: part(parts.next(), "r")?, buffers: buffers(parts)? })
    }
}

fn pack(head: Bytes, parts: Vec<(&str, Bytes)>, buffers: Vec<Bytes>) -> Result<Parcel, LayoutError> {
    if buffers.len() > MAX_BUFFERS {
        return Err(LayoutError::Buffers { count: buffers.len() });
    }
    let all = parts.into_iter().chain(buffers.into_iter().map(|bytes| ("b", bytes)));
    let tensors = all.map(|(name, bytes)| {
        let tensor = Tensor::new(DType::U8, vec![bytes.len() as u64], bytes);
        tensor.map(|tensor| (name.to_owned(), tensor)).map_err(|_length| LayoutError::Malformed)
    });
    Ok(Parcel { bytes: head, tensors: tensors.collect::<Result<_, _>>()? })
}

fn after_version(head: &[u8]) -> Result<&[u8], LayoutError> {
    match head.split_first() {
        Some((&LAYOUT, rest)) => Ok(rest),
        Some((&given, _)) => Err(LayoutError::Version { given }),
        None => Err(LayoutError::Malformed),
    }
}

fn part(given: Option<&(String, Tensor)>, wanted: &str) -> Result<Bytes, LayoutError> {
    match given {
        Some((name, tensor)) if name == wanted && tensor.dtype() == DType::U8 => Ok(tensor.data().clone()),
        _ => Err(LayoutError::Malformed),
    }
}

fn buffers<'a>(parts: impl Iterator<Item = &'a (String, Tensor)>) -> Result<Vec<Bytes>, LayoutError> {
    let all: Vec<Bytes> = parts.map(|given| part(Some(given), "b")).collect::<Result<_, _>>()?;
    match all.len() {
        count if count > MAX_BUFFERS => Err(LayoutError::Buffers { count }),
        _ => Ok(all),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> PythonCall {
        let buffers = vec![Bytes::from_static(b"one"), Bytes::new()];
        PythonCall { hash: [7; 32], function: "def f".into(), arguments: "(1,)".into(), buffers, inputs: 0 }
    }

    #[test]
    fn a_call_and_a_result_come_out_of_their_parcels_as_they_went_in() {
        assert_eq!(PythonCall::from_parcel(&call().into_parcel().unwrap()), Ok(call()));
        let result = PythonResult { value: "42".into(), buffers: vec![Bytes::from_static(b"xyz")] };
        assert_eq!(PythonResult::from_parcel(&result.clone().into_parcel().unwrap()), Ok(result));
    }

    #[test]
    fn the_bytes_of_a_packed_call_stay_as_they_are() {
        let parcel = call().into_parcel().unwrap();
        let expected = [&[1_u8][..], &[7; 32], b"def f(1,)one"].concat();
        assert_eq!(parcel.body(), expected);
        let names: Vec<&str> = parcel.tensors.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["f", "a", "b", "b"]);
        let result = PythonResult { value: "42".into(), buffers: vec![] }.into_parcel().unwrap();
        assert_eq!((&result.body()[..], result.tensors[0].0.as_str()), (&b"\x0142"[..], "r"));
    }

    #[test]
    fn results_of_other_calls_lie_behind_the_buffers() {
        let result = |value: &'static str, count| {
            PythonResult { value: value.into(), buffers: vec!["b".into(); count] }.into_parcel().unwrap()
        };
        let whole = call().with_inputs(&[result("r", 2), result("s", 0)]).unwrap();
        let expected: [&[u8]; 7] = [b"one", b"", b"r", b"b", b"b", b"s", b"\x02\0\0\0\x02\0\0\0\0\0\0\0"];
        assert_eq!(whole.buffers, expected);
        assert_eq!(whole.inputs, 2);
        assert_eq!(call().with_inputs(&[Parcel::default()]), Err(LayoutError::Malformed));
        let many = [result("r", MAX_BUFFERS)];
        assert_eq!(call().with_inputs(&many), Err(LayoutError::Buffers { count: MAX_BUFFERS + 4 }));
    }

    #[test]
    fn other_parcels_are_refused() {
        let is = |parcel: &Parcel| PythonCall::from_parcel(parcel).unwrap_err();
        assert_eq!(is(&Parcel::default()), LayoutError::Malformed);
        assert_eq!(is(&Parcel::from_bytes(vec![2; 33])), LayoutError::Version { given: 2 });
        assert_eq!(is(&Parcel::from_bytes(vec![1; 32])), LayoutError::Malformed);
        let result = PythonResult::default().into_parcel().unwrap();
        assert_eq!(is(&result), LayoutError::Malformed);
        let mut swapped = call().into_parcel().unwrap();
        swapped.tensors.swap(0, 1);
        assert_eq!(is(&swapped), LayoutError::Malformed);
        let many = PythonResult { value: Bytes::new(), buffers: vec![Bytes::new(); MAX_BUFFERS + 1] };
        assert_eq!(many.into_parcel().unwrap_err(), LayoutError::Buffers { count: MAX_BUFFERS + 1 });
    }
}
