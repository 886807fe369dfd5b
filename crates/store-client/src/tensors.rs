//! Tensors by name.

use crate::StoreError;
use crate::backend::{Backend, words};
use crate::cluster::Keyed;
use crate::connection::checked;
use crate::keys::Access;
use crate::store::Store;
use bytes::Bytes;
use phalanx_resp::Reply;
use phalanx_types::Tensor;
use std::time::Duration;

/// What lies under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyKind {
    Missing,
    Tensor,
    /// Anything else, as the server calls it: `hash`, `list`, `string` or another.
    Other(String),
}

impl Store {
    /// What lies under a key as it is.
    ///
    /// # Errors
    /// The store cannot be reached.
    pub fn kind(&self, key: &str) -> Result<KeyKind, StoreError> {
        let commands =
            [words([b"TYPE", key.as_bytes()]), words([b"HMGET", key.as_bytes(), b"dtype", b"data"])];
        let looks = if self.backend() == Backend::Plain { 2 } else { 1 };
        let keyed = |command| Keyed { key: Bytes::copy_from_slice(key.as_bytes()), command };
        let mut replies = self.call(commands.into_iter().take(looks).map(keyed).collect())?.into_iter();
        let kind = match checked(replies.next())? {
            Reply::Simple(text) | Reply::Bulk(text) => String::from_utf8_lossy(&text).into_owned(),
            _ => return Err(StoreError::Unexpected { what: "the kind of a key" }),
        };
        let has_data = matches!(
            replies.next(),
            Some(Reply::Array(fields)) if matches!(&fields[..], [Reply::Bulk(_), Reply::Bulk(_)])
        );
        Ok(match kind.as_str() {
            "none" => KeyKind::Missing,
            "AI_TENSOR" => KeyKind::Tensor,
            "hash" if has_data => KeyKind::Tensor,
            _ => KeyKind::Other(kind),
        })
    }

    /// Stores a tensor.
    ///
    /// # Errors
    /// The store cannot be reached, is full, or refuses it.
    pub fn put(&self, name: &str, tensor: &Tensor) -> Result<(), StoreError> {
        self.put_at(&self.keys().tensor(name, Access::Write), tensor)
    }

    pub(crate) fn put_at(&self, key: &str, tensor: &Tensor) -> Result<(), StoreError> {
        let head = self.backend().set_head(key, tensor.dtype(), tensor.shape());
        self.store_bytes(key, head, tensor.data())
    }

