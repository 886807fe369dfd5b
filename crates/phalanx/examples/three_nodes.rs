use phalanx::model::Builder;
use phalanx::{Dataset, Nodes, Training, train};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Points of the plane; the class says whether a point is inside of a circle.
    let x: Vec<f32> = (0..2000).map(|i| ((i * 7919 % 2003) as f32 / 1001.5) - 1.0).collect();
    let inside = |p: &[f32]| if p[0] * p[0] + p[1] * p[1] < 0.6 { 1.0 } else { 0.0 };
    let y: Vec<f32> = x.chunks(2).map(inside).collect();

    let mut b = Builder::new("circle");
    let points = b.input("x", &[2]);
    let hidden = b.linear("fc1", points, 16);
    let hidden = b.relu(hidden);
    let out = b.linear("fc2", hidden, 1);
    b.output(out);

    let data = Dataset::from_f32(x.clone(), &[2], y.clone())?;
    let training = Training::new(b.finish()?, data).loss("bce_with_logits").learning_rate(0.02).epochs(20);
    let trained = train(training.nodes(Nodes::Local(3)))?;

    let predicted = trained.predict(&x)?;
    let right = predicted.values().iter().zip(&y).filter(|(out, y)| (**out > 0.0) == (**y > 0.5)).count();
    assert!(right > 900, "{right} of 1000");
    Ok(())
}
