use crate::evaluate::Problem;
use crate::explain::{self, Trying};
use crate::search::{self, Builder, Found, Patience, no_fit};
use crate::{Method, ModelCost, Options, Plan, Pool, Shape, Shortfall, finish};

/// The best formation found: provably the best for small pools, and never worse than the plain ones.
///
/// `keep_going` is called now and then; once it returns false, the best formation so far is returned, with the reasons
/// that need no further search.
///
/// # Errors
/// No formation fits; the error says what is missing.
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

/// The best of the plain formations: nodes dealt by speed or memory to replicas with the same number of stages.
///
/// # Errors
/// None of them fits.
pub fn greedy(
    model: &ModelCost,
    pool: &Pool,
    options: &Options,
    keep_going: &mut dyn FnMut() -> bool,
) -> Result<Plan, Shortfall> {
    search(model, pool, options, keep_going, |builder, _| (search::greedy(builder), Method::Greedy))
}

/// The best formation that a genetic search finds; deterministic for a seed.
///
/// # Errors
/// No fitting formation was found.
pub fn genetic(
    model: &ModelCost,
    pool: &Pool,
    options: &Options,
    keep_going: &mut dyn FnMut() -> bool,
) -> Result<Plan, Shortfall> {
    search(model, pool, options, keep_going, |builder, patience| {
        (search::genetic(builder, None, patience), Method::Genetic)
    })
}

/// The best of all formations, unless `keep_going` or the effort ends the search before that is proved; then the plan's
/// method is [`Method::Genetic`].
///
/// # Errors
/// No formation fits, or none was found that does.
pub fn exact(
    model: &ModelCost,
    pool: &Pool,
    options: &Options,
    keep_going: &mut dyn FnMut() -> bool,
) -> Result<Plan, Shortfall> {
    search(model, pool, options, keep_going, exact_after_genetic)
}

/// A good formation first: the better it is, the more the exact search can skip.
fn exact_after_genetic(builder: &mut Builder<'_>, patience: &mut Patience<'_>) -> (Option<Found>, Method) {
    let good = search::genetic(builder, None, patience);
    let (best, proved) = search::exact(builder, good, patience);
    (best, if proved { Method::Exact } else { Method::Genetic })
}

fn search(
    model: &ModelCost,
    pool: &Pool,
    options: &Options,
    keep_going: &mut dyn FnMut() -> bool,
    find: impl FnOnce(&mut Builder<'_>, &mut Patience<'_>) -> (Option<Found>, Method),
) -> Result<Plan, Shortfall> {
    let problem = Problem::new(model, pool, options)?;
    search::check(&problem)?;
    let (mut builder, mut patience) = (Builder::new(&problem), Patience::new(keep_going));
    let (found, method) = find(&mut builder, &mut patience);
    let Some(found) = found else { return Err(no_fit(&problem, &mut patience)) };
    Ok(explained(&mut builder, found.in_order(), method, &mut patience))
}

/// How many times a plan is replaced by a better one found while searching for reasons.
const IMPROVEMENTS: usize = 3;

/// The plan with its reasons; or a better one with its own, if one is found while searching for them.
fn explained(
    builder: &mut Builder<'_>,
    mut found: Found,
    mut method: Method,
    patience: &mut Patience<'_>,
) -> Plan {
    let mut improvements = 0;
    loop {
        let trying = match method {
            // Plain formations are returned as they are.
            Method::Greedy => Trying::Look,
            _ if improvements < IMPROVEMENTS => Trying::Improve,
            _ => Trying::Nothing,
        };
        let reasons = explain::reasons(builder, &found, patience, trying);
        if let Some(better) = reasons.better {
            (found, method) = (better, Method::Genetic);
            improvements += 1;
            continue;
        }
        let mut plan = finish::plan(builder.problem, &found, method);
        (plan.left_out, plan.why) = (reasons.left_out, reasons.choices);
        return plan;
    }
}

/// The expected performance of a given formation, with the best shares.
///
/// # Errors
/// It is not a formation of this model on this pool, or does not fit.
pub fn predict(model: &ModelCost, pool: &Pool, options: &Options, shape: &Shape) -> Result<Plan, Shortfall> {
    let problem = Problem::new(model, pool, options)?;
    let found = finish::given(&problem, shape)?;
    Ok(finish::plan(&problem, &found, Method::Given))
}
