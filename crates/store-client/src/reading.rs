//! Tensors of servers: those that have not changed from where they were mapped, the rest by asking.

use crate::StoreError;
use crate::backend::Backend;
use crate::cluster::{Keyed, Sending, Servers};
use crate::memory::Mapped;
use crate::views::KeyVersion;
use phalanx_types::Tensor;
use std::collections::BTreeSet;

impl Servers {
    /// Tensors of keys, those that have not changed without asking a server.
    ///
    /// # Errors
    /// A node cannot be reached, or a value is no tensor.
    pub(crate) fn read_tensors(
        &mut self,
        backend: Backend,
        keys: &[String],
    ) -> Result<Vec<Option<Tensor>>, StoreError> {
        let mut found: Vec<Option<Tensor>> = keys.iter().map(|key| self.unchanged(key)).collect();
        // Numbers of a server that is gone do not change any more: that it is there is looked at after them.
        for (key, kept) in keys.iter().zip(&mut found).filter(|(_, kept)| kept.is_some()) {
            if !self.link_of(key).is_some_and(|(_, link)| link.is_quiet()) {
                *kept = None;
            }
        }
        let due: Vec<(usize, &String)> =
            keys.iter().enumerate().filter(|(at, _)| found.get(*at).is_some_and(Option::is_none)).collect();
        if due.is_empty() {
            return Ok(found);
        }
        let versions: Vec<_> = due.iter().map(|(_, key)| self.version(key)).collect();
        let keyed =
            |(_, key): &(usize, &String)| Keyed { key: (*key).clone().into(), command: backend.get(key) };
        let replies = self.call_mapped(due.iter().map(keyed).collect(), Sending::Lend)?;
        let mut lenders = BTreeSet::new();
        for (((at, key), version), Mapped { reply, may_keep }) in due.into_iter().zip(versions).zip(replies) {
            let tensor = backend.tensor(key, reply)?;
            if let (Some(tensor), true, Some((node, link))) = (&tensor, may_keep, self.link_of(key)) {
                lenders.insert(node.clone());
                // A version of another node means nothing here.
                if let Some((_, version)) = version.filter(|(asked, _)| *asked == node) {
                    link.views().keep(key, version, tensor);
                }
            }
            found.get_mut(at).into_iter().for_each(|place| *place = tensor.clone());
        }
        for node in lenders {
            self.link(&node)?.learn_versions()?;
        }
        Ok(found)
    }

    fn unchanged(&mut self, key: &str) -> Option<Tensor> {
        self.link_of(key).filter(|(_, link)| link.is_sharing())?.1.views().unchanged(key)
    }

    fn version(&mut self, key: &str) -> Option<(String, KeyVersion)> {
        let (node, link) = self.link_of(key)?;
        Some((node, link.views().version(key)?))
    }
}
