//! Waiting jobs, grouped by what they need: a class is one kind of job with one set of needs.
//!
//! A node either can run a whole class or none of it, so finding a job for a node looks at one
//! head per class, however many jobs wait.

use phalanx_types::{JobId, Needs};
use phalanx_wire::reason::WaitReason;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

/// An index into the classes of a queue; classes are never removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct ClassId(u32);

/// Jobs that any node able to run one of them can run all of.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Class {
    pub(crate) kind: SmolStr,
    pub(crate) needs: Needs,
    /// Jobs that wait. The levels may hold more: ids whose job was taken another way.
    pub(crate) waiting: u64,
    levels: BTreeMap<Reverse<i32>, VecDeque<JobId>>,
    /// What was last said about why this class waits.
    pub(crate) explained: Option<WaitReason>,
}

/// The classes of one main node.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Queue {
    classes: Vec<Class>,
    by_need: BTreeMap<(SmolStr, Needs), ClassId>,
}

impl Queue {
    pub(crate) fn class_of(&mut self, kind: &SmolStr, needs: Needs) -> ClassId {
        if let Some(id) = self.by_need.get(&(kind.clone(), needs)) {
            return *id;
        }
        let id = ClassId(u32::try_from(self.classes.len()).unwrap_or(u32::MAX));
        self.classes.push(Class {
            kind: kind.clone(),
            needs,
            waiting: 0,
            levels: BTreeMap::new(),
            explained: None,
        });
        self.by_need.insert((kind.clone(), needs), id);
        id
    }

    pub(crate) fn class(&self, id: ClassId) -> &Class {
        &self.classes[id.0 as usize]
    }

    pub(crate) fn class_mut(&mut self, id: ClassId) -> &mut Class {
        &mut self.classes[id.0 as usize]
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = ClassId> + use<> {
        (0..u32::try_from(self.classes.len()).unwrap_or(u32::MAX)).map(ClassId)
    }

    pub(crate) fn waiting(&self) -> u64 {
        self.classes.iter().map(|c| c.waiting).sum()
    }

    pub(crate) fn push_back(&mut self, class: ClassId, priority: i32, job: JobId) {
        let class = self.class_mut(class);
        class.waiting += 1;
        class.levels.entry(Reverse(priority)).or_default().push_back(job);
    }

    /// Puts a job that was out already back where its age belongs, which is near the front.
    pub(crate) fn put_back(&mut self, class: ClassId, priority: i32, job: JobId) {
        let class = self.class_mut(class);
        class.waiting += 1;
        let level = class.levels.entry(Reverse(priority)).or_default();
        let at = level.partition_point(|other| *other < job);
        // It may still stand there, when it was not taken from the front.
        if level.get(at) != Some(&job) {
            level.insert(at, job);
        }
    }

    /// The waiting jobs ahead of one, over all classes.
    pub(crate) fn ahead_of(&self, priority: i32, job: JobId) -> u64 {
        let mut ahead = 0;
        for class in &self.classes {
            for (Reverse(level), jobs) in &class.levels {
                if *level > priority {
                    ahead += jobs.len();
                } else if *level == priority {
                    ahead += jobs.partition_point(|other| *other < job);
                }
            }
        }
        ahead as u64
    }
}

impl Class {
    /// The best job in it, dropping ids for which `waits` says no.
    pub(crate) fn head(&mut self, waits: impl Fn(JobId) -> bool) -> Option<(i32, JobId)> {
        while let Some(mut level) = self.levels.first_entry() {
            let Reverse(priority) = *level.key();
            while let Some(job) = level.get().front().copied() {
                if waits(job) {
                    return Some((priority, job));
                }
                level.get_mut().pop_front();
            }
            level.remove();
        }
        None
    }

    /// Removes the job that [`Class::head`] showed.
    pub(crate) fn pop(&mut self) {
        if let Some(mut level) = self.levels.first_entry() {
            level.get_mut().pop_front();
        }
    }
}
