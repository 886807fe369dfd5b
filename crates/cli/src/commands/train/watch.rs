//! What people see of a run: a bar on a terminal, else a line every few seconds.

use crate::commands::metrics::RunSource;
use crate::escape;
use crate::output::Output;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use phalanx_ledger::{Feeder, FeederHandle};
use phalanx_records::run_dir::{ReplicaRecord, ReplicasRecord, StepRecord, ValidRecord};
use phalanx_records::{Event, Observer, RunEvent};
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// Between two lines where there is no terminal.
const QUIET_FOR: Duration = Duration::from_secs(5);
/// How much of the shown rate is the last step's.
const FRESH: f64 = 0.05;

/// The progress of one run, on standard error.
#[derive(Debug)]
pub(super) struct Watch {
    /// Only on a terminal.
    bar: Option<ProgressBar>,
    silent: bool,
    /// Unknown where the samples come from a stream.
    total: Option<u64>,
    done_before: u64,
    passes: Option<u64>,
    began: Instant,
    said: Instant,
    samples_per_s: f64,
    accuracy: Option<f64>,
    feeder: Option<FeederHandle>,
    /// What collectors of metrics are told, if they are served.
    numbers: Option<RunSource>,
}

impl Watch {
    pub(super) fn new(output: Output, numbers: Option<RunSource>) -> Self {
        let silent = output == Output::Quiet;
        let bar = (!silent && std::io::stderr().is_terminal()).then(|| {
            let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} steps  {msg}  {eta} left");
            let style = style.unwrap_or_else(|_bad| ProgressStyle::default_bar());
            ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_style(style)
        });
        let now = Instant::now();
        Self {
            bar,
            silent,
            total: None,
            done_before: 0,
            passes: None,
            began: now,
            said: now,
            samples_per_s: 0.0,
            accuracy: None,
            feeder: None,
            numbers,
        }
    }

    /// Also wakes the ledger's feeder with every event.
    pub(super) fn feeding(mut self, run: &Path) -> Self {
        self.feeder = Feeder::of_run(run);
        self
    }

    /// Ends the display, and lets the ledger have the last records.
    pub(super) fn finish(&self) {
        if let Some(feeder) = &self.feeder {
            feeder.finish();
        }
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    pub(super) fn say(&self, line: &str) {
        if self.silent {
            return;
        }
        // Names of nodes and reasons of failures come from others.
        let line = escape::one_line(line);
        match &self.bar {
            Some(bar) => bar.println(&*line),
            // Nobody who does not listen is worth an error.
            None => drop(writeln!(std::io::stderr(), "{line}")),
        }
    }

    fn on_step(&mut self, record: &StepRecord) {
        let first = record.step == self.done_before + 1;
        let fresh = if first { 1.0 } else { FRESH };
        self.samples_per_s += (record.samples_per_s - self.samples_per_s) * fresh;
        if self.silent {
            return;
        }
        if self.bar.is_none() && self.said.elapsed() < QUIET_FOR {
            return;
        }
        let accuracy = self.accuracy.map_or(String::new(), |x| format!(", accuracy {:.2} %", x * 100.0));
        let (pass, passes, loss) = (record.pass, self.passes, record.loss);
        let together = record.replicas.as_ref().map(together).unwrap_or_default();
        let passes = passes.map_or(String::new(), |passes| format!("/{passes}"));
        let state = format!(
            "pass {pass}{passes}, loss {loss:.4}{accuracy}, {:.0} samples/s{together}",
            self.samples_per_s
        );
        match &self.bar {
            Some(bar) => {
                bar.set_position(record.step);
                bar.set_message(escape::one_line(&state).into_owned());
            }
            None => {
                self.said = Instant::now();
                let (step, total) = (record.step, self.total);
                let of = total.map_or(String::new(), |total| format!("/{total}"));
                let left = total.map_or(String::new(), |total| format!(", {} left", self.left(step, total)));
                self.say(&format!("step {step}{of}: {state}{left}"));
            }
        }
    }

    fn on_formed(&mut self, epoch: u64, nodes: &[String], stages: &[usize], (step, ms): (u64, Option<f64>)) {
        let on = if step > 0 { format!(" from step {step} on") } else { String::new() };
        let count = |n: usize, word: &str| if n == 1 { format!("1 {word}") } else { format!("{n} {word}s") };
        let step = ms.map_or(String::new(), |ms| format!("; a step should take {ms:.1} ms"));
        if stages.is_empty() {
            let replicas = count(nodes.len(), "replica");
            return self.say(&format!("{replicas}{on} (formation {epoch}): {}", nodes.join(", ")));
        }
        let mut rest = nodes;
        let replica = |stages: &usize| {
            let (own, others) = rest.split_at((*stages).min(rest.len()));
            rest = others;
            own.join(" → ")
        };
        let chains: Vec<String> = stages.iter().map(replica).collect();
        let most = stages.iter().copied().max().unwrap_or(1);
        let (replicas, cut) = (count(stages.len(), "replica"), count(most, "stage"));
        self.say(&format!("{replicas} of {cut}{on} (formation {epoch}): {}{step}", chains.join(" | ")));
    }

    fn left(&self, step: u64, total: u64) -> String {
        let done = step.saturating_sub(self.done_before).max(1);
        let seconds = self.began.elapsed().as_secs_f64() / done as f64 * total.saturating_sub(step) as f64;
        let whole = Duration::try_from_secs_f64(seconds.round()).unwrap_or(Duration::MAX);
        humantime::format_duration(whole).to_string()
    }

    fn on_valid(&mut self, record: &ValidRecord) {
        self.accuracy = record.val_acc;
        let accuracy = record.val_acc.map_or(String::new(), |x| format!(", accuracy {:.2} %", x * 100.0));
        let more: String =
            record.metrics.iter().map(|(name, value)| format!(", {name} {value:.4}")).collect();
        let (pass, step, loss) = (record.pass, record.step, record.val_loss);
        self.say(&format!("validation after pass {pass}, step {step}: loss {loss:.4}{accuracy}{more}"));
    }
}

