//! Plans as tables and pictures.

use crate::reason::count;
use crate::{ModelCost, Plan, Pool, ReplicaPlan, StagePlan};
use phalanx_types::ByteSize;
use std::fmt::Write;

/// Characters of a line.
const WIDTH: usize = 100;
/// Characters inside of a box.
const BOX: usize = 21;
/// Boxes in a row, with an arrow between them.
const ROW: usize = WIDTH / (BOX + 4);
/// The most replicas that are drawn; the rest is only counted.
const DRAWN: usize = 12;
const BAR: usize = 10;

/// One row of a table of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct StageRow {
    pub replica: usize,
    pub stage: usize,
    pub node: String,
    /// The first and the last operator.
    pub ops: String,
    pub parameters: ByteSize,
    pub memory: ByteSize,
    /// Percent of the node's memory.
    pub memory_percent: f64,
    pub busy_percent: f64,
    /// Samples of each batch.
    pub samples: usize,
}

impl Plan {
    /// The stages of all replicas in order, for tables.
    pub fn rows(&self, model: &ModelCost, pool: &Pool) -> Vec<StageRow> {
        let replica = |(r, replica): (usize, &ReplicaPlan)| {
            let row = |(s, stage): (usize, &StagePlan)| row(model, pool, (r, s, replica.samples), stage);
            replica.stages.iter().enumerate().map(row).collect::<Vec<_>>()
        };
        self.replicas.iter().enumerate().flat_map(replica).collect()
    }
}

fn row(
    model: &ModelCost,
    pool: &Pool,
    (replica, number, samples): (usize, usize, usize),
    stage: &StagePlan,
) -> StageRow {
    let ops = model.ops.get(stage.ops.clone()).unwrap_or_default();
    let name = |op: Option<&crate::OpCost>| op.map_or("", |op| &op.name).to_owned();
    let node = pool.nodes.get(stage.node);
    StageRow {
        replica,
        stage: number,
        node: node.map_or_else(|| stage.node.to_string(), |n| n.name.clone()),
        ops: if ops.len() == 1 {
            name(ops.first())
        } else {
            format!("{}..{}", name(ops.first()), name(ops.last()))
        },
        parameters: ByteSize(ops.iter().map(|op| op.parameter_bytes).fold(0, u64::saturating_add)),
        memory: ByteSize(stage.memory),
        memory_percent: 100.0 * stage.memory as f64 / node.map_or(1, |n| n.memory.max(1)) as f64,
        busy_percent: 100.0 * stage.utilisation,
        samples,
    }
}

/// Draws which node holds what, as a row of boxes for each replica.
pub fn picture(plan: &Plan, model: &ModelCost, pool: &Pool) -> String {
    let mut text = String::new();
    let rows = plan.rows(model, pool);
    for (r, replica) in plan.replicas.iter().enumerate().take(DRAWN) {
        // Writing into a string cannot fail.
        _ = writeln!(text, "replica {r}: {}, {:.1} ms", samples(replica), replica.step_s * 1e3);
        let own: Vec<&StageRow> = rows.iter().filter(|row| row.replica == r).collect();
        for (i, some) in own.chunks(ROW).enumerate() {
            boxes(&mut text, some, i > 0);
        }
    }
    let more = plan.replicas.len().saturating_sub(DRAWN);
    if more > 0 {
        _ = writeln!(text, "and {} more", count(more, "replica", "replicas"));
    }
    text
}

fn samples(replica: &ReplicaPlan) -> String {
    let parts = match replica.micro_batches {
        1 => "at once".to_owned(),
        parts => format!("in {parts} micro-batches"),
    };
    format!("{} of each batch {parts}", count(replica.samples, "sample", "samples"))
}

