//! Tensors that this program read before and that no client has changed since: reading one again asks no server.
//!
//! The server counts up a number in shared memory whenever a key changes, before it acknowledges the change. A view that
//! is kept belongs to the numbers as they were before its value was asked for; while they are the same, so is the value.
//! What is kept is bounded, and what has changed is let go of with the next command.

use phalanx_resp::{SLOTS, slot};
use phalanx_shared::CounterView;
use phalanx_types::Tensor;
use phalanx_wire::bulk::SharedPlace;
use std::collections::BTreeMap;
use std::io;

/// Views that are kept at most.
const VIEWS: usize = 64;
/// The bytes of the server that they keep occupied at most.
const BYTES: usize = 256 << 20;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Views {
    versions: Versions,
    kept: BTreeMap<String, View>,
    /// Counts uses.
    clock: u64,
}

#[derive(Debug, Default)]
enum Versions {
    #[default]
    Unasked,
    Mapped(CounterView),
    Impossible,
}

#[derive(Debug)]
struct View {
    tensor: Tensor,
    version: KeyVersion,
    used: u64,
}

/// The numbers that count up when a key changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyVersion {
    slot: u16,
    of_slot: u64,
    of_all: u64,
}

impl Versions {
    fn of_slot(&self, slot: u16) -> Option<KeyVersion> {
        let Self::Mapped(numbers) = self else { return None };
        let (of_slot, of_all) = (numbers.get(slot.into())?, numbers.get(SLOTS.into())?);
        Some(KeyVersion { slot, of_slot, of_all })
    }

    fn is_now(&self, version: KeyVersion) -> bool {
        self.of_slot(version.slot) == Some(version)
    }
}

impl Views {
    /// Whether the server was not yet asked where its numbers are.
    pub(crate) fn is_unasked(&self) -> bool {
        matches!(self.versions, Versions::Unasked)
    }

    /// Takes note of where the server has its numbers; nothing is kept if this process cannot map them.
    pub(crate) fn learn(&mut self, place: io::Result<SharedPlace>) {
        let opened = place.and_then(|place| CounterView::open(&place));
        self.versions = opened.map_or_else(
            |error| {
                tracing::debug!(%error, "views of tensors are not kept");
                Versions::Impossible
            },
            Versions::Mapped,
        );
    }

    /// The version that a key has now.
    pub(crate) fn version(&self, key: &str) -> Option<KeyVersion> {
        self.versions.of_slot(slot(key.as_bytes()))
    }

    /// The tensor of a key that has not changed.
    pub(crate) fn unchanged(&mut self, key: &str) -> Option<Tensor> {
        let view = self.kept.get_mut(key).filter(|view| self.versions.is_now(view.version))?;
        self.clock += 1;
        view.used = self.clock;
        Some(view.tensor.clone())
    }

    /// Keeps a tensor that was asked for when its key had this version.
    pub(crate) fn keep(&mut self, key: &str, version: KeyVersion, tensor: &Tensor) {
        // Numbers of a connection that was lost meanwhile mean nothing.
        if tensor.data().len() > BYTES || !matches!(self.versions, Versions::Mapped(_)) {
            return;
        }
        self.clock += 1;
        self.kept.insert(key.to_owned(), View { tensor: tensor.clone(), version, used: self.clock });
        while self.kept.len() > VIEWS || self.bytes() > BYTES {
            let oldest = self.kept.iter().min_by_key(|(_, view)| view.used).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { return };
            self.kept.remove(&oldest);
        }
    }

    fn bytes(&self) -> usize {
        self.kept.values().map(|view| view.tensor.data().len()).sum()
    }

    /// Lets go of what has changed.
    pub(crate) fn sweep(&mut self) {
        self.kept.retain(|_, view| self.versions.is_now(view.version));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_shared::Counters;
    use phalanx_types::DType;

    fn tensor(len: usize) -> Tensor {
        Tensor::new(DType::U8, vec![len as u64], vec![0; len].into()).unwrap()
    }

    fn views() -> (Counters, Views) {
        let counters = Counters::create(usize::from(SLOTS) + 1).unwrap();
        let mut views = Views::default();
        assert!(views.is_unasked() && views.version("a").is_none());
        views.learn(Ok(counters.place()));
        (counters, views)
    }

    #[test]
    fn a_view_is_kept_until_its_slot_or_all_keys_change() {
        let (counters, mut views) = views();
        let keep = |views: &mut Views, key: &str| {
            let version = views.version(key).unwrap();
            views.keep(key, version, &tensor(10));
        };
        keep(&mut views, "a");
        keep(&mut views, "b");
        assert_eq!(views.unchanged("a"), Some(tensor(10)));
        counters.count_up(slot(b"a").into());
        assert_eq!((views.unchanged("a"), views.unchanged("b")), (None, Some(tensor(10))));
        views.sweep();
        assert_eq!(views.kept.len(), 1);
        counters.count_up(SLOTS.into());
        assert_eq!(views.unchanged("b"), None);
    }

    #[test]
    fn a_change_between_the_question_and_the_answer_makes_the_view_old() {
        let (counters, mut views) = views();
        let asked = views.version("a").unwrap();
        counters.count_up(slot(b"a").into());
        views.keep("a", asked, &tensor(10));
        assert_eq!(views.unchanged("a"), None);
    }

    #[test]
    fn numbers_of_another_connection_mean_nothing() {
        let (_counters, before) = views();
        let asked = before.version("a").unwrap();
        let mut views = Views::default();
        views.keep("a", asked, &tensor(10));
        let counters = Counters::create(usize::from(SLOTS) + 1).unwrap();
        views.learn(Ok(counters.place()));
        assert_eq!((views.version("a"), views.unchanged("a")), (Some(asked), None));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let (_counters, mut views) = views();
        let version = |views: &Views, key: &str| views.version(key).unwrap();
        let first = version(&views, "first");
        views.keep("first", first, &tensor(BYTES + 1));
        assert_eq!(views.kept.len(), 0);
        for n in 0..3 * VIEWS {
            let key = n.to_string();
            views.keep(&key, version(&views, &key), &tensor(10));
            views.unchanged("0").unwrap();
        }
        assert_eq!(views.kept.len(), VIEWS);
        let (large, larger) = (version(&views, "large"), version(&views, "larger"));
        views.keep("large", large, &tensor(BYTES / 2));
        views.keep("larger", larger, &tensor(BYTES / 2 + 1));
        assert!(views.bytes() <= BYTES && views.unchanged("larger").is_some());
    }
}
