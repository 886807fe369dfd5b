//! Makes plans from formations, and formations from shapes.

use crate::evaluate::{Formation, Limit, Problem, StageRange, Timed, evaluate, lines};
use crate::search::Found;
use crate::{
    Bottleneck, Method, Mode, Plan, Prediction, ReplicaPlan, Shape, ShapeStage, Shortfall, StagePlan,
};
use std::rc::Rc;

/// A plan without its reasons.
pub(crate) fn plan(problem: &Problem<'_>, found: &Found, method: Method) -> Plan {
    let (formation, score) = (&found.formation, &found.score);
    let each = formation.replicas.iter().zip(&score.shares);
    let replicas: Vec<ReplicaPlan> =
        each.map(|(timed, samples)| replica(problem, timed, *samples, score.step_s)).collect();
    let every = problem.options.exchange.every as f64;
    let seconds = score.step_s + score.exchange_s / every;
    let predicted = Prediction {
        step_s: score.step_s,
        exchange_s: score.exchange_s,
        samples_per_s: problem.batch() as f64 / seconds,
        moving_s: score.moving_s,
        bottleneck: bottleneck(problem, found),
        score: score.total,
    };
    let mode = match problem.options.mode {
        Mode::Asynchronous { .. } => {
            let stages = replicas.iter().map(|replica| replica.stages.len()).max().unwrap_or(1);
            Mode::Asynchronous { in_flight: Some(problem.kept(stages, formation.micro_batches)) }
        }
        Mode::Exact => Mode::Exact,
    };
    Plan {
        replicas,
        micro_batches: formation.micro_batches,
        mode,
        predicted,
        left_out: Vec::new(),
        why: Vec::new(),
        method,
    }
}

fn replica(problem: &Problem<'_>, timed: &Timed, samples: usize, step_s: f64) -> ReplicaPlan {
    let (micro_batches, m) = timed.split(samples);
    let count = timed.parts.len();
    let stage = |(s, part): (usize, &StageRange)| {
        let (base, slope) = problem.busy(*part, micro_batches);
        let busy_s = (base + slope * m as f64) * micro_batches as f64;
        let kept = problem.kept(count - s, micro_batches);
        StagePlan {
            node: part.node,
            ops: problem.places[part.from]..problem.places[part.to],
            memory: problem.memory(part.from, part.to, kept, m) as u64,
            busy_s,
            update_s: problem.update(*part),
            utilisation: if step_s > 0.0 { (busy_s / step_s).min(1.0) } else { 0.0 },
        }
    };
    let stages = timed.parts.iter().enumerate().map(stage).collect();
    ReplicaPlan { stages, samples, micro_batches, step_s: timed.seconds(problem, samples) }
}

fn bottleneck(problem: &Problem<'_>, found: &Found) -> Bottleneck {
    let score = &found.score;
    let name = |node: usize| problem.pool.nodes[node].name.clone();
    if score.exchange_s / problem.options.exchange.every as f64 > score.step_s {
        return Bottleneck::Exchange { node: name(score.exchange_node) };
    }
    let host_name = |host: usize| {
        let node = problem.host.iter().position(|h| *h == host).unwrap_or(0);
        problem.pool.nodes[node].host.clone()
    };
    if let Some(host) = score.host.filter(|h| problem.host.iter().filter(|x| *x == h).count() > 1) {
        return Bottleneck::Host { host: host_name(host) };
    }
    let time = |r: &usize| found.formation.replicas[*r].seconds(problem, score.shares[*r]);
    let slowest = (0..score.shares.len()).max_by(|a, b| time(a).total_cmp(&time(b)));
    let replica = slowest.unwrap_or(0);
    let timed = &found.formation.replicas[replica];
    let (micro_batches, m) = timed.split(score.shares[replica]);
    // With one micro-batch nothing repeats; the bottleneck is what would be the longest with two.
    let all = lines(problem, &timed.parts, micro_batches.max(2));
    // Among equals the simplest: a stage is also a round trip from itself to the end and back.
    let longest = all.iter().min_by(|a, b| b.1.at(m).total_cmp(&a.1.at(m)).then(rank(a.0).cmp(&rank(b.0))));
    let node = |s: usize| name(timed.parts[s].node);
    let last = timed.parts.len() - 1;
    match longest.map_or(Limit::Stage(0), |(limit, _)| *limit) {
        Limit::Stage(stage) => Bottleneck::Stage { replica, stage, node: node(stage) },
        Limit::Link(s) => Bottleneck::Link { replica, from: node(s), to: node(s + 1) },
        Limit::RoundTrip(s) => Bottleneck::RoundTrip { replica, from: node(s), to: node(last) },
        Limit::Host(host) => Bottleneck::Host { host: host_name(host) },
    }
}

