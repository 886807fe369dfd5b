//! Datasets: named tensors and metadata.

use crate::cluster::Keyed;
use crate::connection::checked;
use crate::keys::Access;
use crate::metadata::{MetaError, MetaValues};
use crate::store::Store;
use crate::{StoreError, backend::words};
use bytes::Bytes;
use phalanx_resp::Reply;
use phalanx_types::Tensor;
use std::collections::BTreeMap;
use std::time::Duration;

const TENSOR_NAMES: &str = ".tensor_names";
const COMPLETE: &str = ".COMPLETE";

/// Named tensors and metadata, stored and read together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Dataset {
    name: String,
    tensors: Vec<(String, Tensor)>,
    metadata: BTreeMap<String, MetaValues>,
}

impl Dataset {
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a tensor, or replaces the one of this name.
    pub fn add_tensor(&mut self, name: impl Into<String>, tensor: Tensor) {
        let name = name.into();
        match self.tensors.iter_mut().find(|(other, _)| *other == name) {
            Some((_, old)) => *old = tensor,
            None => self.tensors.push((name, tensor)),
        }
    }

    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.tensors.iter().find(|(other, _)| other == name).map(|(_, tensor)| tensor)
    }

    /// The tensors in the order in which they were added.
    pub fn tensors(&self) -> &[(String, Tensor)] {
        &self.tensors
    }

    /// Adds values to a field of metadata.
    ///
    /// # Errors
    /// The field has values of another type.
    pub fn add_metadata(&mut self, field: impl Into<String>, values: MetaValues) -> Result<(), MetaError> {
        let field = field.into();
        match self.metadata.get_mut(&field) {
            Some(have) => have.extend(&field, values),
            None => {
                self.metadata.insert(field, values);
                Ok(())
            }
        }
    }

    pub fn metadata(&self) -> &BTreeMap<String, MetaValues> {
        &self.metadata
    }
}

impl Store {
    /// Stores a dataset. Readers see it when all of it is there.
    ///
    /// # Errors
    /// The store cannot be reached or refuses it.
    pub fn put_dataset(&self, dataset: &Dataset) -> Result<(), StoreError> {
        let base = self.keys().dataset(&dataset.name, Access::Write);
        let meta = format!("{base}.meta");
        let mut fields = words([b"HSET", meta.as_bytes()]);
        for (name, values) in &dataset.metadata {
            fields.extend([Bytes::from(name.clone()), values.encode()]);
        }
        let names = MetaValues::Text(dataset.tensors.iter().map(|(name, _)| name.clone()).collect());
        if !dataset.tensors.is_empty() {
            fields.extend([Bytes::from_static(TENSOR_NAMES.as_bytes()), names.encode()]);
        }
        self.run(&meta, vec![words([b"DEL", meta.as_bytes()])])?;
        if fields.len() > 2 {
            self.run(&meta, vec![fields])?;
        }
        for (name, tensor) in &dataset.tensors {
            self.put_at(&format!("{base}.{name}"), tensor)?;
        }
        self.run(&meta, vec![words([b"HSET", meta.as_bytes(), COMPLETE.as_bytes(), b"1"])])?;
        Ok(())
    }

    /// Reads a dataset.
    ///
    /// # Errors
    /// It is not there, or not all of it.
    pub fn get_dataset(&self, name: &str) -> Result<Dataset, StoreError> {
        self.dataset_at(name, &self.keys().dataset(name, Access::Read))
    }

    /// Reads the dataset whose keys begin with `base`.
    pub(crate) fn dataset_at(&self, name: &str, base: &str) -> Result<Dataset, StoreError> {
        let missing = || StoreError::Missing { what: "dataset", name: name.to_owned() };
        let fields = self.fields(&format!("{base}.meta"))?;
        if !fields.contains_key(COMPLETE) {
            return Err(missing());
        }
        let unreadable = |source| StoreError::Metadata { name: name.to_owned(), source };
        let mut dataset = Dataset::new(name);
        let mut names = Vec::new();
        for (field, value) in fields {
            match field.as_str() {
                COMPLETE => {}
                TENSOR_NAMES => match MetaValues::decode(&field, value).map_err(unreadable)? {
                    MetaValues::Text(texts) => names = texts,
                    _ => return Err(StoreError::Unexpected { what: "names of tensors" }),
                },
                _ => {
                    let values = MetaValues::decode(&field, value).map_err(unreadable)?;
                    dataset.metadata.insert(field, values);
                }
            }
        }
        let keys: Vec<String> = names.iter().map(|tensor| format!("{base}.{tensor}")).collect();
        for (tensor, found) in names.into_iter().zip(self.tensors_at(&keys)?) {
            dataset.add_tensor(tensor, found.ok_or_else(missing)?);
        }
        Ok(dataset)
    }

