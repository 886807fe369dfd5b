//! Lists of datasets.

use crate::backend::words;
use crate::keys::Access;
use crate::store::Store;
use crate::{Dataset, StoreError};
use bytes::Bytes;
use phalanx_resp::Reply;
use std::time::Duration;

impl Store {
    /// Appends a dataset that is in the store to a list; gives the list's length.
    ///
    /// # Errors
    /// The store cannot be reached.
    pub fn append(&self, list: &str, dataset: &str) -> Result<u64, StoreError> {
        let key = self.keys().list(list, Access::Write);
        let element = self.keys().dataset(dataset, Access::Write);
        length(self.run_one(&key, words([b"RPUSH", key.as_bytes(), element.as_bytes()]))?)
    }

    /// How many datasets a list has.
    ///
    /// # Errors
    /// The store cannot be reached.
    pub fn list_length(&self, list: &str) -> Result<u64, StoreError> {
        let key = self.keys().list(list, Access::Read);
        length(self.run_one(&key, words([b"LLEN", key.as_bytes()]))?)
    }

    /// Waits until a list has at least this length.
    ///
    /// # Errors
    /// It is not as long in time, or the store cannot be reached.
    pub fn wait_for_length(&self, list: &str, least: u64, within: Duration) -> Result<(), StoreError> {
        let key = self.keys().list(list, Access::Read);
        let wanted = least.to_string();
        match self.wait_until(&key, &[b"LENGTH", key.as_bytes(), wanted.as_bytes()], within)? {
            true => Ok(()),
            false => Err(StoreError::TimedOut { what: "list", name: list.to_owned(), within }),
        }
    }

    /// The datasets of a list from `first` to `last`, both included; negative numbers count from the end.
    ///
    /// # Errors
    /// A dataset is not there, or the store cannot be reached.
    pub fn list_datasets(&self, list: &str, first: i64, last: i64) -> Result<Vec<Dataset>, StoreError> {
        let elements = self.list_elements(list, first, last)?;
        elements.iter().map(|base| self.dataset_at(name_of(base), base)).collect()
    }

    /// What stands in a list: the keys of its datasets without their endings.
    ///
    /// # Errors
    /// The store cannot be reached.
    pub fn list_elements(&self, list: &str, first: i64, last: i64) -> Result<Vec<String>, StoreError> {
        let key = self.keys().list(list, Access::Read);
        let (first, last) = (first.to_string(), last.to_string());
        let command = words([b"LRANGE", key.as_bytes(), first.as_bytes(), last.as_bytes()]);
        let Reply::Array(items) = self.run_one(&key, command)? else {
            return Err(StoreError::Unexpected { what: "elements of a list" });
        };
        let text = |item: Reply| match item {
            Reply::Bulk(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            _ => Err(StoreError::Unexpected { what: "an element of a list" }),
        };
        items.into_iter().map(text).collect()
    }

    /// Deletes a list; its datasets stay.
    ///
    /// # Errors
    /// The store cannot be reached.
    pub fn delete_list(&self, list: &str) -> Result<bool, StoreError> {
        let key = self.keys().list(list, Access::Write);
        Ok(self.run_one(&key, words([b"DEL", key.as_bytes()]))? != Reply::Integer(0))
    }

    /// Makes a list of the same datasets.
    ///
    /// # Errors
    /// The list is not there, or the store cannot be reached.
    pub fn copy_list(&self, from: &str, to: &str) -> Result<(), StoreError> {
        let elements = self.list_elements(from, 0, -1)?;
        if elements.is_empty() {
            return Err(StoreError::Missing { what: "list", name: from.to_owned() });
        }
        let key = self.keys().list(to, Access::Write);
        let mut push = words([b"RPUSH", key.as_bytes()]);
        push.extend(elements.into_iter().map(Bytes::from));
        self.run(&key, vec![words([b"DEL", key.as_bytes()]), push]).map(|_made| ())
    }

    /// Gives a list another name.
    ///
    /// # Errors
    /// The list is not there, or the store cannot be reached.
    pub fn rename_list(&self, from: &str, to: &str) -> Result<(), StoreError> {
        let (from_key, to_key) = (self.keys().list(from, Access::Read), self.keys().list(to, Access::Write));
        if self.same_slot(&from_key, &to_key) {
            let command = words([b"RENAME", from_key.as_bytes(), to_key.as_bytes()]);
            return match self.run_one(&from_key, command) {
                Err(StoreError::Refused { text }) if text.contains("no such key") => {
                    Err(StoreError::Missing { what: "list", name: from.to_owned() })
                }
                other => other.map(|_renamed| ()),
            };
        }
        self.copy_list(from, to)?;
        self.run_one(&from_key, words([b"DEL", from_key.as_bytes()])).map(|_deleted| ())
    }
}

fn length(reply: Reply) -> Result<u64, StoreError> {
    match reply {
        Reply::Integer(length) => Ok(u64::try_from(length).unwrap_or(0)),
        _ => Err(StoreError::Unexpected { what: "a length" }),
    }
}

/// The name of a dataset in what a list has of it: what stands in braces.
fn name_of(base: &str) -> &str {
    let inner = base.split_once('{').and_then(|(_, rest)| rest.strip_suffix('}'));
    inner.unwrap_or(base)
}
