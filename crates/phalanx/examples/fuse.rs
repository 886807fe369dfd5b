// Trains a model cut into two stages on two nodes, then fuses its checkpoint into one model.

use phalanx::model::{Builder, fuse};
use phalanx::train::config::FormationConfig;
use phalanx::{Dataset, Nodes, Training, train};

#[expect(clippy::print_stdout, reason = "an example shows what it does")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = tempfile::tempdir()?;
    let run = place.path().join("staged");
    let mut b = Builder::new("two-halves");
    let x = b.input("x", &[8]);
    let hidden = b.linear("first", x, 32);
    let hidden = b.relu(hidden);
    let out = b.linear("second", hidden, 1);
    b.output(out);
    let x: Vec<f32> = (0..8 * 128).map(|i| (i * 37 % 101) as f32 / 101.0).collect();
    let y: Vec<f32> = x.chunks(8).map(|row| row.iter().sum()).collect();
    let training = Training::new(b.finish()?, Dataset::from_f32(x, &[8], y)?).epochs(4).run_dir(&run);
    let staged = FormationConfig { measure: false, ..FormationConfig::staged(2, 1) };
    let trained = train(training.configure(|config| config.formation = staged).nodes(Nodes::Local(2)))?;

    let fused = fuse(&run, None)?;
    println!("{} stages after {} steps", fused.stages, fused.step);
    assert_eq!(fused.stages, 2);
    assert_eq!(fused.model.params_hash(), trained.summary().params_hash);
    fused.model.save_onnx(&place.path().join("whole.onnx"))?;
    Ok(())
}