    /// Stores several tensors; small ones travel together.
    ///
    /// # Errors
    /// As [`Store::put`]; those before the one that failed are stored.
    pub fn put_all<'a>(
        &self,
        tensors: impl IntoIterator<Item = (&'a str, &'a Tensor)>,
    ) -> Result<(), StoreError> {
        let mut together = Vec::new();
        for (name, tensor) in tensors {
            let key = self.keys().tensor(name, Access::Write);
            if tensor.data().len() >= phalanx_shared::WORTH_SHARING {
                self.put_at(&key, tensor)?;
            } else {
                together.push(Keyed { command: self.backend().set(&key, tensor), key: key.into() });
            }
        }
        let replies = self.call(together)?;
        replies.into_iter().try_for_each(|reply| checked(Some(reply)).map(|_stored| ()))
    }

    /// Reads a tensor. On the store's host a large one is a view of the store's memory, which stays as it is while the
    /// tensor lives.
    ///
    /// # Errors
    /// It is not there, or the store cannot be reached.
    pub fn get(&self, name: &str) -> Result<Tensor, StoreError> {
        let found = self.tensors_at(&[self.keys().tensor(name, Access::Read)])?.pop().flatten();
        found.ok_or_else(|| StoreError::Missing { what: "tensor", name: name.to_owned() })
    }

    /// Reads several tensors together, in their order; `None` for those that are not there.
    ///
    /// # Errors
    /// The store cannot be reached.
    pub fn get_all(&self, names: &[&str]) -> Result<Vec<Option<Tensor>>, StoreError> {
        let keys: Vec<String> = names.iter().map(|name| self.keys().tensor(name, Access::Read)).collect();
        self.tensors_at(&keys)
    }

    /// Copies a tensor into memory of the caller.
    ///
    /// # Errors
    /// It is not there, or has another number of bytes.
    pub fn get_into(&self, name: &str, memory: &mut [u8]) -> Result<(), StoreError> {
        let tensor = self.get(name)?;
        let (len, room) = (tensor.data().len(), memory.len());
        if len != room {
            return Err(StoreError::Room { name: name.to_owned(), len, room });
        }
        memory.copy_from_slice(tensor.data());
        Ok(())
    }

    /// Deletes a tensor; says whether it was there.
    ///
    /// # Errors
    /// The store cannot be reached.
    pub fn delete(&self, name: &str) -> Result<bool, StoreError> {
        let key = self.keys().tensor(name, Access::Write);
        Ok(self.run_one(&key, words([b"DEL", key.as_bytes()]))? != Reply::Integer(0))
    }

    /// Whether there is a tensor of this name.
    ///
    /// # Errors
    /// The store cannot be reached.
    pub fn exists(&self, name: &str) -> Result<bool, StoreError> {
        self.key_exists(&self.keys().tensor(name, Access::Read))
    }

    /// Whether there is anything under a key as it is.
    ///
    /// # Errors
    /// The store cannot be reached.
    pub fn key_exists(&self, key: &str) -> Result<bool, StoreError> {
        Ok(self.run_one(key, words([b"EXISTS", key.as_bytes()]))? != Reply::Integer(0))
    }

    /// Waits until a tensor is there.
    ///
    /// # Errors
    /// It is not there in time, or the store cannot be reached.
    pub fn wait(&self, name: &str, within: Duration) -> Result<(), StoreError> {
        self.wait_for_key(&self.keys().tensor(name, Access::Read), within)
    }

    /// Waits until there is something under a key as it is.
    ///
    /// # Errors
    /// As [`Store::wait`].
    pub fn wait_for_key(&self, key: &str, within: Duration) -> Result<(), StoreError> {
        match self.wait_until(key, &[b"EXISTS", key.as_bytes()], within)? {
            true => Ok(()),
            false => Err(StoreError::TimedOut { what: "key", name: key.to_owned(), within }),
        }
    }

    /// Stores a tensor of the store under another name, too.
    ///
    /// # Errors
    /// It is not there, or the store cannot be reached.
    pub fn copy(&self, from: &str, to: &str) -> Result<(), StoreError> {
        let (from_key, to_key) =
            (self.keys().tensor(from, Access::Read), self.keys().tensor(to, Access::Write));
        if !self.same_slot(&from_key, &to_key) {
            return self.put(to, &self.get(from)?);
        }
        let command = words([b"COPY", from_key.as_bytes(), to_key.as_bytes(), b"REPLACE"]);
        match self.run_one(&from_key, command)? {
            Reply::Integer(0) => Err(StoreError::Missing { what: "tensor", name: from.to_owned() }),
            _ => Ok(()),
        }
    }

    /// Gives a tensor another name.
    ///
    /// # Errors
    /// It is not there, or the store cannot be reached.
    pub fn rename(&self, from: &str, to: &str) -> Result<(), StoreError> {
        let (from_key, to_key) =
            (self.keys().tensor(from, Access::Read), self.keys().tensor(to, Access::Write));
        if !self.same_slot(&from_key, &to_key) {
            self.put(to, &self.get(from)?)?;
            return self.run_one(&from_key, words([b"DEL", from_key.as_bytes()])).map(|_deleted| ());
        }
        let command = words([b"RENAME", from_key.as_bytes(), to_key.as_bytes()]);
        match self.run_one(&from_key, command) {
            Err(StoreError::Refused { text }) if text.contains("no such key") => {
                Err(StoreError::Missing { what: "tensor", name: from.to_owned() })
            }
            other => other.map(|_renamed| ()),
        }
    }
}
