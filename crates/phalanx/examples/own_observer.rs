// Watches a run: events are owned values with the run and the time, which can be kept and sent to other threads.

use phalanx::model::Builder;
use phalanx::records::{Event, RunEvent};
use phalanx::{Dataset, Training, train};
use std::sync::mpsc::channel;

#[expect(clippy::print_stdout, reason = "an example shows what it does")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (send, received) = channel();
    let mut b = Builder::new("line");
    let x = b.input("x", &[1]);
    let y = b.linear("fc", x, 1);
    b.output(y);
    let data = Dataset::from_f32(vec![0.0, 1.0, 2.0, 3.0], &[1], vec![0.0f32, 2.0, 4.0, 6.0])?;
    let training = Training::new(b.finish()?, data).learning_rate(0.05).steps(50);
    train(training.observe(move |event: RunEvent| drop(send.send(event))))?;

    let events: Vec<RunEvent> = received.into_iter().collect();
    let losses: Vec<f32> = events
        .iter()
        .filter_map(|event| match &event.event {
            Event::Step(step) => Some(step.loss),
            _ => None,
        })
        .collect();
    println!("{}: from {:.2} to {:.2} in {} steps", events[0].run, losses[0], losses[49], losses.len());
    assert!(
        matches!(events[0].event, Event::Started { total_steps: Some(50), .. }) && losses[49] < losses[0]
    );
    Ok(())
}
