//! All jobs of a session by id: pages of live jobs that shrink to a few bytes per job once all ended.

use super::job::{Ending, Job};
use super::queue::ClassId;
use phalanx_types::JobId;
use serde::{Deserialize, Serialize};

const PAGE: usize = 256;

#[derive(Debug, Default, Serialize, Deserialize)]
struct Page {
    jobs: Vec<Option<Job>>,
    #[serde(with = "super::recorded::runs")]
    endings: Vec<(Ending, ClassId)>,
    live: usize,
}

/// Jobs by id, ids counted from 1 without gaps.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct JobTable {
    pages: Vec<Page>,
    len: u64,
}

fn place(job: JobId) -> Option<(usize, usize)> {
    let index = usize::try_from(job.0.checked_sub(1)?).ok()?;
    Some((index / PAGE, index % PAGE))
}

impl JobTable {
    /// The id the next job gets.
    pub(crate) fn next_id(&self) -> JobId {
        JobId(self.len + 1)
    }

    pub(crate) fn push(&mut self, job: Job) -> JobId {
        let page = self.tail();
        page.endings.push((Ending::NotYet, job.class));
        page.jobs.push(Some(job));
        page.live += 1;
        self.len += 1;
        JobId(self.len)
    }

    /// Adds a job that ended in an earlier life of this session.
    pub(crate) fn push_ended(&mut self, ending: Ending, class: ClassId) -> JobId {
        let page = self.tail();
        page.jobs.push(None);
        page.endings.push((ending, class));
        page.shrink();
        self.len += 1;
        JobId(self.len)
    }

    fn tail(&mut self) -> &mut Page {
        if self.len.is_multiple_of(PAGE as u64) {
            self.pages.push(Page::default());
        }
        let last = self.pages.len() - 1;
        &mut self.pages[last]
    }

    pub(crate) fn get(&self, job: JobId) -> Option<&Job> {
        let (page, slot) = place(job)?;
        self.pages.get(page)?.jobs.get(slot)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, job: JobId) -> Option<&mut Job> {
        let (page, slot) = place(job)?;
        self.pages.get_mut(page)?.jobs.get_mut(slot)?.as_mut()
    }

    /// How the job ended, `NotYet` while it has not, `None` for an id never given.
    pub(crate) fn ending(&self, job: JobId) -> Option<Ending> {
        self.ending_and_class(job).map(|(ending, _)| ending)
    }

    pub(crate) fn ending_and_class(&self, job: JobId) -> Option<(Ending, ClassId)> {
        let (page, slot) = place(job)?;
        self.pages.get(page)?.endings.get(slot).copied()
    }

    /// Ends a live job; `None` when it had ended before.
    pub(crate) fn end(&mut self, job: JobId, ending: Ending) -> Option<Job> {
        let (page, slot) = place(job)?;
        let page = self.pages.get_mut(page)?;
        let ended = page.jobs.get_mut(slot)?.take()?;
        page.endings[slot].0 = ending;
        page.live -= 1;
        page.shrink();
        Some(ended)
    }

    /// The ids after `after`, in order; live ones only unless `all`.
    pub(crate) fn ids_after(&self, after: JobId, all: bool) -> impl Iterator<Item = JobId> + '_ {
        let mut next = after.0.saturating_add(1);
        std::iter::from_fn(move || {
            while next <= self.len {
                let id = JobId(next);
                let (page, _) = place(id)?;
                if !all && self.pages.get(page)?.live == 0 {
                    next = (page as u64 + 1) * PAGE as u64 + 1;
                    continue;
                }
                next += 1;
                if all || self.get(id).is_some() {
                    return Some(id);
                }
            }
            None
        })
    }
}

impl Page {
    /// Gives the memory of the jobs back once the page is full and nobody in it lives.
    fn shrink(&mut self) {
        if self.live == 0 && self.endings.len() == PAGE {
            self.jobs = Vec::new();
        }
    }
}
