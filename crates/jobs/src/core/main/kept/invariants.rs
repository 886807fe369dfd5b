//! What always holds between kept solutions, jobs and workers.

use super::Place;
use crate::core::main::MainCore;
use phalanx_types::JobId;
use std::collections::{BTreeMap, BTreeSet};

impl MainCore {
    pub(in crate::core::main) fn check_kept(&self) {
        let mut heirs = BTreeMap::<JobId, u32>::new();
        for (_, inputs) in self.inputs.iter().filter(|(job, _)| self.is_kept(**job)) {
            for input in inputs.iter().collect::<BTreeSet<_>>() {
                *heirs.entry(*input).or_default() += 1;
            }
        }
        for (job, kept) in &self.kept {
            let j = self.jobs.get(*job);
            assert!(j.is_some(), "{job} is kept and gone");
            if let Place::At { holders, .. } = &kept.place {
                assert!(!holders.is_empty(), "{job} is held by no node");
                for holder in holders.keys() {
                    let holds = self.workers.get(holder).is_some_and(|w| w.holds.contains(job));
                    assert!(holds, "{holder} does not know that it holds {job}");
                }
            }
            for user in &kept.users {
                let takes = self.inputs.get(user).is_some_and(|inputs| inputs.contains(job));
                assert!(takes && self.jobs.get(*user).is_some(), "{user} does not take {job}");
            }
            assert_eq!(kept.heirs, heirs.get(job).copied().unwrap_or(0), "heirs of {job}");
        }
        for (key, worker) in &self.workers {
            for job in &worker.holds {
                let holds = self.kept.get(job).is_some_and(
                    |kept| matches!(&kept.place, Place::At { holders, .. } if holders.contains_key(key)),
                );
                assert!(holds, "{key} holds {job}, which is not known");
            }
        }
        assert_eq!(self.recipe_bytes, self.recipes.values().sum::<u64>(), "bytes of recipes");
    }
}
