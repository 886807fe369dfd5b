//! The plots: the front of each pair of objectives after each iteration, and the hypervolume.

use crate::about::SearchAbout;
use crate::front::{Rated, undominated};
use crate::table::SearchTable;
use phalanx_plots::{Chart, Dot, Line, Panel, Scatter, Size, StepLine, XAxis};
use phalanx_search::core::objective::{Goal, Objective};

pub(super) const SIZE: Size = Size { width: 960, height: 600 };

/// Each pair of objectives once.
pub(super) fn pairs(about: &SearchAbout) -> impl Iterator<Item = (&Objective, &Objective)> {
    let objectives = about.objectives.iter().enumerate();
    objectives.flat_map(|(at, x)| about.objectives.iter().skip(at + 1).map(move |y| (x, y)))
}

/// `pareto_<X>_vs_<Y>`, spaces as `_`, without signs that a file name may not have.
pub fn pareto_file_name(x: &str, y: &str) -> String {
    let name = format!("pareto_{x}_vs_{y}").trim().replace(' ', "_");
    name.chars().filter(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.')).collect()
}

/// The front of two objectives after each iteration, with all trials behind it; trials that were not trained in full
/// are hollow. A line is drawn where the front has changed.
pub fn front_plot(table: &SearchTable, x: &Objective, y: &Objective) -> Scatter {
    let at = |objective: &Objective| table.about().objectives.iter().position(|other| other == objective);
    let places = at(x).zip(at(y));
    let iterations = table.iterations();
    let mut steps: Vec<StepLine> = Vec::new();
    for iteration in &iterations {
        let standings = table.standings(iteration.last_event);
        let compared = table.compared(&standings, iteration.last_event);
        let project = |rated: Rated| {
            let (x, y) = places?;
            Some(Rated { budget: rated.budget, costs: vec![*rated.costs.get(x)?, *rated.costs.get(y)?] })
        };
        let rated: Vec<Vec<Rated>> = compared
            .iter()
            .map(|standing| {
                table.rated(standing.row, iteration.last_event).into_iter().filter_map(project).collect()
            })
            .collect();
        let value = |at: usize, objective: &Objective| {
            let standing = compared.get(at)?;
            standing.row.value_at(standing.result, &objective.name)
        };
        let mut points: Vec<(f64, f64)> =
            undominated(&rated).into_iter().filter_map(|at| Some((value(at, x)?, value(at, y)?))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        points.dedup();
        // The line goes on level to what is worse in x: there the point before is still the best there is.
        if x.goal == Goal::Max {
            points.reverse();
        }
        if steps.last().is_none_or(|last| last.points != points) && !points.is_empty() {
            steps.push(StepLine { points, shade: (iteration.number + 1) as f64 });
        }
    }
    let is_full = |budget| table.about().is_full(budget);
    let dots = table.standings(u64::MAX).into_iter().enumerate().filter_map(|(index, standing)| {
        let value = |objective: &Objective| standing.row.value_at(standing.result, &objective.name);
        standing.counts.then_some(())?;
        let shade = (table.iteration_of(index) + 1) as f64;
        Some(Dot { x: value(x)?, y: value(y)?, shade, hollow: !is_full(standing.result.budget) })
    });
    Scatter {
        title: format!("{}: front after each iteration", table.about().name),
        x: x.name.clone(),
        y: y.name.clone(),
        shade: "iteration".to_owned(),
        dots: dots.collect(),
        steps,
    }
}

/// The hypervolume over the number of results.
pub fn hypervolume_plot(table: &SearchTable) -> Chart {
    let points = table.hypervolume();
    let curve = |label: &str, value: fn(&crate::HypervolumePoint) -> f64| Line {
        label: label.to_owned(),
        points: points.iter().map(|point| (point.results as f64, value(point))).collect(),
    };
    let mut lines = vec![curve("all results", |point| point.hypervolume)];
    if table.about().rungs.len() > 1 {
        lines.push(curve("trained in full", |point| point.full));
    }
    Chart {
        title: table.about().name.clone(),
        x: XAxis::Count("results"),
        log: false,
        smoothing: 0.0,
        panels: vec![Panel { title: "hypervolume (share)".to_owned(), lines }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_have_no_strange_signs() {
        assert_eq!(pareto_file_name("val acc", "latency (ms)"), "pareto_val_acc_vs_latency_ms");
        assert_eq!(pareto_file_name("../../etc", "größe"), "pareto_....etc_vs_größe");
    }
}
