//! The model's worth on the validation data, measured through all stages.

use super::super::worker::Report;
use super::frame::{Carries, Head};
use super::session::Session;
use crate::error::DistributedError;
use phalanx_collective::Reduction;
use phalanx_data::{Loader, LoaderOptions, Shard};
use phalanx_engine::Pass;
use phalanx_records::Sums;
use phalanx_types::DType;
use phalanx_wire::train::{Activity, ValidSums};
use std::time::Instant;

const SLOT: usize = 0;

impl Session<'_> {
    /// Runs the validation data through the stages, every replica its part of it.
    pub(super) fn validate(&mut self, step: u64) -> Result<(), DistributedError> {
        let Some(valid) = self.worker.task.valid.clone() else { return Ok(()) };
        let began = Instant::now();
        let shard = Shard::new(valid.fixed_len()?, self.post.replica, self.layout.replicas.len())?;
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
                self.part.forward_received(SLOT, len, Pass { training: false, seed: 0 })?;
            } else if let Some(loaded) = &loaded {
                let pass = Pass { training: false, seed: 0 };
                self.part.stepper.model.forward(SLOT, len, &[&loaded.batch.x], pass)?;
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
        let mut flat = sums.finish().to_flat();
        self.control.all_reduce(
            bytemuck::cast_slice_mut(&mut flat),
            DType::F64,
            Reduction::Sum,
            "validation",
        )?;
        self.spans.add(Activity::Validate, step, began);
        let sums: ValidSums = Sums::from_flat(&flat).into();
        self.worker.log.on_valid(step, sums.clone());
        if self.speaks() {
            self.worker.say(Report::Validated { epoch: self.epoch, step, sums });
        }
        Ok(())
    }
}
