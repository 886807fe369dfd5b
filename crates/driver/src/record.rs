//! Steps and validations as they stand in the records of a run.

use super::Driver;
use crate::error::DriverError;
use phalanx_records::Sums;
use phalanx_records::run_dir::{ReplicaRecord, ReplicasRecord, StageRecord, StepRecord, ValidRecord};
use phalanx_records::samples_per_second;
use phalanx_records::{Event, Events};
use phalanx_wire::train::{RankReport, StepReport, ValidSums};
use std::time::Duration;

impl Driver<'_> {
    pub(super) fn record_step(
        &mut self,
        report: &StepReport,
        events: &mut Events<'_>,
    ) -> Result<(), DriverError> {
        let (record, samples, took) = record(report, self.groups.nodes(report.epoch));
        self.book.on_step(&record, samples, took)?;
        self.groups.on_step(took);
        events.on(Event::Step(record));
        Ok(())
    }

    pub(super) fn record_validation(
        &mut self,
        step: u64,
        sums: ValidSums,
        events: &mut Events<'_>,
    ) -> Result<(), DriverError> {
        let ValidSums { samples, loss, metrics } = sums;
        let threads = phalanx_engine::Threads::new(1);
        let evaluation = self.task.evaluator(&threads).value(&Sums { samples, loss, metrics });
        let pass = (step.saturating_sub(1)) / self.plan.batches_per_pass.max(1) + 1;
        let record = ValidRecord::new(step, pass, evaluation);
        self.book.on_valid(&record)?;
        events.on(Event::Validated(record));
        Ok(())
    }
}

/// A step as it stands in the records, its samples, and how long it took.
fn record(report: &StepReport, nodes: &[String]) -> (StepRecord, u64, Duration) {
    let samples: u64 = report.ranks.iter().map(|rank| u64::from(rank.samples)).sum();
    let took = Duration::from_micros(u64::from(report.took_us));
    let ms = |us: u32| f64::from(us) / 1e3;
    let replica = |(rank, of): (usize, &RankReport)| ReplicaRecord {
        node: nodes.get(rank).cloned().unwrap_or_else(|| format!("rank {rank}")),
        samples: of.samples,
        compute_ms: ms(of.compute_us),
        exchange_ms: ms(of.exchange_us),
        wait_ms: ms(of.wait_us),
        stage: of.stage.map(|stage| StageRecord {
            replica: stage.replica,
            stage: stage.stage,
            memory_bytes: stage.memory,
            link_bytes: stage.sent,
            idle_ms: ms(stage.idle_us),
            staleness: stage.staleness,
        }),
    };
    let replicas = ReplicasRecord {
        epoch: report.epoch.0,
        seen: format!("{:016x}", report.seen),
        hash: (report.hash != 0).then(|| format!("{:016x}", report.hash)),
        sent_bytes: report.sent,
        replicas: report.ranks.iter().enumerate().map(replica).collect(),
    };
    let record = StepRecord {
        step: report.step,
        pass: report.pass,
        loss: report.loss,
        lr: report.lr,
        grad_norm: report.grad_norm,
        samples_per_s: samples_per_second(samples, took),
        replicas: Some(replicas),
    };
    (record, samples, took)
}
