//! What came of the jobs of one command.

use crate::failure::Failure;
use crate::output::{Render, summary};
use anyhow::Context;
use phalanx_jobs::{MainCounts, Outcome};
use phalanx_types::JobId;
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// What became of the jobs.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    pub(super) submitted: u64,
    pub(super) solved: u64,
    failed: u64,
    cancelled: u64,
    expired: u64,
    reruns: u64,
    wall_s: f64,
    jobs_per_s: f64,
    /// Only for a single job.
    #[serde(skip_serializing_if = "Option::is_none")]
    solution: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_failure: Option<String>,
}

impl Render for Summary {
    fn table(&self) -> String {
        let mut rows = vec![
            ("submitted", self.submitted.to_string()),
            ("solved", self.solved.to_string()),
            ("failed", self.failed.to_string()),
            ("cancelled", self.cancelled.to_string()),
            ("expired", self.expired.to_string()),
            ("reruns", self.reruns.to_string()),
            ("wall", format!("{:.2} s", self.wall_s)),
            ("jobs/s", format!("{:.0}", self.jobs_per_s)),
        ];
        rows.extend(self.first_failure.iter().map(|f| ("first failure", f.clone())));
        rows.extend(self.solution.iter().map(|s| ("solution", s.clone())));
        summary(rows)
    }

    fn quiet(&self) -> String {
        self.solution.clone().unwrap_or_default()
    }
}

impl Summary {
    /// Puts the counts of the main node and what came of single jobs together; `before` had ended
    /// in an earlier life.
    pub(super) fn new(counts: MainCounts, before: u64, wall: Duration, sink: Sink<'_>) -> Self {
        let wall_s = wall.as_secs_f64();
        let ended = counts.ended().saturating_sub(before);
        Self {
            submitted: counts.submitted,
            solved: counts.solved,
            failed: counts.failed,
            cancelled: counts.cancelled,
            expired: counts.expired,
            reruns: counts.reruns,
            wall_s,
            jobs_per_s: if wall_s > 0.0 { ended as f64 / wall_s } else { 0.0 },
            solution: sink.solution,
            first_failure: sink.first_failure,
        }
    }
}

/// Where solutions go as they come.
#[derive(Debug)]
pub(super) struct Sink<'a> {
    dir: Option<&'a Path>,
    single: bool,
    solution: Option<String>,
    first_failure: Option<String>,
    /// Outcomes that came.
    pub(super) taken: u64,
}

impl<'a> Sink<'a> {
    pub(super) fn new(dir: Option<&'a Path>, single: bool) -> Self {
        Self { dir, single, solution: None, first_failure: None, taken: 0 }
    }

    pub(super) fn take(&mut self, job: JobId, outcome: &Outcome) -> Result<(), Failure> {
        self.taken += 1;
        match outcome {
            Outcome::Solved(parcel) => {
                if let Some(dir) = self.dir {
                    let path = dir.join(format!("{job}.out"));
                    std::fs::write(&path, &parcel.bytes)
                        .with_context(|| format!("could not write solution {}", path.display()))
                        .map_err(Failure::infrastructure)?;
                } else if self.single {
                    self.solution = Some(String::from_utf8_lossy(&parcel.bytes).into_owned());
                }
            }
            Outcome::Failed(reason) => {
                self.first_failure.get_or_insert_with(|| format!("job {job}: {reason}"));
            }
            Outcome::Kept { .. } | Outcome::Cancelled | Outcome::Expired => {}
        }
        Ok(())
    }
}
