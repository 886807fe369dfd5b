//! Datasets and replies as Python has them.

use crate::errors::Failure;
use crate::memory::Memory;
use phalanx_resp::Reply;
use phalanx_store_client::{Dataset, MetaValues};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

/// A field of metadata: its name, the type of its values, and the values in a list.
pub(super) type MetaParts<'py> = (String, String, Bound<'py, PyAny>);

/// A dataset: its name, its tensors in their order, its metadata.
pub(super) type DatasetParts<'py> = (String, Vec<(String, Memory)>, Vec<MetaParts<'py>>);

pub(super) fn metadata(field: &str, kind: &str, list: &Bound<'_, PyAny>) -> PyResult<MetaValues> {
    Ok(match kind {
        "float64" => MetaValues::F64(list.extract()?),
        "float32" => MetaValues::F32(list.extract()?),
        "int32" => MetaValues::I32(list.extract()?),
        "int64" => MetaValues::I64(list.extract()?),
        "uint32" => MetaValues::U32(list.extract()?),
        "uint64" => MetaValues::U64(list.extract()?),
        "text" => MetaValues::Text(list.extract()?),
        other => return Err(Failure::input(format!("field {field:?} has values of type {other}")).into()),
    })
}

fn meta_parts<'py>(py: Python<'py>, field: &str, values: &MetaValues) -> PyResult<MetaParts<'py>> {
    let list = match values {
        MetaValues::F64(values) => PyList::new(py, values),
        MetaValues::F32(values) => PyList::new(py, values),
        MetaValues::I32(values) => PyList::new(py, values),
        MetaValues::I64(values) => PyList::new(py, values),
        MetaValues::U32(values) => PyList::new(py, values),
        MetaValues::U64(values) => PyList::new(py, values),
        MetaValues::Text(values) => PyList::new(py, values),
    };
    Ok((field.to_owned(), values.kind().to_owned(), list?.into_any()))
}

pub(super) fn dataset_parts<'py>(py: Python<'py>, dataset: &Dataset) -> PyResult<DatasetParts<'py>> {
    let tensors = dataset.tensors().iter();
    let tensors = tensors.map(|(name, tensor)| (name.clone(), Memory::new(tensor.clone()))).collect();
    let fields = dataset.metadata().iter().map(|(field, values)| meta_parts(py, field, values));
    Ok((dataset.name().to_owned(), tensors, fields.collect::<PyResult<_>>()?))
}

/// A reply: numbers, bytes, lists of replies, or nothing.
pub(super) fn python_reply(py: Python<'_>, reply: Reply) -> PyResult<Bound<'_, PyAny>> {
    let list = |replies: Vec<Reply>| -> PyResult<Bound<'_, PyAny>> {
        let items = replies.into_iter().map(|reply| python_reply(py, reply)).collect::<PyResult<Vec<_>>>()?;
        Ok(PyList::new(py, items)?.into_any())
    };
    Ok(match reply {
        Reply::Simple(text) | Reply::Bulk(text) | Reply::BigNumber(text) | Reply::Verbatim(text) => {
            PyBytes::new(py, &text).into_any()
        }
        // One inside of an array; a reply that is an error was raised.
        Reply::Error(text) => PyBytes::new(py, &text).into_any(),
        Reply::Integer(number) => number.into_pyobject(py)?.into_any(),
        Reply::Double(number) => number.into_pyobject(py)?.into_any(),
        Reply::Bool(is) => is.into_pyobject(py)?.to_owned().into_any(),
        Reply::Null | Reply::NullArray => py.None().into_bound(py),
        Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => list(items)?,
        Reply::Map(pairs) => list(pairs.into_iter().flat_map(|(name, value)| [name, value]).collect())?,
    })
}
