// Plans which nodes hold which part of a model, before anything is trained.

use phalanx::model::zoo;
use phalanx::plan::{Pool, PoolNode, formation};
use phalanx::train::config::{FormationConfig, RunConfig};

#[expect(clippy::print_stdout, reason = "an example shows what it does")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let graph = zoo::build("resnet-18", &zoo::ZooOptions::default())?;
    let node = |name: &str, speed| PoolNode { host: name.to_owned(), ..PoolNode::new(name, 4 << 30, speed) };
    let pool = Pool::new(vec![node("desk", 80.0), node("laptop", 30.0), node("old", 10.0)]);

    let mut config = RunConfig::default();
    config.train.batch = 64;
    // Two stages; the planner chooses where to cut and who holds which.
    config.formation = FormationConfig::staged(2, 1);
    config.validate()?;
    let planned = formation(&graph, &config, pool)?;
    println!("{}", planned.picture());
    assert_eq!(planned.plan.replicas.len(), 1);
    assert_eq!(planned.plan.replicas[0].stages.len(), 2);
    Ok(())
}
