//! What the routes do, on files. All of it blocks.

use crate::error::MlflowError;
use crate::experiments::{Experiment, Experiments};
use crate::filter;
use crate::messages::{CreateRun, KeyValue, LogBatch, MetricPoint, SearchRuns, UpdateRun};
use crate::run::{self, About, NAME_TAG, Recorded};
use phalanx_records::run_dir::{Annotation, RunDir, Status, annotate};
use phalanx_records::{Event, Events};
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// The most runs of one page of a search.
const PAGE: i64 = 50_000;
const USUAL_PAGE: i64 = 1000;

/// The runs in a directory, as MLflow's clients see them.
#[derive(Debug)]
pub(crate) struct Tracking {
    runs: PathBuf,
    experiments: Experiments,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Where runs are.
    dirs: BTreeMap<String, PathBuf>,
    /// The locks of runs that are being logged by clients of this process: others see that they are running.
    open: BTreeMap<String, RunDir>,
}

fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn new_run_id() -> Result<String, MlflowError> {
    let mut bytes = [0; 16];
    let no_entropy = |_error| MlflowError::io("make an identity")(std::io::Error::other("no random bytes"));
    SystemRandom::new().fill(&mut bytes).map_err(no_entropy)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Tracking {
    pub(crate) fn new(runs: PathBuf) -> Self {
        Self { experiments: Experiments::of(&runs), runs, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn experiments(&self) -> &Experiments {
        &self.experiments
    }

    pub(crate) fn create_experiment(
        &self,
        name: &str,
        tags: Vec<KeyValue>,
    ) -> Result<Experiment, MlflowError> {
        let _alone = self.known();
        self.experiments.create(name, tags, unix_ms())
    }

    pub(crate) fn create_run(&self, asked: CreateRun) -> Result<Recorded, MlflowError> {
        let experiment = self.experiments.by_id(&asked.experiment_id)?;
        let run_id = new_run_id()?;
        let tagged = asked.tags.iter().find(|tag| tag.key == NAME_TAG).map(|tag| tag.value.clone());
        let named = Some(asked.run_name).filter(|name| !name.is_empty()).or(tagged);
        let about = About {
            run_name: named.unwrap_or_else(|| format!("run-{}", &run_id[..8])),
            run_id,
            experiment_id: experiment.experiment_id,
            experiment: experiment.name,
            user_id: asked.user_id,
            status: "RUNNING".to_owned(),
            start_time: if asked.start_time > 0 { asked.start_time } else { unix_ms() },
            end_time: None,
            lifecycle_stage: "active".to_owned(),
        };
        let mut known = self.known();
        std::fs::create_dir_all(&self.runs).map_err(MlflowError::io("make the directory of runs"))?;
        let dir = run::create(&self.runs, &about)?;
        let path = dir.path().to_owned();
        run::set_tags(&path, &asked.tags)?;
        known.dirs.insert(about.run_id.clone(), path.clone());
        known.open.insert(about.run_id.clone(), dir);
        Recorded::read(&path, about)
    }

    /// The directory of a run.
    pub(crate) fn dir(&self, id: &str) -> Result<PathBuf, MlflowError> {
        self.about(&mut self.known(), id).map(|(path, _)| path)
    }

    fn about(&self, known: &mut Known, id: &str) -> Result<(PathBuf, About), MlflowError> {
        let at = |path: &PathBuf| About::read(path).filter(|about| about.run_id == id);
        if let Some(path) = known.dirs.get(id)
            && let Some(about) = at(path)
        {
            return Ok((path.clone(), about));
        }
        known.dirs = self.find_runs().map(|(path, about)| (about.run_id, path)).collect();
        let missing = || MlflowError::NotFound { what: "run", name: id.to_owned() };
        let path = known.dirs.get(id).cloned().ok_or_else(missing)?;
        let about = at(&path).ok_or_else(missing)?;
        Ok((path, about))
    }

    fn find_runs(&self) -> impl Iterator<Item = (PathBuf, About)> {
        let entries = std::fs::read_dir(&self.runs).into_iter().flatten().flatten();
        entries.filter_map(|entry| {
            let path = entry.path();
            let about = About::read(&path)?;
            Some((path, about))
        })
    }

    /// A run that takes what is logged; a run that was left by an ended server is taken up again.
    fn open<'a>(&self, known: &'a mut Known, id: &str) -> Result<(&'a RunDir, About), MlflowError> {
        let (path, about) = self.about(known, id)?;
        if about.lifecycle_stage != "active" {
            return Err(MlflowError::Invalid(format!("run {id} is deleted")));
        }
        if !known.open.contains_key(id) {
            known.open.insert(id.to_owned(), RunDir::open(path)?);
        }
        let missing = || MlflowError::NotFound { what: "run", name: id.to_owned() };
        Ok((known.open.get(id).ok_or_else(missing)?, about))
    }

    pub(crate) fn get_run(&self, id: &str) -> Result<Recorded, MlflowError> {
        let (path, about) = self.about(&mut self.known(), id)?;
        Recorded::read(&path, about)
    }

    pub(crate) fn update_run(&self, asked: &UpdateRun) -> Result<Recorded, MlflowError> {
        let id = asked.run.id();
        let mut known = self.known();
        let (dir, mut about) = self.open(&mut known, id)?;
        if let Some(status) = &asked.status {
            about.status.clone_from(status);
            about.end_time =
                if about.is_running() { None } else { Some(asked.end_time.unwrap_or_else(unix_ms)) };
        }
        if let Some(name) = asked.run_name.as_ref().filter(|name| !name.is_empty()) {
            about.run_name.clone_from(name);
        }
        about.write(dir)?;
        let path = dir.path().to_owned();
        if !about.is_running() {
            let state = match about.status.as_str() {
                "FINISHED" => Status::Finished,
                "FAILED" => Status::Failed,
                _ => Status::Interrupted,
            };
            let steps = Recorded::read(&path, about.clone())?.last.values().map(|point| point.step).max();
            let steps = steps.and_then(|step| u64::try_from(step).ok()).unwrap_or(0);
            Events::of_run(dir, &mut ())?.on(Event::Ended { state, steps, reason: None });
            // The lock goes with it: the run belongs to no process any more.
            known.open.remove(id);
        }
        Recorded::read(&path, about)
    }

    pub(crate) fn log(&self, batch: &LogBatch) -> Result<(), MlflowError> {
        let mut known = self.known();
        let (dir, about) = self.open(&mut known, batch.run.id())?;
        let path = dir.path().to_owned();
        // Parameters first: they are what may be refused.
        run::add_params(&path, &batch.params)?;
        run::add_metrics(&path, &batch.metrics)?;
        run::set_tags(&path, &batch.tags)?;
        if let Some(name) = batch.tags.iter().find(|tag| tag.key == NAME_TAG) {
            About { run_name: name.value.clone(), ..about.clone() }.write(dir)?;
        }
        if !about.is_running() {
            // Tags and metrics may be added to an ended run, which stays ended.
            known.open.remove(batch.run.id());
        }
        Ok(())
    }

    pub(crate) fn delete_tag(&self, id: &str, key: &str) -> Result<(), MlflowError> {
        let recorded = self.get_run(id)?;
        if !recorded.tags.contains_key(key) {
            return Err(MlflowError::NotFound { what: "tag", name: key.to_owned() });
        }
        Ok(annotate(&self.dir(id)?, &Annotation::Remove(key.to_owned()))?)
    }

    /// Marks a run as deleted, or as not; its files stay.
    pub(crate) fn set_deleted(&self, id: &str, deleted: bool) -> Result<(), MlflowError> {
        let mut known = self.known();
        let (path, about) = self.about(&mut known, id)?;
        let stage = if deleted { "deleted" } else { "active" };
        let dir = match known.open.remove(id) {
            Some(dir) => dir,
            None => RunDir::open(path)?,
        };
        About { lifecycle_stage: stage.to_owned(), ..about }.write(&dir)
    }

    pub(crate) fn history(&self, id: &str, key: &str) -> Result<Vec<MetricPoint>, MlflowError> {
        run::history(&self.dir(id)?, key)
    }

    /// The runs that a client asks for, and the token of the next page.
    pub(crate) fn search(&self, asked: &SearchRuns) -> Result<(Vec<Recorded>, Option<String>), MlflowError> {
        let filter = filter::parse(&asked.filter)?;
        let order = asked.order_by.iter().map(|by| filter::parse_order(by)).collect::<Result<Vec<_>, _>>()?;
        let is_asked = |about: &About| {
            let stage = match asked.run_view_type.as_str() {
                "ALL" => true,
                "DELETED_ONLY" => about.lifecycle_stage == "deleted",
                _ => about.lifecycle_stage == "active",
            };
            stage && (asked.experiment_ids.is_empty() || asked.experiment_ids.contains(&about.experiment_id))
        };
        let mut found = Vec::new();
        for (path, about) in self.find_runs().filter(|(_, about)| is_asked(about)) {
            let run = Recorded::read(&path, about)?;
            if filter.iter().all(|condition| condition.holds(&run)) {
                found.push(run);
            }
        }
        found.sort_by(|a, b| filter::compare(&order, a, b));
        let from: usize = match asked.page_token.as_str() {
            "" => 0,
            token => token
                .parse()
                .map_err(|_wrong| MlflowError::Invalid(format!("{token:?} is no token of a page")))?,
        };
        let most = asked.max_results.unwrap_or(USUAL_PAGE).clamp(1, PAGE) as usize;
        let next = (found.len() > from.saturating_add(most)).then(|| (from + most).to_string());
        Ok((found.into_iter().skip(from).take(most).collect(), next))
    }
}

/// Whether a path is that of a run directory of MLflow.
#[cfg(test)]
fn is_mlflow(path: &std::path::Path) -> bool {
    About::read(path).is_some()
}

#[cfg(test)]
mod tests;
