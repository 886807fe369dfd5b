// Trains on the nodes of a domain. Here they are threads; usually `phalanx node` starts them on many machines.

use phalanx::jobs::builtin;
use phalanx::model::Builder;
use phalanx::nodes::{Domain, ThreadNodes, ThreadSpec, private_domain};
use phalanx::train::config::FormationConfig;
use phalanx::{Dataset, Nodes, Training, train};

#[expect(clippy::print_stdout, reason = "an example shows what it does")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = private_domain()?;
    let _nodes = ThreadNodes::start(&ThreadSpec::new(name.clone(), 2), builtin::handlers)?;

    let mut b = Builder::new("line");
    let x = b.input("x", &[1]);
    let y = b.linear("fc", x, 1);
    b.output(y);
    let x: Vec<f32> = (0..64).map(|i| i as f32 / 64.0).collect();
    let y: Vec<f32> = x.iter().map(|x| 3.0 * x + 1.0).collect();
    let training = Training::new(b.finish()?, Dataset::from_f32(x, &[1], y)?).learning_rate(0.1).epochs(80);

    // Nodes fetch the model and the samples from this process.
    let training = training.configure(|config| config.formation = FormationConfig::replicated(2));
    let trained = train(training.nodes(Nodes::Domain(Domain::named(name))))?;
    let two = trained.predict(&[2.0])?.values()[0];
    println!("3 · 2 + 1 = {two:.2}");
    assert!((two - 7.0).abs() < 0.5, "{two}");
    Ok(())
}