/// How replicas work together: how many there are, what part of a step goes into exchange, who is slowest.
fn together(record: &ReplicasRecord) -> String {
    let replicas = &record.replicas;
    let time = |f: fn(&ReplicaRecord) -> f64| replicas.iter().map(f).sum::<f64>();
    let (exchange, compute) = (time(|r| r.exchange_ms), time(|r| r.compute_ms));
    let share = if exchange + compute > 0.0 { exchange / (exchange + compute) * 100.0 } else { 0.0 };
    let slowest = replicas.iter().max_by(|a, b| a.compute_ms.total_cmp(&b.compute_ms));
    let slowest =
        slowest.filter(|_| replicas.len() > 1).map_or(String::new(), |r| format!(", slowest {}", r.node));
    let staged = replicas.iter().filter_map(|r| r.stage.as_ref()).map(|stage| stage.replica).max();
    match staged {
        Some(last) => format!(", {} × {} stages{slowest}", last + 1, replicas.len() / (last as usize + 1)),
        None => format!(", {} replicas, exchange {share:.0} %{slowest}", replicas.len()),
    }
}

impl Observer for Watch {
    fn on(&mut self, event: RunEvent) {
        if let Some(feeder) = &self.feeder {
            feeder.wake();
        }
        if let Some(numbers) = &self.numbers {
            numbers.on(&event);
        }
        match &event.event {
            Event::Started { run_dir, model, parameters, samples, batches_per_pass, total_steps, done } => {
                self.total = *total_steps;
                self.done_before = *done;
                self.passes =
                    total_steps.zip(*batches_per_pass).map(|(steps, batches)| steps.div_ceil(batches.max(1)));
                self.began = Instant::now();
                if let Some(bar) = &self.bar {
                    match total_steps {
                        Some(total) => bar.set_length(*total),
                        None => bar.unset_length(),
                    }
                    bar.set_position(*done);
                    bar.reset_eta();
                }
                let on = if *done > 0 { format!(", from step {done} on") } else { String::new() };
                let place = run_dir.as_ref().map_or(String::new(), |dir| format!(" in {}", dir.display()));
                let on_what = match samples {
                    Some(samples) => format!("{samples} samples"),
                    None => "a stream".to_owned(),
                };
                self.say(&format!("training {model} ({parameters} parameters) on {on_what}{place}{on}"));
            }
            Event::Step(record) => self.on_step(record),
            Event::Validated(record) => self.on_valid(record),
            Event::Saved { step, .. } => tracing::debug!(step, "saved a checkpoint"),
            Event::Formed { nodes, step, epoch, stages, predicted_ms } => {
                self.on_formed(*epoch, nodes, stages, (*step, *predicted_ms));
            }
            Event::Waiting(reason) => self.say(reason),
            Event::Note(text) => self.say(text),
            Event::Warning(text) | Event::Lost { why: text, .. } => self.say(&format!("warning: {text}")),
            _ => {}
        }
    }
}
