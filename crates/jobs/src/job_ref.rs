//! A job as the user names it.

use phalanx_types::JobId;
use std::fmt;
use std::str::FromStr;

/// A job as the user names it: `17`, or `17@main-4f2a` when there are several main nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRef {
    /// Its id in the session of its main node.
    pub job: JobId,
    /// The beginning of the main node's id.
    pub main: Option<String>,
}

impl JobRef {
    /// Whether a main node of this id may be meant.
    pub fn may_be_at(&self, main: &str) -> bool {
        self.main.as_deref().is_none_or(|prefix| main.starts_with(prefix))
    }

    /// Whether a main node of this name, which is gone, may be meant; its id was longer by a suffix.
    pub fn may_have_been_at(&self, name: &str) -> bool {
        let id_of = |main: &str| main.strip_prefix(name).is_some_and(|suffix| suffix.starts_with('-'));
        self.may_be_at(name) || self.main.as_deref().is_some_and(id_of)
    }
}

impl FromStr for JobRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (job, main) = match text.split_once('@') {
            Some((job, main)) => (job, Some(main.to_owned())),
            None => (text, None),
        };
        let Ok(job) = job.parse() else { return Err("expected a job like 17 or 17@main-4f2a".to_owned()) };
        Ok(Self { job, main })
    }
}

impl fmt::Display for JobRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.main {
            Some(main) => write!(f, "{}@{main}", self.job),
            None => write!(f, "{}", self.job),
        }
    }
}
