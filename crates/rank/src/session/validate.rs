//! The model's worth on the validation data: every replica measures its part of the data, through all its stages.

use super::Session;
use crate::error::RankError;
use crate::frame::{Carries, Head};
use crate::worker::Report;
use phalanx_data::{Dataset, Loader, LoaderOptions, Shard};
use phalanx_engine::Pass;
use phalanx_records::Sums;
use phalanx_wire::train::{Activity, ValidSums};

const SLOT: usize = 0;
const PASS: Pass = Pass { training: false, seed: 0 };

impl Session<'_, '_> {
    /// Validates the model as it is after a step.
    pub(super) fn validate(&mut self, step: u64) -> Result<(), RankError> {
        self.validated = step;
        let Some(valid) = self.worker.task.valid.clone() else { return Ok(()) };
        let began = self.spans.if_traced();
        let sums = match self.validation_shard(&valid)? {
            None => {
                let metrics = vec![(0.0, 0); self.worker.task.metrics.len()];
                Sums { metrics, ..Sums::default() }
            }
            Some(shard) if self.post.stages == 1 => {
                let evaluator = self.worker.task.evaluator(&self.worker.compute.threads);
                evaluator.sums(self.part.stepper.model(), &valid, Some(shard))?
            }
            Some(shard) => self.validate_in_stages(step, valid, shard)?,
        };
        let mut flat = sums.to_flat();
        self.lane.all_reduce(&mut flat, "validation")?;
        self.spans.end(Activity::Validate, step, began);
        let sums: ValidSums = Sums::from_flat(&flat).into();
        self.worker.log.on_valid(step, sums.clone());
        if self.speaks() {
            self.worker.say(Report::Validated { epoch: self.epoch, step, sums });
        }
        Ok(())
    }

    /// The validation samples of this replica: replicas that hold the state share them out.
    fn validation_shard(&self, valid: &Dataset) -> Result<Option<Shard>, RankError> {
        if !self.is_level() {
            return Ok(None);
        }
        let firsts = self.posts.iter().zip(&self.level).filter(|(post, level)| post.is_first() && **level);
        let replicas: Vec<usize> = firsts.map(|(post, _)| post.replica).collect();
        let own = replicas.iter().position(|replica| *replica == self.post.replica).unwrap_or(0);
        Ok(Some(Shard::new(valid.fixed_len()?, own, replicas.len())?))
    }

    /// Runs validation samples through the stages; the last one knows what they come to.
    fn validate_in_stages(&mut self, step: u64, valid: Dataset, shard: Shard) -> Result<Sums, RankError> {
        let batch = self.worker.task.config.train.batch;
        let batches = shard.len().div_ceil(batch);
        let ends = self.post.is_first() || self.post.is_last();
        let options = LoaderOptions { batch, shard: Some(shard), ..LoaderOptions::default() };
        let transform = &self.worker.task.config.data.transform;
        let mut loader = ends.then(|| Loader::new(valid, transform, options)).transpose()?;
        let mut sums = self.worker.task.evaluator(&self.worker.compute.threads).begin();
        for index in 0..batches {
            let len = batch.min(shard.len() - index * batch);
            let loaded = loader.as_mut().and_then(Iterator::next).transpose()?;
            if let Some(prev) = &mut self.prev {
                let frame = prev.recv()?;
                frame.expect(Carries::Validation, step, index, len)?;
                self.part.unpack_inputs(self.worker.compression, len, &frame)?;
                prev.recycle(frame);
                self.part.forward_received(SLOT, len, PASS)?;
            } else if let Some(loaded) = &loaded {
                self.part.stepper.model.forward(SLOT, len, &[&loaded.batch.x], PASS)?;
            }
            if let Some(next) = &mut self.next {
                let (part, len) = (index as u32, len as u32);
                let head = Head { carries: Carries::Validation, part, len, step, seen: 0, bytes: 0 };
                let (part, compression) = (&mut self.part, self.worker.compression);
                next.send(head, |bytes| part.pack_outputs(compression, SLOT, bytes))?;
            } else if let Some(loaded) = &loaded {
                let (output, shape) =
                    (self.part.stepper.model.output(SLOT, 0), self.part.stepper.model.output_shape(SLOT, 0));
                let evaluator = self.worker.task.evaluator(&self.worker.compute.threads);
                let y = (&loaded.batch.y[..], &self.worker.task.y_shape[..]);
                evaluator.add(&mut sums, output, &shape, y, len)?;
            }
            if let (Some(loader), Some(loaded)) = (&mut loader, loaded) {
                loader.recycle(loaded.batch);
            }
        }
        Ok(sums.finish())
    }
}
