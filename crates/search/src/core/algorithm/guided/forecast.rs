//! What each objective of a candidate may become: a known value, or what a model predicts.

use super::Learned;
use super::candidates::Candidate;
use super::data::{Data, Results};
use super::expect::Outlook;
use super::factor::LANES;
use super::kernel::Coordinates;
use super::model::{Kept, Model};
use super::scale::{Scale, Squash};
use crate::core::algorithm::History;
use crate::core::objective::Objective;
use crate::core::space::Genes;

#[derive(Debug)]
pub(super) struct Forecast<'a>(Vec<Source<'a>>);

#[derive(Debug)]
enum Source<'a> {
    /// The cheap value of this number.
    Cheap {
        number: usize,
        objective: &'a Objective,
        scale: Scale,
    },
    Model {
        model: Model<'a>,
        squash: Squash,
    },
}

impl<'a> Forecast<'a> {
    /// `kept` has an entry per objective.
    pub(super) fn of(
        history: &History<'a>,
        results: &Results<'_>,
        data: &Data,
        learned: &Learned,
        kept: &'a mut [Kept],
    ) -> Self {
        let mut sources = Vec::new();
        let mut number = 0;
        for ((index, objective), kept) in history.objectives.iter().enumerate().zip(kept) {
            if let Some(Some(kernel)) = learned.kernels.get(index) {
                let model = Model::of(kernel, kept, &data.points, &data.values[index]);
                sources.push(Source::Model { model, squash: data.squashes[index] });
            } else {
                sources.push(Source::Cheap { number, objective, scale: results.scales[index] });
                number += 1;
            }
        }
        Self(sources)
    }

    /// Counts candidates that are being tried as results with the values that are expected of them; gives these.
    pub(super) fn believe(
        &mut self,
        tried: &[Candidate],
        place: impl Fn(&Genes) -> Coordinates,
    ) -> Vec<Vec<f64>> {
        let places: Vec<Coordinates> = tried.iter().map(|candidate| place(&candidate.genes)).collect();
        let mut values = vec![Vec::new(); tried.len()];
        for source in &mut self.0 {
            match source {
                Source::Cheap { number, objective, scale } => {
                    let value = |candidate| cheap_value(candidate, *number, objective, scale);
                    values.iter_mut().zip(tried).for_each(|(point, candidate)| point.push(value(candidate)));
                }
                Source::Model { model, squash } => {
                    let predictions = model.believe(&places);
                    let value = predictions.iter().map(|prediction| squash.undo(prediction.mean));
                    values.iter_mut().zip(value).for_each(|(point, value)| point.push(value));
                }
            }
        }
        values
    }

    /// Per candidate, of each objective.
    pub(super) fn outlooks(
        &mut self,
        candidates: &[Candidate],
        place: impl Fn(&Genes) -> Coordinates,
    ) -> Vec<Vec<Outlook>> {
        let places: Vec<Coordinates> = candidates.iter().map(|candidate| place(&candidate.genes)).collect();
        let mut outlooks = vec![Vec::with_capacity(self.0.len()); candidates.len()];
        for source in &mut self.0 {
            match source {
                Source::Cheap { number, objective, scale } => {
                    for (outlook, candidate) in outlooks.iter_mut().zip(candidates) {
                        outlook.push(Outlook::Certain(cheap_value(candidate, *number, objective, scale)));
                    }
                }
                Source::Model { model, squash } => {
                    let predictions = places.chunks(LANES).flat_map(|group| model.predict(group));
                    for (outlook, prediction) in outlooks.iter_mut().zip(predictions) {
                        outlook.push(Outlook::Uncertain { prediction, squash: *squash });
                    }
                }
            }
        }
        outlooks
    }
}

fn cheap_value(candidate: &Candidate, number: usize, objective: &Objective, scale: &Scale) -> f64 {
    let value = candidate.cheap.get(number).copied().unwrap_or(f64::NAN);
    scale.apply(objective.lower_is_better(value))
}
