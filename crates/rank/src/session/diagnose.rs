//! Which operator produced the non-finite value: all ranks compute the step once more, one part after the other, and each
//! looks at its own operators.

use super::Session;
use super::ballot::Ballots;
use super::micro_batches::MicroBatches;
use super::step::Samples;
use crate::error::RankError;
use phalanx_data::Loaded;
use phalanx_engine::DiagnoseReport;
use phalanx_train::OutputGradients;
use phalanx_train::{Culprit, NotFinite, TrainError};
use phalanx_wire::train_reason::StepFailure;

/// What a stage found of itself.
#[derive(Debug, Default)]
struct Found {
    report: Option<DiagnoseReport>,
    /// Something had gone wrong in another stage before it came here.
    elsewhere: bool,
}

impl Session<'_, '_> {
    /// Why a step cannot be applied. Of all stages one says what is to be told: the one that made it so.
    pub(super) fn not_finite(
        &mut self,
        ballots: &Ballots,
        norm: f64,
        micro: &MicroBatches,
        loaded: Option<&Loaded>,
    ) -> RankError {
        let Some(rank) = ballots.outcomes[0].not_finite else {
            return RankError::Step(StepFailure::NormNotFinite);
        };
        // Every rank looks by itself.
        self.part.stepper.model().share_statistics(None);
        let found = match self.look(micro, loaded) {
            Ok(found) => found,
            Err(error) => return error,
        };
        // A rank that left before the others have looked would take their links with it.
        if let Err(error) = self.lane.barrier("all have looked") {
            tracing::debug!(%error, "a rank left after it had looked");
        }
        let silent = found.elsewhere || rank != self.rank;
        if found.report.is_none() && silent {
            return RankError::Step(StepFailure::NotFinite { rank: rank as u32 });
        }
        let samples = loaded.map_or_else(Vec::new, |loaded| loaded.batch.indices.clone());
        self.no_number(ballots, (0, norm), micro.step, samples, found.report.into())
    }

    /// The error of a step, one of those that were voted on together.
    pub(super) fn no_number(
        &self,
        ballots: &Ballots,
        (index, norm): (usize, f64),
        step: u64,
        samples: Vec<u64>,
        found: Culprit,
    ) -> RankError {
        let losses = ballots.votes[index].iter().map(|vote| vote.loss);
        let (what, value) = match losses.into_iter().find(|loss| !loss.is_finite()) {
            Some(loss) => ("loss", loss),
            None => ("norm of the gradients", norm),
        };
        // It was computed, so its pass is known.
        let place = self.worker.passes.place(step).unwrap_or_default();
        let (step, pass, batch) = (step + 1, place.pass + 1, place.batch);
        TrainError::NotFinite(Box::new(NotFinite { what, value, step, pass, batch, samples, found })).into()
    }

    fn look(&mut self, micro: &MicroBatches, loaded: Option<&Loaded>) -> Result<Found, RankError> {
        let mut all = Found::default();
        let parts = micro.parts();
        for index in 0..parts {
            self.forward(micro, index, 0, loaded.map(Samples::of))?;
            self.backward(micro, index, 0, (index, parts), false)?;
            let received = self.prev.iter().flat_map(|_| &self.part.received).flatten();
            if received.copied().any(|value| !value.is_finite()) {
                all.elsewhere = true;
                continue;
            }
            let found = self.look_at_part(micro, index, loaded)?;
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
        micro: &MicroBatches,
        index: usize,
        loaded: Option<&Loaded>,
    ) -> Result<Option<DiagnoseReport>, RankError> {
        let (len, pass) = (micro.part_len(index), self.part.stepper.pass(micro.step, index, micro.first));
        let batch = loaded.map(|loaded| &loaded.batch);
        let y = batch.map_or(&[][..], |batch| &batch.y);
        let labels = micro.input(index, y, &self.worker.task.y_shape);
        let inputs: Vec<&[f32]> = match (&self.prev, batch) {
            (None, Some(batch)) => vec![micro.cut(index, &batch.x)],
            _ => self.part.received.iter().map(Vec::as_slice).collect(),
        };
        let gradients = match self.next {
            Some(_) => OutputGradients::Given(&self.part.given),
            None => OutputGradients::OfLoss(&labels),
        };
        let report = self.part.stepper.look_at(len, &inputs, pass, gradients)?;
        let place = |sample: usize| micro.start(index) + sample;
        Ok(report.map(|report| DiagnoseReport { sample: report.sample.map(place), ..report }))
    }
}
