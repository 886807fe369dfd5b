// Minimises a function of the program: it gives the loss of a batch and the gradients of the model's outputs.

use phalanx::model::Builder;
use phalanx::train::{LossBatch, OwnLoss};
use phalanx::{Dataset, Training, train};

/// Nine of ten labels should lie below the output: the quantile loss.
fn ninetieth(batch: &LossBatch<'_>, gradient: &mut [f32]) -> f64 {
    let n = batch.output.len() as f32;
    let mut loss = 0.0;
    for ((out, want), gradient) in batch.output.iter().zip(batch.target.data).zip(gradient) {
        let below = want - out;
        *gradient = if below > 0.0 { -0.9 } else { 0.1 } / n;
        loss += f64::from(if below > 0.0 { 0.9 * below } else { -0.1 * below });
    }
    loss / f64::from(n)
}

#[expect(clippy::print_stdout, reason = "an example shows what it does")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let x = vec![1.0; 1000];
    let y: Vec<f32> = (0..1000).map(|i| (i * 7919 % 1000) as f32 / 1000.0).collect();
    let mut b = Builder::new("quantile");
    let one = b.input("x", &[1]);
    let out = b.linear("fc", one, 1);
    b.output(out);
    let training = Training::new(b.finish()?, Dataset::from_f32(x, &[1], y)?);
    let training = training.loss(OwnLoss::new("ninetieth", ninetieth)).learning_rate(0.01).epochs(30);
    let found = train(training)?.predict(&[1.0])?.values()[0];
    println!("nine of ten lie below {found:.2}");
    assert!((found - 0.9).abs() < 0.05, "{found}");
    Ok(())
}
