// Serves a model and a function from one program, and asks both.

use phalanx::infer::{BlockingEdgeNode, InferenceNode, Serving};
use phalanx::jobs::{HandlerError, JobContext, Parcel};
use phalanx::model::{Builder, Seed, Tensor, TrainedModel};
use phalanx::nodes::{Background, Domain, NodeKind, machine, private_domain};

/// A served function gets the inputs as the payload of a job.
fn double(request: &JobContext) -> Result<Parcel, HandlerError> {
    let text = String::from_utf8_lossy(&request.payload().bytes);
    Ok(Parcel::from_bytes(format!("{text}{text}")))
}

#[expect(clippy::print_stdout, reason = "an example shows what it does")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut b = Builder::new("tiny");
    let x = b.input("x", &[4]);
    let x = b.linear("fc", x, 3);
    b.output(x);
    let graph = b.finish()?;
    let weights = graph.initialise(Seed(1));
    let serving =
        Serving::new().model("tiny", TrainedModel::new(graph, weights))?.function("double", double)?;

    let domain = Domain::named(private_domain()?);
    let background = Background::start("server")?;
    let mut config = domain.fabric("server", NodeKind::Inference);
    config.resources = machine();
    let server = background.block_on(InferenceNode::start(config, serving))?;
    let stopper = server.stopper();
    let served = background.handle().spawn(server.run());

    let edge = BlockingEdgeNode::start(domain.fabric("edge", NodeKind::Edge))?;
    let samples = Tensor::from_f32(vec![2, 4], &[0.5; 8])?;
    let outputs = edge.request_inference("tiny", Parcel::default().with_tensor("x", samples))?;
    assert_eq!(outputs.tensors[0].1.shape(), [2, 3]);
    assert_eq!(edge.request_inference("double", Parcel::from_bytes("ab"))?.bytes, "abab");
    println!("models: {:?}", edge.models().into_keys().collect::<Vec<_>>());

    drop(edge);
    stopper.drain();
    background.block_on(served)??;
    Ok(())
}