    fn fields(&self, meta: &str) -> Result<BTreeMap<String, Bytes>, StoreError> {
        let wrong = || StoreError::Unexpected { what: "fields of a hash" };
        let pairs = match self.run_one(meta, words([b"HGETALL", meta.as_bytes()]))? {
            Reply::Array(items) => items,
            Reply::Map(pairs) => pairs.into_iter().flat_map(|(name, value)| [name, value]).collect(),
            _ => return Err(wrong()),
        };
        let mut fields = BTreeMap::new();
        let mut items = pairs.into_iter();
        while let (Some(Reply::Bulk(name)), Some(Reply::Bulk(value))) = (items.next(), items.next()) {
            fields.insert(String::from_utf8_lossy(&name).into_owned(), value);
        }
        Ok(fields)
    }

    /// Whether all of a dataset is there.
    ///
    /// # Errors
    /// The store cannot be reached.
    pub fn dataset_exists(&self, name: &str) -> Result<bool, StoreError> {
        let meta = format!("{}.meta", self.keys().dataset(name, Access::Read));
        let reply = self.run_one(&meta, words([b"HEXISTS", meta.as_bytes(), COMPLETE.as_bytes()]))?;
        Ok(reply == Reply::Integer(1))
    }

    /// Waits until all of a dataset is there.
    ///
    /// # Errors
    /// It is not there in time, or the store cannot be reached.
    pub fn wait_for_dataset(&self, name: &str, within: Duration) -> Result<(), StoreError> {
        let meta = format!("{}.meta", self.keys().dataset(name, Access::Read));
        match self.wait_until(&meta, &[b"FIELD", meta.as_bytes(), COMPLETE.as_bytes()], within)? {
            true => Ok(()),
            false => Err(StoreError::TimedOut { what: "dataset", name: name.to_owned(), within }),
        }
    }

    /// Deletes a dataset with its tensors.
    ///
    /// # Errors
    /// The store cannot be reached.
    pub fn delete_dataset(&self, name: &str) -> Result<bool, StoreError> {
        let base = self.keys().dataset(name, Access::Write);
        let meta = format!("{base}.meta");
        let fields = self.fields(&meta)?;
        let names = fields.get(TENSOR_NAMES).map(|value| MetaValues::decode(TENSOR_NAMES, value.clone()));
        let mut keys = vec![meta];
        if let Some(Ok(MetaValues::Text(names))) = names {
            keys.extend(names.iter().map(|tensor| format!("{base}.{tensor}")));
        }
        let delete = |key: String| Keyed { command: words([b"DEL", key.as_bytes()]), key: key.into() };
        let replies = self.call(keys.into_iter().map(delete).collect())?;
        replies.into_iter().try_for_each(|reply| checked(Some(reply)).map(|_deleted| ()))?;
        Ok(!fields.is_empty())
    }

    /// Stores a copy of a dataset under another name.
    ///
    /// # Errors
    /// It is not there, or the store cannot be reached.
    pub fn copy_dataset(&self, from: &str, to: &str) -> Result<(), StoreError> {
        let mut dataset = self.get_dataset(from)?;
        to.clone_into(&mut dataset.name);
        self.put_dataset(&dataset)
    }

    /// Gives a dataset another name.
    ///
    /// # Errors
    /// It is not there, or the store cannot be reached.
    pub fn rename_dataset(&self, from: &str, to: &str) -> Result<(), StoreError> {
        self.copy_dataset(from, to)?;
        self.delete_dataset(from).map(|_was_there| ())
    }
}
