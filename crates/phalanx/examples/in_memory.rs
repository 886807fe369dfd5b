// Trains a model from arrays in memory and uses it at once: no file, no run directory.

use phalanx::model::Builder;
use phalanx::{Dataset, Training, train};

#[expect(clippy::print_stdout, reason = "an example shows what it does")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Which of three numbers is the largest?
    let x: Vec<f32> = (0..3 * 600).map(|i| (i * 7919 % 1009) as f32 / 1009.0).collect();
    let largest = |row: &[f32]| (0..3).fold(0, |best, i| if row[i] > row[best] { i } else { best });
    let y: Vec<usize> = x.chunks(3).map(largest).collect();
    let data = Dataset::from_f32(x.clone(), &[3], y.clone())?;

    let mut b = Builder::new("largest");
    let input = b.input("x", &[3]);
    let out = b.linear("fc", input, 3);
    b.output(out);

    let training = Training::new(b.finish()?, data.clone()).loss("cross_entropy").learning_rate(0.05);
    let trained = train(training.epochs(20).valid(data.clone()))?;

    let evaluated = trained.evaluate(&data)?;
    let right = trained.predict(&x)?.classes().iter().zip(&y).filter(|(a, b)| a == b).count();
    println!("loss {:.3}, {right} of {} right", evaluated.loss, y.len());
    assert!(right > 550 && trained.summary().run_dir.is_none());
    Ok(())
}
