// Trains with a run directory: records, checkpoints, the model. A run that is there goes on.

use phalanx::model::{LoadOptions, TrainedModel, zoo};
use phalanx::records::read_run;
use phalanx::train::config::Every;
use phalanx::{Dataset, Training, train};

#[expect(clippy::print_stdout, reason = "an example shows what it does")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = tempfile::tempdir()?;
    let run = place.path().join("first");
    let training = |epochs| -> Result<Training, Box<dyn std::error::Error>> {
        let x: Vec<f32> = (0..64 * 40).map(|i| (i * 31 % 97) as f32 / 97.0).collect();
        let y: Vec<usize> = (0..40).map(|i| i % 10).collect();
        let options = zoo::ZooOptions { input: Some(vec![64]), classes: Some(10) };
        let model = zoo::build("mlp", &options)?;
        let training = Training::new(model, Dataset::from_f32(x, &[64], y)?).loss("cross_entropy");
        Ok(training.epochs(epochs).configure(|config| config.train.checkpoint_every = Every::Steps(2)))
    };
    let trained = train(training(2)?.run_dir(&run))?;
    println!("{} steps in {}", trained.summary().steps, run.display());
    assert_eq!(read_run(&run)?.state.steps, trained.summary().steps);

    // The same again has nothing left to do.
    let again = train(training(2)?.run_dir(&run))?;
    assert_eq!(again.summary().params_hash, trained.summary().params_hash);

    // Anybody can load what it came to, also the `phalanx` program.
    let model = TrainedModel::load(&run, LoadOptions::default())?;
    assert_eq!(model.params_hash(), trained.summary().params_hash);
    Ok(())
}
