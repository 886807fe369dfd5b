//! Tensors, as RedisAI has them.

use super::super::error::CommandError;
use super::super::number::{float, integer, is};
use super::super::table::owned;
use super::super::value::Value;
use super::{Call, Command, Flags, ONE_KEY};
use bytes::Bytes;
use phalanx_resp::{Reply, named_type, type_name};
use phalanx_types::{DType, Tensor};
use std::sync::Arc;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("ai.tensorget", -2, Flags::READ, ONE_KEY, tensorget),
    Command::new("ai.tensorset", -4, Flags::GROW, ONE_KEY, tensorset),
];

fn dtype(word: &Bytes) -> Result<DType, CommandError> {
    if is(word, "string") {
        return Err(CommandError::TensorStrings);
    }
    named_type(word).ok_or(CommandError::TensorType)
}

fn tensorset(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let dtype = dtype(call.arg(2))?;
    let mut shape = Vec::new();
    let mut rest = call.rest(3);
    while let [word, after @ ..] = rest {
        if is(word, "blob") || is(word, "values") {
            break;
        }
        let len = integer(word).and_then(|len| u64::try_from(len).ok()).filter(|len| *len > 0);
        shape.push(len.ok_or(CommandError::TensorShape)?);
        rest = after;
    }
    if shape.is_empty() {
        return Err(CommandError::TensorShape);
    }
    let elements = shape.iter().try_fold(1u64, |all, len| all.checked_mul(*len));
    let bytes = elements.and_then(|n| n.checked_mul(dtype.size() as u64)).ok_or(CommandError::TensorShape)?;
    let data = match rest {
        [] => {
            call.store.admit_bytes(bytes)?;
            zeros(bytes)?
        }
        [word, blob] if is(word, "blob") => owned(blob),
        [word, values @ ..] if is(word, "values") => {
            if elements != Some(values.len() as u64) {
                return Err(CommandError::TensorCount);
            }
            encode(dtype, values)?
        }
        _ => return Err(CommandError::Syntax),
    };
    let tensor = Tensor::new(dtype, shape, data).ok().ok_or(CommandError::TensorBytes)?;
    call.store.database.put(call.arg(1), Value::Tensor(Arc::new(tensor)), None);
    Ok(Reply::OK)
}

/// Zeros for a tensor without data, unless they are more than a store takes.
fn zeros(bytes: u64) -> Result<Bytes, CommandError> {
    let len = usize::try_from(bytes).ok().filter(|len| *len <= 1 << 32).ok_or(CommandError::OutOfMemory)?;
    Ok(vec![0; len].into())
}

fn encode(dtype: DType, values: &[Bytes]) -> Result<Bytes, CommandError> {
    let mut data = Vec::with_capacity(values.len() * dtype.size());
    for value in values {
        let whole = || integer(value).ok_or(CommandError::TensorValue);
        let fits = CommandError::TensorValue;
        match dtype {
            DType::F32 => data.extend((float(value).ok_or(fits)? as f32).to_le_bytes()),
            DType::F64 => data.extend(float(value).ok_or(fits)?.to_le_bytes()),
            DType::I8 => data.extend(i8::try_from(whole()?).ok().ok_or(fits)?.to_le_bytes()),
            DType::I16 => data.extend(i16::try_from(whole()?).ok().ok_or(fits)?.to_le_bytes()),
            DType::I32 => data.extend(i32::try_from(whole()?).ok().ok_or(fits)?.to_le_bytes()),
            DType::I64 => data.extend(whole()?.to_le_bytes()),
            DType::U8 => data.extend(u8::try_from(whole()?).ok().ok_or(fits)?.to_le_bytes()),
            DType::U16 => data.extend(u16::try_from(whole()?).ok().ok_or(fits)?.to_le_bytes()),
            DType::U32 => data.extend(u32::try_from(whole()?).ok().ok_or(fits)?.to_le_bytes()),
            DType::U64 => data.extend(u64::try_from(whole()?).ok().ok_or(fits)?.to_le_bytes()),
            DType::Bool => data.push(u8::from(whole()? != 0)),
            DType::F16 | DType::Bf16 => return Err(CommandError::TensorType),
        }
    }
    Ok(data.into())
}

fn decode(tensor: &Tensor) -> Vec<Reply> {
    fn each<const N: usize>(data: &[u8], read: impl Fn([u8; N]) -> Reply) -> Vec<Reply> {
        data.as_chunks::<N>().0.iter().map(|bytes| read(*bytes)).collect()
    }
    let data = tensor.data();
    let whole = |n: i64| Reply::Integer(n);
    match tensor.dtype() {
        DType::F32 => each(data, |b| Reply::Double(f64::from(f32::from_le_bytes(b)))),
        DType::F64 => each(data, |b| Reply::Double(f64::from_le_bytes(b))),
        DType::I8 => each(data, |b| whole(i8::from_le_bytes(b).into())),
        DType::I16 => each(data, |b| whole(i16::from_le_bytes(b).into())),
        DType::I32 => each(data, |b| whole(i32::from_le_bytes(b).into())),
        DType::I64 => each(data, |b| whole(i64::from_le_bytes(b))),
        DType::U8 | DType::Bool => each(data, |[b]| whole(b.into())),
        DType::U16 => each(data, |b| whole(u16::from_le_bytes(b).into())),
        DType::U32 => each(data, |b| whole(u32::from_le_bytes(b).into())),
        DType::U64 => each(data, |b| Reply::bulk(u64::from_le_bytes(b).to_string())),
        DType::F16 | DType::Bf16 => {
            tensor.to_floats().into_iter().map(|value| Reply::Double(f64::from(value))).collect()
        }
    }
}

/// The tensor at a key.
pub(super) fn tensor(call: &mut Call<'_>, key: &Bytes) -> Result<Arc<Tensor>, CommandError> {
    match call.read(key) {
        None => Err(CommandError::NoTensor),
        Some(Value::Tensor(tensor)) => Ok(tensor.clone()),
        Some(_) => Err(CommandError::WrongType),
    }
}

fn tensorget(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let (mut meta, mut blob, mut values) = (false, false, false);
    for word in call.rest(2) {
        if is(word, "meta") {
            meta = true;
        } else if is(word, "blob") {
            blob = true;
        } else if is(word, "values") {
            values = true;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    if blob && values {
        return Err(CommandError::Syntax);
    }
    if call.args.len() == 2 {
        (meta, blob) = (true, true);
    }
    let tensor = tensor(call, call.arg(1))?;
    let data = match (blob, values) {
        (true, _) => Some(("blob", Reply::Bulk(tensor.data().clone()))),
        (_, true) => Some(("values", Reply::Array(decode(&tensor)))),
        _ => None,
    };
    if !meta {
        return data.map(|(_, data)| data).ok_or(CommandError::Syntax);
    }
    let shape = tensor.shape().iter().map(|len| Reply::Integer(i64::try_from(*len).unwrap_or(i64::MAX)));
    let mut fields = vec![
        Reply::bulk("dtype"),
        Reply::bulk(type_name(tensor.dtype())),
        Reply::bulk("shape"),
        Reply::Array(shape.collect()),
    ];
    if let Some((name, data)) = data {
        fields.extend([Reply::bulk(name), data]);
    }
    Ok(Reply::Array(fields))
}
