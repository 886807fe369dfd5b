//! Which operator made a step not finite: all stages compute it once more, one part after the other, and each looks at
//! its own.

use super::session::Session;
use super::step::Sheaf;
use super::word::Words;
use crate::error::DistributedError;
use phalanx_data::Loaded;
use phalanx_engine::DiagnoseReport;
use phalanx_train::OutputGradients;
use phalanx_train::{Culprit, NotFinite, TrainError};

/// What a stage found of itself.
#[derive(Debug, Default)]
struct Found {
    report: Option<DiagnoseReport>,
    /// Something had gone wrong in another stage before it came here.
    elsewhere: bool,
}

impl Session<'_> {
    /// Why a step cannot be applied. Of all stages one says what is to be told: the one that made it so.
    pub(super) fn not_finite(
        &mut self,
        words: &Words,
        sheaf: &Sheaf,
        loaded: Option<&Loaded>,
    ) -> DistributedError {
        let Some(rank) = words.outcomes[0].not_finite else {
            return DistributedError::Replica {
                reason: "the norm of the gradients is not finite".to_owned(),
            };
        };
        let found = match self.look(sheaf, loaded) {
            Ok(found) => found,
            Err(error) => return error,
        };
        // Whoever left before the others have looked would take their links with it.
        if let Err(error) = self.control.barrier("all have looked") {
            tracing::debug!(%error, "somebody left after it had looked");
        }
        let silent = found.elsewhere || rank != self.rank;
        if found.report.is_none() && silent {
            return DistributedError::Replica { reason: format!("what rank {rank} computed is not finite") };
        }
        let samples = loaded.map_or_else(Vec::new, |loaded| loaded.batch.indices.clone());
        self.no_number(words, 0, sheaf.step, samples, found.report.into())
    }

    /// The error of a step, one of those that were voted on together.
    pub(super) fn no_number(
        &self,
        words: &Words,
        index: usize,
        step: u64,
        samples: Vec<u64>,
        found: Culprit,
    ) -> DistributedError {
        let losses = words.votes[index].iter().map(|vote| vote.loss);
        let (what, value) = match losses.into_iter().find(|loss| !loss.is_finite()) {
            Some(loss) => ("loss", loss),
            None => ("norm of the gradients", f64::NAN),
        };
        let place = self.worker.place(step);
        let (step, pass, batch) = (step + 1, place.pass + 1, place.batch);
        TrainError::NotFinite(Box::new(NotFinite { what, value, step, pass, batch, samples, found })).into()
    }

    fn look(&mut self, sheaf: &Sheaf, loaded: Option<&Loaded>) -> Result<Found, DistributedError> {
        let mut all = Found::default();
        let parts = sheaf.parts();
        for index in 0..parts {
            self.forward(sheaf, index, 0, loaded)?;
            self.backward(sheaf, index, 0, (index, parts), false)?;
            let received = self.prev.iter().flat_map(|_| &self.part.received).flatten();
            if received.copied().any(|value| !value.is_finite()) {
                all.elsewhere = true;
                continue;
            }
            let found = self.look_at_part(sheaf, index, loaded)?;
            // What later stages give back is no number, either, when it is this one's forward that made the first.
            let mut given = self.next.iter().flat_map(|_| &self.part.given).flatten();
            if given.any(|value| !value.is_finite()) && found.as_ref().is_none_or(|report| report.backward) {
                all.elsewhere = true;
            } else if all.report.is_none() {
                all.report = found;
            }
        }
        Ok(all)
    }

    /// Looks at every operator of this stage, with what came from its neighbours for one part of the samples.
    fn look_at_part(
        &mut self,
        sheaf: &Sheaf,
        index: usize,
        loaded: Option<&Loaded>,
    ) -> Result<Option<DiagnoseReport>, DistributedError> {
        let (len, pass) = (sheaf.part_len(index), self.part.stepper.pass(sheaf.step, index, sheaf.first));
        let batch = loaded.map(|loaded| &loaded.batch);
        let y = batch.map_or(&[][..], |batch| &batch.y);
        let labels = sheaf.input(index, y, &self.worker.task.y_shape);
        let inputs: Vec<&[f32]> = match (&self.prev, batch) {
            (None, Some(batch)) => vec![sheaf.cut(index, &batch.x)],
            _ => self.part.received.iter().map(Vec::as_slice).collect(),
        };
        let gradients = match self.next {
            Some(_) => OutputGradients::Given(&self.part.given),
            None => OutputGradients::OfLoss(&labels),
        };
        let report = self.part.stepper.look_at(len, &inputs, pass, gradients)?;
        let place = |sample: usize| sheaf.start(index) + sample;
        Ok(report.map(|report| DiagnoseReport { sample: report.sample.map(place), ..report }))
    }
}
