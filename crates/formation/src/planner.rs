use crate::evaluate::Problem;
use crate::search::{self, Builder, Found, KeepGoing, no_fit};
use crate::{Method, ModelCost, Options, Plan, Pool, Shape, Shortfall, explain, finish};

/// The best formation that is found: proved to be so for small pools, and never worse than the plain ones.
///
/// `keep_going` is asked between formations; once it says no, the best found so far is returned.
///
/// # Errors
/// No formation fits, with what is missing.
pub fn plan(
    model: &ModelCost,
    pool: &Pool,
    options: &Options,
    keep_going: &mut dyn FnMut() -> bool,
) -> Result<Plan, Shortfall> {
    if pool.nodes.len() <= options.effort.exact_nodes {
        exact(model, pool, options, keep_going)
    } else {
        genetic(model, pool, options, keep_going)
    }
}

/// The best of the plain formations: nodes dealt by speed or memory to replicas of equally many stages.
///
/// # Errors
/// None of them fits.
pub fn greedy(
    model: &ModelCost,
    pool: &Pool,
    options: &Options,
    _keep_going: &mut dyn FnMut() -> bool,
) -> Result<Plan, Shortfall> {
    search(model, pool, options, |builder| (search::greedy(builder), Method::Greedy))
}

/// The best formation that a genetic search finds; the same for the same seed.
///
/// # Errors
/// None was found that fits.
pub fn genetic(
    model: &ModelCost,
    pool: &Pool,
    options: &Options,
    keep_going: &mut dyn FnMut() -> bool,
) -> Result<Plan, Shortfall> {
    search(model, pool, options, |builder| (search::genetic(builder, None, keep_going), Method::Genetic))
}

/// The best formation of all, unless `keep_going` or the effort ends the search before that is proved: then the
/// plan's method is [`Method::Genetic`].
///
/// # Errors
/// None fits, or none was found that does.
pub fn exact(
    model: &ModelCost,
    pool: &Pool,
    options: &Options,
    keep_going: &mut dyn FnMut() -> bool,
) -> Result<Plan, Shortfall> {
    search(model, pool, options, |builder| exact_after_genetic(builder, keep_going))
}

/// A good formation first: the better it is, the more the exact search can skip.
fn exact_after_genetic(builder: &mut Builder<'_>, keep_going: KeepGoing<'_>) -> (Option<Found>, Method) {
    let good = search::genetic(builder, None, keep_going);
    let (best, proved) = search::exact(builder, good, keep_going);
    (best, if proved { Method::Exact } else { Method::Genetic })
}

fn search(
    model: &ModelCost,
    pool: &Pool,
    options: &Options,
    find: impl FnOnce(&mut Builder<'_>) -> (Option<Found>, Method),
) -> Result<Plan, Shortfall> {
    let problem = Problem::new(model, pool, options)?;
    search::check(&problem)?;
    let mut builder = Builder::new(&problem);
    let (found, method) = find(&mut builder);
    let found = found.ok_or_else(|| no_fit(&problem))?;
    Ok(explained(&mut builder, &found, method))
}

fn explained(builder: &mut Builder<'_>, found: &Found, method: Method) -> Plan {
    let found = &found.in_order();
    let mut plan = finish::plan(builder.problem, found, method);
    plan.left_out = explain::left_out(builder, found);
    plan.why = explain::choices(builder, found);
    plan
}

/// What a given formation is expected to do, with the shares that suit it best.
///
/// # Errors
/// It is no formation of this model on this pool, or does not fit.
pub fn predict(model: &ModelCost, pool: &Pool, options: &Options, shape: &Shape) -> Result<Plan, Shortfall> {
    let problem = Problem::new(model, pool, options)?;
    let found = finish::given(&problem, shape)?;
    Ok(finish::plan(&problem, &found, Method::Given))
}
