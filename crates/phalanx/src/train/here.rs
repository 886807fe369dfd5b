//! A run in this process.

use super::{Given, RunPlan, Trained, files};
use crate::error::Error;
use phalanx_rank::Trainer;
use phalanx_records::run_dir::RunDir;
use phalanx_records::{Observer, Summary};
use phalanx_train::config::RunConfig;
use phalanx_train::{Compute, InMemory, LoadOptions, Task, TrainedModel};

pub(super) fn train(plan: RunPlan, observer: &mut dyn Observer) -> Result<Trained, Error> {
    let RunPlan { given, mut config, own, run_dir, stop } = plan;
    config.validate()?;
    let compute = Compute::cpu(config.threads());
    let mut dir: Option<RunDir> = None;
    if let Some(path) = &run_dir {
        if let Some(own) = &own {
            let (loss, place) = (own.name().to_owned(), "a run directory");
            return Err(Error::OwnLoss { loss, place });
        }
        let opened = files::open(path, given.as_ref(), config)?;
        (dir, config) = (Some(opened.0), opened.1);
    }
    let task = task(given, config, own, &compute)?;
    let finished = dir.as_ref().and_then(|dir| Summary::of_finished(dir, task.plan(), task.validates()));
    if let (Some(summary), Some(dir)) = (finished, &dir) {
        let model = TrainedModel::load(dir.path(), LoadOptions::default())?;
        return Ok(Trained::new(model, summary, compute));
    }
    let trainer = match dir {
        Some(dir) => Trainer::new(task, compute.clone(), dir, observer)?,
        None => Trainer::in_memory(task, compute.clone())?,
    };
    let (summary, model) = trainer.run_for_model(&stop.flag, observer)?;
    Ok(Trained::new(model, summary, compute))
}

fn task(
    given: Option<Given>,
    config: RunConfig,
    own: Option<phalanx_engine::OwnLoss>,
    compute: &Compute,
) -> Result<Task, Error> {
    match given {
        Some(Given { graph, weights, train, valid }) => {
            let given = InMemory { graph, weights, train, valid, loss: own };
            Ok(Task::in_memory(config, given, &compute.threads)?)
        }
        None => {
            let mut task = Task::new(config, &compute.threads)?;
            if let Some(own) = own {
                task.objective = own.into();
            }
            Ok(task)
        }
    }
}