fn rank(limit: Limit) -> u8 {
    match limit {
        Limit::Stage(_) => 0,
        Limit::Link(_) => 1,
        Limit::Host(_) => 2,
        Limit::RoundTrip(_) => 3,
    }
}

/// Evaluates a given formation.
pub(crate) fn given(problem: &Problem<'_>, shape: &Shape) -> Result<Found, Shortfall> {
    let micro_batches = shape.micro_batches.clamp(1, problem.batch());
    let mut used = vec![false; problem.pool.nodes.len()];
    let mut replicas = Vec::new();
    for (replica, stages) in shape.replicas.iter().enumerate() {
        let parts = parts(problem, stages, &mut used).map_err(|why| Shortfall::Shape { replica, why })?;
        replicas.push(Rc::new(Timed::new(problem, parts, micro_batches)));
    }
    if replicas.is_empty() || replicas.len() > problem.batch() {
        return Err(Shortfall::Batch { batch: problem.batch(), replicas: replicas.len() });
    }
    let formation = Formation { replicas, micro_batches };
    match evaluate(problem, &formation) {
        Some(score) => Ok(Found { formation, score }),
        None => Err(too_large(problem, &formation)),
    }
}

fn parts(
    problem: &Problem<'_>,
    stages: &[ShapeStage],
    used: &mut [bool],
) -> Result<Vec<StageRange>, &'static str> {
    let mut parts: Vec<StageRange> = Vec::with_capacity(stages.len());
    for stage in stages {
        let place =
            |op: usize| problem.places.binary_search(&op).map_err(|_none| "it is cut where it cannot be");
        let part = StageRange { node: stage.node, from: place(stage.ops.start)?, to: place(stage.ops.end)? };
        if part.from >= part.to || part.from != parts.last().map_or(0, |p| p.to) {
            return Err("its stages do not follow each other");
        }
        let used = used.get_mut(part.node).ok_or("it names a node that is not in the pool")?;
        if std::mem::replace(used, true) {
            return Err("it has a node that holds another stage already");
        }
        parts.push(part);
    }
    if parts.last().map(|p| p.to) == Some(problem.end()) { Ok(parts) } else { Err("its end is missing") }
}

/// The stage that lacks most memory when every replica takes an equal share.
fn too_large(problem: &Problem<'_>, formation: &Formation) -> Shortfall {
    let share = problem.batch().div_ceil(formation.replicas.len());
    let mut worst = None;
    for (replica, timed) in formation.replicas.iter().enumerate() {
        let (micro_batches, m) = timed.split(share);
        for (stage, part) in timed.parts.iter().enumerate() {
            let kept = problem.kept(timed.parts.len() - stage, micro_batches);
            let needs = problem.memory(part.from, part.to, kept, m) as u64;
            let has = problem.pool.nodes[part.node].memory;
            let lacks = needs as f64 / has.max(1) as f64;
            if worst.as_ref().is_none_or(|(most, _)| lacks > *most) {
                let node = problem.pool.nodes[part.node].name.clone();
                worst = Some((lacks, Shortfall::Stage { replica, stage, node, needs, has }));
            }
        }
    }
    worst.map_or(Shortfall::EmptyPool, |(_, shortfall)| shortfall)
}