/// Boxes beside each other; with an arrow in front if the row continues the one above.
fn boxes(text: &mut String, rows: &[&StageRow], goes_on: bool) {
    let cells: Vec<[String; 4]> = rows.iter().map(|row| cell(row)).collect();
    let edge = |left: &str, right: &str| {
        let line: Vec<String> = cells.iter().map(|_| format!("{left}{}{right}", "─".repeat(BOX))).collect();
        format!("  {}", line.join("  "))
    };
    _ = writeln!(text, "{}", edge("┌", "┐"));
    for line in 0..4 {
        let between = if line == 1 { "->" } else { "  " };
        let parts: Vec<String> = cells.iter().map(|cell| format!("│{}│", cell[line])).collect();
        let first = if goes_on && line == 1 { "->" } else { "  " };
        _ = writeln!(text, "{first}{}", parts.join(between));
    }
    _ = writeln!(text, "{}", edge("└", "┘"));
}

fn cell(row: &StageRow) -> [String; 4] {
    let filled = (row.memory_percent / 100.0 * BAR as f64).round().clamp(0.0, BAR as f64) as usize;
    let bar = format!("{}{}", "#".repeat(filled), ".".repeat(BAR - filled));
    [
        format!(" {:<10} {:>3.0}% busy", short(&row.node, 10), row.busy_percent),
        format!(" {}", short(&row.ops, BOX - 2)),
        format!(" {} parameters", row.parameters),
        format!(" {bar} {}", row.memory),
    ]
    .map(|line: String| format!("{:<BOX$}", short(&line, BOX)))
}

/// Shortens a text to `most` characters by leaving out its middle.
fn short(text: &str, most: usize) -> String {
    let all: Vec<char> = text.chars().collect();
    if all.len() <= most {
        return text.to_owned();
    }
    let (head, tail) = ((most - 1).div_ceil(2), (most - 1) / 2);
    all[..head].iter().chain(&['~']).chain(&all[all.len() - tail..]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CutCost, OpCost, Options, PoolNode, Shape, ShapeStage, Work, predict};

    fn model() -> ModelCost {
        let op = |i: usize| OpCost {
            name: format!("layer{i}"),
            parameter_bytes: 1 << 20,
            forward: Work { per_sample: 1e-3, per_batch: 0.0 },
            backward: Work { per_sample: 2e-3, per_batch: 0.0 },
            ..OpCost::default()
        };
        let cut = |at| CutCost { at, forward_bytes: 400, backward_bytes: 400 };
        ModelCost { ops: (0..6).map(op).collect(), cuts: (1..6).map(cut).collect() }
    }

    #[test]
    fn a_picture_shows_who_holds_what() {
        let names = ["n1", "n2", "a-node-with-a-long-name"];
        let pool = Pool::new(names.map(|n| PoolNode::new(n, 32 << 20, 1.0)).into());
        let stage = |node, ops| ShapeStage { node, ops };
        let shape = Shape {
            replicas: vec![vec![stage(0, 0..3), stage(1, 3..6)], vec![stage(2, 0..6)]],
            micro_batches: 4,
        };
        let model = model();
        let plan = predict(&model, &pool, &Options::default(), &shape).unwrap();
        let picture = picture(&plan, &model, &pool);
        assert!(picture.lines().all(|line| line.chars().count() <= WIDTH), "{picture}");
        let line = |part: &str| picture.lines().any(|l| l.contains(part));
        assert!(line("│ layer0..layer2      │->│ layer3..layer5      │"), "{picture}");
        assert!(line("│ ####...... 12 MiB   │") && line("│ ########.. 24 MiB   │"), "{picture}");
        assert!(line("│ a-nod~name  95% busy│"), "{picture}");
        assert!(line("replica 0: 20 samples of each batch in 4 micro-batches, "), "{picture}");
        assert_eq!(plan.rows(&model, &pool).len(), 3);
    }

    #[test]
    fn long_pipelines_go_on_in_the_next_row() {
        let model = model();
        let pool = Pool::new((0..6).map(|i| PoolNode::new(format!("n{i}"), 32 << 20, 1.0)).collect());
        let stages = (0..6).map(|i| ShapeStage { node: i, ops: i..i + 1 }).collect();
        let shape = Shape { replicas: vec![stages], micro_batches: 4 };
        let plan = predict(&model, &pool, &Options::default(), &shape).unwrap();
        let picture = picture(&plan, &model, &pool);
        assert!(picture.lines().all(|line| line.chars().count() <= WIDTH), "{picture}");
        assert!(picture.lines().any(|line| line.starts_with("->│ layer4")), "{picture}");
    }
}
